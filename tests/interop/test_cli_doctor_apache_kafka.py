"""`headrace doctor` and `headrace consume --group` with releases of Apache Kafka."""

from __future__ import annotations

import json

import pytest
from support.apache_kafka import ApacheKafka
from support.apache_kafka.releases import ApacheKafka010, ApacheKafka21, ApacheKafka39
from support.confluent import create_topic

from headrace.cli import main

RELEASES = {ApacheKafka010: "0.10.2", ApacheKafka21: "2.1 or 2.2", ApacheKafka39: "3.9"}
old_releases = pytest.mark.parametrize("old_apache_kafka", list(RELEASES), indirect=True, scope="module")


def a_topic(kafka: ApacheKafka, **configs: str) -> str:
    return create_topic(kafka.bootstrap_servers, partitions=2, config=configs)


def examine(kafka: ApacheKafka, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, list]]:
    """The exit code, and the findings by step."""
    code = main(["doctor", "-b", kafka.bootstrap_servers, "--json", *arguments])
    by_step: dict[str, list] = {}
    for finding in json.loads(capsys.readouterr().out)["findings"]:
        by_step.setdefault(finding["step"], []).append(finding)
    return code, by_step


def read(kafka: ApacheKafka, topic: str, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["consume", topic, "-b", kafka.bootstrap_servers, "--json", *arguments]) == 0
    return [json.loads(line)["value"] for line in capsys.readouterr().out.splitlines()]


def check_doctor(kafka: ApacheKafka, release: str, capsys: pytest.CaptureFixture[str], *keys: str) -> None:
    topic = a_topic(kafka, **{"message.timestamp.type": "LogAppendTime"})
    code, steps = examine(kafka, capsys, "--topic", topic, "--write", *keys)
    assert code == 0
    assert steps["ApiVersions"][0]["facts"]["kafka"] == release
    assert steps["write"][0]["status"] == "ok"
    assert abs(steps["clock"][0]["facts"]["skew_ms"]) <= steps["clock"][0]["facts"]["error_ms"] + 20
    code, steps = examine(kafka, capsys, "--topic", "nothing")
    assert code == 10


def check_group(kafka: ApacheKafka, capsys: pytest.CaptureFixture[str]) -> None:
    topic = a_topic(kafka)
    group = f"group-{topic}"
    record = ["doctor", "-b", kafka.bootstrap_servers, "--topic", topic, "--write"]
    for _ in range(2):
        assert main(record) == 0
        capsys.readouterr()
        assert len(read(kafka, topic, capsys, "--group", group)) == 1
    assert read(kafka, topic, capsys, "--group", group) == []
    assert len(read(kafka, topic, capsys, "--since", "2020-01-01")) == 2


def test_the_newest_release(apache_kafka: ApacheKafka, capsys: pytest.CaptureFixture[str]):
    check_doctor(apache_kafka, "4.1 or later", capsys)
    check_group(apache_kafka, capsys)


@old_releases
def test_older_releases(old_apache_kafka: ApacheKafka, capsys: pytest.CaptureFixture[str]):
    keys = ["--command-property", "enable.idempotence=false"] if isinstance(old_apache_kafka, ApacheKafka010) else []
    check_doctor(old_apache_kafka, RELEASES[type(old_apache_kafka)], capsys, *keys)
    if not isinstance(old_apache_kafka, ApacheKafka010):
        # `consume` needs brokers of 0.11 or later
        check_group(old_apache_kafka, capsys)
