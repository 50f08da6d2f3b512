# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: freethreading_compatible=True
"""`RecordMetadata`: the position of an acknowledged record, as passed to futures and callbacks.

Source: Kafka's RecordMetadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...network import _cython as cython
from ...network.cluster import TopicPartition

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython


@cython.final
@cython.freelist(64)
@cython.no_gc
@cython.cclass
class RecordMetadata:
    """Topic, partition, offset, timestamp and serialized sizes of an acknowledged record.

    `offset` is -1 if the broker returned none (``acks=0``). `timestamp` is in milliseconds since 1970, and is the
    broker's if the topic uses log-append time. Sizes are in bytes, -1 for a null key or value. Immutable. The names
    are those of kafka-python and of Java's RecordMetadata.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int = -1,
        timestamp: int = -1,
        serialized_key_size: int = -1,
        serialized_value_size: int = -1,
        serialized_header_size: int = -1,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.serialized_key_size = serialized_key_size
        self.serialized_value_size = serialized_value_size
        self.serialized_header_size = serialized_header_size

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition as one value."""
        return TopicPartition(self.topic, self.partition)

    @property
    def has_offset(self) -> bool:
        """Whether the broker returned the record's offset."""
        return self.offset >= 0

    @property
    def checksum(self) -> None:
        """Always None: since message format v2 records have no checksum of their own (kafka-python keeps the name)."""
        return

    def _fields(self) -> tuple:
        return (
            self.topic,
            self.partition,
            self.offset,
            self.timestamp,
            self.serialized_key_size,
            self.serialized_value_size,
            self.serialized_header_size,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordMetadata) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __reduce__(self) -> tuple:
        return (RecordMetadata, self._fields())

    def __repr__(self) -> str:
        return (
            f"RecordMetadata(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp={self.timestamp})"
        )
