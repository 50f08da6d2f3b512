"""The parts of the adapters that need no broker."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
from comparison.clients.client import Unavailable, ticks
from comparison.clients.confluent import Confluent
from comparison.clients.java import SUMMARY, Java
from comparison.cold import measure_cold_start
from comparison.shapes import SHAPES, Shape
from comparison.workload import Workload


def shape(name: str) -> Shape:
    return next(each for each in SHAPES if each.name == name)


class FullQueue:
    """A producer with room for three messages per call, which marks the others as confluent-kafka does."""

    def __init__(self) -> None:
        self.queued: list[bytes] = []
        self.polls = 0

    def produce_batch(self, topic: str, messages: list[dict[str, Any]]) -> int:
        assert not any("_error" in message for message in messages)
        self.queued += [message["value"] for message in messages[:3]]
        for message in messages[3:]:
            message["_error"] = "Local: Queue full"
        return len(messages[:3])

    def poll(self, timeout: float) -> int:
        self.polls += 1
        return 0


def test_messages_without_room_are_produced_again():
    client = Confluent("localhost:9092", "topic", Workload(shape("send-many"), 1000))
    client.producer = queue = FullQueue()  # pyright: ignore[reportAttributeAccessIssue]
    values = [b"%d" % number for number in range(8)]
    client.produce_list([{"value": value} for value in values])
    assert queue.queued == values
    assert queue.polls == 2


def test_every_record_becomes_due(monkeypatch: pytest.MonkeyPatch):
    now = 0.0
    monkeypatch.setattr("comparison.clients.client.time.perf_counter", lambda: now)
    dues, waits = [], []
    for due, wait_s in ticks(21, 5000):
        dues.append(due)
        waits.append(wait_s)
        now += wait_s
    assert sum(dues) == 21
    assert dues[:2] == [1, 5]
    assert waits[:-1] == pytest.approx([0.001] * (len(waits) - 1))
    assert waits[-1] == 0


def test_time_lost_is_made_up_for(monkeypatch: pytest.MonkeyPatch):
    now = 0.0
    monkeypatch.setattr("comparison.clients.client.time.perf_counter", lambda: now)
    due = ticks(100, 1000)
    assert next(due) == (1, pytest.approx(0.001))
    now = 0.0505
    assert next(due) == (50, 0.0)


def test_a_cold_start_is_measured_by_its_own_module(monkeypatch: pytest.MonkeyPatch):
    took_ms = iter([300.0, 100.0, 200.0])
    monkeypatch.setitem(sys.modules, "cold_start", types.SimpleNamespace(start_ms=lambda client: next(took_ms)))
    measured = measure_cold_start("headrace", 3)
    assert (measured.records, measured.written) == (3, 0)
    assert measured.latency_ms == pytest.approx({"p50": 200, "p99": 300, "p99.9": 300})


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (None, "benchmarks/cold_start.py: "),
        (types.SimpleNamespace(), "benchmarks/cold_start.py: cannot import name 'start_ms'"),
        (types.SimpleNamespace(start_ms={}.__getitem__), "benchmarks/cold_start.py has no java"),
    ],
)
def test_a_cold_start_that_nothing_measures_is_unavailable(
    module: object, reason: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "cold_start", module)
    with pytest.raises(Unavailable, match=reason):
        measure_cold_start("java", 1)


def test_javas_options_and_summary(tmp_path: Path):
    client = Java("localhost:9092", "topic", Workload(shape("json-lz4"), 1000))
    options = client.options(str(tmp_path))
    assert "compression.type=lz4" in options
    assert options[options.index("--throughput") + 1] == "-1"
    assert Path(options[options.index("--payload-file") + 1]).read_bytes().count(b"\n") == 999
    found = SUMMARY.search(
        "50000 records sent, 38051.750381 records/sec (3.63 MB/sec), 252.17 ms avg latency, 463.00 ms max latency, "
        "272 ms 50th, 408 ms 95th, 454 ms 99th, 462 ms 99.9th.\n"
    )
    assert found is not None
    assert found.groups() == ("50000", "38051.750381", "272", "454", "462")
