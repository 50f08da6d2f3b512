"""The errors of a single record or row, worded once for `send`, columns and Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..network.acl_advice import missing_acl
from ..network.cluster import TopicPartition
from ..network.protocol.errors import (
    DeliveryTimeoutError,
    KafkaError,
    MessageSizeTooLargeError,
    RowDeliveryError,
    SerializationError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    error_for,
    make_error,
)
from ..network.protocol.messages.records.produce import PartitionProduceResponse
from ..network.text import counted

if TYPE_CHECKING:
    from .accumulator.batch_cy import ProducerBatch


def record_too_large(size_bytes: int, max_request_bytes: int, buffer_memory_bytes: int, where: str = "") -> KafkaError:
    """The error for a record that exceeds ``max.request.size`` or ``buffer.memory``.

    `where` describes the record, as in " for topic 't'".
    """
    what = f"a record of about {size_bytes} bytes{where}"
    if size_bytes > max_request_bytes:
        return MessageSizeTooLargeError(
            f"{what} is larger than max.request.size ({max_request_bytes} bytes): raise max.request.size (and the "
            f"broker's message.max.bytes), or send less in one record"
        )
    return MessageSizeTooLargeError(
        f"{what} does not fit into buffer.memory ({buffer_memory_bytes} bytes): raise it, or send less in one record"
    )


def not_bytes(part: str, data: object, topic: str) -> SerializationError:
    """The error for a key or value (`part`) that is not bytes, where no serializer is configured."""
    return SerializationError(
        f"the {part} of a record for topic {topic!r} is {type(data).__name__}, not bytes: encode it, or set "
        f"{part}_serializer (to a callable, or a name such as 'string' or 'json')"
    )


def invalid_headers(headers: object, topic: str, wrong: Exception) -> SerializationError:
    """The error for headers that can't be encoded; `wrong` describes the problem."""
    advice = "; for a dict, give its items()" if isinstance(headers, Mapping) else ""
    error = SerializationError(f"headers of a record for topic {topic!r}: {wrong}{advice}")
    error.__cause__ = wrong
    return error


def no_such_partition(topic: str, partition: int, count: int) -> UnknownTopicOrPartitionError:
    """The error for a record whose partition the topic, with `count` partitions, does not have."""
    numbers = f"0 to {count - 1}" if count > 1 else "number 0"
    return UnknownTopicOrPartitionError(
        f"topic {topic!r} has {counted(count, 'partition')}, {numbers}: there is no partition {partition}"
    )


def row_error(row: int, topic: str | None, partition: int, cause: BaseException, where: str = "") -> RowDeliveryError:
    """The error of one row, with its destination and the cause, but never its content.

    `partition` is -1 if none was chosen. `where` names what `row` is counted in, as in " of partition 3".
    """
    going = "" if topic is None else f" for {topic}" + (f"-{partition}" if partition >= 0 else "")
    name = "" if isinstance(cause, SerializationError) else f"{type(cause).__name__}: "
    error = RowDeliveryError(
        f"row {row}{where}{going} was not delivered: {name}{cause}", topic=topic, partition=partition, row=row
    )
    error.__cause__ = cause
    return error


def rejection(answer: PartitionProduceResponse, partition: TopicPartition) -> KafkaError:
    """The error with which a broker rejected a batch, with the broker's message if it sent one."""
    kind = error_for(answer.error_code)
    meaning = kind.__doc__.strip().splitlines()[0] if kind is not None and kind.__doc__ else "unknown error"
    if kind is TopicAuthorizationFailedError and not answer.error_message:
        meaning = missing_acl("WRITE", "TOPIC", partition.topic)
    return make_error(answer.error_code, f"{partition}: {answer.error_message or meaning}")


def rejected_records(answer: PartitionProduceResponse, error: KafkaError) -> dict[int, BaseException] | None:
    """The errors of the records for which a broker rejected a batch, by record index (KIP-467).

    None if the broker names no records. The records it does not name fail with `error`.
    """
    if not answer.record_errors:
        return None
    return {
        entry.batch_index: make_error(
            answer.error_code, entry.batch_index_error_message or answer.error_message or str(error)
        )
        for entry in answer.record_errors
    }


def first_rejected(
    record_errors: dict[int, BaseException] | None, start: int, count: int, error: BaseException
) -> tuple[int, BaseException]:
    """Return the index and error of the first rejected record among `count` records of a batch from `start` on.

    (start, error) if the broker named none of them.
    """
    rejected: Iterable[int] = record_errors or ()
    index = min((at for at in rejected if start <= at < start + count), default=None)
    if record_errors is None or index is None:
        return start, error
    return index, record_errors[index]


def delivery_timeout(
    batch: ProducerBatch,
    attempts: int,
    age_ms: float,
    timeout_ms: float,
    connection_error: KafkaError | None,
    *,
    leaderless: bool = False,
) -> DeliveryTimeoutError:
    """The error for a batch past ``delivery.timeout.ms``, whether queued, in flight or just rejected.

    `__cause__` is the error of the last attempt, or else `connection_error`, the last one of any connection.
    `leaderless`: whether the partition has no leader now.
    """
    cause, what = batch.last_error, "Last error"
    if cause is None:
        cause, what = connection_error, "Last connection error"
    error = DeliveryTimeoutError(
        f"{'1 record' if batch.count == 1 else f'{batch.count} records'} for {batch.topic_partition} not delivered "
        f"within delivery.timeout.ms ({timeout_ms:.0f} ms; {age_ms:.0f} ms have passed)"
        + (f" after {attempts} attempt{'s' * (attempts > 1)}" if attempts else ", and never sent")
        + ("; the partition has no leader" if leaderless else "")
        + (f". {what}: {cause}" if cause is not None else "")
    )
    error.__cause__ = cause
    return error
