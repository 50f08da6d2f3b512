"""Tests the row path and the Arrow path without Spark: columns, topics, errors with their row, and the report."""

from __future__ import annotations

import datetime
import decimal
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import DateType
from support.column_bench import NOW_MS, Bench, FakeProducer

from headrace.network.protocol.errors import CorruptRecordError, RowDeliveryError
from headrace.producer.accumulator.batch_cy import ProducerBatch
from headrace.producer.columns.rows_future import OffsetRange
from headrace.producer.spark.batches import BatchWriter
from headrace.producer.spark.options import SinkOptions
from headrace.producer.spark.rows import HANDFUL_ROWS, RowWriter
from headrace.producer.spark.writer import PartitionWriter

NOON = datetime.datetime(2013, 1, 1, 12, 0, 0, 5000, tzinfo=datetime.timezone.utc)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def options(**own: Any) -> SinkOptions:
    return SinkOptions.resolve({"bootstrap.servers": "h:1"}, own)


def write(writer: type[PartitionWriter], source: Any, producer: FakeProducer | None = None, **own: Any) -> FakeProducer:
    producer = producer or FakeProducer()
    writer(producer, options(**own), "Spark partition 3").write(source)  # type: ignore[arg-type]
    return producer


def both(records: list[dict[str, Any]], schema: dict[str, pa.DataType], **own: Any) -> list[tuple]:
    """The records that the row path and the Arrow path deliver, which must be equal."""
    by_rows = write(RowWriter, records, **own).records()
    batch = pa.RecordBatch.from_pylist(records, schema=pa.schema(schema))
    by_batches = write(BatchWriter, [batch], **own).records()
    # without the partition, which is random for a row with neither a partition nor a key
    assert [(each[0], *each[2:]) for each in by_rows] == [(each[0], *each[2:]) for each in by_batches]
    if all(record.get("partition") is not None for record in records):
        assert by_rows == by_batches
    return by_rows


def test_every_column_reaches_the_record() -> None:
    records = [
        {"value": b"v", "key": "k", "headers": [{"key": "h", "value": b"1"}, {"key": "g", "value": None}]},
        {"value": None, "key": None, "headers": None},
        {"value": b"", "key": "", "headers": []},
    ]
    for number, record in enumerate(records):
        record.update(topic="u", partition=number, timestamp=NOON)
        record["headers"] = record["headers"] and [(each["key"], each["value"]) for each in record["headers"]]
    schema = {
        "value": pa.binary(),
        "key": pa.string(),
        "headers": pa.map_(pa.string(), pa.binary()),
        "topic": pa.string(),
        "partition": pa.int32(),
        "timestamp": pa.timestamp("us", "UTC"),
    }
    noon_ms = 1357041600005
    assert both(records, schema) == [
        ("u", 0, noon_ms, b"k", b"v", (("h", b"1"), ("g", None))),
        ("u", 1, noon_ms, None, None, ()),
        ("u", 2, noon_ms, b"", b"", ()),
    ]
    without = both(records, schema, topic="t", include_headers=False)
    assert [record[0] for record in without] == ["t"] * 3
    assert not any(record[5] for record in without)


def test_headers_as_an_array_of_structs() -> None:
    batch = pa.RecordBatch.from_pylist(
        [{"value": b"v", "headers": [{"key": "h", "value": b"1"}]}],
        schema=pa.schema({"value": pa.binary(), "headers": HEADERS}),
    )
    assert write(BatchWriter, [batch], topic="t").records()[0][5] == (("h", b"1"),)


@pytest.mark.parametrize(
    "headers",
    [
        [Row(key="h", value=b"1"), Row(key="g", value=None)],
        [Row(value=b"1", key="h"), Row(value=None, key="g")],
        [("h", "1"), ("g", None)],
        {"h": "1", "g": None},
    ],
)
def test_headers_of_a_row(headers: Any) -> None:
    (record,) = write(RowWriter, [{"value": b"v", "headers": headers}], topic="t").records()
    assert record[5] == (("h", b"1"), ("g", None))


def test_a_null_partition_is_chosen_and_a_null_timestamp_is_now() -> None:
    records = [{"value": b"v", "partition": None, "timestamp": None}]
    (record,) = both(records, {"value": pa.binary(), "partition": pa.int32(), "timestamp": pa.int64()}, topic="t")
    assert record[2] == NOW_MS


def test_topics_of_the_rows() -> None:
    records = [{"value": b"%d" % number, "topic": "ab"[number % 2], "partition": 0} for number in range(6)]
    delivered = both(records, {"value": pa.binary(), "topic": pa.string(), "partition": pa.int32()})
    assert [(record[0], record[4]) for record in delivered] == [
        ("a", b"0"),
        ("a", b"2"),
        ("a", b"4"),
        ("b", b"1"),
        ("b", b"3"),
        ("b", b"5"),
    ]


def test_columns_that_kafka_has_no_use_for_are_ignored() -> None:
    assert both([{"value": b"v", "other": 1}], {"value": pa.binary(), "other": pa.int64()}, topic="t")[0][4] == b"v"


@pytest.mark.parametrize("value_format", ["json", "msgpack"])
def test_nested_values_are_the_same_through_both_doors(value_format: str) -> None:
    records = [{"value": {"a": 1, "b": ["x", None], "c": {"k": 1.5}, "d": NOON, "e": b"\x00"}}, {"value": None}]
    kind = pa.struct(
        {
            "a": pa.int64(),
            "b": pa.list_(pa.string()),
            "c": pa.map_(pa.string(), pa.float64()),
            "d": pa.timestamp("us", "UTC"),
            "e": pa.binary(),
        }
    )
    first, second = sorted(
        both(records, {"value": kind}, topic="t", value_format=value_format), key=lambda record: record[4] is None
    )
    assert first[4] is not None
    assert second[4] is None


def test_small_decimals_are_the_same_through_both_doors() -> None:
    """In rows Spark passes 1E-38 as 10E-39, which has two digits, and so on."""
    for to_rows, column, expected in (
        ("10E-39", "1E-38", b"1E-38"),
        ("100E-12", "1E-10", b"1E-10"),
        ("-1.50E-30", "-1.50E-30", b"-1.5E-30"),
        ("1.050E-30", "1.050E-30", b"1.05E-30"),
        ("0.00E-36", "0E-38", b"0E-38"),
        ("0.0000010", "0.0000010", b"0.0000010"),
    ):
        batch = pa.RecordBatch.from_pydict({"value": pa.array([decimal.Decimal(column)])})
        (by_row,) = write(RowWriter, [Row(value=decimal.Decimal(to_rows))], topic="t", value_format="string").records()
        (by_batch,) = write(BatchWriter, [batch], topic="t", value_format="string").records()
        assert by_row[4] == by_batch[4] == expected


@pytest.mark.parametrize(
    "array",
    [
        pa.array([b"one", None], pa.large_binary()),
        pa.array(["one", None], pa.large_string()),
        pa.array(["one", None]).dictionary_encode(),
        pa.array([b"one", None], pa.binary(3)),
        pa.array([b"one", None], pa.binary_view()),
        pa.array(["zero", "one", None]).slice(1),
    ],
    ids=lambda array: str(array.type),
)
def test_every_type_of_bytes_that_arrow_has(array: pa.Array) -> None:
    batch = pa.RecordBatch.from_arrays([array, pa.array([0, 0])], ["value", "partition"])
    assert [record[4] for record in write(BatchWriter, [batch], topic="t").records()] == [b"one", None]


def test_rows_of_several_kinds() -> None:
    pair = namedtuple("pair", ["key", "value"])
    assert [record[3:5] for record in write(RowWriter, [pair("k", "v")], topic="t").records()] == [(b"k", b"v")]
    assert [record[4] for record in write(RowWriter, ["only", b"values", None], topic="t").records()] == [
        b"only",
        b"values",
        None,
    ]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"value": b"a"}, {"key": b"k"}], "row 1 of Spark partition 3 for t was not delivered: there is no column"),
        (
            [{"value": b"a"}, {"value": 3}],
            "row 1 of Spark partition 3 for t was not delivered: the column 'value': for",
        ),
        ([{"value": b"a"}, 7], "row 1 of Spark partition 3 for t was not delivered: a int is not a row"),
        ([{"value": b"a", "partition": -2}], "IllegalArgumentError: the column 'partition' holds -2"),
        ([{"value": b"a", "partition": "x"}], "the column 'partition' holds a str"),
        ([{"value": b"a", "headers": [("h", 5)]}], "the column 'headers': the value of header 'h'"),
        (
            [{"value": b"a"}, {"value": b"a", "headers": [None]}],
            "row 1 of Spark partition 3 for t was not delivered: th",
        ),
        ([{"value": b"a", "headers": [Row(a="h", b=b"")]}], "a header is a struct of key and value, not of a, b"),
        ([{"value": b"a", "partition": 0}, {"value": b"a", "partition": 3}], "row 1 of Spark partition 3 for t-3 was"),
        (
            [{"value": b"a"}, {"value": b"x" * 2_000_000}],
            "row 1 of Spark partition 3 for t was not delivered: MessageS",
        ),
    ],
)
def test_a_poison_row_is_named_and_nothing_of_its_chunk_is_sent(rows: list[Any], message: str) -> None:
    producer = FakeProducer()
    with pytest.raises(RowDeliveryError) as caught:
        write(RowWriter, rows, producer, topic="t")
    assert message in str(caught.value)
    assert not producer.bench.batches()


def test_a_row_that_is_none_is_named_by_its_place_in_the_partition_and_what_came_before_is_sent() -> None:
    producer = FakeProducer()
    rows = [{"value": b"%d" % number} for number in range(300)]
    with pytest.raises(RowDeliveryError, match=r"^row 299 of Spark partition 3 for t was .* is not a row"):
        write(RowWriter, [*rows[:299], 7], producer, topic="t")
    assert {each[4] for each in producer.records()} == {b"%d" % number for number in range(HANDFUL_ROWS * 2)}


def test_a_row_that_pyspark_can_not_make_is_told_and_what_came_before_is_sent() -> None:
    def rows() -> Iterator[Row]:
        yield from (Row(value=b"%d" % number) for number in range(HANDFUL_ROWS))
        DateType().fromInternal(2932897)

    producer = FakeProducer()
    with pytest.raises(RowDeliveryError, match=r"^row 128 .* year 10000 is out of range; .* the years 1 to 9999"):
        write(RowWriter, rows(), producer, topic="t")
    assert len(producer.records()) == HANDFUL_ROWS


def test_what_a_function_that_makes_the_rows_raises_is_its_own() -> None:
    def rows() -> Iterator[Row]:
        yield Row(value=b"%d" % int("x"))

    with pytest.raises(ValueError, match="invalid literal") as caught:
        write(RowWriter, rows(), topic="t")
    assert type(caught.value) is ValueError


def test_headers_and_topics_that_are_no_utf8() -> None:
    """Spark makes the same replacement in rows."""
    text = pa.array([b"\xffA", b"B", None]).view(pa.string())
    headers = pa.MapArray.from_arrays([0, 1, 2, 2], ["a", "b"], text.slice(0, 2))
    batch = pa.RecordBatch.from_arrays([text, text, headers], ["value", "key", "headers"])
    found = [each[3:] for each in write(BatchWriter, [batch], topic="t").records()]
    replaced = "\ufffdA".encode()
    assert sorted(found, key=str) == sorted(
        [(replaced, replaced, (("a", replaced),)), (b"B", b"B", (("b", b"B"),)), (None, None, ())], key=str
    )
    batch = pa.RecordBatch.from_arrays([text, text.fill_null("t")], ["value", "topic"])
    assert {each[0] for each in write(BatchWriter, [batch]).records()} == {"\ufffdA", "B", "t"}


def test_rows_whose_columns_change_between_handfuls() -> None:
    plain = [Row(value=b"v%d" % number) for number in range(HANDFUL_ROWS)]
    keyed = [Row(key=b"k", value=b"w%d" % number) for number in range(HANDFUL_ROWS)]
    sent = write(RowWriter, [*plain, *keyed, *plain], topic="t").records()
    assert [each[3] for each in sent].count(b"k") == HANDFUL_ROWS
    assert len(sent) == 3 * HANDFUL_ROWS


def test_of_columns_of_the_same_name_only_those_that_kafka_has_a_use_for_are_an_error() -> None:
    named = Row("value", "other", "other")
    (sent,) = write(RowWriter, [named("v", 1, 2)], topic="t").records()
    assert sent[4] == b"v"
    with pytest.raises(RowDeliveryError, match="there are 2 columns 'value'; keep one"):
        write(RowWriter, [Row("value", "value")("v", "w")], topic="t")


def test_many_rows_arrive_once_each_however_they_are_cut() -> None:
    rows = [Row(value=b"%d" % number, partition=0) for number in range(20 * HANDFUL_ROWS + 1)]
    sent = write(RowWriter, rows, topic="t").records()
    assert [each[4] for each in sent] == [row.value for row in rows]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": pa.array(["k"])}, "there is no column 'value' among key"),
        ({"value": pa.array([1])}, "the column 'value' is of type int64; format raw takes strings and binary"),
        ({"value": pa.array(["v"]), "partition": pa.array(["x"])}, "the column 'partition' is of type string"),
        (
            {"value": pa.array(["v"]), "partition": pa.array([9])},
            "row 0 of Spark partition 3 for t-9 was not delivered",
        ),
        (
            {"value": pa.array(["v"]), "timestamp": pa.array([-1])},
            "the column 'timestamp' holds -1; it has to be 0 or more",
        ),
        ({"value": pa.array(["v"]), "timestamp": pa.array(["x"])}, "the column 'timestamp' is of type string"),
        ({"value": pa.array(["v"]), "headers": pa.array(["x"])}, "the column 'headers' is of type string; headers are"),
        (
            {"value": pa.array(["v", "v"]), "headers": pa.array([[], [{"key": None, "value": b"1"}]], HEADERS)},
            "row 1 of Spark partition 3 for t was not delivered: the column 'headers' has a header without a key",
        ),
    ],
)
def test_a_wrong_column_is_named(columns: dict[str, pa.Array], message: str) -> None:
    producer = FakeProducer()
    with pytest.raises(RowDeliveryError) as caught:
        write(BatchWriter, [pa.RecordBatch.from_pydict(columns)], producer, topic="t")
    assert message in str(caught.value)
    assert not producer.bench.batches()


def test_without_a_topic_anywhere() -> None:
    for writer, source in ((RowWriter, [b"x"]), (BatchWriter, [pa.RecordBatch.from_pydict({"value": [b"x"]})])):
        with pytest.raises(RowDeliveryError, match="no topic: give the sink"):
            write(writer, source)
    rows = [{"value": b"v", "topic": "t"}, {"value": b"v", "topic": None}]
    for writer, source in ((RowWriter, rows), (BatchWriter, [pa.RecordBatch.from_pylist(rows)])):
        with pytest.raises(RowDeliveryError, match=r"row 1 of Spark partition 3.*the column 'topic' is null"):
            write(writer, source)


def test_the_report_adds_up() -> None:
    producer = FakeProducer(bench=Bench(batch_size=2000))
    rows = [{"value": b"x" * 100, "key": b"k%d" % number, "partition": number % 2} for number in range(500)]
    report = RowWriter(producer, options(topic="t"), "here").write(rows)  # type: ignore[arg-type]
    assert report.rows == 500
    assert report.bytes == sum(len(row["key"]) + 100 for row in rows)
    assert report.offsets == {("t", 0): OffsetRange(0, 249, 250), ("t", 1): OffsetRange(0, 249, 250)}
    assert report.batches >= 500 * 105 // 2000
    assert report.retries == 0
    assert "500 rows" in str(report)


def test_the_first_undelivered_row_fails_the_task() -> None:
    producer = FakeProducer(bench=Bench(batch_size=1000))
    refused = []

    def fate(batch: ProducerBatch) -> None:
        if batch.partition == 1:
            refused.append(batch)
            batch.fail(CorruptRecordError("not this one"))
        else:
            producer.deliver(batch)

    producer.fate = fate
    rows = [{"value": b"x" * 100, "partition": 0 if number < 300 else 1} for number in range(400)]
    expected = r"row 300 of Spark partition 3 for t-1 was not delivered: CorruptRecordError: not this one"
    with pytest.raises(RowDeliveryError, match=expected) as caught:
        write(RowWriter, rows, producer, topic="t")
    assert refused
    assert (caught.value.row, caught.value.topic, caught.value.partition) == (300, "t", 1)
    assert isinstance(caught.value.__cause__, CorruptRecordError)


def test_an_empty_partition_delivers_nothing() -> None:
    assert RowWriter(FakeProducer(), options(topic="t"), "here").write([]).rows == 0  # type: ignore[arg-type]
