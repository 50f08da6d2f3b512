"""What a serializer learns about the record: confluent-kafka's `SerializationContext`."""

from __future__ import annotations

from enum import Enum


class MessageField(str, Enum):
    """The part of a record that is serialized."""

    NONE = "none"
    KEY = "key"
    VALUE = "value"

    def __str__(self) -> str:
        return self.value


class SerializationContext:
    """The topic, the part of the record (`field`) and the headers of a record that is being serialized.

    `headers` is a list of pairs to which a serializer may append; None if there are no headers to append to.
    """

    __slots__ = ("field", "headers", "topic")

    def __init__(self, topic: str, field: MessageField, headers: list[tuple[str, bytes | None]] | None = None) -> None:
        self.topic = topic
        self.field = field
        self.headers = headers
