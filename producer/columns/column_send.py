"""Sending of prepared columns: the part that Arrow's columns and Spark's rows share."""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any

from ...network.protocol.errors import KafkaError
from ...network.records.columns_cy import Columns
from ..record_errors import no_such_partition, record_too_large, row_error
from .rows_cy import Rows
from .rows_future import RowsFuture, RowsOfTopic

if TYPE_CHECKING:
    from ..accumulator.batch_cy import RecordFuture
    from ..accumulator.queues_cy import TopicQueues
    from ..engine import Engine


@dataclass(frozen=True, slots=True)
class ColumnSender:
    """The parts of a producer that columnar sends use; valid for one call."""

    #: The producer's engine, which changes after a fork.
    engine: Engine
    #: The plugin that needs a Python object per record, as in "a serializer"; None if there is none.
    row_by_row: str | None
    #: `KafkaProducer.send`, for rows sent one by one.
    send: Callable[..., RecordFuture]
    #: How the key and value serializers serialize Arrow columns as a whole (`plugins.serializers.column_form`), by
    #: "key" and "value". Empty if there is none, or with `row_by_row`.
    forms: Mapping[str, Any] = field(default_factory=dict)

    def rows_future(self, rows: int) -> RowsFuture:
        """Create a future of `rows` rows, whose callbacks run on the producer's callback thread."""
        return RowsFuture(rows, self.engine.run_callback)


def send_columns(
    sender: ColumnSender,
    columns: Columns,
    topics: Iterable[tuple[str, Any]],
    future: RowsFuture,
    base_row: int,
) -> None:
    """Append every row to its partition's batches. The columns' first row is row `base_row` of the future.

    `topics`: each topic with the numbers of its rows; None: all rows.
    Raises RowDeliveryError; for invalid data, before anything is sent.
    """
    _check_sizes(sender, columns, base_row)
    ready = [rows_of_topic(sender, topic, columns, subset, base_row) for topic, subset in topics]
    future.metadata.bytes += columns.total_bytes
    accumulator, max_block_ms = sender.engine.accumulator, float(sender.engine.config.max_block_ms)
    for topic, queues, rows in ready:
        target = RowsOfTopic(future, rows.order_array, base_row)
        try:
            rows.append_to(accumulator, queues, target, max_block_ms)
        except KafkaError as error:
            raise row_error(target.row_at(target.place), topic, -1, error) from error


def _check_sizes(sender: ColumnSender, columns: Columns, base_row: int) -> None:
    config = sender.engine.config
    largest, memory = config.max_request_size, config.buffer_memory
    row = columns.first_above(min(largest, memory))
    if row < 0:
        return
    size = columns.record_bytes(row)
    cause = record_too_large(size, largest, memory)
    raise row_error(base_row + row, None, -1, cause) from cause


def rows_of_topic(
    sender: ColumnSender, topic: str, columns: Columns, subset: Any, base_row: int
) -> tuple[str, TopicQueues, Rows]:
    """A topic, its queues, and its rows grouped by partition. Raises RowDeliveryError."""
    first_row = base_row + (subset[0] if subset is not None else 0)
    try:
        queues, count = sender.engine.topics.partitions_of(topic, columns.last_partition(subset))
    except KafkaError as error:
        raise row_error(first_row, topic, -1, error) from error
    row = columns.first_partition_from(count, subset)
    if row >= 0:
        partition = columns.partition_at(row)
        cause = no_such_partition(topic, partition, count)
        raise row_error(base_row + row, topic, partition, cause) from cause
    return topic, queues, Rows(columns, subset, count, not sender.engine.config.partitioner_ignore_keys)


def send_each(
    sender: ColumnSender,
    topics: Iterable[str | None],
    values: Sequence[Any],
    keys: Sequence[Any] | None,
    headers: Sequence[Any] | None,
    partitions: Sequence[int | None] | None,
    timestamps: Sequence[int | None] | None,
    future: RowsFuture,
    base_row: int,
) -> None:
    """Send the rows one by one, through serializers, interceptors and partitioners. Raises RowDeliveryError."""
    target = RowsOfTopic(future, array("q"), base_row)
    nothing = repeat(None)
    rows = zip(
        topics, values, keys or nothing, headers or nothing, partitions or nothing, timestamps or nothing, strict=False
    )
    for row, (topic, value, key, pairs, partition, timestamp) in enumerate(rows):
        try:
            sent = sender.send(topic, value, key, pairs, partition, timestamp)
        except KafkaError as error:
            raise row_error(base_row + row, topic, -1, error) from error
        # a waker, not a callback: the sender thread calls it itself, so that no user's callback can delay it
        sent._listen(functools.partial(target.settle_record, row, sent), True)
