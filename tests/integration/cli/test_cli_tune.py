"""`headrace tune` against an embedded cluster."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.broker import EmbeddedCluster, Fault
from headrace.cli import main
from headrace.network.protocol.api import ApiKey
from headrace.producer import KafkaProducer
from headrace.producer.config import ProducerConfig

HEADRACE = [sys.executable, "-m", "headrace.cli"]


@pytest.fixture
def cluster():
    with EmbeddedCluster() as started:
        yield started


def topics(cluster) -> list[str]:
    return [name for name in cluster.controller.image.topics if not name.startswith("__")]


def test_far_away_it_writes_settings_that_have_more_in_flight(cluster, tmp_path, capsys):
    cluster.inject(ApiKey.PRODUCE, Fault(delay_ms=40), times=None)
    start, tuned, picture = (tmp_path / name for name in ("start.properties", "tuned.properties", "tuned.svg"))
    start.write_text("batch.size=1000\nbatch.max.size=1000\nmax.in.flight.requests.per.connection=1\nlinger.ms=0\n")
    arguments = ["tune", "-b", cluster.bootstrap_servers, "--record-size", "100", "--partitions", "1"]
    arguments += ["--command-config", str(start), "--seconds", "14", "--picture", str(picture), "--output", str(tuned)]
    assert main(arguments) == 0
    assert tuned.read_text() in capsys.readouterr().out
    config = ProducerConfig.resolve_from({"config.file": str(tuned), "bootstrap.servers": "a:1"}, {}, {})
    assert config.max_in_flight_requests_per_connection > 1 or config.batch_size > 1000
    assert picture.read_text().startswith("<svg")
    assert topics(cluster) == []


def test_values_from_a_topic_and_a_limit_of_bytes(cluster, capsys):
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for _ in range(10):
            producer.send("source", b"x" * 100)
    arguments = ["tune", "-b", cluster.bootstrap_servers, "--from-topic", "source", "--topic", "target"]
    assert main([*arguments, "--seconds", "5", "--byte-limit", "200000", "--throughput", "20000"]) == 0
    out = capsys.readouterr().out
    assert "The search ended early" in out
    assert sorted(topics(cluster)) == ["source", "target"]
    assert {record.value for record in cluster.records("target", 0)} == {b"x" * 100}
    assert sum(len(record.value) for record in cluster.records("target", 0)) <= 200_100
    assert len(cluster.records("source", 0)) == 10


def test_ctrl_c_ends_it_and_removes_its_topic(cluster):
    arguments = [*HEADRACE, "tune", "-b", cluster.bootstrap_servers, "--record-size", "10", "--seconds", "300"]
    running = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while all(seen.api_key is not ApiKey.PRODUCE for seen in cluster.requests):
        assert running.poll() is None
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert err == ""
    assert "The search ended early" in out
    assert topics(cluster) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--record-size", "1", "--picture", "x.png"], "--picture x.png must end in .svg or .html"),
        (["--payload-file", "/none"], "--payload-file /none: No such file or directory"),
        (["--from-topic", "none"], "there is no topic 'none'"),
    ],
)
def test_a_wrong_option_is_one_line(cluster, arguments, said, capsys):
    assert main(["tune", "-b", cluster.bootstrap_servers, *arguments]) == 1
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert not Path("x.png").exists()
