"""A record as passed to `KafkaProducer.send`, and the checks of its numbers.

Source: Kafka's ProducerRecord.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any

from ..network.protocol.errors import IllegalArgumentError
from ..network.topic_names import validate_topic_name


class ProducerRecord:  # noqa: PLW1641 - its fields may change, so it has no hash
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


def addressed(record: ProducerRecord) -> ProducerRecord:
    """The record, or a copy of it whose topic is a plain str. Raises InvalidTopicError."""
    topic = validate_topic_name(record.topic)
    if topic is record.topic:
        return record
    return ProducerRecord(topic, record.value, record.key, record.headers, record.partition, record.timestamp_ms)


def checked_partition(partition: object) -> int:
    """The number of a partition, which the topic may not have. Raises IllegalArgumentError for anything else."""
    number = _whole_number(partition)
    if number is None or number < 0:
        raise IllegalArgumentError(f"a partition is a number, 0 or more, or None to have one chosen; not {partition!r}")
    return number


def checked_timestamp(timestamp_ms: object) -> int:
    """The milliseconds of a timestamp. Raises IllegalArgumentError for anything else."""
    number = _whole_number(timestamp_ms)
    if number is None or not 0 <= number < 2**63:
        raise IllegalArgumentError(
            f"timestamp_ms is a whole number of milliseconds since 1970, or None for now; not {timestamp_ms!r}"
        )
    return number


def _whole_number(value: object) -> int | None:
    """An int from an int or an integer type such as numpy's; None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        return None
