"""Arrow columns as Avro are, byte by byte, what fastavro writes for each of their values."""

from __future__ import annotations

import datetime
import decimal
import io
from typing import Any

import fastavro
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.producer.columns.avro import avro_column
from headrace.producer.columns.avro_schema import derived_schema

UTC = datetime.timezone.utc
TIMES = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=70)
WIDE = decimal.Context(prec=76)


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Any]:
    limit = 10**precision - 1
    edges = [sign * 2**bits for bits in range(0, limit.bit_length(), 7) for sign in (1, -1) if 2**bits <= limit]
    numbers = st.integers(-limit, limit) | st.sampled_from(edges)
    return numbers.map(lambda number: decimal.Decimal(number).scaleb(-scale, WIDE))


LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.null(), st.none()),
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint16(), st.integers(0, 2**16 - 1)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.uint32(), st.integers(0, 2**32 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**63 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.string(), TEXT),
    (pa.large_string(), TEXT),
    (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "bc", ""])),
    (pa.binary(), st.binary(max_size=70)),
    (pa.large_binary(), st.binary(max_size=6)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.date32(), st.dates()),
    (pa.date64(), st.dates()),
    (pa.time32("s"), st.times().map(lambda time: time.replace(microsecond=0))),
    (pa.time32("ms"), st.times().map(lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000))),
    (pa.time64("us"), st.times()),
    (pa.timestamp("s", "UTC"), TIMES.map(lambda time: time.replace(microsecond=0, tzinfo=UTC))),
    (pa.timestamp("us", "UTC"), TIMES.map(lambda time: time.replace(tzinfo=UTC))),
    (pa.timestamp("us", "America/New_York"), TIMES.map(lambda time: time.replace(tzinfo=UTC))),
    (pa.timestamp("us"), TIMES),
    (pa.decimal128(38, 10), _decimals(38, 10)),
    (pa.decimal128(5, 2), _decimals(5, 2)),
    (pa.decimal256(70, 3), _decimals(70, 3)),
]
#: Types that a type of the derived schema may be replaced by, and that fastavro writes.
WIDER: dict[str, list[Any]] = {
    "int": ["int", "long", "float", "double"],
    "long": ["long", "double"],
    "float": ["float", "double"],
    "timestamp-micros": [{"type": "long", "logicalType": "timestamp-millis"}],
    "local-timestamp-micros": [{"type": "long", "logicalType": "local-timestamp-millis"}],
    "decimal": [
        {"type": "bytes", "logicalType": "decimal", "precision": 75, "scale": 12},
        {"type": "fixed", "size": 40, "logicalType": "decimal", "precision": 75, "scale": 12},
    ],
}


@st.composite
def types(draw: st.DrawFn, depth: int = 2) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    """An Arrow type, and a strategy for its values or None."""
    shapes = ["leaf", "leaf", "leaf", "struct", "list", "large list", "fixed list", "map"]
    shape = draw(st.sampled_from(shapes if depth else ["leaf"]))
    if shape == "leaf":
        kind, values = draw(st.sampled_from(LEAVES))
    elif shape == "struct":
        kind, values = draw(structs(depth=depth - 1))
    else:
        item, each = draw(types(depth=depth - 1))
        if shape == "list":
            kind, values = pa.list_(item), st.lists(each, max_size=3)
        elif shape == "large list":
            kind, values = pa.large_list(item), st.lists(each, max_size=3)
        elif shape == "fixed list":
            kind, values = pa.list_(item, 2), st.lists(each, min_size=2, max_size=2)
        else:
            kind = pa.map_(pa.string(), item)
            values = st.dictionaries(TEXT, each, max_size=3).map(lambda entries: list(entries.items()))
    return kind, st.none() | values


@st.composite
def structs(draw: st.DrawFn, depth: int = 2) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    fields = draw(st.lists(types(depth=depth), min_size=0, max_size=5))
    names = [f"f{place}" for place in range(len(fields))]
    kind = pa.struct([pa.field(name, field[0]) for name, field in zip(names, fields, strict=True)])
    return kind, st.fixed_dictionaries(dict(zip(names, (field[1] for field in fields), strict=True)))


def changed(draw: st.DrawFn, schema: Any, path: str = "r") -> Any:
    """The schema with unions turned round, and types replaced by wider ones."""
    if isinstance(schema, list):
        inner = [changed(draw, each, path) for each in schema]
        return inner[::-1] if draw(st.booleans()) else inner
    if isinstance(schema, str):
        return draw(st.sampled_from(WIDER.get(schema, [schema])))
    made = dict(schema)
    logical = schema.get("logicalType")
    if logical in WIDER and draw(st.booleans()):
        made = dict(draw(st.sampled_from(WIDER[logical])))
        return {**made, "name": path} if made["type"] == "fixed" else made
    for key in ("items", "values"):
        if key in made:
            made[key] = changed(draw, made[key], f"{path}_i")
    if "fields" in made:
        made["fields"] = [
            {"name": field["name"], "type": changed(draw, field["type"], f"{path}_{field['name']}")}
            for field in made["fields"]
        ]
    return made


def as_python(kind: pa.DataType, value: Any) -> Any:
    """A value as fastavro takes it: maps are dicts."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: as_python(field.type, value[field.name]) for field in kind}
    if pa.types.is_map(kind):
        return {key: as_python(kind.item_type, each) for key, each in value}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [as_python(kind.value_type, each) for each in value]
    return value


def by_fastavro(column: pa.Array, schema: Any) -> list[bytes | None]:
    written: list[bytes | None] = []
    for value in column.to_pylist():
        output = io.BytesIO()
        if value is not None:
            fastavro.schemaless_writer(output, schema, as_python(column.type, value))
        written.append(None if value is None else b"head:" + output.getvalue())
    return written


@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_every_row_is_what_fastavro_writes(data: st.DataObject):
    kind, values = data.draw(structs())
    column = pa.array(data.draw(st.lists(st.none() | values, max_size=5)), kind)
    # part of a batch begins and ends anywhere
    start = data.draw(st.integers(0, len(column)))
    column = column.slice(start, data.draw(st.integers(0, len(column) - start)))
    derived = derived_schema(kind, "r")
    schema = fastavro.parse_schema(data.draw(st.composite(lambda draw: changed(draw, derived))()))
    found = avro_column(column, schema, b"head:", "value", 0)
    found.validate(full=True)
    assert found.to_pylist() == by_fastavro(column, schema)
