"""Arrow data of every kind as records: types, slices, nulls, headers, topics, times, and data that can't be sent."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import logging
import os
import threading
from array import array
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.column_bench import NOW_MS, PARTITIONS, Bench, FakeProducer

from headrace.network.cluster import TopicPartition
from headrace.network.protocol.errors import (
    EncodeError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidTopicError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    RowDeliveryError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from headrace.network.protocol.other_errors import BrokerNotAvailableError
from headrace.network.records.builder_cy import encode_headers
from headrace.network.records.columns_cy import BytesColumn, Columns, ListColumn
from headrace.network.sections import here
from headrace.producer import OffsetRange, ProducerConfig
from headrace.producer.accumulator.murmur2_cy import partition_for_key
from headrace.producer.columns.rows_future import RowsFuture

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def sent(data: Any, topic: str | None = "t", **options: Any) -> list[tuple]:
    """The delivered records of one call: topic, partition, then timestamp, key, value, headers."""
    producer = FakeProducer(**options)
    producer.send_arrow(topic, data)
    producer.flush()
    return producer.records()


def values_of(column: Any, role: str = "value") -> list[bytes | None]:
    """The values or keys that a column becomes, in its order."""
    columns = {"value": pa.nulls(len(column)), "partition": pa.array([0] * len(column)), role: column}
    found = sent(pa.RecordBatch.from_pydict(columns))
    return [record[4 if role == "value" else 3] for record in found]


def headers_of(column: Any) -> list[tuple]:
    batch = pa.RecordBatch.from_arrays(
        [pa.nulls(len(column)), pa.array([0] * len(column)), column], names=["value", "partition", "headers"]
    )
    return [record[5] for record in sent(batch)]


# --- Values and keys ---

TEXTS = ["", "a", None, "water " * 20, "ü", None, "headrace"]
BYTES = [None if text is None else text.encode() for text in TEXTS]
KINDS = {
    "binary": pa.array(BYTES, pa.binary()),
    "string": pa.array(TEXTS, pa.string()),
    "large binary": pa.array(BYTES, pa.large_binary()),
    "large string": pa.array(TEXTS, pa.large_string()),
    "binary view": pa.array(BYTES, pa.binary_view()),
    "string view": pa.array(TEXTS, pa.string_view()),
    "dictionary": pa.array(TEXTS, pa.string()).dictionary_encode(),
    "dictionary of binary": pa.array(BYTES, pa.large_binary()).dictionary_encode(),
    "dictionary with a null in it": pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2, 3, 4, None, 5], pa.int8()), pa.array(["", "a", None, "water " * 20, "ü", "headrace"])
    ),
}


@pytest.mark.parametrize("role", ["value", "key"])
@pytest.mark.parametrize("kind", KINDS)
def test_bytes_and_strings_of_every_kind_and_every_slice_of_them(kind: str, role: str) -> None:
    column = KINDS[kind]
    for start in range(len(TEXTS) + 1):
        for end in range(start, len(TEXTS) + 1):
            assert values_of(column[start:end], role) == BYTES[start:end]


@pytest.mark.parametrize("role", ["value", "key"])
def test_binary_of_fixed_size_and_every_slice_of_it(role: str) -> None:
    values = [b"aa", None, b"bb", b"\0\0", None]
    column = pa.array(values, pa.binary(2))
    for start in range(6):
        for end in range(start, 6):
            assert values_of(column[start:end], role) == values[start:end]
    assert values_of(pa.array([b"", None, b""], pa.binary(0)), role) == [b"", None, b""]


def test_slices_of_long_columns_whose_bitmap_begins_within_a_byte() -> None:
    values = [None if row % 3 == 1 else b"%d" % row for row in range(300)]
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        column = pa.array(values, kind)
        for start in (1, 7, 8, 9, 63, 64, 65, 255):
            assert values_of(column[start:]) == values[start:]
            assert values_of(column[start:][3:-2]) == values[start + 3 : -2]


def test_a_column_of_nothing_but_nulls() -> None:
    for kind in (pa.null(), pa.binary(), pa.string_view(), pa.binary(4), pa.dictionary(pa.int8(), pa.string())):
        assert values_of(pa.nulls(3, kind)) == [None] * 3


def test_nothing_but_empty_strings() -> None:
    assert values_of(pa.array(["", "", ""])) == [b""] * 3


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2]),
        pa.array([1.5]),
        pa.array([True]),
        pa.array([[b"x"]]),
        pa.array([{"a": 1}]),
        pa.array([decimal.Decimal("1.5")]),
        pa.array([datetime.date(2020, 1, 1)]),
        pa.array([1, 2]).dictionary_encode(),
    ],
)
@pytest.mark.parametrize("role", ["value", "key"])
def test_other_types_are_told_by_the_column_and_what_to_do(column: Any, role: str) -> None:
    with pytest.raises(SerializationError, match=rf"the column '{role}' is of type .*; a record takes binary or str"):
        values_of(column, role)


@pytest.mark.parametrize(
    ("kind", "offsets"),
    [
        (pa.binary(), array("i", [0, 1000, 4, 6])),
        (pa.binary(), array("i", [0, 4, 1, 6])),
        (pa.binary(), array("i", [0, -4, 1, 6])),
        (pa.large_binary(), array("q", [0, 2**62, 4, 6])),
        (pa.large_string(), array("q", [0, 4, -(2**62), 6])),
    ],
)
def test_offsets_that_lead_out_of_the_data_are_refused_before_anything_is_read(kind: Any, offsets: array) -> None:
    column = pa.Array.from_buffers(kind, 3, [None, pa.py_buffer(offsets), pa.py_buffer(b"abcdef")])
    with pytest.raises(
        SerializationError, match=r"'value' is not valid Arrow data: the offsets of value . of a column"
    ):
        values_of(column)


def test_offsets_of_nulls_are_nobodys_business() -> None:
    offsets = pa.py_buffer(array("i", [0, 2, 1, 6]))
    column = pa.Array.from_buffers(pa.binary(), 3, [pa.py_buffer(b"\x05"), offsets, pa.py_buffer(b"abcdef")])
    assert values_of(column) == [b"ab", None, b"bcdef"]


def test_buffers_shorter_than_the_column_are_refused() -> None:
    for width, offsets in ((4, array("i", [0, 1])), (8, array("q", [0, 1]))):
        with pytest.raises(EncodeError, match="2 offsets are too few for a column of 2 values"):
            BytesColumn(b"ab", offsets, width, 0, None, 0, 2)
    with pytest.raises(EncodeError, match="bitmap of a column of 9 values is too short"):
        BytesColumn(bytes(9), None, 0, 1, b"\xff", 0, 9)
    with pytest.raises(EncodeError, match="value 2 of a column lead out of its 5 bytes"):
        BytesColumn(bytes(5), None, 0, 2, None, 0, 3)
    with pytest.raises(EncodeError, match="list 1 of a column lead out of its 3 items"):
        ListColumn(array("q", [0, 1, 4]), None, 0, 3)
    with pytest.raises(EncodeError, match="list 0 of a column lead out of its 3 items"):
        ListColumn(array("q", [-1, 1, 2]), None, 0, 3)
    two, three = (BytesColumn(bytes(4), None, 0, 1, None, 0, rows) for rows in (2, 3))
    with pytest.raises(EncodeError, match=r"columns of records have the same length, not \[2, 3\]"):
        Columns(two, three, None, None, None, 0)
    with pytest.raises(EncodeError, match="same length"):
        Columns(two, None, None, array("q", [1]), None, 0)


# --- Headers ---

PAIRS = [
    [("a", b"1"), ("b", None)],
    None,
    [],
    [("", b"")],
    [("long", b"x" * 200)] * 70,
    [("ü", b"\xff")],
]


def as_structs(rows: list, key: Any = None, value: Any = None, of: Callable = pa.list_) -> Any:
    kind = of(pa.struct([("key", key or pa.string()), ("value", value or pa.binary())]))
    return pa.array([None if row is None else [{"key": k, "value": v} for k, v in row] for row in rows], kind)


@pytest.mark.parametrize(
    "column",
    [
        as_structs(PAIRS),
        as_structs(PAIRS, of=pa.large_list),
        as_structs(PAIRS, pa.string_view(), pa.binary_view()),
        pa.array(PAIRS, pa.map_(pa.string(), pa.binary())),
        pa.array(
            [None if row is None else [{"value": v, "key": k} for k, v in row] for row in PAIRS],
            pa.list_(pa.struct([("value", pa.large_binary()), ("other", pa.int8()), ("key", pa.large_string())])),
        ),
    ],
    ids=["list", "large list", "views", "map", "struct in another order"],
)
def test_headers_of_every_kind_and_every_slice_of_them(column: Any) -> None:
    expected = [tuple(row or ()) for row in PAIRS]
    for start in range(len(PAIRS) + 1):
        for end in range(start, len(PAIRS) + 1):
            assert headers_of(column[start:end]) == expected[start:end]


def test_header_keys_may_be_binary_and_values_strings() -> None:
    assert headers_of(as_structs([[(b"k", "v")]], pa.binary(), pa.string())) == [(("k", b"v"),)]
    assert headers_of(pa.nulls(2)) == [(), ()]


def test_headers_in_structs_that_are_a_slice_themselves() -> None:
    items = as_structs(PAIRS).flatten()[1:5]
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 1, 4], pa.int32()), items)
    expected = [pair for row in PAIRS if row for pair in row][1:5]
    assert headers_of(lists) == [tuple(expected[:1]), (), tuple(expected[1:4])]
    assert headers_of(lists[1:]) == [(), tuple(expected[1:4])]


@pytest.mark.parametrize("of", ["keys", "structs"])
def test_a_null_among_headers_is_told_with_its_row_and_one_that_no_row_has_is_not(of: str) -> None:
    good = [{"key": "a", "value": b"1"}]
    bad = [{"key": "a", "value": b"1"}, {"key": None, "value": b"1"} if of == "keys" else None]
    column = pa.array([good, bad, good, None, bad], HEADERS)
    problem = "a header without a key" if of == "keys" else "a null among the headers of a row"
    for part, row in ((column, 1), (column[1:], 0), (column[2:], 2)):
        with pytest.raises(RowDeliveryError, match=f"row {row} was not delivered.*the column 'headers' has {problem}"):
            headers_of(part)
    assert headers_of(column[2:4]) == [(("a", b"1"),), ()]
    # a null list hides its elements
    hidden = pa.ListArray.from_arrays(pa.array([0, 1, 3, 4]), column.values[:4], mask=pa.array([False, True, False]))
    assert headers_of(hidden) == [(("a", b"1"),), (), (("a", b"1"),)]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a"]),
        pa.array([["a"]]),
        pa.array([[{"key": "a"}]]),
        pa.array([{"key": "a", "value": b"1"}]),
        pa.array([[{"name": "a", "value": b"1"}]]),
    ],
)
def test_headers_of_another_shape(column: Any) -> None:
    with pytest.raises(
        SerializationError, match=r"the column 'headers' is of type .*; headers are an array of structs"
    ):
        headers_of(column)


def test_headers_of_wrong_types_name_the_field() -> None:
    with pytest.raises(SerializationError, match=r"the column 'headers\.value' is of type int64"):
        headers_of(pa.array([[{"key": "a", "value": 1}]]))
    with pytest.raises(SerializationError, match=r"the column 'headers\.key' is of type int64"):
        headers_of(pa.array([[{"key": 1, "value": b"a"}]]))


# --- Timestamps and partitions ---


def timestamps_of(column: Any) -> list[int]:
    batch = {"value": pa.nulls(len(column)), "partition": pa.array([0] * len(column)), "timestamp": column}
    return [record[2] for record in sent(pa.RecordBatch.from_pydict(batch))]


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin", "+05:30"])
@pytest.mark.parametrize(("unit", "per_ms"), [("s", 0.001), ("ms", 1), ("us", 1000), ("ns", 1_000_000)])
def test_timestamps_of_every_unit_and_zone_become_milliseconds(unit: str, per_ms: float, zone: str | None) -> None:
    ms = 1_600_000_000_000
    column = pa.array([None, int(ms * per_ms), 0], pa.timestamp(unit, zone))
    assert timestamps_of(column) == [NOW_MS, ms, 0]
    assert timestamps_of(column[1:]) == [ms, 0]


def test_what_is_finer_than_a_millisecond_is_cut_off() -> None:
    assert timestamps_of(pa.array([1_999_999], pa.timestamp("ns"))) == [1]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64()])
def test_whole_numbers_are_milliseconds(kind: Any) -> None:
    assert timestamps_of(pa.array([5, None, 0], kind)) == [5, NOW_MS, 0]


def test_the_highest_timestamp() -> None:
    assert timestamps_of(pa.array([0, 2**63 - 1])) == [0, 2**63 - 1]


@pytest.mark.parametrize(
    "column",
    [pa.array([2**63], pa.uint64()), pa.array([2**62], pa.timestamp("s")), pa.array([1, 2**64 - 1], pa.uint64())],
)
def test_a_timestamp_beyond_64_bits(column: Any) -> None:
    with pytest.raises(SerializationError, match=r"the column 'timestamp' holds a (timestamp|number) that is out of"):
        timestamps_of(column)


def test_a_timestamp_before_1970_is_told_with_its_row() -> None:
    for column in (pa.array([None, 1, -1]), pa.array([1, 2, -86_400_000], pa.timestamp("ms"))):
        with pytest.raises(
            RowDeliveryError, match=r"row 2 was not delivered: .*'timestamp' holds -\d+; it has to be 0 or more"
        ) as e:
            timestamps_of(column)
        assert isinstance(e.value.__cause__, IllegalArgumentError)


@pytest.mark.parametrize("column", [pa.array(["now"]), pa.array([1.5]), pa.array([datetime.date(2020, 1, 1)])])
def test_a_timestamp_of_another_type(column: Any) -> None:
    with pytest.raises(
        SerializationError, match=r"the column 'timestamp' is of type .*; it has to hold timestamps, or whole"
    ):
        timestamps_of(column)


def test_partitions_named_null_and_by_key() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "value": ["a", "b", "c", "d"],
            "key": ["k", "k", None, "x"],
            "partition": pa.array([2, None, 1, None], pa.int8()),
        }
    )
    found = {record[4]: record[1] for record in sent(batch)}
    assert found == {b"a": 2, b"b": partition_for_key(b"k", PARTITIONS), b"c": 1, b"d": partition_for_key(b"x", 3)}


@pytest.mark.parametrize(
    ("numbers", "row", "problem"),
    [
        ([0, 3, 5], 1, "topic 't' has 3 partitions, 0 to 2: there is no partition 3"),
        ([0, None, 2**40], 2, "there is no partition 1099511627776"),
        ([0, 2**31, 1], 1, "there is no partition 2147483648"),
        ([None, -1, 0], 1, "the column 'partition' holds -1; it has to be 0 or more"),
    ],
)
def test_a_partition_out_of_range_is_told_with_its_row_and_nothing_is_sent(
    numbers: list, row: int, problem: str
) -> None:
    producer = FakeProducer()
    with pytest.raises(RowDeliveryError, match=problem) as caught:
        producer.send_arrow("t", pa.RecordBatch.from_pydict({"value": ["a"] * 3, "partition": numbers}))
    assert caught.value.row == row
    assert producer.bench.batches() == []


@pytest.mark.parametrize("column", [pa.array(["1"]), pa.array([1.0]), pa.array([True])])
def test_a_partition_of_another_type(column: Any) -> None:
    with pytest.raises(SerializationError, match=r"the column 'partition' is of type .*; it has to hold whole numbers"):
        sent(pa.RecordBatch.from_pydict({"value": ["a"], "partition": column}))


# --- Topics ---


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", "b", "a", "c", "b", "a"]),
        pa.array(["a", "b", "a", "c", "b", "a"], pa.large_string()),
        pa.array(["a", "b", "a", "c", "b", "a"], pa.string_view()),
        pa.array(["a", "b", "a", "c", "b", "a"]).dictionary_encode(),
        # a dictionary with a repeated topic, and with one that no row uses
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 3, 2, 1, 0]), pa.array(["a", "b", "c", "a", "unused"])),
        pa.array(["x", "a", "b", "a", "c", "b", "a", "y"])[1:-1],
    ],
    ids=["string", "large", "view", "dictionary", "repeating dictionary", "slice"],
)
def test_each_row_goes_to_its_topic_in_order(column: Any) -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array(list("012345")), column, pa.array([0] * 6)], names=["value", "topic", "partition"]
    )
    assert [(record[0], record[4]) for record in sent(batch, None)] == [
        ("a", b"0"),
        ("a", b"2"),
        ("a", b"5"),
        ("b", b"1"),
        ("b", b"4"),
        ("c", b"3"),
    ]
    # an explicit topic takes all rows
    assert {record[0] for record in sent(batch, "t")} == {"t"}


def test_one_topic_for_all_rows() -> None:
    assert [record[0] for record in sent(pa.table({"value": ["1", "2"], "topic": ["a", "a"]}), None)] == ["a", "a"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None]),
        pa.array(["a", None]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None])),
    ],
)
def test_a_null_topic_is_told_with_its_row(column: Any) -> None:
    with pytest.raises(RowDeliveryError, match=r"row 1 was not delivered.*'topic' is null, and no topic is named"):
        sent(pa.table({"value": ["1", "2"], "topic": column}), None)


@pytest.mark.parametrize("column", [pa.array([b"a"]), pa.array([1]), pa.array([b"a"]).dictionary_encode()])
def test_a_topic_is_a_string(column: Any) -> None:
    with pytest.raises(SerializationError, match=r"the column 'topic' is of type .*; topics are strings"):
        sent(pa.table({"value": ["1"], "topic": column}), None)


def test_every_topic_is_checked_before_anything_is_sent() -> None:
    producer = FakeProducer()
    table = {"value": ["1", "2", "3"], "topic": ["a", "b", "b"], "partition": [0, 1, 7]}
    with pytest.raises(RowDeliveryError, match=r"row 2 for b-7 was not delivered.*there is no partition 7"):
        producer.send_arrow(None, pa.table(table))
    known = producer.partitions_of

    def partitions_of(topic: str, partition: int) -> Any:
        if topic == "b":
            raise InvalidTopicError("not this one")
        return known(topic, partition)

    producer.partitions_of = partitions_of  # type: ignore[method-assign]
    with pytest.raises(RowDeliveryError, match="row 1 for b was not delivered: InvalidTopicError: not this one"):
        producer.send_arrow(None, pa.table({**table, "partition": [0, 1, 2]}))
    assert producer.bench.batches() == []


def test_a_topic_is_asked_only_for_the_partitions_that_its_own_rows_name() -> None:
    producer = FakeProducer()
    asked = []
    known = producer.partitions_of
    producer.partitions_of = lambda topic, partition: asked.append((topic, partition)) or known(topic, partition)  # type: ignore[method-assign]
    table = pa.table({"value": ["1", "2", "3"], "topic": ["a", "b", "a"], "partition": [2, 0, 1]})
    producer.send_arrow(None, table)
    assert asked == [("a", 2), ("b", 0)]


# --- Arguments ---


def test_tables_of_chunks_are_sent_in_order_and_rows_count_through() -> None:
    table = pa.concat_tables([pa.table({"value": [f"{chunk}-{row}" for row in range(3)]}) for chunk in range(4)])
    assert sorted(record[4] for record in sent(table)) == sorted(
        b"%d-%d" % (chunk, row) for chunk in range(4) for row in range(3)
    )
    table = pa.concat_tables(
        [pa.table({"value": ["a"] * 3, "partition": [0, 1, 2]}), pa.table({"value": ["a"] * 2, "partition": [1, 9]})]
    )
    with pytest.raises(RowDeliveryError, match="row 4 for t-9"):
        sent(table)


class Exports:
    """Another library's Arrow data, as exported by the Arrow PyCapsule interface."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.data.__arrow_c_stream__(requested_schema)


def test_what_exports_arrow_data() -> None:
    table = pa.table({"value": ["a", "b"], "key": ["k", None]})
    assert len(sent(Exports(table))) == 2
    assert len(sent(pa.RecordBatchReader.from_batches(table.schema, table.to_batches()))) == 2
    assert len(sent(table.to_struct_array())) == 2


@pytest.mark.parametrize("data", [pa.chunked_array([["a"]]), Exports(pa.chunked_array([["a"]])), pa.array(["a"])])
def test_arrow_data_that_is_no_table(data: Any) -> None:
    with pytest.raises(IllegalArgumentError, match=r"the Arrow data of a .* is no table"):
        sent(data)


@pytest.mark.parametrize("data", [[{"value": b"a"}], {"value": [b"a"]}, None, b"a"])
def test_what_is_no_arrow_data(data: Any) -> None:
    with pytest.raises(
        IllegalArgumentError, match=r"takes a pyarrow RecordBatch or Table.*; not (list|dict|None|bytes)"
    ):
        sent(data)


@pytest.mark.parametrize("rows", [0, 1])
def test_columns_that_lack_or_come_twice_are_told_with_rows_or_without(rows: int) -> None:
    nothing = pa.array(["a"] * rows, pa.string())
    with pytest.raises(IllegalArgumentError, match="there is no column 'value' among a, b"):
        sent(pa.RecordBatch.from_arrays([nothing, nothing], names=["a", "b"]))
    with pytest.raises(IllegalArgumentError, match="there are several columns 'key'"):
        sent(pa.RecordBatch.from_arrays([nothing] * 3, names=["value", "key", "key"]))
    with pytest.raises(IllegalArgumentError, match="no topic: name one, or add a column 'topic'"):
        sent(pa.RecordBatch.from_arrays([nothing], names=["value"]), None)


def test_no_rows_are_done_at_once() -> None:
    producer = FakeProducer()
    for nothing in (pa.table({"value": pa.array([], pa.string())}), pa.RecordBatch.from_pydict({"value": []})):
        future = producer.send_arrow("t", nothing)
        assert future.done()
        assert future.get(0).rows == 0


def test_a_row_that_is_too_large_is_told_before_anything_is_sent() -> None:
    for limits, problem in (
        ({"max_request_size": 500}, r"larger than max\.request\.size \(500 bytes\)"),
        ({"buffer_memory": 500, "batch_size": 100}, r"does not fit into buffer\.memory \(500 bytes\)"),
    ):
        producer = FakeProducer(ProducerConfig.resolve(bootstrap_servers="h:1", **limits))
        with pytest.raises(RowDeliveryError, match=f"row 1 was not delivered.*about 592 bytes.*{problem}") as caught:
            producer.send_arrow("t", pa.table({"value": ["a", "b" * 500]}))
        assert isinstance(caught.value.__cause__, MessageSizeTooLargeError)
        assert producer.bench.batches() == []


# --- The future ---


def test_a_batch_with_rows_of_several_chunks_counts_once() -> None:
    producer = FakeProducer()
    chunk = pa.table({"value": ["a", "b"], "key": [None, "k"], "partition": [0, 0]})
    future = producer.send_arrow("t", pa.concat_tables([chunk] * 5))

    def deliver_late(batch: Any) -> None:
        batch.attempts = 2
        producer.deliver(batch)

    producer.fate = deliver_late
    producer.flush()
    found = future.get(0)
    assert (found.rows, found.batches, found.retries) == (10, 1, 1)
    assert found.bytes == 5 * 3
    assert found.offsets == {TopicPartition("t", 0): OffsetRange(0, 9, 10)}


def test_without_acknowledgements_offsets_are_not_known() -> None:
    producer = FakeProducer()
    producer.fate = lambda batch: batch.complete(-1)
    future = producer.send_arrow("t", pa.table({"value": ["a"], "partition": [1]}))
    producer.flush()
    assert future.get(0).offsets == {TopicPartition("t", 1): OffsetRange(-1, -1, 1)}


def test_who_waits_too_short_is_told_how_much_is_left() -> None:
    future = FakeProducer().send_arrow("t", pa.table({"value": ["a", "b"]}))
    with pytest.raises(KafkaTimeoutError, match="2 rows were not acknowledged within 0 s"):
        future.get(0)
    with pytest.raises(KafkaTimeoutError):
        future.exception(0)
    assert repr(future) == "<RowsFuture: 2 rows pending>"
    assert future.first_error is None


def test_a_future_is_awaited_before_and_after_it_is_done() -> None:
    producer = FakeProducer()
    good = producer.send_arrow("t", pa.table({"value": ["a", "b"], "partition": [0, 0]}))
    bad = producer.send_arrow("u", pa.table({"value": ["a"], "partition": [0]}))
    never = producer.send_arrow("v", pa.table({"value": ["a"], "partition": [0]}))

    def fate(batch: Any) -> None:
        if batch.topic == "t":
            producer.deliver(batch)
        elif batch.topic == "u":
            batch.fail(BrokerNotAvailableError("gone"))

    producer.fate = fate

    async def wait_for_all() -> None:
        given_up = asyncio.ensure_future(_wait(never))
        waits = [asyncio.ensure_future(_wait(good)) for _ in range(3)]
        await asyncio.sleep(0)
        thread = threading.Thread(target=producer.flush)
        thread.start()
        assert [(await wait).rows for wait in waits] == [2, 2, 2]
        thread.join()
        assert (await good).rows == 2
        with pytest.raises(RowDeliveryError, match="row 0 for u-0 was not delivered: BrokerNotAvailableError: gone"):
            await bad
        given_up.cancel()

    async def _wait(future: RowsFuture) -> Any:
        return await future

    asyncio.run(wait_for_all())
    # the loop is closed
    never.failed(0, 1, TopicPartition("v", 0), BrokerNotAvailableError("gone"))


def test_callbacks_run_where_the_producer_has_them_run(caplog: pytest.LogCaptureFixture) -> None:
    waiting: list[Callable[[], object]] = []
    future = RowsFuture(1, waiting.append)
    called = []

    def interrupt(_: RowsFuture) -> None:
        raise SystemExit

    future.add_done_callback(interrupt)
    future.add_done_callback(called.append)
    future.failed(0, 1, TopicPartition("t", 0), BrokerNotAvailableError("gone"))
    assert future.done()
    assert called == []
    with caplog.at_level(logging.ERROR):
        for call in waiting:
            call()
    assert called == [future]
    assert "a callback of a send of rows raised" in caplog.text
    future.add_done_callback(called.append)
    assert called == [future, future]


def test_in_a_forked_child_the_rows_are_the_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    pending, done = RowsFuture(1), RowsFuture(0)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(IllegalStateError, match="these rows were sent before the fork"):
        pending.get(0)
    assert done.get(0).rows == 0


def test_the_sender_thread_does_not_wait_for_what_it_completes() -> None:
    with here.section, pytest.raises(IllegalStateError, match="a future can't wait here"):
        RowsFuture(1).get()


def test_an_error_that_is_raised_again_and_again_stays_as_it_was() -> None:
    future = RowsFuture(1)
    future.failed(0, 1, TopicPartition("t", 0), UnknownTopicOrPartitionError("gone"))
    depths = []
    for _ in range(3):
        with pytest.raises(RowDeliveryError) as caught:
            future.get(0)
        depths.append(len(caught.traceback))
    assert len(set(depths)) == 1


# --- Compared with records sent one by one ---

maybe_bytes = st.none() | st.binary(max_size=40)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "value": maybe_bytes,
            "key": st.binary(max_size=20),
            "headers": st.none() | st.lists(st.tuples(st.text(max_size=4), maybe_bytes), max_size=3),
            "timestamp": st.none() | st.integers(0, 2**62),
            "partition": st.none() | st.integers(0, PARTITIONS - 1),
            "topic": st.sampled_from(["t", "u"]),
        }
    ),
    max_size=40,
)
layouts = st.tuples(
    st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()]),
    st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()]),
    st.booleans(),
    st.sampled_from([pa.string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]),
    st.lists(st.integers(0, 40), max_size=3),
)


def table_of(records: list[dict[str, Any]], layout: tuple) -> pa.Table:
    """The records as a table of several chunks, which are slices of larger arrays."""
    value, key, as_map, topic, cuts = layout
    filler = {"value": b"no", "key": None, "headers": [("no", b"no")], "timestamp": 1, "partition": 0, "topic": "no"}
    padded = [filler, *records, filler]
    headers = [each["headers"] for each in padded]
    columns = {
        "value": pa.array([each["value"] for each in padded], value),
        "key": pa.array([each["key"] for each in padded], key),
        "headers": pa.array(headers, pa.map_(pa.string(), pa.binary())) if as_map else as_structs(headers),
        "timestamp": pa.array([each["timestamp"] for each in padded], pa.timestamp("ms", "UTC")),
        "partition": pa.array([each["partition"] for each in padded], pa.int32()),
        "topic": pa.array([each["topic"] for each in padded], topic),
    }
    whole = pa.table(columns).slice(1, len(records))
    places = sorted({0, len(records), *(cut for cut in cuts if cut < len(records))})
    if len(places) < 2:
        return whole
    return pa.concat_tables([whole.slice(start, end - start) for start, end in pairwise(places)])


@given(rows, layouts, st.sampled_from([120, 300, 100_000]))
@settings(deadline=None)
def test_the_same_batches_as_record_by_record(records: list[dict], layout: tuple, batch_size: int) -> None:
    by_columns = FakeProducer(bench=Bench(batch_size=batch_size))
    by_columns.send_arrow(None, table_of(records, layout))
    one_by_one = FakeProducer(bench=Bench(batch_size=batch_size))
    for each in records:
        queues, count = one_by_one.topics.partitions_of(each["topic"], -1)
        partition = partition_for_key(each["key"], count) if each["partition"] is None else each["partition"]
        timestamp = NOW_MS if each["timestamp"] is None else each["timestamp"]
        headers = encode_headers(each["headers"]) if each["headers"] else None
        one_by_one.accumulator.append(queues, partition, timestamp, each["key"], each["value"], headers, None, 0)
    if batch_size == 100_000:
        # one batch per partition: the bytes are the same
        assert encoded(by_columns) == encoded(one_by_one)
    for producer in (by_columns, one_by_one):
        producer.flush()
    assert by_columns.records() == one_by_one.records()


def encoded(producer: FakeProducer) -> dict[tuple[str, int], bytes]:
    found = {}
    for batch in producer.bench.accumulator.incomplete_batches():
        assert (batch.topic, batch.partition) not in found
        found[batch.topic, batch.partition] = b"".join(batch.builder.finish())
    return found
