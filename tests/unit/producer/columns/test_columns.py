"""Columns of records: the same bytes as record by record, each row once and in order, with an outcome per row."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.column_bench import NOW_MS, PARTITIONS, Bench, records_of

from headrace.network.cluster import TopicPartition
from headrace.network.protocol.errors import (
    BufferExhaustedError,
    CorruptRecordError,
    InvalidRecordError,
    ProducerClosedError,
    RowDeliveryError,
)
from headrace.network.records.builder_cy import RecordBatchBuilder, encode_header_lists
from headrace.network.records.columns_cy import BytesColumn, Columns, ListColumn, column_of
from headrace.producer import OffsetRange
from headrace.producer.accumulator.batch_split import split_batch
from headrace.producer.accumulator.murmur2_cy import partition_for_key
from headrace.producer.columns.rows_cy import Rows, group
from headrace.producer.columns.rows_future import RowsFuture, RowsOfTopic


def columns_of(records: list[dict[str, Any]]) -> Columns:
    """Columns of records that have value, key, headers, timestamp and partition, each of which may be None."""
    offsets, keys, values = array("q", [0]), [], []
    for record in records:
        for name, value in record.get("headers") or ():
            keys.append(name.encode())
            values.append(value)
        offsets.append(len(keys))
    return Columns(
        column_of([record["value"] for record in records]),
        column_of([record["key"] for record in records]),
        encode_header_lists(ListColumn(offsets, None, 0, len(keys)), column_of(keys), column_of(values)),
        array("q", [-1 if record["timestamp"] is None else record["timestamp"] for record in records]),
        array("q", [-1 if record["partition"] is None else record["partition"] for record in records]),
        NOW_MS,
    )


def as_stored(record: dict[str, Any]) -> tuple:
    timestamp = NOW_MS if record["timestamp"] is None else record["timestamp"]
    return (timestamp, record["key"], record["value"], tuple(record.get("headers") or ()))


maybe_bytes = st.none() | st.binary(max_size=70)
records = st.fixed_dictionaries(
    {
        "value": maybe_bytes,
        "key": maybe_bytes,
        "headers": st.none() | st.lists(st.tuples(st.text(max_size=4), maybe_bytes), max_size=3),
        "timestamp": st.none() | st.integers(0, 2**45),
        "partition": st.none() | st.integers(0, PARTITIONS - 1),
    }
)


@given(st.lists(records, max_size=60))
def test_each_row_is_encoded_once_in_its_partition_in_order_and_as_the_builder_does(rows: list[dict[str, Any]]) -> None:
    bench = Bench()
    bench.append(columns_of(rows))
    batches = bench.batches()
    placed: dict[int, list[tuple]] = {}
    for batch in batches:
        found = records_of(batch)
        placed.setdefault(batch.partition, []).extend(found)
        by_hand = RecordBatchBuilder(bytearray(len(batch.builder.buffer)))
        for timestamp, key, value, headers in found:
            assert by_hand.append(timestamp, key, value, headers)
        assert b"".join(by_hand.finish()) == b"".join(batch.builder.finish())
    free = []
    expected: dict[int, list[tuple]] = {}
    for record in rows:
        partition = record["partition"]
        if partition is None and record["key"] is not None:
            partition = partition_for_key(record["key"], PARTITIONS)
        if partition is None:
            free.append(as_stored(record))
        else:
            expected.setdefault(partition, []).append(as_stored(record))
    # rows without a partition may go anywhere, but in order, and before this call's other rows
    for partition, found in placed.items():
        own = expected.pop(partition, [])
        assert found[len(found) - len(own) :] == own
        rest = found[: len(found) - len(own)]
        assert [each for each in free if each in rest][: len(rest)] == rest or len(set(free)) < len(free)
        for each in rest:
            free.remove(each)
    assert not free
    assert not expected


def test_a_second_call_fills_the_batch_that_the_first_one_left_open() -> None:
    bench = Bench()
    one = columns_of([{"value": b"a", "key": b"k", "timestamp": 1, "partition": 0}])
    bench.append(one)
    bench.append(one)
    assert [len(records_of(batch)) for batch in bench.batches()] == [2]


def test_a_record_larger_than_batch_size_has_a_batch_of_its_own_that_need_not_linger() -> None:
    bench = Bench(batch_size=100)
    bench.append(
        columns_of([{"value": b"x" * 500, "key": None, "timestamp": 1, "partition": 1}] * 2),
    )
    first, second = bench.batches()
    assert first.closed
    assert second.closed
    assert [len(records_of(each)) for each in (first, second)] == [1, 1]


def test_a_full_batch_is_closed_so_that_it_is_sent_without_lingering() -> None:
    bench = Bench(batch_size=200)
    bench.append(columns_of([{"value": b"x" * 60, "key": None, "timestamp": 1, "partition": 1}] * 3))
    first, _ = bench.batches()
    assert first.closed


def test_keys_do_not_choose_where_they_are_to_be_ignored() -> None:
    bench = Bench(batch_size=100_000)
    rows = [{"value": b"v", "key": b"k%d" % number, "timestamp": 1, "partition": None} for number in range(50)]
    bench.append(columns_of(rows), keys_choose=False)
    assert len(bench.batches()) == 1


def test_a_subset_sends_only_its_rows() -> None:
    bench = Bench()
    rows = [{"value": b"%d" % number, "key": None, "timestamp": 1, "partition": 2} for number in range(6)]
    bench.append(columns_of(rows), subset=array("q", [1, 4, 5]))
    (batch,) = bench.batches()
    assert [value for _, _, value, _ in records_of(batch)] == [b"1", b"4", b"5"]


def test_the_future_tells_the_offset_ranges_of_all_batches() -> None:
    bench = Bench(batch_size=200)
    rows = [{"value": b"x" * 60, "key": None, "timestamp": 1, "partition": number % 2} for number in range(8)]
    future = bench.append(columns_of(rows))
    offsets = {0: 100, 1: 500}
    for batch in bench.batches():
        assert not future.done()
        count = batch.count
        batch.complete(offsets[batch.partition])
        offsets[batch.partition] += count
    delivered = future.get(0)
    assert delivered.rows == 8
    assert delivered.offsets == {
        TopicPartition("t", 0): OffsetRange(100, 103, 4),
        TopicPartition("t", 1): OffsetRange(500, 503, 4),
    }


def test_the_first_failed_row_is_told_whichever_batch_fails_first() -> None:
    bench = Bench(batch_size=200)
    rows = [{"value": b"x" * 60, "key": None, "timestamp": 1, "partition": number % 2} for number in range(8)]
    future = bench.append(columns_of(rows))
    for batch in reversed(bench.batches()):
        batch.fail(CorruptRecordError("no"))
    with pytest.raises(RowDeliveryError, match="row 0 for t-0 was not delivered: CorruptRecordError: no") as caught:
        future.get(0)
    assert (caught.value.row, caught.value.topic, caught.value.partition) == (0, "t", 0)
    assert isinstance(caught.value.__cause__, CorruptRecordError)


def test_a_record_that_the_broker_refused_is_the_row_that_is_told() -> None:
    bench = Bench(batch_size=10_000)
    rows = [{"value": b"x", "key": None, "timestamp": 1, "partition": number % 2} for number in range(8)]
    future = bench.append(columns_of(rows))
    for batch in bench.batches():
        if batch.partition == 1:
            batch.fail(InvalidRecordError("the batch"), {2: InvalidRecordError("its timestamp")})
        else:
            batch.complete(0)
    error = future.exception(0)
    assert error is not None
    # the third of rows 1, 3, 5, 7
    assert error.row == 5
    assert str(error.__cause__) == "its timestamp"
    assert future.metadata.rows == 4


def test_a_split_batch_tells_the_fate_of_each_part() -> None:
    bench = Bench(batch_size=10_000)
    rows = [{"value": b"x" * 60, "key": None, "timestamp": 1, "partition": 0} for _ in range(5)]
    first = bench.append(columns_of(rows[:2]))
    second = bench.append(columns_of(rows[2:]))
    (batch,) = bench.batches()
    batch.records = batch.builder.finish()
    children = split_batch(batch)
    batch.split_into(children)
    parts = [child for _, child in children]
    assert [part.count for part in parts] == [3, 2]
    parts[0].complete(10)
    assert first.get(0).offsets == {TopicPartition("t", 0): OffsetRange(10, 11, 2)}
    assert not second.done()
    parts[1].fail(CorruptRecordError("no"))
    error = second.exception(0)
    assert error is not None
    # rows 1 and 2 of the second call were in the second part
    assert error.row == 1
    assert second.metadata.offsets == {TopicPartition("t", 0): OffsetRange(12, 12, 1)}


def test_where_memory_ends_the_place_is_told_and_nothing_leaks() -> None:
    bench = Bench(batch_size=200, memory=400)
    rows = [{"value": b"x" * 60, "key": None, "timestamp": 1, "partition": 0} for _ in range(10)]
    columns = columns_of(rows)
    prepared = Rows(columns, None, PARTITIONS, True)
    target = RowsOfTopic(RowsFuture(10), prepared.order_array, 7)
    with pytest.raises(BufferExhaustedError):
        prepared.append_to(bench.accumulator, bench.queues, target, 0.0)
    held = bench.batches()
    appended = sum(batch.count for batch in held)
    assert target.row_at(target.place) == 7 + appended
    for batch in held:
        batch.fail(BufferExhaustedError("test"))
        bench.accumulator.release(batch)
    assert bench.pool.available_bytes == 400


def test_a_closed_producer_takes_no_rows_and_keeps_no_memory() -> None:
    bench = Bench()
    bench.accumulator.close()
    before = bench.pool.available_bytes
    with pytest.raises(ProducerClosedError):
        bench.append(columns_of([{"value": b"x", "key": None, "timestamp": 1, "partition": 0}]))
    assert bench.pool.available_bytes == before


@given(st.lists(st.integers(0, 4), max_size=50))
def test_grouping_is_stable_and_complete(indices: list[int]) -> None:
    order, ends = group(array("q", indices), 5)
    found = [list(order[ends[number] : ends[number + 1]]) for number in range(5)]
    assert found == [[row for row, index in enumerate(indices) if index == number] for number in range(5)]


def test_a_column_of_fixed_width_and_one_of_nulls() -> None:
    fixed = BytesColumn(b"aabbccdd", None, 0, 2, bytes([0b1011]), 1, 3)
    columns = Columns(fixed, None, None, None, None, NOW_MS)
    bench = Bench()
    bench.append(columns)
    bench.append(Columns(BytesColumn(b"", None, 0, -1, None, 0, 2), None, None, None, None, NOW_MS))
    values = sorted((value or b"null") for batch in bench.batches() for _, _, value, _ in records_of(batch))
    assert values == [b"bb", b"dd", b"null", b"null", b"null"]


@pytest.mark.parametrize(
    "values", [[], [None], ["text", None, ""], ["grün", None, "", "x"], [None, b"", b"\xff"], ["x"] * 9 + [None]]
)
def test_a_column_of_strings_is_one_of_their_bytes(values: list[Any]) -> None:
    bench = Bench()
    bench.append(Columns(column_of(values), None, None, None, None, NOW_MS))
    taken = [value for batch in bench.batches() for _, _, value, _ in records_of(batch)]
    assert taken == [value.encode() if isinstance(value, str) else value for value in values]


@pytest.mark.parametrize(
    "values", [[b"x", "text"], ["text", b"x"], [bytearray(b"x")], [memoryview(b"abcd")], [["x"]], [1]]
)
def test_a_column_holds_bytes_or_strings_only(values: list[Any]) -> None:
    with pytest.raises(TypeError):
        column_of(values)


def test_half_a_character_is_no_text() -> None:
    with pytest.raises(UnicodeEncodeError):
        column_of(["\ud800"])


def test_limits_name_the_row() -> None:
    columns = columns_of(
        [
            {"value": b"x", "key": None, "timestamp": 1, "partition": None},
            {"value": b"x" * 200, "key": b"k", "timestamp": 1, "partition": 5},
        ]
    )
    assert columns.first_above(columns.record_bytes(1)) == -1
    assert columns.first_above(columns.record_bytes(1) - 1) == 1
    assert columns.last_partition(None) == 5
    assert columns.first_partition_from(5, None) == 1
    assert columns.first_partition_from(6, None) == -1
    assert columns.first_partition_from(5, array("q", [0])) == -1
