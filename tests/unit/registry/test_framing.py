"""How a record names its schema, compared with confluent-kafka's SchemaId."""

from __future__ import annotations

import io

import pytest
from confluent_kafka.schema_registry.serde import SchemaId as Confluents

from headrace.network.protocol.errors import SerializationError
from headrace.registry.context import MessageField, SerializationContext
from headrace.registry.framing import SchemaId, header_schema_id_serializer, prefix_schema_id_serializer

GUID = "89791762-2336-4186-9674-299b90a802e2"


@pytest.mark.parametrize("schema_id", [0, 1, 2**31 - 1])
@pytest.mark.parametrize("indexes", [None, [0], [1], [0, 0], [3, 64, 200]])
def test_prefix_and_header_are_those_of_confluent(schema_id: int, indexes: list[int] | None):
    ours = SchemaId(schema_id, GUID, indexes)
    read = Confluents("AVRO" if indexes is None else "PROTOBUF")
    assert read.from_bytes(io.BytesIO(ours.id_to_bytes() + b"data")).read() == b"data"
    assert (read.id, read.message_indexes) == (schema_id, indexes)
    read = Confluents("AVRO" if indexes is None else "PROTOBUF")
    assert read.from_bytes(io.BytesIO(ours.guid_to_bytes())).read() == b""
    assert (str(read.guid), read.message_indexes) == (GUID, indexes)


def test_a_schema_without_guid_can_not_be_framed_by_a_header():
    with pytest.raises(SerializationError, match="no GUID for schema 7"):
        SchemaId(7).guid_to_bytes()
    assert prefix_schema_id_serializer(b"x", None, SchemaId(7)) == b"\0\0\0\0\7x"


def test_the_header_replaces_the_one_of_an_earlier_send():
    headers: list[tuple[str, bytes | None]] = [("a", b"1"), ("__key_schema_id", b"old"), ("__value_schema_id", b"v")]
    context = SerializationContext("t", MessageField.KEY, headers)
    assert header_schema_id_serializer(b"data", context, SchemaId(7, GUID)) == b"data"
    assert headers == [("a", b"1"), ("__value_schema_id", b"v"), ("__key_schema_id", SchemaId(7, GUID).guid_to_bytes())]


@pytest.mark.parametrize("context", [None, SerializationContext("t", MessageField.KEY)])
def test_a_header_needs_headers(context: SerializationContext | None):
    with pytest.raises(SerializationError, match="needs a SerializationContext whose headers are a list"):
        header_schema_id_serializer(b"data", context, SchemaId(7, GUID))
