"""A record as passed to `KafkaProducer.send`.

Source: Kafka's ProducerRecord.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True, eq=True, unsafe_hash=False)
class ProducerRecord:
    """One record for `KafkaProducer.send`: a topic, a value, and optional fields.

    `topic`: the topic's name.
    `value`, `key`: objects that the serializers accept, or bytes without serializers. A value of None is a tombstone.
    `headers`: pairs of a name and bytes.
    `partition`: the partition; None lets the partitioner choose.
    `timestamp_ms`: milliseconds since 1970; None means the time of the send.

    Interceptors may replace a record.
    """

    topic: str
    value: Any = None
    key: Any = None
    headers: Iterable[tuple[str, bytes | None]] | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
