"""Lists as records: every form of list, slices, lists that can't be sent, and failures midway."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from support.column_bench import NOW_MS, PARTITIONS, Bench, FakeProducer

from headrace.network.cluster import TopicPartition
from headrace.network.protocol.errors import (
    BufferExhaustedError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    RowDeliveryError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from headrace.network.protocol.other_errors import BrokerNotAvailableError
from headrace.network.records.columns_cy import Columns, column_over
from headrace.network.sections import here
from headrace.producer import OffsetRange
from headrace.producer.accumulator.murmur2_cy import partition_for_key
from headrace.producer.columns import lists


def sent(*arguments: Any, **named: Any) -> list[tuple]:
    """The delivered records of one call: partition, timestamp, key, value, headers."""
    producer = FakeProducer()
    future = producer.send_many("t", *arguments, **named)
    producer.flush()
    future.get(0)
    return [record[1:] for record in producer.records()]


# --- Lists ---


def test_values_of_every_class() -> None:
    values = [b"a", None, b"", bytearray(b"b"), memoryview(b"c_d_")[::2], type("Bytes", (bytes,), {})(b"e")]
    expected = [b"a", None, b"", b"b", b"cd", b"e"]
    assert [record[3] for record in sent(values, partition=1)] == expected
    assert [record[2] for record in sent([b""] * 6, values, partition=1)] == expected


def test_keys_choose_and_partitions_come_first() -> None:
    keys = [b"k%d" % number for number in range(50)]
    found = sent([b"v"] * 50, keys, partition=[None if number % 2 else number % 3 for number in range(50)])
    assert sorted(found) == sorted(
        (partition_for_key(key, PARTITIONS) if number % 2 else number % 3, NOW_MS, key, b"v", ())
        for number, key in enumerate(keys)
    )


def test_headers_and_timestamps() -> None:
    headers = [None, [], [("a", b"1")], (("ü", None), ("b", b"")), {"c": bytearray(b"2")}.items(), iter([("d", b"3")])]
    found = sent([b"v"] * 6, None, headers, 2, [None, 0, 5, 2**63 - 1, None, 7])
    assert [record[4] for record in found] == [
        (),
        (),
        (("a", b"1"),),
        (("ü", None), ("b", b"")),
        (("c", b"2"),),
        (("d", b"3"),),
    ]
    assert [record[1] for record in found] == [NOW_MS, 0, 5, 2**63 - 1, NOW_MS, 7]
    assert [record[:2] for record in sent([b"v"] * 2, timestamp=5, partition=0)] == [(0, 5), (0, 5)]


def test_any_iterables() -> None:
    def numbers() -> Iterator[bytes]:
        yield from (b"1", b"2")

    assert sent(numbers(), {b"a": 1, b"b": 2}.keys(), map(list, ["", ""]), range(2), timestamp=(5, 6)) == [
        (0, 5, b"a", b"1", ()),
        (1, 6, b"b", b"2", ()),
    ]


def test_nothing() -> None:
    producer = FakeProducer()
    future = producer.send_many("t", [], (), iter(()), [], [])
    assert future.done()
    assert future.get(0).rows == 0


@pytest.mark.parametrize("rows", [1, 2, 7, 100])
def test_slices(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(lists, "SLICE_ROWS", rows)
    columns = (
        [b"%d" % number * (number % 5) for number in range(100)],
        [b"k%d" % (number % 7) for number in range(100)],
        [[("n", b"%d" % number)] if number % 3 else None for number in range(100)],
        [number % PARTITIONS for number in range(100)],
        list(range(100)),
    )
    assert sent(*columns) == sorted(
        (number % PARTITIONS, number, columns[1][number], columns[0][number], tuple(columns[2][number] or ()))
        for number in range(100)
    )


def test_slices_of_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "SLICE_BYTES", 10)
    values = [b"", b"12345", b"12345", b"1", b"1234567890123", b"", b"1"] * 5
    assert [record[3] for record in sent(values, partition=1)] == values
    assert [record[2] for record in sent([b""] * 35, values, partition=1)] == values


def test_a_column_over_items_ends_where_it_is_told() -> None:
    def column(*limits: int) -> list[bytes | None]:
        items = (b"a", None, b"bcd", b"", b"ef")
        bench = Bench()
        found = column_over(items, *limits)
        bench.append(Columns(found, None, None, None, memoryview(b"\0" * 8 * found.length).cast("q"), 5))
        producer = FakeProducer(bench=bench)
        producer.flush()
        assert found.total_bytes == sum(len(record[4] or b"") for record in producer.records())
        return [record[4] for record in producer.records()]

    assert column(0, 9, 100) == [b"a", None, b"bcd", b"", b"ef"]
    assert column(0, 2, 100) == [b"a", None]
    assert column(1, 9, 100) == [None, b"bcd", b"", b"ef"]
    assert column(0, 9, 4) == [b"a", None, b"bcd", b""]
    assert column(0, 9, 3) == [b"a", None]
    assert column(2, 9, 1) == [b"bcd"]
    with pytest.raises(TypeError):
        column_over(("a",), 0, 1, 1)  # type: ignore[arg-type]


# --- What can't be sent, of which nothing is ---


@pytest.mark.parametrize(
    ("arguments", "error", "row", "says"),
    [
        ({"values": 5}, IllegalArgumentError, None, "takes a list of values, or another iterable; not 5"),
        ({"keys": [b"a"]}, IllegalArgumentError, None, "there are 3 values and 1 keys"),
        ({"headers": []}, IllegalArgumentError, None, "3 values and 0 headers"),
        ({"partition": [1, 2]}, IllegalArgumentError, None, "3 values and 2 partition"),
        ({"timestamp": range(4)}, IllegalArgumentError, None, "3 values and 4 timestamp_ms"),
        ({"values": ["a", "b", "c"]}, SerializationError, 0, "the value of a record for topic 't' is str, not bytes"),
        ({"values": "abc"}, IllegalArgumentError, None, r"takes a list of values; not a single str: give \[it\]"),
        ({"values": b"abc"}, IllegalArgumentError, None, "not a single bytes"),
        ({"values": {"a": 1, "b": 2, "c": 3}}, IllegalArgumentError, None, "not a single dict"),
        ({"keys": b"abc"}, IllegalArgumentError, None, "takes a list of keys; not a single bytes"),
        ({"values": [b"", b"", 5]}, SerializationError, 2, "is int, not bytes"),
        ({"keys": [None, "a", 5]}, SerializationError, 1, "the key of a record for topic 't' is str"),
        ({"headers": [None, {"a": b""}, 5]}, SerializationError, 1, "for a dict, give its items"),
        ({"headers": [None, None, 5]}, SerializationError, 2, "must be a list of pairs, not int"),
        ({"headers": [None, [("\ud800", b"")], None]}, SerializationError, 1, "surrogates"),
        ({"partition": -1}, IllegalArgumentError, None, "a partition is a number"),
        ({"partition": True}, IllegalArgumentError, None, "a partition is a number"),
        ({"partition": [0, "1", 0]}, IllegalArgumentError, 1, "a partition is a number"),
        ({"partition": 3}, UnknownTopicOrPartitionError, None, "there is no partition 3"),
        ({"partition": [0, 2, 3]}, UnknownTopicOrPartitionError, 2, "there is no partition 3"),
        ({"partition": [0, 2**70, 3]}, UnknownTopicOrPartitionError, 1, "there is no partition"),
        ({"timestamp": 1.5}, IllegalArgumentError, None, "timestamp_ms is a whole number"),
        ({"timestamp": [0, 0, -1]}, IllegalArgumentError, 2, "timestamp_ms is a whole number"),
        ({"values": [b"", b"x" * 2**20, b""]}, MessageSizeTooLargeError, 1, "is larger than max.request.size"),
        ({"values": [b"x" * 2**19] * 3, "keys": [b"", b"", b"x" * 2**19]}, MessageSizeTooLargeError, 2, "larger"),
        ({"topic": "a b"}, InvalidTopicError, None, "can't be the name of a topic"),
    ],
)
def test_lists_that_cannot_be_sent(
    monkeypatch: pytest.MonkeyPatch, arguments: dict, error: type[Exception], row: int | None, says: str
) -> None:
    monkeypatch.setattr(lists, "SLICE_ROWS", 1)
    producer = FakeProducer()
    with pytest.raises(RowDeliveryError if row is not None else error, match=says) as caught:
        producer.send_many(**{"topic": "t", "values": [b"1", b"2", b"3"], **arguments})
    if isinstance(caught.value, RowDeliveryError):
        assert (caught.value.row, caught.value.topic, caught.value.delivered) == (row, "t", {})
        assert isinstance(caught.value.__cause__, error)
    producer.flush()
    assert producer.records() == []


def test_records_of_about_the_largest_size_are_measured_one_by_one() -> None:
    found = sent([b"x" * 2**19, b""], [b"", b"x" * 2**19], [None, [("a", b"x" * 2**18)]], partition=0)
    assert len(found) == 2


def test_where_it_might_wait_for_itself() -> None:
    producer = FakeProducer()
    with here.section, pytest.raises(IllegalStateError, match="finalizer or signal handler"):
        producer.send_many("t", [b""])
    producer.is_own_thread = True
    with pytest.raises(IllegalStateError, match="can't be called in a callback"):
        producer.send_many("t", [b""])


# --- Failures ---


def test_the_first_record_that_failed_and_what_was_delivered() -> None:
    producer = FakeProducer()
    future = producer.send_many("t", [b"%d" % number for number in range(12)], partition=[2, 1, 0] * 4)
    assert future.first_error is None

    def fate(batch: Any) -> None:
        if batch.partition == 1:
            batch.fail(BrokerNotAvailableError("gone"))
        else:
            producer.deliver(batch)

    producer.fate = fate
    producer.flush()
    with pytest.raises(RowDeliveryError) as caught:
        future.get(0)
    error = caught.value
    assert (error.row, error.topic, error.partition) == (1, "t", 1)
    assert isinstance(error.__cause__, BrokerNotAvailableError)
    delivered = {TopicPartition("t", 0): OffsetRange(0, 3, 4), TopicPartition("t", 2): OffsetRange(0, 3, 4)}
    assert error.delivered == delivered == future.metadata.offsets
    assert pickle.loads(pickle.dumps(error)).delivered == delivered


def test_memory_that_is_not_in_time_midway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "SLICE_ROWS", 10)
    producer = FakeProducer(bench=Bench(batch_size=200, memory=400))
    # slices of ten: the batches of partitions 0 and 1 take all memory
    future = producer.send_many("t", [b"x" * 8] * 25, partition=[number % 3 for number in range(25)])
    assert not future.done()
    producer.flush()
    with pytest.raises(RowDeliveryError) as caught:
        future.get(0)
    assert caught.value.row == 2
    assert isinstance(caught.value.__cause__, BufferExhaustedError)
    assert caught.value.delivered == {
        TopicPartition("t", 0): OffsetRange(0, 3, 4),
        TopicPartition("t", 1): OffsetRange(0, 2, 3),
    }
    assert future.metadata.rows == 7


def test_memory_that_is_not_in_time_in_a_later_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "SLICE_ROWS", 2)
    producer = FakeProducer(bench=Bench(batch_size=200, memory=200))
    future = producer.send_many("t", [b"x" * 60] * 10, partition=0)
    producer.flush()
    error = future.exception(0)
    assert error is not None
    rows = future.metadata.rows
    assert error.row == rows > 0
    assert error.delivered == {TopicPartition("t", 0): OffsetRange(0, rows - 1, rows)}


def test_no_memory_at_all_is_an_error_of_the_call() -> None:
    bench = Bench(batch_size=200, memory=200)
    lease = bench.pool.allocate(200, 0.0)
    with pytest.raises(BufferExhaustedError):
        FakeProducer(bench=bench).send_many("t", [b"x"] * 3)
    bench.pool.deallocate(lease)
