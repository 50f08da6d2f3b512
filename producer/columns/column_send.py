"""From columns that are ready to the partitions' batches: what Arrow's columns and Spark's rows have in common."""

from __future__ import annotations

import functools
from array import array
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Protocol

from ...network.protocol.errors import KafkaError
from ...network.records.columns_cy import Columns
from ..record_errors import no_such_partition, record_too_large, row_error
from .rows_cy import Rows
from .rows_future import RowsFuture, RowsOfTopic

if TYPE_CHECKING:
    from ..accumulator.accumulator_cy import RecordAccumulator
    from ..accumulator.batch_cy import RecordFuture
    from ..accumulator.queues_cy import TopicQueues
    from ..config import ProducerConfig


class ColumnProducer(Protocol):
    """What columns need of a `KafkaProducer`, which stands on this module. What has an underscore is not for users."""

    @property
    def config(self) -> ProducerConfig: ...

    def _in_own_callback(self) -> bool: ...

    def _rows_future(self, rows: int) -> RowsFuture: ...

    def _why_row_by_row(self) -> str | None: ...

    def _say_row_by_row(self) -> None: ...

    def _wall_ms(self) -> int: ...

    def _partitions_of(self, topic: str, partition: int) -> tuple[RecordAccumulator, TopicQueues, int]: ...

    def send(self, *args: Any, **kwargs: Any) -> RecordFuture: ...


def send_columns(
    producer: ColumnProducer,
    columns: Columns,
    topics: Iterable[tuple[str, Any]],
    future: RowsFuture,
    base_row: int,
) -> None:
    """Append every row to its partition's batches. The columns' first row is row `base_row` of the future.

    `topics`: each topic with the numbers of the rows that go there, None for all.
    Raises RowDeliveryError, before anything is sent where it is the data's fault.
    """
    _check_sizes(producer, columns, base_row)
    ready = [_rows_of_topic(producer, topic, columns, subset, base_row) for topic, subset in topics]
    future.metadata.bytes += columns.total_bytes
    for topic, accumulator, queues, rows in ready:
        target = RowsOfTopic(future, rows.order_array, base_row)
        try:
            rows.append_to(accumulator, queues, target, float(producer.config.max_block_ms))
        except KafkaError as error:
            raise row_error(target.row_at(target.place), topic, -1, error) from error


def _check_sizes(producer: ColumnProducer, columns: Columns, base_row: int) -> None:
    largest, memory = producer.config.max_request_size, producer.config.buffer_memory
    row = columns.first_above(min(largest, memory))
    if row < 0:
        return
    size = columns.record_bytes(row)
    cause = record_too_large(size, largest, memory)
    raise row_error(base_row + row, None, -1, cause) from cause


def _rows_of_topic(
    producer: ColumnProducer, topic: str, columns: Columns, subset: Any, base_row: int
) -> tuple[str, RecordAccumulator, TopicQueues, Rows]:
    """The rows of one topic, grouped by its partitions, and where they go. Raises RowDeliveryError."""
    first_row = base_row + (subset[0] if subset is not None else 0)
    try:
        accumulator, queues, count = producer._partitions_of(topic, columns.last_partition(subset))
    except KafkaError as error:
        raise row_error(first_row, topic, -1, error) from error
    row = columns.first_partition_from(count, subset)
    if row >= 0:
        partition = columns.partition_at(row)
        cause = no_such_partition(topic, partition, count)
        raise row_error(base_row + row, topic, partition, cause) from cause
    return topic, accumulator, queues, Rows(columns, subset, count, not producer.config.partitioner_ignore_keys)


def send_each(
    producer: ColumnProducer,
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
    producer._say_row_by_row()
    target = RowsOfTopic(future, array("q"), base_row)
    nothing = repeat(None)
    rows = zip(
        topics, values, keys or nothing, headers or nothing, partitions or nothing, timestamps or nothing, strict=False
    )
    for row, (topic, value, key, pairs, partition, timestamp) in enumerate(rows):
        try:
            sent = producer.send(topic, value, key, pairs, partition, timestamp)
        except KafkaError as error:
            raise row_error(base_row + row, topic, -1, error) from error
        # not as a callback: the sender thread does this one itself, so that nobody's callbacks hold it up
        sent._listen(functools.partial(target.settle_record, row, sent), True)
