"""Arrow columns as Avro: the schema of each type, the choice in unions, defaults, and what doesn't fit."""

from __future__ import annotations

import datetime
import decimal
import io
import uuid
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from headrace.network.protocol.errors import RowDeliveryError, SerializationError
from headrace.producer.columns.avro import avro_column, prefixed_column
from headrace.producer.columns.avro_schema import derived_schema, record_name

UTC = datetime.timezone.utc


def encoded(column: Any, schema: Any, strict: str = "") -> list[bytes | None]:
    return avro_column(column, fastavro.parse_schema(schema), b"", "value", 100, strict).to_pylist()


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields]}


def by_fastavro(schema: Any, *data: Any) -> list[bytes]:
    written = []
    for each in data:
        output = io.BytesIO()
        fastavro.schemaless_writer(output, fastavro.parse_schema(schema), each)
        written.append(output.getvalue())
    return written


def row_of(error: pytest.ExceptionInfo[RowDeliveryError]) -> int:
    assert isinstance(error.value.__cause__, SerializationError)
    return error.value.row


# --- The derived schema ---


@pytest.mark.parametrize(
    ("kind", "avro"),
    [
        (pa.bool_(), "boolean"),
        (pa.int8(), "int"),
        (pa.uint16(), "int"),
        (pa.uint32(), "long"),
        (pa.uint64(), "long"),
        (pa.float16(), "float"),
        (pa.float64(), "double"),
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.dictionary(pa.int32(), pa.string()), "string"),
        (pa.binary(), "bytes"),
        (pa.binary(4), {"type": "fixed", "name": "c", "namespace": "top", "size": 4}),
        (pa.decimal128(9, 2), {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
        (pa.decimal128(9, -2), {"type": "bytes", "logicalType": "decimal", "precision": 11, "scale": 0}),
        (pa.date64(), {"type": "int", "logicalType": "date"}),
        (pa.time32("s"), {"type": "int", "logicalType": "time-millis"}),
        (pa.time64("us"), {"type": "long", "logicalType": "time-micros"}),
        (pa.time64("ns"), {"type": "long", "logicalType": "time-micros"}),
        (pa.timestamp("s", "UTC"), {"type": "long", "logicalType": "timestamp-millis"}),
        (pa.timestamp("us", "UTC"), {"type": "long", "logicalType": "timestamp-micros"}),
        (pa.timestamp("ns"), {"type": "long", "logicalType": "local-timestamp-nanos"}),
        (pa.uuid(), {"type": "string", "logicalType": "uuid"}),
        (pa.list_(pa.field("item", pa.int64(), nullable=False)), {"type": "array", "items": "long"}),
        (pa.list_(pa.int64(), 2), {"type": "array", "items": ["null", "long"]}),
        (pa.map_(pa.string(), pa.bool_()), {"type": "map", "values": ["null", "boolean"]}),
    ],
)
def test_the_schema_of_a_type(kind: pa.DataType, avro: Any):
    derived = derived_schema(pa.struct([pa.field("c", kind, nullable=False)]), "top")
    assert derived == {"type": "record", "name": "top", "fields": [{"name": "c", "type": avro}]}
    fastavro.parse_schema(derived)


def test_nullable_and_nested_fields():
    inner = pa.struct([pa.field("x", pa.int32()), pa.field("n", pa.null())])
    kind = pa.struct([pa.field("a", inner, nullable=False), pa.field("b", pa.list_(inner))])

    def nested(name: str) -> dict[str, Any]:
        fields = [{"name": "x", "type": ["null", "int"], "default": None}, {"name": "n", "type": "null"}]
        return {"type": "record", "name": name, "namespace": "top", "fields": fields}

    assert derived_schema(kind, "top")["fields"] == [
        {"name": "a", "type": nested("a")},
        {"name": "b", "type": ["null", {"type": "array", "items": ["null", nested("b")]}], "default": None},
    ]
    fastavro.parse_schema(derived_schema(kind, "top"))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (pa.int64(), "only"),
        (pa.struct([("a b", pa.int64())]), "'top.a b' has a name that Avro does not permit"),
        (pa.struct([("a", pa.int64()), ("a", pa.int8())]), "two columns 'top.a'"),
        (pa.struct([("a", pa.duration("s"))]), r"'top.a' is of type duration\[s\], which no Avro type expresses"),
        (pa.struct([("a", pa.map_(pa.int8(), pa.int8()))]), "keys are of type int8; Avro's are strings"),
    ],
)
def test_types_without_a_schema(kind: pa.DataType, message: str):
    with pytest.raises(SerializationError, match=message):
        derived_schema(kind, "top")


def test_names_of_records():
    assert record_name("shop.orders-1", "value") == "shop_orders_1_value"
    assert record_name("1st", "key") == "_1st_key"


# --- Values that fastavro's test does not cover ---


def test_times_in_every_unit():
    times = [datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), datetime.datetime(2024, 1, 1, tzinfo=UTC)]
    for unit in ("us", "ns"):
        column = pa.array([{"t": each} for each in times], pa.struct([("t", pa.timestamp(unit, "UTC"))]))
        millis = record(("t", {"type": "long", "logicalType": "timestamp-millis"}))
        # rounded down, also before 1970
        assert encoded(column, millis) == by_fastavro(millis, *({"t": each} for each in times))
    nanos = record(("t", {"type": "long", "logicalType": "timestamp-nanos"}))
    assert encoded(column, nanos) == by_fastavro(record(("t", "long")), {"t": -1000}, {"t": 1704067200 * 10**9})


def test_a_time_that_a_unit_can_not_express():
    column = pa.array([{"t": 0}, {"t": 2**62}], pa.struct([("t", pa.timestamp("s", "UTC"))]))
    with pytest.raises(RowDeliveryError, match=r"out of the range of the Avro type long \(timestamp-micros\)") as error:
        encoded(column, record(("t", {"type": "long", "logicalType": "timestamp-micros"})))
    assert row_of(error) == 101


def test_uuids():
    number = uuid.UUID("0123456789abcdef0123456789abcdef")
    stored = pa.array([number.bytes], pa.binary(16))
    column = pa.StructArray.from_arrays([pa.ExtensionArray.from_storage(pa.uuid(), stored)], ["u"])
    schema = record(("u", {"type": "string", "logicalType": "uuid"}))
    assert encoded(column, schema) == by_fastavro(schema, {"u": number})


def test_enums():
    schema = record(("e", ["null", {"type": "enum", "name": "E", "symbols": ["A", "B"]}]))
    for column in (pa.array(["B", None, "A"]), pa.array(["B", None, "A"]).dictionary_encode()):
        structs = pa.StructArray.from_arrays([column], ["e"])
        assert encoded(structs, schema) == by_fastavro(schema, {"e": "B"}, {"e": None}, {"e": "A"})
    with pytest.raises(
        RowDeliveryError, match=r"'value.e' has text that is not a symbol of the Avro type enum E"
    ) as error:
        encoded(pa.array([{"e": "A"}, {"e": "C"}]), schema)
    assert row_of(error) == 101
    assert "'C'" not in str(error.value)


def test_fixed_of_binary_of_any_length():
    schema = record(("f", {"type": "fixed", "name": "F", "size": 2}))
    column = pa.array([{"f": b"ab"}, {"f": b"abc"}])
    assert encoded(column.slice(0, 1), schema) == [b"ab"]
    with pytest.raises(RowDeliveryError, match="a value whose length is not that of the Avro type fixed F") as error:
        encoded(column, schema)
    assert row_of(error) == 101
    with pytest.raises(SerializationError, match=r"fixed_size_binary\[3\], which does not fit the Avro type fixed F"):
        encoded(pa.array([{"f": b"abc"}], pa.struct([("f", pa.binary(3))])), schema)


def test_a_record_that_contains_itself():
    schema = record(("v", "long"), ("next", ["null", "R"]))
    kind = pa.struct([("v", pa.int64()), ("next", pa.struct([("v", pa.int64()), ("next", pa.null())]))])
    data = {"v": 1, "next": {"v": 2, "next": None}}
    assert encoded(pa.array([data], kind), schema) == by_fastavro(schema, data)


def test_many_columns():
    names = [f"c{number}" for number in range(1200)]
    schema = record(*((name, "long") for name in names))
    row = dict.fromkeys(names, 3)
    assert encoded(pa.array([row]), schema) == by_fastavro(schema, row)


def test_bytes_alone_and_messages_have_no_length():
    column = pa.array([b"ab", None, b""])
    assert encoded(column, {"type": "bytes"}) == [b"ab", None, b""]
    assert prefixed_column(column, b"\0\1", "value").to_pylist() == [b"\0\1ab", None, b"\0\1"]
    assert prefixed_column(pa.array([b"ab", b"cd"], pa.binary(2)), b"-", "v").to_pylist() == [b"-ab", b"-cd"]
    with pytest.raises(SerializationError, match=r"'v' is of type string; it has to be binary"):
        prefixed_column(pa.array(["ab"]), b"", "v")


def test_tombstones_and_no_rows():
    schema = record(("a", "long"))
    assert encoded(pa.array([None, {"a": 1}]), schema) == [None, b"\2"]
    assert encoded(pa.nulls(2), schema) == [None, None]
    assert encoded(pa.array([], pa.struct([("a", pa.int64())])), schema) == []


# --- Unions ---


def chosen(column: Any, *branches: Any) -> int:
    (data,) = encoded(pa.StructArray.from_arrays([column], ["u"]), record(("u", list(branches))))
    assert data is not None
    return data[0] // 2


def test_the_branch_of_a_union():
    number = pa.array([1], pa.int64())
    assert chosen(number, "null", "int", "long") == 2
    assert chosen(number, "null", "string", "int") == 2
    assert chosen(pa.array([1], pa.int32()), "string", "int", "long") == 1
    assert chosen(pa.array([1.5], pa.float32()), "float", "double") == 1
    assert chosen(pa.array(["a"]), {"type": "enum", "name": "E", "symbols": ["a"]}, "string") == 1
    two = [record(("a", "long"), name="A"), record(("a", "long"), ("b", "long"), name="B")]
    assert chosen(pa.array([{"a": 1, "b": 2}]), *two) == 1
    assert chosen(pa.array([{"a": 1}]), *two) == 0
    with pytest.raises(SerializationError, match="does not fit the Avro type union of null, boolean, string"):
        chosen(number, "null", "boolean", "string")


def test_nulls_of_a_union():
    column = pa.array([{"u": None}, {"u": 5}])
    assert encoded(column, record(("u", ["long", "null"]))) == [b"\2", b"\0\n"]
    assert encoded(pa.array([{"u": None}]), record(("u", ["long", "null"]))) == [b"\2"]
    with pytest.raises(RowDeliveryError, match=r"'value.u' is null") as error:
        encoded(column, record(("u", ["long", "string"])))
    assert row_of(error) == 100
    with pytest.raises(RowDeliveryError, match="is null") as error:
        encoded(pa.array([{"u": None}]), record(("u", ["long", "string"])))


# --- Fields without a column, and columns without a field ---


def test_defaults():
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "a", "type": "long"},
            {"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}, "default": "\u00ff\u0001"},
            {"name": "g", "type": ["string", "null"], "default": "x"},
            {"name": "h", "type": ["null", "F"]},
            {"name": "i", "type": {"type": "array", "items": "F"}, "default": []},
        ],
    }
    assert encoded(pa.array([{"a": 1}, {"a": 2}]), schema) == [b"\2\xff\1\0\2x\0\0", b"\4\xff\1\0\2x\0\0"]
    with pytest.raises(
        SerializationError, match=r"no column 'value.h', and the field of the Avro type R has no default"
    ):
        encoded(pa.array([{"a": 1}]), schema, strict="defaults")
    with pytest.raises(SerializationError, match=r"there is no column 'value.a'"):
        encoded(pa.array([{"b": 1}]), schema)
    with pytest.raises(SerializationError, match=r"no column 'value.f', and the field of the Avro type R needs one"):
        encoded(pa.array([{"a": 1}]), schema, strict="all")


def test_columns_without_a_field():
    schema = record(("a", "long"))
    assert encoded(pa.array([{"b": 3, "a": 1}]), schema) == [b"\2"]
    with pytest.raises(SerializationError, match=r"'value.b' is not a field of the Avro type R"):
        encoded(pa.array([{"b": 3, "a": 1}]), schema, strict="all")
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(SerializationError, match=r"two columns 'value.a'"):
        encoded(twice, schema)


# --- What doesn't fit ---


@pytest.mark.parametrize(
    ("column", "avro", "message"),
    [
        (pa.array(["a"]), "long", "type string, which does not fit the Avro type long: cast it"),
        (pa.array([True]), "int", "type bool"),
        (pa.array([b"a"]), "string", "type binary"),
        (pa.array(["a"]), "bytes", "type string"),
        (pa.array([1]), {"type": "array", "items": "long"}, "type int64, which does not fit the Avro type array"),
        (pa.array([[1]]), {"type": "map", "values": "long"}, "the Avro type map"),
        (pa.array([1]), record(("x", "int"), name="X"), "the Avro type X"),
        (pa.array([["a"]]), {"type": "array", "items": "long"}, r"'value.c\[\]' is of type string"),
        (
            pa.array([0], pa.timestamp("us")),
            {"type": "long", "logicalType": "timestamp-micros"},
            "assume_timezone, or use local-timestamp-micros",
        ),
        (
            pa.array([0], pa.timestamp("us", "UTC")),
            {"type": "long", "logicalType": "local-timestamp-micros"},
            "a local time has no zone",
        ),
        (
            pa.array([decimal.Decimal("1.25")]),
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 1},
            "more decimal places than the Avro type bytes .decimal with precision 9 and scale 1.: round it",
        ),
    ],
)
def test_types_that_do_not_fit(column: Any, avro: Any, message: str):
    with pytest.raises(SerializationError, match=message):
        encoded(pa.StructArray.from_arrays([column], ["c"]), record(("c", avro)))


@pytest.mark.parametrize(
    ("column", "avro", "message"),
    [
        (pa.array([1, None]), "long", "is null, which is not permitted by the Avro type long"),
        (pa.array([1, 2**31]), "int", "out of the range of the Avro type int"),
        (pa.array([1, 2**63], pa.uint64()), "long", "out of the range"),
        (pa.array([1.5, 1e300]), "float", "out of the range"),
        (pa.array([[1], [2, None]]), {"type": "array", "items": "long"}, r"'value.c\[\]' is null"),
        (
            pa.array([decimal.Decimal("1"), decimal.Decimal("1000")], pa.decimal128(9, 0)),
            {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 0},
            "out of the range of the Avro type bytes .decimal with precision 3",
        ),
        (
            # Arrow does not check the precision of the numbers in a buffer
            pa.array([b"\1" + 15 * b"\0", b"\x80" + 15 * b"\xff"], pa.binary(16)).view(pa.decimal128(2, 0)),
            {"type": "fixed", "name": "D", "size": 1, "logicalType": "decimal", "precision": 2, "scale": 0},
            "needs more bytes than the Avro type D",
        ),
    ],
)
def test_values_that_do_not_fit(column: Any, avro: Any, message: str):
    schema = record(("c", avro))
    with pytest.raises(RowDeliveryError, match=message) as error:
        encoded(pa.StructArray.from_arrays([column], ["c"]), schema)
    assert row_of(error) == 101


def test_what_is_under_a_null_struct_is_not_read():
    bad = pa.array([1, 2**40, None])
    column = pa.StructArray.from_arrays([bad], ["c"], mask=pa.array([False, True, True]))
    assert encoded(column, record(("c", "int"))) == [b"\2", None, None]
