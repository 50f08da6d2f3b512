"""`RowsFuture`, the delivery of many rows as one future, returned by `send_arrow` and `send_many`.

Source: as `batch_cy.RecordFuture`, for runs of rows.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from array import array
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ...network.cluster import TopicPartition
from ...network.latch_cy import Latch
from ...network.protocol.errors import IllegalStateError, KafkaTimeoutError, RowDeliveryError
from ...network.sections import here
from ..accumulator.batch_cy import ProducerBatch, RecordFuture
from ..accumulator.other_futures import (
    NoExecutorsCondition,
    NoExecutorsState,
    awaited,
    check_done_callback,
)
from ..accumulator.record_metadata_cy import RecordMetadata
from ..record_errors import first_rejected, row_error
from ..threads import check_may_wait

if TYPE_CHECKING:
    from ..accumulator.concurrent_future import ConcurrentFuture

_log = logging.getLogger(__name__)


class OffsetRange(NamedTuple):
    """The offsets of rows in one partition: the lowest, the highest, and the number of rows.

    Other records may lie between them. Both offsets are -1 with ``acks=0``.
    """

    first: int
    last: int
    records: int

    def widened(self, other: OffsetRange) -> OffsetRange:
        """The range that covers both."""
        return OffsetRange(min(self.first, other.first), max(self.last, other.last), self.records + other.records)


@dataclass
class RowsMetadata:
    """Counts and offsets of the rows that were delivered.

    `rows`: the number of rows. `bytes`: the size of the keys, values and headers that were sent. `batches`: the number
    of batches. `retries`: the number of batches that were retried. `offsets`: the offset range per partition.
    """

    rows: int = 0
    bytes: int = 0
    batches: int = 0
    retries: int = 0
    offsets: dict[TopicPartition, OffsetRange] = field(default_factory=dict)


def _here(function: Callable[[], object]) -> None:
    function()


class RowsFuture:
    """The delivery of the rows of one `send_arrow` or `send_many`: done when every row is acknowledged or has failed.

    Wait for it, await it on any asyncio-compatible event loop, or add callbacks. The sender thread completes it; any
    other thread may use it. `first_error` is the error of the lowest row that failed.
    """

    _condition, _state = NoExecutorsCondition(), NoExecutorsState()

    def __init__(self, rows: int, run_callback: Callable[[Callable[[], object]], object] = _here) -> None:
        """Create the future of `rows` rows, done at once if there are none.

        `run_callback`: called on the sender thread with each function to run when done; returns immediately.
        """
        self._lock = threading.RLock()
        self._done = Latch()
        self._left = rows
        self._process_id = os.getpid()
        self._metadata = RowsMetadata()
        self._error: RowDeliveryError | None = None
        self._run_callback = run_callback
        self._callbacks: list[Callable[[RowsFuture], object]] = []
        self._wakers: list[Callable[[RowsMetadata, RowDeliveryError | None], object]] = []
        # to count each batch once: the runs of a batch are settled one after another
        self._last_batch: ProducerBatch | None = None
        #: The fields of each topic and partition's OffsetRange.
        self._ranges: dict[tuple[str, int], list[int]] = {}
        if rows == 0:
            self._done.set()

    def done(self) -> bool:
        """Whether every row is acknowledged or has failed."""
        return self._done.is_set

    def get(self, timeout: float | None = None) -> RowsMetadata:
        """Return the counts and offsets of the delivered rows, waiting at most `timeout` seconds (None: no limit).

        Raises the RowDeliveryError of the first row that failed; KafkaTimeoutError after the timeout;
        IllegalStateError in a finalizer or signal handler that interrupted a producer, or in a forked child of the
        process that sent the rows.
        """
        error = self.exception(timeout)
        if error is not None:
            # each raise would extend the error's traceback
            raise error.with_traceback(None)
        return self._metadata

    def result(self, timeout: float | None = None) -> RowsMetadata:
        """`get` under the name of `concurrent.futures`."""
        return self.get(timeout)

    def exception(self, timeout: float | None = None) -> RowDeliveryError | None:
        """Return the error of the first row that failed, None if all were delivered; waits like `get`."""
        if not self._done.is_set:
            check_may_wait("a future")
            if os.getpid() != self._process_id:
                raise IllegalStateError("these rows were sent before the fork: the parent process delivers them")
            if not self._done.wait(timeout):
                raise KafkaTimeoutError(
                    f"{self._left} rows were not acknowledged within {timeout} s; they are still being delivered, "
                    f"within delivery.timeout.ms"
                )
        return self._error

    @property
    def metadata(self) -> RowsMetadata:
        """Counts and offsets of the delivered rows, even if other rows failed. Valid once done."""
        return self._metadata

    @property
    def first_error(self) -> RowDeliveryError | None:
        """The error of the lowest row that has failed so far, or None. Never waits."""
        return self._error

    def add_done_callback(self, callback: Callable[[RowsFuture], object]) -> None:
        """Call ``callback(future)`` when done: on the callback thread, or here if it is done already."""
        check_done_callback(callback)
        with here.section, self._lock:
            if not self._done.is_set:
                self._callbacks.append(callback)
                return
        self._call(callback)

    def as_concurrent(self) -> ConcurrentFuture[RowsMetadata]:
        """Return a `concurrent.futures.Future` of this delivery, for `concurrent.futures.wait` and `as_completed`."""
        from ..accumulator.concurrent_future import ConcurrentFuture  # noqa: PLC0415 - few programs have such futures

        return ConcurrentFuture(self)

    def _listen(self, waker: Callable[[RowsMetadata, RowDeliveryError | None], object]) -> None:
        """Call ``waker(metadata, error)`` when done: on the sender thread, or here if it is done already.

        The waker has to return immediately.
        """
        with here.section, self._lock:
            pending = not self._done.is_set
            if pending:
                self._wakers.append(waker)
        if not pending:
            waker(self._metadata, self._error)

    def _call(self, callback: Callable[[RowsFuture], object]) -> None:
        try:
            callback(self)
        except BaseException:
            # even a CancelledError or a SystemExit from user code: this thread serves others too
            _log.exception("a callback of a send of rows raised; the rows are not affected")

    def __await__(self) -> Generator[Any, None, RowsMetadata]:
        return awaited(self._listen)

    # --- Completion: the sender thread, or the thread that sends ---

    def delivered(self, batch: ProducerBatch, first: int, count: int, size_bytes: int = 0) -> None:
        """Record that `count` rows of a batch were delivered, the lowest at offset `first` (-1: not known).

        `size_bytes`: the size of the rows, if it was not counted before.
        """
        metadata = self._metadata
        place = (batch.topic, batch.partition)
        last = first + count - 1 if first >= 0 else -1
        with here.section, self._lock:
            metadata.rows += count
            metadata.bytes += size_bytes
            if batch is not self._last_batch:
                self._last_batch = batch
                metadata.batches += 1
                metadata.retries += 1 if batch.attempts else 0
            known = self._ranges.get(place)
            if known is None:
                self._ranges[place] = [first, last, count]
            else:
                known[0] = min(known[0], first)
                known[1] = max(known[1], last)
                known[2] += count
            self._left -= count
            is_last = not self._left
        if is_last:
            self._finish()

    def failed(self, row: int, count: int, place: TopicPartition, cause: BaseException) -> None:
        """Record that `count` rows failed; `row` is the lowest of them."""
        with here.section, self._lock:
            if self._error is None or row < self._error.row:
                self._error = row_error(row, place.topic, place.partition, cause)
            self._left -= count
            is_last = not self._left
        if is_last:
            self._finish()

    def _finish(self) -> None:
        for (topic, partition), (first, last, count) in self._ranges.items():
            self._metadata.offsets[TopicPartition(topic, partition)] = OffsetRange(first, last, count)
        if self._error is not None:
            self._error.delivered = self._metadata.offsets
        with here.section, self._lock:
            # from here on no listener is added
            self._done.is_set = True
            self._last_batch = None
            callbacks, self._callbacks = self._callbacks, []
            wakers, self._wakers = self._wakers, []
        self._done.wake()
        for wake in wakers:
            wake(self._metadata, self._error)
        for callback in callbacks:
            self._run_callback(functools.partial(self._call, callback))

    def __repr__(self) -> str:
        if not self._done.is_set:
            return f"<RowsFuture: {self._left} rows pending>"
        return f"<RowsFuture: {self._error!r}>" if self._error is not None else f"<RowsFuture: {self._metadata}>"


class RowsOfTopic:
    """Maps the records of batches to the rows of a call, in the order in which they were appended to one topic.

    `place` is the place in that order at which the sending thread is about to open a new batch.
    """

    def __init__(self, future: RowsFuture, order: array[int], base_row: int) -> None:
        """Map the rows of one topic.

        `order`: the row numbers within the columns, in the order of appending. `base_row`: the number within the call
        of the columns' first row.
        """
        self._future = future
        self._order = order
        self._base_row = base_row
        self.place = 0

    def row_at(self, place: int) -> int:
        """The number within the call of the row at `place`."""
        return self._base_row + self._order[place]

    def settle(self, batch: ProducerBatch, start: int, count: int, place: int) -> None:
        """Settle `count` rows from `place` on with the outcome of the batch's records from `start` on."""
        if batch.exception is None:
            self._future.delivered(batch, batch.base_offset + start if batch.base_offset >= 0 else -1, count)
            return
        # the broker rejected some rows; the others failed with them
        index, cause = first_rejected(batch.record_errors, start, count, batch.exception)
        row = self.row_at(place + index - start)
        self._future.failed(row, count, batch.topic_partition, cause)

    def settle_record(
        self, row: int, sent: RecordFuture, metadata: RecordMetadata, exception: BaseException | None
    ) -> None:
        """Settle one row that was sent by itself."""
        if exception is not None:
            self._future.failed(self._base_row + row, 1, metadata.topic_partition, exception)
            return
        sizes = (metadata.serialized_key_size, metadata.serialized_value_size, metadata.serialized_header_size)
        self._future.delivered(sent.final_batch, metadata.offset, 1, sum(size for size in sizes if size > 0))
