"""`make bench` end to end: tiny shapes against an embedded broker in its own process."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import bench
import pytest
from comparison.apache_kafka import ApacheKafkaUnavailable
from comparison.brokers import Embedded
from comparison.clients import select_clients
from comparison.process import Job, RunFailedError
from comparison.runner import Runner
from comparison.shapes import Mode, Shape, select_shapes

from headrace.network import _build

OURS = "headrace" if all(_build.compiled_modules().values()) else "headrace-interpreted"
CLIENTS = f"{OURS},confluent-kafka"


def run(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    file = tmp_path / "bench.json"
    code = bench.main(["--clients", CLIENTS, "--rounds", "1", "--json", str(file), *arguments])
    return code, json.loads(file.read_text())


@pytest.mark.parametrize("broker", ["embedded", "mock"])
def test_the_table_of_a_small_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], broker: str):
    # 2,000 records in two passes; each client writes them all, which the runner compares with the end offsets
    code, written = run(tmp_path, "--shapes", "100b", "--scale", "0.002", "--broker", broker)
    assert code == 0, capsys.readouterr()
    clients = written["shapes"]["100b"]["clients"]
    share = 0.1 if OURS == "headrace-interpreted" else 1
    assert [each["rounds"][0]["records"] for each in clients.values()] == [max(int(2000 * share), 1000), 2000]
    assert all(each["median"] > 0 and each["peak_mib"] > 1 for each in clients.values())
    assert written["shapes"]["100b"]["ratios"]["confluent-kafka"]["ratio"] > 0
    assert "100 B, 6 partitions" in capsys.readouterr().out


@pytest.mark.parametrize(
    "shape",
    [shape for shape in select_shapes([]) if shape.mode is not Mode.COLD_START],
    ids=lambda shape: shape.name,
)
def test_every_shape_runs_with_both_clients(embedded: Embedded, shape: Shape):
    clients = CLIENTS.split(",")
    if shape.mode is Mode.GATHER:
        # those for asyncio; the adapter of this project's producer wants it compiled
        clients = ["aiokafka", *(["headrace-async"] if OURS == "headrace" else [])]
    runner = Runner(embedded, select_clients(clients), rounds=1, scale=0.0001)
    result = runner.measure(shape)
    assert runner.failures == []
    for name, client in result.clients.items():
        assert client.rounds or "send_many" in client.missing, f"{name}: {client.missing}"
        assert all(bool(each.latency_ms) == shape.is_latency for each in client.rounds)


def test_java_s_producer_is_measured_by_default_only_where_there_is_java(monkeypatch: pytest.MonkeyPatch):
    def none() -> str:
        raise ApacheKafkaUnavailable("there is no Java")

    assert bench.default_clients(with_java=False) == ["headrace", "confluent-kafka"]
    monkeypatch.setattr(bench, "java_command", none)
    assert bench.default_clients(with_java=True) == ["headrace", "confluent-kafka"]


@pytest.fixture(scope="module")
def embedded():
    with Embedded() as running:
        yield running


def test_a_run_that_fails_shows_the_end_of_its_output(embedded: Embedded, monkeypatch: pytest.MonkeyPatch):
    with (
        embedded.topic(1) as topic,
        pytest.raises(RunFailedError, match=r"(?s)100b: exit code 1: .*KeyError: 'no-client'"),
    ):
        Job("no-client", "100b", topic.bootstrap_servers, topic.name, 1000).run({})


def test_missing_records_are_a_failure(embedded: Embedded, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("comparison.brokers.Topic.records", lambda topic: 7)
    runner = Runner(embedded, select_clients([OURS]), rounds=1, scale=0.001)
    assert runner.measure(select_shapes(["100b"])[0]).clients[OURS].missing == "failed"
    assert runner.failures == [f"{OURS}, 100b: the topic has 7 of 1001 records"]


def test_the_check_compares_with_what_was_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    expected = tmp_path / "expected.json"
    monkeypatch.setattr(bench, "EXPECTED", expected)
    short = [dataclasses.replace(shape, records=1000) for shape in select_shapes(["one-by-one"])]
    monkeypatch.setattr(bench, "select_shapes", lambda names: short)
    assert run(tmp_path, "--shapes", "one-by-one", "--store")[0] == 0
    stored = json.loads(expected.read_text())
    ratio = stored["embedded"][f"{OURS} / confluent-kafka"]["one-by-one"]
    assert ratio["low"] <= ratio["ratio"] <= ratio["high"]
    # so high that any further measurement has fallen, also the second one of the check
    ratio.update(ratio=1000, low=999, high=1001)
    expected.write_text(json.dumps(stored))
    assert run(tmp_path, "--check")[0] == 1
    assert "fallen: one-by-one: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shapes", "1mb"], "unknown shape '1mb'"),
        (["--clients", "sarama"], "unknown client 'sarama'"),
        (["--broker", "redpanda"], "unknown broker 'redpanda'; expected one of embedded, apache-kafka, mock"),
        (["--rounds", "0"], "must be positive"),
        (["--check", "--scale", "0.1"], "need whole runs"),
        (["--check", "--broker", "mock"], "has no ratios for the broker 'mock'; run with --store first"),
    ],
)
def test_a_command_line_that_names_something_unknown_is_refused(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(bench, "EXPECTED", tmp_path / "expected.json")
    with pytest.raises(SystemExit):
        bench.main(arguments)
    assert message in capsys.readouterr().err
