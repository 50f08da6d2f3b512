"""How a serialized key or value names its schema: by a prefix with the id, or by a header with the GUID.

Prefix: a byte 0, the id in 4 bytes, for Protobuf the message's indexes, then the data. Header: `__key_schema_id` or
`__value_schema_id` has a byte 1, the GUID in 16 bytes and for Protobuf the indexes; the data stands alone.

Source: Confluent's wire format; SchemaId in confluent-kafka 2.10 and newer.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable
from typing import Any

from ..network.protocol.errors import SerializationError
from .context import MessageField, SerializationContext

KEY_SCHEMA_ID = "__key_schema_id"
VALUE_SCHEMA_ID = "__value_schema_id"
_PREFIX = struct.Struct(">BI")


class SchemaId:
    """A schema's id and GUID, and the position of a Protobuf message in it. Immutable."""

    __slots__ = ("_header", "_prefix", "guid", "id", "message_indexes")

    def __init__(self, schema_id: int, guid: str | None = None, message_indexes: Iterable[int] | None = None) -> None:
        self.id = schema_id
        self.guid = None if guid is None else uuid.UUID(guid)
        self.message_indexes = None if message_indexes is None else list(message_indexes)
        indexes = b"" if self.message_indexes is None else encoded_indexes(self.message_indexes)
        self._prefix = _PREFIX.pack(0, schema_id) + indexes
        self._header = None if self.guid is None else b"\x01" + self.guid.bytes + indexes

    def id_to_bytes(self) -> bytes:
        """The prefix."""
        return self._prefix

    def guid_to_bytes(self) -> bytes:
        """The value of the header. Raises SerializationError if the registry named no GUID."""
        if self._header is None:
            raise SerializationError(
                f"the schema registry returned no GUID for schema {self.id}, which framing by headers needs; use the "
                "prefix framing, or a registry that has GUIDs (Confluent's since 8.0)"
            )
        return self._header


def prefix_schema_id_serializer(payload: bytes, ctx: SerializationContext | None, schema_id: SchemaId) -> bytes:
    """Put the prefix with the schema's id before the data."""
    return schema_id.id_to_bytes() + payload


def header_schema_id_serializer(payload: bytes, ctx: SerializationContext | None, schema_id: SchemaId) -> bytes:
    """Add the header with the schema's GUID and return the data unchanged. Raises SerializationError."""
    headers: Any = None if ctx is None else ctx.headers
    if ctx is None or headers is None:
        raise SerializationError(
            "framing by headers needs a SerializationContext whose headers are a list; use the serializer as "
            "key_serializer or value_serializer of a KafkaProducer, or pass such a context"
        )
    name = _header_name(ctx)
    if isinstance(headers, dict):
        headers[name] = schema_id.guid_to_bytes()
    else:
        # a record that is sent again has the header already
        headers[:] = [header for header in headers if header[0] != name]
        headers.append((name, schema_id.guid_to_bytes()))
    return payload


def framing_of_columns(
    frame: Any, ctx: SerializationContext, schema_id: SchemaId
) -> tuple[bytes, tuple[str, bytes] | None]:
    """What either of the two functions above adds to each record: a prefix, or a header. Raises SerializationError."""
    if frame is prefix_schema_id_serializer:
        return schema_id.id_to_bytes(), None
    return b"", (_header_name(ctx), schema_id.guid_to_bytes())


def _header_name(ctx: SerializationContext) -> str:
    return KEY_SCHEMA_ID if ctx.field == MessageField.KEY else VALUE_SCHEMA_ID


def encoded_indexes(indexes: list[int]) -> bytes:
    """The position of a message among the messages of its file, and of theirs, as zigzag varints.

    Preceded by their number; the first message of the file, which is the most frequent, is a single 0.
    """
    if indexes == [0]:
        return b"\x00"
    return b"".join(_varint(number) for number in (len(indexes), *indexes))


def _varint(number: int) -> bytes:
    rest = number << 1
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)
