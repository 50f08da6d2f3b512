"""Waiting produce and fetch requests: their conditions, and their responses when they expire.

`Replicas` is a fake with the few methods that these operations call; the purgatory and its timer are real.
"""

from __future__ import annotations

import uuid
from typing import Any

from support.timers import manual_timer

from headrace.broker.log.log import AppendInfo
from headrace.broker.purgatory import DelayedOperation, DelayedOperationPurgatory
from headrace.broker.replica.delayed_fetch import DelayedFetch
from headrace.broker.replica.delayed_produce import DelayedProduce, ProduceResult
from headrace.broker.replica.fetch import FetchEntry, FetchParams, FetchResult
from headrace.network.clock import MockClock
from headrace.network.protocol.errors import (
    BrokerResponseError,
    CorruptRecordError,
    NotEnoughReplicasAfterAppendError,
    NotLeaderForPartitionError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from headrace.network.protocol.other_errors import OffsetOutOfRangeError
from headrace.network.sockets.transport import FileRegion

KEYS = [("topic", 0), ("topic", 1), ("other", 0)]


class Position:
    def __init__(self, segment_base_offset: int) -> None:
        self.segment_base_offset = segment_base_offset


class FakePartition:
    """A partition with a high watermark, a number of readable bytes, and an error to raise."""

    def __init__(self) -> None:
        self.error: BrokerResponseError | None = None
        self.high_watermark = 0
        self.readable_bytes = 0
        self.segment_of_fetch = 0
        self.log = self
        self.end = Position(0)

    def is_replicated(self, required_offset: int) -> bool:
        if self.error is not None:
            raise self.error
        return self.high_watermark >= required_offset


class FakeRead:
    def __init__(self, partition: FakePartition, max_bytes: int) -> None:
        self.size_bytes = min(partition.readable_bytes, max_bytes)
        self.region = FileRegion(0, 0, self.size_bytes) if self.size_bytes else None
        self.start = Position(partition.segment_of_fetch)


class Bench:
    def __init__(self) -> None:
        self.partitions = {key: FakePartition() for key in KEYS}
        self.clock = MockClock()
        self.timer = manual_timer(self.clock)
        self.purgatory: DelayedOperationPurgatory[DelayedOperation] = DelayedOperationPurgatory("Test", self.timer)
        self.answers: list[Any] = []

    # --- The part of `Replicas` that the operations call ---

    def partition(self, key: tuple[str, int]) -> FakePartition:
        if key not in self.partitions:
            raise UnknownTopicOrPartitionError(f"there is no partition {key}")
        return self.partitions[key]

    def read_one(self, params: FetchParams, entry: FetchEntry, partition: FakePartition, max_bytes: int) -> FakeRead:
        if partition.error is not None:
            raise partition.error
        return FakeRead(partition, max_bytes)

    def read(self, params: FetchParams, entries: list[FetchEntry]) -> list[FetchResult]:
        results = []
        for entry in entries:
            partition = self.partitions.get(entry.key)
            region = FakeRead(partition, entry.max_bytes).region if partition is not None else None
            results.append(FetchResult(entry, region=region))
        return results

    # --- For the tests ---

    def produce(self, required: dict[tuple[str, int], int | BrokerResponseError]) -> bool:
        results = {
            key: ProduceResult(None, offset)
            if isinstance(offset, BrokerResponseError)
            else ProduceResult(AppendInfo(offset - 1, offset - 1, -1, 0))
            for key, offset in required.items()
        }
        operation = DelayedProduce(1_000, results, self, self.answers.append)  # type: ignore[arg-type]
        return self.purgatory.try_complete_else_watch(operation, list(results))

    def fetch(self, *, min_bytes: int, keys: list[tuple[str, int]] = KEYS, max_bytes: int = 1_000) -> bool:
        params = FetchParams(-1, 500, min_bytes, 1_000_000, committed_only=True)
        entries = [FetchEntry(key, uuid.UUID(int=0), 0, max_bytes) for key in keys]
        operation = DelayedFetch(params, self.read(params, entries), self, self.answers.append)  # type: ignore[arg-type]
        return self.purgatory.try_complete_else_watch(operation, keys)

    def change(self, key: tuple[str, int], **fields: object) -> int:
        for name, value in fields.items():
            setattr(self.partitions[key], name, value)
        return self.purgatory.check_and_complete(key)

    def step(self, duration_ms: float) -> None:
        self.clock.advance(duration_ms)
        self.timer.advance_clock(0)

    def errors(self) -> list[type[BrokerResponseError] | None]:
        (answer,) = self.answers
        return [result.error and type(result.error) for result in answer.values()]

    def sizes(self) -> list[int]:
        (answer,) = self.answers
        return [result.size_bytes for result in answer]


def test_a_produce_is_answered_when_every_partition_is_replicated():
    bench = Bench()
    assert not bench.produce({KEYS[0]: 5, KEYS[1]: 3})
    assert bench.change(KEYS[0], high_watermark=4) == 0
    assert bench.change(KEYS[1], high_watermark=3) == 0
    assert bench.answers == []
    assert bench.change(KEYS[0], high_watermark=5) == 1
    assert bench.errors() == [None, None]
    bench.step(5_000)
    assert len(bench.answers) == 1


def test_a_produce_that_is_replicated_already_does_not_wait():
    bench = Bench()
    bench.partitions[KEYS[0]].high_watermark = 7
    assert bench.produce({KEYS[0]: 7})
    assert bench.errors() == [None]


def test_a_partition_that_failed_to_append_is_not_waited_for():
    bench = Bench()
    assert not bench.produce({KEYS[0]: CorruptRecordError("bad CRC"), KEYS[1]: 3})
    assert bench.change(KEYS[1], high_watermark=3) == 1
    assert bench.errors() == [CorruptRecordError, None]


def test_a_produce_keeps_waiting_for_the_others_when_a_partition_is_lost():
    bench = Bench()
    assert not bench.produce({KEYS[0]: 5, KEYS[1]: 3, KEYS[2]: 1})
    assert bench.change(KEYS[0], error=NotLeaderForPartitionError("moved")) == 0
    del bench.partitions[KEYS[2]]
    assert bench.purgatory.check_and_complete(KEYS[2]) == 0
    assert bench.answers == []
    assert bench.change(KEYS[1], error=NotEnoughReplicasAfterAppendError("one left"), high_watermark=3) == 1
    assert bench.errors() == [
        NotLeaderForPartitionError,
        NotEnoughReplicasAfterAppendError,
        UnknownTopicOrPartitionError,
    ]


def test_what_was_decided_for_a_partition_stays_decided():
    bench = Bench()
    assert not bench.produce({KEYS[0]: 5, KEYS[1]: 3})
    assert bench.change(KEYS[0], high_watermark=5) == 0
    assert bench.change(KEYS[0], error=NotLeaderForPartitionError("moved")) == 0
    assert bench.change(KEYS[1], high_watermark=3) == 1
    assert bench.errors() == [None, None]


def test_a_produce_whose_time_is_over_answers_for_each_partition():
    bench = Bench()
    assert not bench.produce({KEYS[0]: 5, KEYS[1]: 3, KEYS[2]: CorruptRecordError("bad CRC")})
    assert bench.change(KEYS[0], high_watermark=5) == 0
    bench.step(999)
    assert bench.answers == []
    bench.step(1)
    assert bench.errors() == [None, RequestTimedOutError, CorruptRecordError]
    assert bench.change(KEYS[1], high_watermark=3) == 0
    assert len(bench.answers) == 1
    assert bench.purgatory.num_delayed == 0


def test_a_fetch_is_answered_when_its_partitions_have_enough_together():
    bench = Bench()
    assert not bench.fetch(min_bytes=100)
    assert bench.change(KEYS[0], readable_bytes=60) == 0
    assert bench.change(KEYS[1], readable_bytes=39) == 0
    assert bench.change(KEYS[2], readable_bytes=1) == 1
    assert bench.sizes() == [60, 39, 1]


def test_a_partition_counts_for_as_much_as_the_fetch_takes_of_it():
    bench = Bench()
    assert not bench.fetch(min_bytes=100, max_bytes=50)
    assert bench.change(KEYS[0], readable_bytes=5_000) == 0
    assert bench.change(KEYS[2], readable_bytes=5_000) == 1
    assert bench.sizes() == [50, 0, 50]


def test_a_fetch_below_the_active_segment_does_not_wait_for_more():
    bench = Bench()
    bench.partitions[KEYS[1]].end = Position(10)
    assert not bench.fetch(min_bytes=100, keys=KEYS[:1])
    assert not bench.fetch(min_bytes=100, keys=KEYS[1:2])
    assert bench.change(KEYS[1], readable_bytes=20) == 1
    assert bench.sizes() == [20]


def test_a_fetch_is_answered_when_a_partition_has_another_leader_or_is_cut_below_it():
    for error in (NotLeaderForPartitionError("moved"), OffsetOutOfRangeError("truncated")):
        bench = Bench()
        assert not bench.fetch(min_bytes=100)
        assert bench.change(KEYS[1], error=error) == 1
        assert len(bench.answers) == 1


def test_a_fetch_is_answered_when_a_partition_is_unknown():
    bench = Bench()
    assert not bench.fetch(min_bytes=100)
    del bench.partitions[KEYS[1]]
    assert bench.purgatory.check_and_complete(KEYS[1]) == 1
    assert bench.sizes() == [0, 0, 0]


def test_a_fetch_whose_time_is_over_gets_what_there_is():
    bench = Bench()
    assert not bench.fetch(min_bytes=100)
    assert bench.change(KEYS[0], readable_bytes=60) == 0
    bench.step(499)
    assert bench.answers == []
    bench.step(1)
    assert bench.sizes() == [60, 0, 0]
    assert bench.change(KEYS[1], readable_bytes=60) == 0
    assert len(bench.answers) == 1
