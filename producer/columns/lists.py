"""Records from lists: `KafkaProducer.send_many`.

The lists are checked as a whole. Then they become columns, slice by slice, which take the path of `send_arrow`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from itertools import repeat
from typing import Any

from ...network.cluster import TopicPartition
from ...network.protocol.errors import IllegalArgumentError, IllegalStateError, KafkaError, RowDeliveryError
from ...network.records.builder_cy import encoded_size
from ...network.records.columns_cy import Columns, column_over
from ...network.topic_names import validate_topic_name
from ..record import checked_partition, checked_timestamp
from ..record_errors import no_such_partition, record_too_large, row_error
from ..threads import check_may_wait
from .column_send import ColumnSender, rows_of_topic, send_each
from .lists_cy import checked_bytes, checked_numbers, packed_headers
from .rows_future import RowsFuture, RowsOfTopic

#: The most records, and about the most bytes, that a slice of the lists has.
SLICE_ROWS = 65_536
SLICE_BYTES = 4 * 1024 * 1024

#: No limit on the bytes of keys or headers: the number of rows is set.
MAX_BYTES = 2**62


def send_many(
    sender: ColumnSender,
    topic: str,
    values: Iterable[Any],
    keys: Iterable[Any] | None,
    headers: Iterable[Any] | None,
    partition: Any,
    timestamp_ms: Any,
) -> RowsFuture:
    """See `KafkaProducer.send_many`."""
    check_may_wait("send_many")
    if sender.engine.is_own_thread:
        raise IllegalStateError("send_many can't be called in a callback: it may have to wait for the sender thread")
    topic = validate_topic_name(topic)
    rows = _items("values", values)
    lists = {"keys": keys, "headers": headers}
    if hasattr(partition, "__iter__"):
        lists["partition"], partition = partition, None
    elif partition is not None:
        partition = checked_partition(partition)
    if hasattr(timestamp_ms, "__iter__"):
        lists["timestamp_ms"], timestamp_ms = timestamp_ms, None
    elif timestamp_ms is not None:
        timestamp_ms = checked_timestamp(timestamp_ms)
    columns = {name: _items(name, items) for name, items in lists.items() if items is not None}
    for name, items in columns.items():
        if len(items) != len(rows):
            raise IllegalArgumentError(
                f"send_many takes lists of equal length; there are {len(rows)} values and {len(items)} {name}"
            )
    future = sender.rows_future(len(rows))
    if not rows:
        return future
    if sender.row_by_row is not None:
        _send_each(sender, topic, rows, columns, partition, timestamp_ms, future)
    else:
        _Lists(sender, topic, rows, columns, partition, timestamp_ms).send(future)
    return future


def send_traced(
    sender: ColumnSender,
    trace: Callable[[Callable[[list[Any]], RowsFuture], str, int], RowsFuture],
    topic: str,
    values: Iterable[Any],
    keys: Iterable[Any] | None,
    headers: Iterable[Any] | None,
    partition: Any,
    timestamp_ms: Any,
) -> RowsFuture:
    """`send_many` in one span, whose context is in the headers of every record that has none of its own.

    `trace` is `TracedSends.send_rows`. The program's own context is recognized by W3C's ``traceparent``.
    """
    rows = _items("values", values)
    given = None if headers is None else _items("headers", headers)

    def send(context: list[Any]) -> RowsFuture:
        with_context = given
        if context:
            with_context = tuple(_with_context(pairs, context) for pairs in given or (None,) * len(rows))
        return send_many(sender, topic, rows, keys, with_context, partition, timestamp_ms)

    return trace(send, topic, len(rows))


def _with_context(headers: Any, context: list[Any]) -> Any:
    if headers is None:
        return context
    try:
        pairs = list(headers)
        return pairs if any(name == "traceparent" for name, _ in pairs) else pairs + context
    except (TypeError, ValueError):
        # `send_many` raises
        return headers


def _items(name: str, items: Any) -> tuple[Any, ...]:
    """A copy, which nobody changes between the check and the use."""
    if isinstance(items, (str, bytes, bytearray, memoryview, Mapping)):
        # iterable, but as characters, numbers or keys
        raise IllegalArgumentError(f"send_many takes a list of {name}; not a single {type(items).__name__}: give [it]")
    try:
        iterator = iter(items)
    except TypeError:
        raise IllegalArgumentError(
            f"send_many takes a list of {name}, or another iterable; not {items!r:.100}"
        ) from None
    return tuple(iterator)


class _Lists:
    """The records of one call, checked. Raises what `KafkaProducer.send_many` raises."""

    def __init__(
        self,
        sender: ColumnSender,
        topic: str,
        values: tuple[Any, ...],
        columns: dict[str, tuple[Any, ...]],
        partition: int | None,
        timestamp_ms: int | None,
    ) -> None:
        self._sender = sender
        self._topic = topic
        self._rows = len(values)
        self._values, largest = checked_bytes(values, "value", topic)
        self._keys, largest_key = checked_bytes(columns["keys"], "key", topic) if "keys" in columns else (None, 0)
        self._headers, largest_headers = (
            packed_headers(columns["headers"], topic) if "headers" in columns else (None, 0)
        )
        self._partition = partition
        self._partitions = _numbers(columns.get("partition"), checked_partition, topic)
        self._timestamp_ms = timestamp_ms
        self._timestamps = _numbers(columns.get("timestamp_ms"), checked_timestamp, topic)
        self._slice_rows = min(SLICE_ROWS, 1 + SLICE_BYTES // (1 + largest_key + largest_headers))
        self._check_sizes(largest + largest_key + largest_headers)
        self._check_partitions()

    def _check_sizes(self, largest: int) -> None:
        config = self._sender.engine.config
        limit = min(config.max_request_size, config.buffer_memory)
        if encoded_size(None, None, None) + largest <= limit:
            return
        parts = zip(self._values, self._keys or repeat(None), self._headers or repeat(None), strict=False)
        for row, (value, key, headers) in enumerate(parts):
            size = encoded_size(key, value, headers)
            if size > limit:
                cause = record_too_large(size, config.max_request_size, config.buffer_memory)
                raise row_error(row, self._topic, -1, cause) from cause

    def _check_partitions(self) -> None:
        topic, topics = self._topic, self._sender.engine.topics
        if self._partitions is None:
            named = -1 if self._partition is None else self._partition
            count = topics.partitions_of(topic, named)[1]
            if named >= count:
                raise no_such_partition(topic, named, count)
            return
        count = topics.partitions_of(topic, max(self._partitions))[1]
        row = next((row for row, named in enumerate(self._partitions) if named >= count), None)
        if row is not None:
            cause = no_such_partition(topic, self._partitions[row], count)
            raise row_error(row, topic, self._partitions[row], cause) from cause

    def send(self, future: RowsFuture) -> None:
        """Append the records, slice by slice. Raises only if none was appended; otherwise the future reports it."""
        sender, first = self._sender, 0
        max_block_ms = float(sender.engine.config.max_block_ms)
        while first < self._rows:
            columns = self._columns(first)
            end = first + columns.length
            target, sent = None, first
            try:
                _, queues, rows = rows_of_topic(sender, self._topic, columns, None, first)
                target = RowsOfTopic(future, rows.order_array, first)
                future.metadata.bytes += columns.total_bytes
                rows.append_to(sender.engine.accumulator, queues, target, max_block_ms)
            except KafkaError as error:
                cause = (error.__cause__ or error) if isinstance(error, RowDeliveryError) else error
                left: Iterable[int] = range(first, end)
                if target is not None:
                    left = [target.row_at(place) for place in range(target.place, columns.length)]
                    sent += target.place
                if not sent:
                    raise cause from cause.__cause__
                future.failed(min(left), self._rows - sent, TopicPartition(self._topic, -1), cause)
                return
            first = end

    def _columns(self, first: int) -> Columns:
        """The records from `first` on, as many as make a slice."""
        values = column_over(self._values, first, self._slice_rows, SLICE_BYTES)
        rows = values.length
        end = first + rows
        partitions = self._partitions
        if partitions is not None:
            partitions = partitions[first:end]
        elif self._partition is not None:
            partitions = array("q", [self._partition]) * rows
        return Columns(
            values,
            None if self._keys is None else column_over(self._keys, first, rows, MAX_BYTES),
            None if self._headers is None else column_over(self._headers, first, rows, MAX_BYTES),
            None if self._timestamps is None else self._timestamps[first:end],
            partitions,
            self._sender.engine.clock.wall_ms() if self._timestamp_ms is None else self._timestamp_ms,
        )


def _numbers(items: tuple[Any, ...] | None, check: Callable[[Any], int], topic: str) -> array[int] | None:
    return None if items is None else checked_numbers(items, check, topic)


def _send_each(
    sender: ColumnSender,
    topic: str,
    values: tuple[Any, ...],
    columns: dict[str, tuple[Any, ...]],
    partition: int | None,
    timestamp_ms: int | None,
    future: RowsFuture,
) -> None:
    """Send the records one by one. Raises only if the first one fails; otherwise the future reports it."""
    rows = len(values)
    partitions = columns.get("partition") or (None if partition is None else (partition,) * rows)
    timestamps = columns.get("timestamp_ms") or (None if timestamp_ms is None else (timestamp_ms,) * rows)
    try:
        send_each(
            sender,
            repeat(topic),
            values,
            columns.get("keys"),
            columns.get("headers"),
            partitions,
            timestamps,
            future,
            0,
        )
    except RowDeliveryError as error:
        cause = error.__cause__ or error
        if error.row == 0:
            raise cause from cause.__cause__
        future.failed(error.row, rows - error.row, TopicPartition(topic, -1), cause)
