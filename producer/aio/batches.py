"""Batches that a program fills itself, as with aiokafka's `create_batch`: `BatchBuilder`.

The records are sent by `send_many`. So they keep their order, but share the partition's batches with other records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ...network.clock import Clock
from ...network.cluster import TopicPartition
from ...network.protocol.errors import EncodeError, IllegalArgumentError
from ...network.records.builder_cy import encoded_size
from ...network.records.headers_cy import encode_headers
from ..accumulator.record_metadata_cy import RecordMetadata
from ..columns.lists import send_many
from ..columns.rows_future import RowsFuture
from ..record import checked_timestamp
from ..record_errors import invalid_headers
from .direct import DirectProducer

#: The bytes of a batch without records.
_HEADER_BYTES = 61


class BatchRecord(NamedTuple):
    """A record of a `BatchBuilder`.

    `offset`: its number in the batch. `crc`: always None. `size`: at most as many bytes. `timestamp`: milliseconds
    since 1970.
    """

    offset: int
    crc: None
    size: int
    timestamp: int


class BatchBuilder:
    """Records for one partition, up to about ``batch.size`` bytes in total. One thread at a time may use it.

    `AsyncKafkaProducer.create_batch` returns it, and `AsyncKafkaProducer.send_batch` sends it.
    """

    def __init__(self, batch_size: int, clock: Clock, serialize: Callable[[str, Any], bytes | None]) -> None:
        """Create an empty batch.

        `batch_size`: the most bytes, unless a single record has more. `clock`: for the records without a timestamp.
        `serialize`: turns the "key" or "value" of a record into bytes.
        """
        self._batch_size = batch_size
        self._clock = clock
        self._serialize = serialize
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[list[tuple[str, bytes | None]]] = []
        self._timestamps: list[int] = []
        self._size = _HEADER_BYTES
        self._closed = False

    def append(
        self,
        *,
        timestamp: int | None = None,
        key: Any = None,
        value: Any = None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
    ) -> BatchRecord | None:
        """Add a record and return its place; None if the batch is closed, or full, which closes it.

        `timestamp`: milliseconds since 1970; None means now. The rest is as in `AsyncKafkaProducer.send`, but
        serializers get "" for the topic, which is not known yet.
        Raises SerializationError and IllegalArgumentError.
        """
        if self._closed:
            return None
        encoded_key, encoded_value = self._serialize("key", key), self._serialize("value", value)
        pairs = [] if headers is None else list(headers)
        try:
            encoded_headers = encode_headers(pairs) if pairs else None
        except (EncodeError, UnicodeEncodeError) as wrong:
            raise invalid_headers(pairs, "", wrong) from wrong
        timestamp = self._clock.wall_ms() if timestamp is None else checked_timestamp(timestamp)
        size = encoded_size(encoded_key, encoded_value, encoded_headers) - _HEADER_BYTES
        if self._values and self._size + size > self._batch_size:
            self._closed = True
            return None
        self._keys.append(encoded_key)
        self._values.append(encoded_value)
        self._headers.append(pairs)
        self._timestamps.append(timestamp)
        self._size += size
        return BatchRecord(len(self._values) - 1, None, size, timestamp)

    def close(self) -> None:
        """Take no more records. A closed batch can be sent."""
        self._closed = True

    def record_count(self) -> int:
        """The number of records."""
        return len(self._values)

    def size(self) -> int:
        """At most as many bytes, uncompressed."""
        return self._size

    def send(self, producer: DirectProducer, topic: str, partition: int) -> RowsFuture:
        """Append the records to a partition's batches. May block. Raises what `KafkaProducer.send_many` raises."""
        self._closed = True
        if not self._values:
            raise IllegalArgumentError("the batch has no records: append some before send_batch")
        return send_many(
            producer.bytes_sender(),
            topic,
            self._values,
            self._keys,
            self._headers if any(self._headers) else None,
            partition,
            self._timestamps,
        )


async def first_of(rows: RowsFuture, topic: str, partition: int) -> RecordMetadata:
    """The metadata of the first record of a batch that was sent. Raises its RowDeliveryError."""
    delivered = await rows
    return RecordMetadata(topic, partition, delivered.offsets[TopicPartition(topic, partition)].first)
