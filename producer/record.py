"""A record as passed to `KafkaProducer.send`.

Source: Kafka's ProducerRecord.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class ProducerRecord:  # noqa: PLW1641 - it can change, so it has no hash
    """One record for `KafkaProducer.send`: a topic, a value, and optional fields.

    `topic`: the topic's name.
    `value`, `key`: objects that the serializers accept, or bytes without serializers. A value of None is a tombstone.
    `headers`: pairs of a name and bytes.
    `partition`: the partition; None lets the partitioner choose.
    `timestamp_ms`: milliseconds since 1970; None means the time of the send.

    Interceptors may replace a record.
    """

    # written out: the dataclasses module would take a tenth of the time of importing the producer
    __slots__ = __match_args__ = ("topic", "value", "key", "headers", "partition", "timestamp_ms")

    def __init__(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        self.topic = topic
        self.value = value
        self.key = key
        self.headers = headers
        self.partition = partition
        self.timestamp_ms = timestamp_ms

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"
