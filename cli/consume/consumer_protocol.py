"""The protocol of type "consumer": the bytes that members of a group exchange through the coordinator.

Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment. This module writes version 0, which clients of all
releases read, and reads every version: later ones append fields that the range assignor doesn't use.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from ...network.protocol.errors import MalformedMessageError
from .assignor import Assignment

PROTOCOL_TYPE = "consumer"

_VERSION = 0
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
#: Members may send any bytes of their own; this command sends none.
_NO_USER_DATA = _INT.pack(0)


def encode_subscription(topics: Sequence[str]) -> bytes:
    """The metadata of a member that subscribes to the topics."""
    return _SHORT.pack(_VERSION) + _INT.pack(len(topics)) + b"".join(map(_text, topics)) + _NO_USER_DATA


def decode_subscription(content: bytes) -> list[str]:
    """The topics in a member's metadata. Raises MalformedMessageError."""
    reader = _Reader(content, "subscription")
    return [reader.text() for _ in range(reader.count())]


def encode_assignment(assignment: Mapping[str, Sequence[int]]) -> bytes:
    """The partitions of one member."""
    parts = [_SHORT.pack(_VERSION), _INT.pack(len(assignment))]
    for topic, partitions in assignment.items():
        parts += [_text(topic), _INT.pack(len(partitions)), *map(_INT.pack, partitions)]
    return b"".join([*parts, _NO_USER_DATA])


def decode_assignment(content: bytes) -> Assignment:
    """The partitions of this member; none if the leader sent nothing. Raises MalformedMessageError."""
    if not content:
        return {}
    reader = _Reader(content, "assignment")
    return {reader.text(): [reader.number(_INT) for _ in range(reader.count())] for _ in range(reader.count())}


def _text(value: str) -> bytes:
    content = value.encode()
    return _SHORT.pack(len(content)) + content


class _Reader:
    """Decodes the fields behind the version in order."""

    def __init__(self, content: bytes, what: str) -> None:
        self._content = content
        self._what = what
        self._position = 0
        version = self.number(_SHORT)
        if version < 0:
            raise self._malformed(f"its version is {version}")

    def number(self, layout: struct.Struct) -> int:
        (value,) = layout.unpack(self._take(layout.size))
        return int(value)

    def count(self) -> int:
        count = self.number(_INT)
        if not 0 <= count <= len(self._content):
            raise self._malformed(f"it announces {count} elements")
        return count

    def text(self) -> str:
        try:
            return self._take(self.number(_SHORT)).decode()
        except UnicodeDecodeError as wrong:
            raise self._malformed("the name of a topic is not UTF-8") from wrong

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._content):
            raise self._malformed(f"it ends after {len(self._content)} bytes")
        content = self._content[self._position : end]
        self._position = end
        return content

    def _malformed(self, why: str) -> MalformedMessageError:
        return MalformedMessageError(
            f"a {self._what} in the group is not one of Kafka's consumer protocol: {why}; does another program use the "
            "same group?"
        )
