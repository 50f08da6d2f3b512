"""Whole Arrow columns in a format are what each of their values is by itself."""

from __future__ import annotations

import datetime
import decimal
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.producer.spark.columns import encode_column
from headrace.producer.spark.formats import UnfitValueError, encoder
from headrace.producer.spark.row_types import shortest

UTC = datetime.timezone.utc
TIMES = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1), timezones=st.just(UTC))
WHOLE_SECONDS = TIMES.map(lambda time: time.replace(microsecond=0))
TEXT = st.text(max_size=6)

LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.null(), st.none()),
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.string(), TEXT),
    (pa.large_string(), TEXT),
    (pa.binary(), st.binary(max_size=6)),
    (pa.binary(2), st.binary(min_size=2, max_size=2)),
    (pa.date32(), st.dates()),
    (pa.time64("us"), st.times()),
    (pa.timestamp("us", "UTC"), TIMES),
    (pa.timestamp("us", "America/New_York"), st.one_of(TIMES, WHOLE_SECONDS)),
    (pa.timestamp("s", "UTC"), WHOLE_SECONDS),
    (pa.decimal128(20, 10), st.decimals(-(10**9), 10**9, places=10)),
    (pa.decimal128(10, 2), st.decimals(-(10**7), 10**7, places=2)),
]
#: The names of a map's entries are those of all of these in format string.
KEYS = [leaf for leaf in LEAVES if not pa.types.is_null(leaf[0]) and not pa.types.is_floating(leaf[0])]


def nullable(leaf: tuple[pa.DataType, st.SearchStrategy[Any]]) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    return leaf[0], st.none() | leaf[1]


@st.composite
def types(draw: st.DrawFn, depth: int = 2) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    """A type, and a strategy for its values or None."""
    shape = (
        draw(st.sampled_from(["leaf", "leaf", "struct", "list", "large list", "fixed list", "map"]))
        if depth
        else "leaf"
    )
    if shape == "leaf":
        return nullable(draw(st.sampled_from(LEAVES)))
    if shape == "struct":
        names = draw(st.lists(TEXT, max_size=3, unique=True))
        fields = [draw(types(depth=depth - 1)) for _ in names]
        kind = pa.struct([pa.field(name, each) for name, (each, _) in zip(names, fields, strict=True)])
        return nullable((kind, st.fixed_dictionaries(dict(zip(names, (each for _, each in fields), strict=True)))))
    inner, values = draw(types(depth=depth - 1))
    if shape == "list":
        return nullable((pa.list_(inner), st.lists(values, max_size=3)))
    if shape == "large list":
        return nullable((pa.large_list(inner), st.lists(values, max_size=3)))
    if shape == "fixed list":
        return nullable((pa.list_(inner, 2), st.lists(values, min_size=2, max_size=2)))
    key, names = draw(st.sampled_from(KEYS))
    # keys that differ, also as text
    entries = st.dictionaries(names, values, max_size=3).map(lambda made: list(made.items()))
    return nullable((pa.map_(key, inner), entries))


def with_shortest(value: Any, kind: pa.DataType) -> Any:
    """A value of any type with its 32-bit numbers as JSON and text have them."""
    if value is None:
        return None
    if pa.types.is_float32(kind):
        return shortest(value)
    if pa.types.is_struct(kind):
        return {field.name: with_shortest(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {name: with_shortest(item, kind.item_type) for name, item in value.items()}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [with_shortest(each, kind.value_type) for each in value]
    return value


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    kind, values = draw(types())
    column = pa.array(draw(st.lists(values, max_size=5)), kind)
    # part of a batch begins and ends anywhere
    start = draw(st.integers(0, len(column)))
    return column.slice(start, draw(st.integers(0, len(column) - start)))


@settings(deadline=None, max_examples=150)
@given(columns())
def test_nested_columns(column: pa.Array) -> None:
    values = column.to_pylist(maps_as_pydicts="lossy")
    texts = [with_shortest(value, column.type) for value in values]
    for value_format, expected in (("json", texts), ("msgpack", values)):
        found = encode_column(column, value_format).to_pylist()
        assert [_bytes(each) for each in found] == encoder(value_format)(expected)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_plain_columns(data: st.DataObject) -> None:
    kind, values = data.draw(st.sampled_from(LEAVES).map(nullable))
    column = pa.array(data.draw(st.lists(values, max_size=5)), kind)
    found = encode_column(column, "string").to_pylist()
    expected = [with_shortest(value, kind) for value in column.to_pylist()]
    assert [_bytes(each) for each in found] == encoder("string")(expected)


BITS = st.integers(0, 2**32 - 1) | st.integers(0, 254).map(lambda exponent: exponent << 23)


@settings(deadline=None, max_examples=500)
@given(BITS.map(lambda bits: struct.unpack("f", struct.pack("I", bits))[0]))
@example(2.0**-96)  # where 1.2621775e-29 reads back, and the closest number of eight digits does not
@example(2.0**87)
@example(2.0**90)
def test_floats_of_rows_have_the_text_that_arrow_gives(number: float) -> None:
    column = pa.array([number], pa.float32())
    for value_format in ("string", "json"):
        assert encoder(value_format)([shortest(number)]) == [
            _bytes(each) for each in encode_column(column, value_format).to_pylist()
        ]


def test_floats_have_their_shortest_text() -> None:
    column = pa.array([0.1, 1e10, 16777216.0, 1e-45, 3.4028235e38], pa.float32())
    texts = ["0.1", "10000000000.0", "16777216.0", "1e-45", "3.4028235e+38"]
    assert encode_column(column, "string").to_pylist() == texts
    assert [str(shortest(number)) for number in column.to_pylist()] == texts


def test_dictionaries() -> None:
    column = pa.array(["a", None, "a", '"'])
    for value_format in ("string", "json", "msgpack"):
        assert encode_column(column.dictionary_encode(), value_format).equals(encode_column(column, value_format))


def test_times_without_a_zone_have_none() -> None:
    time = datetime.datetime(2020, 2, 29, 1, 2, 3)
    column = pa.array([[time], [time.replace(microsecond=5)]], pa.list_(pa.timestamp("us")))
    assert encode_column(column, "json").to_pylist() == ['["2020-02-29T01:02:03"]', '["2020-02-29T01:02:03.000005"]']
    assert encode_column(column.flatten(), "string").to_pylist()[0] == "2020-02-29T01:02:03"


@pytest.mark.parametrize("value", [b"\xffA", b'\xff"'])
def test_strings_that_are_no_utf8_become_some(value: bytes) -> None:
    """Spark's strings may hold any bytes, JSON only UTF-8. On the row path Spark replaces the others."""
    column = pa.array([b"ok", value, None]).view(pa.string())
    for nested in (column, pa.StructArray.from_arrays([column], ["name"])):
        for value_format in ("json", "msgpack"):
            expected = encoder(value_format)([value.decode(errors="replace")])[0]
            assert expected is not None
            assert expected in _bytes(encode_column(nested, value_format)[1].as_py())


FIRST_DAY, DAYS = -719_162, 3_652_059  # the 1st of January of the year 1, and the years 1 to 9999
DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("kind", "first", "last"),
    [
        (pa.date32(), FIRST_DAY, FIRST_DAY + DAYS - 1),
        (pa.timestamp("us"), FIRST_DAY * DAY_US, (FIRST_DAY + DAYS) * DAY_US - 1),
        (pa.timestamp("us", "UTC"), FIRST_DAY * DAY_US, (FIRST_DAY + DAYS) * DAY_US - 1),
    ],
)
def test_years_that_python_does_not_have(kind: pa.DataType, first: int, last: int) -> None:
    def column(*numbers: int | None) -> pa.Array:
        return pa.array(numbers, pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind)

    for value_format in ("string", "json", "msgpack"):
        assert len(encode_column(column(first, None, last), value_format)) == 3
        for outside in (first - 1, last + 1):
            with pytest.raises(UnfitValueError, match="outside the years 1 to 9999") as caught:
                encode_column(column(0, None, outside), value_format)
            assert caught.value.index == 2
            if value_format != "string":
                lists = pa.ListArray.from_arrays([0, 0, 2, 3, 3], column(0, None, outside))
                maps = pa.MapArray.from_arrays([0, 0, 2, 3, 3], ["a", "b", "a"], column(0, None, outside))
                for nested in (lists, maps, pa.StructArray.from_arrays([maps], ["inner"])):
                    with pytest.raises(UnfitValueError, match="outside the years 1 to 9999") as caught:
                        encode_column(nested, value_format)
                    assert caught.value.index == 2


def test_large_decimals() -> None:
    column = pa.array([decimal.Decimal("1" * 70)], pa.decimal256(76, 0))
    assert encode_column(column, "json").to_pylist() == [f'"{"1" * 70}"']


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
