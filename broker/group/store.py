"""Groups and offsets as records of `__consumer_offsets`, in Kafka's format."""

from __future__ import annotations

import struct
from typing import NamedTuple

from .group import CommittedOffset, Group

_OFFSET_KEY_VERSIONS = (0, 1)
_GROUP_KEY_VERSION = 2
_VALUE_VERSION = 3
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")


class OffsetKey(NamedTuple):
    """The key of a committed offset."""

    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """The key of a group's metadata."""

    group_id: str


class StoredMember(NamedTuple):
    """A member as stored."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class StoredGroup(NamedTuple):
    """A group's metadata as stored."""

    protocol_type: str
    generation: int
    protocol_name: str | None
    leader_id: str | None
    state_since_ms: int
    members: list[StoredMember]


def _text(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    content = value.encode()
    return _SHORT.pack(len(content)) + content


def _blob(value: bytes) -> bytes:
    return _INT.pack(len(value)) + value


class _Reader:
    """Decodes the fields of a record in order. Raises ValueError or struct.error if they don't fit."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def number(self, layout: struct.Struct) -> int:
        (value,) = layout.unpack_from(self._content, self._position)
        self._position += layout.size
        return value

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._content):
            raise ValueError(f"a field of {size} bytes exceeds the record")
        value = self._content[self._position : end]
        self._position = end
        return value

    def text(self) -> str | None:
        size = self.number(_SHORT)
        return None if size == -1 else self._take(size).decode()

    def blob(self) -> bytes:
        return self._take(self.number(_INT))


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return _SHORT.pack(1) + _text(group_id) + _text(topic) + _INT.pack(partition)


def encode_offset(offset: CommittedOffset) -> bytes:
    """The value of a committed offset, version 3."""
    return (
        _SHORT.pack(_VALUE_VERSION)
        + _LONG.pack(offset.offset)
        + _INT.pack(offset.leader_epoch)
        + _text(offset.metadata)
        + _LONG.pack(offset.commit_ms)
    )


def encode_group_key(group_id: str) -> bytes:
    return _SHORT.pack(_GROUP_KEY_VERSION) + _text(group_id)


def encode_group(group: Group) -> bytes:
    """The value of a group's metadata, version 3."""
    protocol = group.protocol_name or ""
    parts = [
        _SHORT.pack(_VALUE_VERSION),
        _text(group.protocol_type or ""),
        _INT.pack(group.generation),
        _text(group.protocol_name),
        _text(group.leader_id),
        _LONG.pack(group.state_since_ms),
        _INT.pack(len(group.members)),
    ]
    for member in group.members.values():
        parts += [
            _text(member.member_id),
            _text(member.instance_id),
            _text(member.client_id),
            _text(member.client_host),
            _INT.pack(member.rebalance_timeout_ms),
            _INT.pack(member.session_timeout_ms),
            _blob(member.metadata(protocol)),
            _blob(member.assignment),
        ]
    return b"".join(parts)


def decode_key(content: bytes) -> OffsetKey | GroupKey | None:
    """Decode a record key of the offsets topic; None for unknown kinds. Raises ValueError, struct.error."""
    reader = _Reader(content)
    version = reader.number(_SHORT)
    if version in _OFFSET_KEY_VERSIONS:
        return OffsetKey(reader.text() or "", reader.text() or "", reader.number(_INT))
    return GroupKey(reader.text() or "") if version == _GROUP_KEY_VERSION else None


def decode_offset(content: bytes) -> CommittedOffset:
    """Decode a committed offset, versions 0 to 3. Raises ValueError, struct.error."""
    reader = _Reader(content)
    version = reader.number(_SHORT)
    offset = reader.number(_LONG)
    leader_epoch = reader.number(_INT) if version >= 3 else -1
    metadata = reader.text() or ""
    return CommittedOffset(offset, leader_epoch, metadata, reader.number(_LONG))


def decode_group(content: bytes) -> StoredGroup:
    """Decode a group's metadata, versions 0 to 3. Raises ValueError, struct.error."""
    reader = _Reader(content)
    version = reader.number(_SHORT)
    protocol_type = reader.text() or ""
    generation = reader.number(_INT)
    protocol_name = reader.text()
    leader_id = reader.text()
    since_ms = reader.number(_LONG) if version >= 2 else 0
    members = []
    for _ in range(reader.number(_INT)):
        member_id = reader.text() or ""
        instance_id = reader.text() if version >= 3 else None
        client_id, client_host = reader.text() or "", reader.text() or ""
        rebalance_timeout_ms = reader.number(_INT) if version >= 1 else -1
        session_timeout_ms = reader.number(_INT)
        if rebalance_timeout_ms < 0:
            rebalance_timeout_ms = session_timeout_ms
        members.append(
            StoredMember(
                member_id,
                instance_id,
                client_id,
                client_host,
                rebalance_timeout_ms,
                session_timeout_ms,
                reader.blob(),
                reader.blob(),
            )
        )
    return StoredGroup(protocol_type, generation, protocol_name, leader_id, since_ms, members)
