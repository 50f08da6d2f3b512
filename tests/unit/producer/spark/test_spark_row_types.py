"""Tests how the row path writes types that PySpark's rows do not carry: FLOAT and TIMESTAMP_NTZ, at any depth."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    UserDefinedType,
)
from support.column_bench import FakeProducer

from headrace.producer.spark.formats import encoder
from headrace.producer.spark.options import SinkOptions
from headrace.producer.spark.row_types import converter, schema_being_written
from headrace.producer.spark.rows import RowWriter

FLOAT = FloatType()
TENTH = 0.10000000149011612  # the 32-bit number that is closest to a tenth
NOON = datetime.datetime(2020, 2, 29, 12)


class Celsius:
    """An object of a user-defined type."""

    def __init__(self, degrees: float) -> None:
        self.degrees = degrees
        self.__UDT__ = CelsiusType()


class CelsiusType(UserDefinedType):
    @classmethod
    def sqlType(cls) -> DataType:
        return FLOAT

    def serialize(self, obj: Any) -> float:
        return obj.degrees


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (FLOAT, TENTH, b"0.1"),
        (FLOAT, float("nan"), b'"NaN"'),
        (TimestampNTZType(), NOON, b'"2020-02-29T12:00:00"'),
        (ArrayType(FLOAT), [TENTH, None], b"[0.1,null]"),
        (MapType(FLOAT, TimestampNTZType()), {TENTH: NOON}, b'{"0.1":"2020-02-29T12:00:00"}'),
        (MapType(StringType(), FLOAT), {"k": TENTH}, b'{"k":0.1}'),
        (struct(a=FLOAT, b=DoubleType()), Row(a=TENTH, b=TENTH), b'{"a":0.1,"b":0.10000000149011612}'),
        (struct(a=ArrayType(struct(b=FLOAT))), Row(a=[Row(b=TENTH), None]), b'{"a":[{"b":0.1},null]}'),
        (CelsiusType(), Celsius(TENTH), b"0.1"),
    ],
)
def test_json(kind: DataType, value: Any, text: bytes) -> None:
    convert = converter(kind, "json")
    assert convert is not None
    assert encoder("json")([convert(value), convert(None)]) == [text, None]


def test_msgpack_has_numbers_and_only_names_of_entries_are_text() -> None:
    assert converter(FLOAT, "msgpack") is None
    convert = converter(MapType(FLOAT, FLOAT), "msgpack")
    assert convert is not None
    assert convert({TENTH: TENTH}) == {0.1: TENTH}


@pytest.mark.parametrize(
    "kind", [DoubleType(), ArrayType(StringType()), MapType(StringType(), DoubleType()), struct(a=StringType())]
)
def test_other_types_are_left_alone(kind: DataType) -> None:
    assert converter(kind, "json") is None


@pytest.mark.parametrize("value_format", ["raw", "serializer"])
def test_other_formats_get_what_spark_gives(value_format: str) -> None:
    assert converter(FLOAT, value_format) is None


@pytest.mark.parametrize(("schema", "text"), [(struct(value=FLOAT), b"0.1"), (None, b"0.10000000149011612")])
def test_rows_with_a_schema_and_without(schema: StructType | None, text: bytes) -> None:
    options = SinkOptions.resolve({"bootstrap.servers": "h:1"}, {"topic": "t", "value_format": "string"})
    producer = FakeProducer()
    RowWriter(producer, options, "here", schema=schema).write([Row(value=TENTH)])  # type: ignore[arg-type]
    assert [record[4] for record in producer.records()] == [text]


def test_no_dataframe_is_written() -> None:
    class Lookalike:
        def foreachPartition(self, f: object) -> object:
            return schema_being_written(f)

    assert schema_being_written(object()) is None
    assert Lookalike().foreachPartition(object()) is None
