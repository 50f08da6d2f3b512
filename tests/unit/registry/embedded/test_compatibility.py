"""The compatibility rules of the embedded schema registry, one change at a time."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from headrace.registry.embedded.errors import RestError
from headrace.registry.embedded.store import FORMATS

Field = descriptor_pb2.FieldDescriptorProto


def record(*fields: Any, name: str = "R", **others: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **others}


def field(name: str, kind: Any, **others: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **others}


def problems(kind: str, reader: Any, writer: Any) -> list[str]:
    models = [FORMATS[kind].parse(json.dumps(each), {}, False).model for each in (reader, writer)]
    return FORMATS[kind].problems(*models)


A = field("a", "int")


@pytest.mark.parametrize(
    ("reader", "writer", "begins"),
    [
        (record(A), record(A), None),
        (record(A), record(A, field("b", "string")), None),
        (record(A, field("b", "string", default="")), record(A), None),
        (record(A, field("b", "string")), record(A), "READER_FIELD_MISSING_DEFAULT_VALUE at /fields/b"),
        (record(field("b", "int", aliases=["a"])), record(A), None),
        (record(field("a", "double")), record(A), None),
        (record(A), record(field("a", "long")), "TYPE_MISMATCH at /fields/a/type: reader type int"),
        (record(A, name="x.R"), record(A, name="y.R"), None),
        (record(A, name="S"), record(A), "NAME_MISMATCH"),
        (record(A, name="S", aliases=["R"]), record(A), None),
        (record(field("a", ["null", "int"])), record(A), None),
        (record(A), record(field("a", ["null", "int"])), "TYPE_MISMATCH at /fields/a/type"),
        (["string", "int"], ["boolean", "int"], "MISSING_UNION_BRANCH"),
        ("bytes", "string", None),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "string"}, "TYPE_MISMATCH at /items"),
        ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}, None),
        (
            {"type": "enum", "name": "E", "symbols": ["A"]},
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            "MISSING_ENUM_SYMBOLS at /: B",
        ),
        (
            {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"},
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            None,
        ),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 3}, "FIXED_SIZE_MISMATCH"),
        (record(field("next", ["null", "R"])), record(field("next", ["null", "R"])), None),
    ],
)
def test_avro(reader: Any, writer: Any, begins: str | None):
    found = problems("AVRO", reader, writer)
    assert (found == []) if begins is None else found[0].startswith(begins), found


def obj(properties: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **others}


OPEN = obj({"a": {"type": "integer"}})
CLOSED = obj({"a": {"type": "integer"}}, additionalProperties=False)


@pytest.mark.parametrize(
    ("reader", "writer", "begins"),
    [
        (OPEN, OPEN, None),
        ({"type": "number"}, {"type": "integer"}, None),
        ({"type": "integer"}, {"type": "number"}, "TYPE_NARROWED"),
        ({"type": ["string", "null"]}, {"type": "string"}, None),
        (obj({}, required=["a"]), obj({}), "REQUIRED_PROPERTY_ADDED"),
        (obj({"a": {"default": 1}}, required=["a"]), obj({}), None),
        (obj({"a": {}, "b": {"type": "string"}}, additionalProperties=False), CLOSED | {"properties": {"a": {}}}, None),
        (CLOSED, OPEN, "SCHEMA_REMOVED"),
        (obj({}, additionalProperties=False), CLOSED, "SCHEMA_REMOVED at #/properties/a"),
        ({"minimum": 1}, {"minimum": 2}, None),
        ({"minimum": 2}, {"minimum": 1}, "minimum at #"),
        ({"maxLength": 5}, {}, "maxLength at #"),
        ({"enum": [1, 2]}, {"enum": [1]}, None),
        ({"enum": [1]}, {"enum": [1, 2]}, "ENUM_ARRAY_NARROWED"),
        ({"pattern": "a"}, {"pattern": "b"}, "pattern at #: it was added or changed"),
        ({}, {"pattern": "b"}, None),
        ({"items": {"type": "string"}}, {"items": {"type": "integer"}}, "TYPE_NARROWED at #/items"),
        (
            {"$ref": "#/definitions/x", "definitions": {"x": {"type": "string"}}},
            {"$ref": "#/definitions/x", "definitions": {"x": {"type": "integer"}}},
            "TYPE_NARROWED",
        ),
        (
            obj({"next": {"$ref": "#"}, "a": {"type": "string"}}),
            obj({"next": {"$ref": "#"}, "a": {"type": "string"}}),
            None,
        ),
    ],
)
def test_json_schema(reader: Any, writer: Any, begins: str | None):
    found = problems("JSON", reader, writer)
    assert (found == []) if begins is None else found[0].startswith(begins), found


PROTO = 'syntax = "proto3"; package p; message M {{ {} }}'


@pytest.mark.parametrize(
    ("reader", "writer", "begins"),
    [
        ("int64 a = 1;", "int64 a = 1;", None),
        ("int64 a = 1;", "int32 renamed = 1;", None),
        ("string a = 1;", "int32 a = 1;", "FIELD_KIND_CHANGED at /M/1"),
        ("sint32 a = 1;", "int32 a = 1;", "FIELD_KIND_CHANGED"),
        ("bytes a = 1;", "string a = 1;", None),
        ("", "int32 a = 1;", None),
        ("int32 a = 1;", "", None),
        ("repeated int32 a = 1;", "int32 a = 1;", "FIELD_NUMERIC_LABEL_CHANGED"),
        ("repeated string a = 1;", "string a = 1;", None),
        ("message N {}", "message N {} message O {}", "MESSAGE_REMOVED at /M/O"),
        ("message N {} N a = 1;", "message N {} message O {} O a = 1;", "FIELD_KIND_CHANGED"),
        ("oneof o { int32 a = 1; }", "int32 a = 1;", None),
        ("oneof o { int32 a = 1; int32 b = 2; }", "int32 a = 1; int32 b = 2;", "MULTIPLE_FIELDS_MOVED_TO_ONEOF"),
        ("oneof o { int32 a = 1; }", "oneof o { int32 a = 1; int32 b = 2; }", "ONEOF_FIELD_REMOVED at /M: b"),
        ("", "optional int32 a = 1;", None),
    ],
)
def test_protobuf(reader: str, writer: str, begins: str | None):
    form = FORMATS["PROTOBUF"]
    models = [form.parse(PROTO.format(each), {}, False).model for each in (reader, writer)]
    found = form.problems(*models)
    assert (found == []) if begins is None else found[0].startswith(begins), found


def test_required_fields_of_proto2_can_be_neither_added_nor_removed():
    form = FORMATS["PROTOBUF"]
    with_field, without = (
        form.parse(f'syntax = "proto2"; message M {{ {each} }}', {}, False).model
        for each in ("required int32 a = 1;", "")
    )
    assert form.problems(with_field, without) == ["REQUIRED_FIELD_ADDED at /M/1: a"]
    assert form.problems(without, with_field) == ["REQUIRED_FIELD_REMOVED at /M/1: a"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("AVRO", "{"),
        ("AVRO", '{"type": "record"}'),
        ("AVRO", '"Unknown"'),
        ("JSON", "nonsense"),
        ("JSON", '{"type": "wrong"}'),
        ("PROTOBUF", "message {"),
        ("PROTOBUF", 'syntax = "proto3"; import "missing.proto";'),
    ],
)
def test_an_invalid_schema_is_rejected(kind: str, text: str):
    with pytest.raises(RestError) as wrong:
        FORMATS[kind].parse(text, {}, False)
    assert wrong.value.code == 42201


def test_a_descriptor_whose_types_are_missing_is_rejected():
    file = descriptor_pb2.FileDescriptorProto(name="f.proto", syntax="proto3")
    file.message_type.add(name="M").field.add(
        name="a", number=1, type=Field.TYPE_MESSAGE, type_name=".Missing", label=Field.LABEL_OPTIONAL
    )
    with pytest.raises(RestError, match="can't be linked"):
        FORMATS["PROTOBUF"].parse(base64.b64encode(file.SerializeToString()).decode(), {}, False)


def test_text_and_descriptor_of_one_file_are_the_same_schema():
    form = FORMATS["PROTOBUF"]
    text = form.parse(PROTO.format("int32 long_name = 1;"), {}, False)
    again = form.parse(base64.b64encode(text.model.SerializeToString()).decode(), {}, False)
    assert text.identity == again.identity


def test_a_map_as_confluents_java_serializer_writes_it():
    form = FORMATS["PROTOBUF"]
    entry = "message TagsEntry { option map_entry = true; string key = 1; int32 value = 2; }"
    written = form.parse(PROTO.format(f"repeated TagsEntry tags = 1; {entry}"), {}, False)
    ours = form.parse(PROTO.format("map<string, int32> tags = 1;"), {}, False)
    assert written.identity == ours.identity
    assert "option map_entry = true;" in written.text
    # a message that refers to it
    outer = 'syntax = "proto3"; import "m.proto"; message Outer { p.M m = 1; }'
    assert form.parse(outer, {"m.proto": written.text}, False).model.message_type[0].name == "Outer"


def test_text_that_refers_to_a_descriptor():
    """The one is registered by Java's serializer, the other one by confluent-kafka's or ours."""
    form = FORMATS["PROTOBUF"]
    within = form.parse('syntax = "proto3"; package p; message N {}', {}, False).model
    middle = 'syntax = "proto3"; package p; import "n.proto"; message M { N n = 1; }'
    outer = 'syntax = "proto3"; import "m.proto"; message Outer { p.M m = 1; }'
    references = {"n.proto": base64.b64encode(within.SerializeToString()).decode(), "m.proto": middle}
    field = form.parse(outer, references, False).model.message_type[0].field[0]
    assert (field.name, field.type_name) == ("m", ".p.M")
    with pytest.raises(RestError) as wrong:
        form.parse(outer, {"m.proto": middle}, False)
    assert wrong.value.code == 42201


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_normalizing_ignores_the_order_of_properties(kind: str):
    one, other = '{"type":"string", "title":"x"}', '{"title":"x", "type":"string"}'
    form = FORMATS[kind]
    assert form.parse(one, {}, True).identity == form.parse(other, {}, True).identity
    assert form.parse(one, {}, False).identity != form.parse(other, {}, False).identity
