"""From columns that are ready to the partitions' batches: what Arrow's columns and Spark's rows have in common."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

from ..network.protocol.errors import KafkaError, MessageSizeTooLargeError, UnknownTopicOrPartitionError
from .columns_cy import Columns, Rows
from .record_metadata_cy import RecordMetadata
from .rows_future import RowsFuture, RowsOfTopic, row_error

if TYPE_CHECKING:
    from .kafka_producer import KafkaProducer


def send_columns(
    producer: KafkaProducer,
    columns: Columns,
    topics: Iterable[tuple[str, Any]],
    future: RowsFuture,
    base_row: int,
) -> None:
    """Append every row to its partition's batches. The columns' first row is row `base_row` of the future.

    `topics`: each topic with the numbers of the rows that go there, None for all.
    Raises RowDeliveryError, before anything is sent where it is the data's fault.
    """
    largest = producer.config.max_request_size
    row = columns.first_above(largest)
    if row >= 0:
        cause = MessageSizeTooLargeError(
            f"a record of about {columns.record_bytes(row)} bytes is larger than max.request.size ({largest} bytes): "
            f"raise it (and the broker's message.max.bytes), or send less in one record"
        )
        raise row_error(base_row + row, None, -1, cause) from cause
    future.metadata.bytes += columns.total_bytes
    for topic, subset in topics:
        _send_to_topic(producer, topic, columns, subset, future, base_row)


def _send_to_topic(
    producer: KafkaProducer, topic: str, columns: Columns, subset: Any, future: RowsFuture, base_row: int
) -> None:
    first_row = base_row + (subset[0] if subset is not None else 0)
    try:
        accumulator, queues, count = producer.partitions_of(topic, columns.last_partition())
    except KafkaError as error:
        raise row_error(first_row, topic, -1, error) from error
    row = columns.first_partition_from(count, subset)
    if row >= 0:
        partition = columns.partition_at(row)
        cause = UnknownTopicOrPartitionError(
            f"topic {topic!r} has {count} partitions, 0 to {count - 1}: there is no partition {partition}"
        )
        raise row_error(base_row + row, topic, partition, cause) from cause
    rows = Rows(columns, subset, count, not producer.config.partitioner_ignore_keys)
    target = RowsOfTopic(future, rows.order_array, base_row)
    try:
        rows.append_to(accumulator, queues, target, float(producer.config.max_block_ms))
    except KafkaError as error:
        raise row_error(target.row_at(target.place), topic, -1, error) from error


def send_each(
    producer: KafkaProducer,
    topics: Iterable[str | None],
    values: Sequence[Any],
    keys: Sequence[Any] | None,
    headers: Sequence[Any] | None,
    partitions: Sequence[int | None] | None,
    timestamps: Sequence[int | None] | None,
    future: RowsFuture,
    base_row: int,
) -> None:
    """Send each row by itself, through serializers, interceptors and partitioners. Raises RowDeliveryError."""
    producer.say_row_by_row()
    target = RowsOfTopic(future, array("q"), base_row)
    nothing = repeat(None)
    rows = zip(
        topics, values, keys or nothing, headers or nothing, partitions or nothing, timestamps or nothing, strict=False
    )
    for row, (topic, value, key, pairs, partition, timestamp) in enumerate(rows):

        def settle(metadata: RecordMetadata, exception: BaseException | None, row: int = row) -> None:
            target.settle_record(row, metadata, exception)

        try:
            producer.send(topic, value, key, pairs, partition, timestamp, settle)
        except KafkaError as error:
            raise row_error(base_row + row, topic, -1, error) from error
