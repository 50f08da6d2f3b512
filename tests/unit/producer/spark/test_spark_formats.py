"""Tests the encoding of values in each format."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from collections.abc import Callable

import msgpack
import pytest

from headrace.producer.spark.formats import UnfitValueError, encode_objects, encoder

NOON = datetime.datetime(2013, 1, 1, 12, 0, 0, 5000, tzinfo=datetime.timezone.utc)


class Row(tuple):
    """Like pyspark.sql.Row: a tuple with the names of its fields."""

    __fields__: list[str]


def row(**values: object) -> Row:
    made = Row(values.values())
    made.__fields__ = list(values)
    return made


@pytest.mark.parametrize("value_format", ["raw", "string", "json", "msgpack"])
def test_null_stays_null(value_format: str) -> None:
    assert list(encoder(value_format)([None, None])) == [None, None]
    assert list(encoder(value_format)([])) == []


def test_raw_takes_strings_and_binary() -> None:
    raw = encoder("raw")
    assert list(raw([b"a", None, b""])) == [b"a", None, b""]
    assert list(raw(["ä", None])) == ["ä".encode(), None]
    assert list(raw(["a", b"b", bytearray(b"c"), memoryview(b"d")])) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize(
    ("value_format", "value", "message"),
    [
        ("raw", 1, "format raw can't express a int"),
        ("raw", row(a=1), "can't express a struct: cast it, or choose the format json or msgpack"),
        ("string", [1], "can't express a list"),
        ("json", object(), "format json can't express a object"),
        ("json", [{"a": object()}], "can't express a object"),
        ("msgpack", 2**70, "format msgpack failed on a int"),
        ("msgpack", object(), "format msgpack can't express a object"),
        ("raw", "\ud800", "format raw failed on a str"),
    ],
)
def test_what_a_format_can_not_express_is_told_with_its_place(value_format: str, value: object, message: str) -> None:
    with pytest.raises(UnfitValueError) as caught:
        encoder(value_format)([None, value])
    assert message in str(caught.value)
    assert caught.value.index == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, b"true"),
        (12, b"12"),
        (1.5, b"1.5"),
        (decimal.Decimal("1.20"), b"1.20"),
        (datetime.date(2013, 1, 2), b"2013-01-02"),
        (NOON, b"2013-01-01T12:00:00.005000Z"),
        ("x", b"x"),
        (b"\xff", b"\xff"),
    ],
)
def test_string(value: object, expected: bytes) -> None:
    assert encoder("string")([value, 1])[0] == expected


def test_json_of_a_struct() -> None:
    value = row(
        text='q"uote',
        number=1,
        missing=None,
        flag=False,
        nested=row(list=[1, row(x=2)], map={"k": 1, 5: 2}),
        when=NOON,
        day=datetime.date(2013, 1, 2),
        price=decimal.Decimal("1.20"),
        blob=b"\x00\xff",
        ratio=float("nan"),
        far=[float("inf"), float("-inf"), 0.5],
        id=uuid.UUID(int=1),
    )
    (encoded,) = encoder("json")([value])
    assert encoded is not None
    assert b" " not in encoded.replace(b'q\\"uote', b"")
    assert json.loads(encoded) == {
        "text": 'q"uote',
        "number": 1,
        "missing": None,
        "flag": False,
        "nested": {"list": [1, {"x": 2}], "map": {"k": 1, "5": 2}},
        "when": "2013-01-01T12:00:00.005000Z",
        "day": "2013-01-02",
        "price": "1.20",
        "blob": "AP8=",
        "ratio": "NaN",
        "far": ["Infinity", "-Infinity", 0.5],
        "id": "00000000-0000-0000-0000-000000000001",
    }


def test_msgpack_of_a_struct() -> None:
    value = row(text="a", blob=b"\xff", when=NOON, price=decimal.Decimal("1.2"), nested=row(x=[1.5, None]))
    (encoded,) = encoder("msgpack")([value])
    assert encoded is not None
    assert msgpack.unpackb(encoded, timestamp=3) == {
        "text": "a",
        "blob": b"\xff",
        "when": NOON,
        "price": "1.2",
        "nested": {"x": [1.5, None]},
    }


def test_a_time_without_a_zone_is_local_as_spark_hands_it_over() -> None:
    local = datetime.datetime(2013, 1, 1, 12)
    expected = local.astimezone(datetime.timezone.utc).strftime('"%Y-%m-%dT%H:%M:%SZ"').encode()
    assert encoder("json")([local]) == [expected]


@pytest.mark.parametrize("value_format", ["json", "msgpack"])
@pytest.mark.parametrize("wrap", [lambda each: each, lambda each: [each], lambda each: row(a={"k": each})])
def test_a_struct_with_two_fields_of_one_name_is_told(value_format: str, wrap: Callable[[Row], object]) -> None:
    doubled = Row((1, 2, 3))
    doubled.__fields__ = ["id", "other", "id"]
    with pytest.raises(UnfitValueError, match=r"^a struct has two fields named 'id': rename one of them$") as caught:
        encoder(value_format)([None, wrap(doubled)])
    assert caught.value.index == 1
    with pytest.raises(UnfitValueError, match="two fields named 'id'") as caught:
        encode_objects([wrap(doubled)])
    assert caught.value.index == 0


class PointType:
    """Like PySpark's UserDefinedType: it defines how Spark stores an object."""

    def sqlType(self) -> PointType:
        return self

    def fromInternal(self, stored: tuple[int, int]) -> object:
        return row(x=stored[0], y=[stored[1]])

    def serialize(self, point: Point) -> tuple[int, int]:
        return point.x, point.y


class Point:
    __UDT__ = PointType()

    def __init__(self, x: int, y: int) -> None:
        self.x, self.y = x, y


def test_user_defined_types_are_what_spark_stores() -> None:
    assert encoder("json")([Point(1, 2), [Point(3, 4)]]) == [b'{"x":1,"y":[2]}', b'[{"x":3,"y":[4]}]']
    assert encode_objects([row(p=Point(1, 2))]) == [{"p": {"x": 1, "y": [2]}}]
    for value_format in ("raw", "string"):
        with pytest.raises(UnfitValueError, match="can't express a struct"):
            encoder(value_format)([Point(1, 2)])


class WordType(PointType):
    def fromInternal(self, stored: tuple[int, int]) -> str:
        return f"{stored[0]}{stored[1]}"


class Word(Point):
    __UDT__ = WordType()


@pytest.mark.parametrize("value_format", ["raw", "string"])
def test_user_defined_types_that_are_stored_as_strings(value_format: str) -> None:
    assert encoder(value_format)([Word(1, 2)]) == [b"12"]
