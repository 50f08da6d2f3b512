"""Transactions as records of `__transaction_state`, in Kafka's format (TransactionLogKey, TransactionLogValue).

Value version 0 is the older format. Version 1, since level 1 of `transaction.version`, is flexible: compact lengths,
and the last fields are tagged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from ..metadata import PartitionKey
from .states import TransactionState
from .transaction import TransactionValues

_KEY_VERSION = 0
_HEAD = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_LEVEL = range(3)


def encode_key(transactional_id: str) -> bytes:
    name = transactional_id.encode()
    return _SHORT.pack(_KEY_VERSION) + _SHORT.pack(len(name)) + name


def decode_key(content: bytes) -> str | None:
    """The transactional id; None for an unknown kind of key. Raises ValueError, struct.error."""
    (version,) = _SHORT.unpack_from(content)
    if version != _KEY_VERSION:
        return None
    (length,) = _SHORT.unpack_from(content, 2)
    if length < 0 or 4 + length > len(content):
        raise ValueError(f"a transactional id of {length} bytes exceeds the record")
    return content[4 : 4 + length].decode()


def encode_value(values: TransactionValues, level: int) -> bytes:
    """The value of a transaction, in the version for a level of `transaction.version`."""
    version = 1 if level >= 1 else 0
    flexible = version == 1
    parts = [
        _HEAD.pack(version, values.producer_id, values.producer_epoch, values.timeout_ms, values.state),
        _encode_partitions(None if values.state is TransactionState.EMPTY else values.partitions, flexible),
        _TIMES.pack(values.update_ms, values.start_ms),
    ]
    if flexible:
        tags = [
            (_PREVIOUS_PRODUCER_ID, _LONG.pack(values.previous_producer_id), values.previous_producer_id != -1),
            (_NEXT_PRODUCER_ID, _LONG.pack(values.next_producer_id), values.next_producer_id != -1),
            (_CLIENT_LEVEL, _SHORT.pack(values.client_level), values.client_level != 0),
        ]
        given = [(tag, content) for tag, content, is_given in tags if is_given]
        parts.append(_varint(len(given)))
        for tag, content in given:
            parts += [_varint(tag), _varint(len(content)), content]
    return b"".join(parts)


def _encode_partitions(partitions: Iterable[PartitionKey] | None, flexible: bool) -> bytes:
    if partitions is None:
        return _varint(0) if flexible else _INT.pack(-1)
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    parts = [_length(len(by_topic), _INT, flexible)]
    for topic, indexes in by_topic.items():
        name = topic.encode()
        parts += [_length(len(name), _SHORT, flexible), name, _length(len(indexes), _INT, flexible)]
        parts += [_INT.pack(index) for index in indexes]
        parts.append(b"\0" if flexible else b"")
    return b"".join(parts)


def _length(count: int, layout: struct.Struct, flexible: bool) -> bytes:
    return _varint(count + 1) if flexible else layout.pack(count)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Reader:
    """Decodes fields in order. Raises ValueError or struct.error if they don't fit."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0
        self.flexible = False

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self._content, self._position)
        self._position += layout.size
        return values

    def varint(self) -> int:
        value = shift = 0
        while True:
            if self._position >= len(self._content) or shift > 28:
                raise ValueError("a varint exceeds the record")
            byte = self._content[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def length(self, layout: struct.Struct) -> int:
        return self.varint() - 1 if self.flexible else self.unpack(layout)[0]

    def take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._content):
            raise ValueError(f"a field of {size} bytes exceeds the record")
        value = self._content[self._position : end]
        self._position = end
        return value

    def tags(self) -> dict[int, bytes]:
        return {self.varint(): self.take(self.varint()) for _ in range(self.varint())} if self.flexible else {}


def decode_value(content: bytes) -> TransactionValues:
    """Decode a transaction, versions 0 and 1. Raises ValueError, struct.error."""
    reader = _Reader(content)
    version, producer_id, producer_epoch, timeout_ms, state = reader.unpack(_HEAD)
    if version not in (0, 1):
        raise ValueError(f"the value has version {version}, expected 0 or 1")
    reader.flexible = version == 1
    partitions: set[PartitionKey] = set()
    for _ in range(reader.length(_INT)):
        topic = reader.take(reader.length(_SHORT)).decode()
        partitions.update((topic, reader.unpack(_INT)[0]) for _ in range(reader.length(_INT)))
        reader.tags()
    update_ms, start_ms = reader.unpack(_TIMES)
    tags = reader.tags()
    return TransactionValues(
        producer_id,
        producer_epoch,
        timeout_ms,
        TransactionState(state),
        update_ms,
        frozenset(partitions),
        start_ms,
        previous_producer_id=_LONG.unpack(tags.get(_PREVIOUS_PRODUCER_ID, _LONG.pack(-1)))[0],
        next_producer_id=_LONG.unpack(tags.get(_NEXT_PRODUCER_ID, _LONG.pack(-1)))[0],
        client_level=_SHORT.unpack(tags.get(_CLIENT_LEVEL, _SHORT.pack(0)))[0],
    )
