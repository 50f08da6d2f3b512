"""What `KafkaProducer.send_arrow` returns: the delivery of many rows as one future.

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
from typing import Any, NamedTuple

from ...network.cluster import TopicPartition
from ...network.latch import Latch
from ...network.protocol.errors import IllegalStateError, KafkaTimeoutError, RowDeliveryError
from ...network.sections import here
from ..accumulator.batch_cy import ProducerBatch, RecordFuture
from ..accumulator.other_futures import (
    ConcurrentFuture,
    NoExecutorsCondition,
    NoExecutorsState,
    awaited,
    check_done_callback,
)
from ..accumulator.record_metadata_cy import RecordMetadata
from ..record_errors import first_rejected, row_error
from ..threads import check_may_wait

_log = logging.getLogger(__name__)


class OffsetRange(NamedTuple):
    """Where rows stand in one partition: the lowest and the highest offset, and how many of them lie between (other
    records may too). Both offsets are -1 with ``acks=0``."""

    first: int
    last: int
    records: int

    def widened(self, other: OffsetRange) -> OffsetRange:
        """The range that covers both."""
        return OffsetRange(min(self.first, other.first), max(self.last, other.last), self.records + other.records)


@dataclass
class RowsMetadata:
    """What was delivered: how many `rows`, in how many `batches`, of which `retries` were sent again, and the range of
    `offsets` in each partition. `bytes` are those of the keys, values and headers that were sent."""

    rows: int = 0
    bytes: int = 0
    batches: int = 0
    retries: int = 0
    offsets: dict[TopicPartition, OffsetRange] = field(default_factory=dict)


def _here(function: Callable[[], object]) -> None:
    function()


class RowsFuture:
    """The delivery of the rows of one `send_arrow`: done when the fate of each is known.

    To be waited for, awaited on any asyncio-compatible event loop, or watched with callbacks. Completed by the sender
    thread; usable from any other. `first_error` is that of the lowest row that failed.
    """

    _condition, _state = NoExecutorsCondition(), NoExecutorsState()

    def __init__(self, rows: int, run_callback: Callable[[Callable[[], object]], object] = _here) -> None:
        """`run_callback` is given what is to be called when done, on the sender thread, and returns at once."""
        self._lock = threading.RLock()
        self._done = Latch()
        self._left = rows
        self._process_id = os.getpid()
        self._metadata = RowsMetadata()
        self._error: RowDeliveryError | None = None
        self._run_callback = run_callback
        self._callbacks: list[Callable[[RowsFuture], object]] = []
        self._wakers: list[Callable[[RowsMetadata, RowDeliveryError | None], object]] = []
        # the runs of a batch are settled one after another
        self._last_batch: ProducerBatch | None = None
        #: Of each topic and partition what is to be an OffsetRange.
        self._ranges: dict[tuple[str, int], list[int]] = {}
        if rows == 0:
            self._done.set()

    def done(self) -> bool:
        """Whether the fate of every row is known."""
        return self._done.is_set

    def get(self, timeout: float | None = None) -> RowsMetadata:
        """What was delivered, waiting for it at most `timeout` seconds (None: without limit).

        Raises RowDeliveryError of the first row that failed; KafkaTimeoutError where the time passed first;
        IllegalStateError in a finalizer or signal handler that interrupted a producer, or in a forked child of the
        process that sent.
        """
        error = self.exception(timeout)
        if error is not None:
            # each raise would add to the traceback that the last one left
            raise error.with_traceback(None)
        return self._metadata

    def result(self, timeout: float | None = None) -> RowsMetadata:
        """`get`, by the name it has in `concurrent.futures`."""
        return self.get(timeout)

    def exception(self, timeout: float | None = None) -> RowDeliveryError | None:
        """The error of the first row that failed, None where all were delivered; waits like `get`."""
        if not self._done.is_set:
            check_may_wait("a future")
            if os.getpid() != self._process_id:
                raise IllegalStateError(
                    "these rows were sent before the fork: they are the parent process's to deliver"
                )
            if not self._done.wait(timeout):
                raise KafkaTimeoutError(
                    f"{self._left} rows were not acknowledged within {timeout} s; they are still being delivered, "
                    f"within delivery.timeout.ms"
                )
        return self._error

    @property
    def metadata(self) -> RowsMetadata:
        """What was delivered, even where other rows failed. To be read when done."""
        return self._metadata

    @property
    def first_error(self) -> RowDeliveryError | None:
        """The error of the lowest row known to have failed so far. Never waits."""
        return self._error

    def add_done_callback(self, callback: Callable[[RowsFuture], object]) -> None:
        """Call ``callback(future)`` when done: on the thread for callbacks, or here where it is done already."""
        check_done_callback(callback)
        with here.section, self._lock:
            if not self._done.is_set:
                self._callbacks.append(callback)
                return
        self._call(callback)

    def as_concurrent(self) -> ConcurrentFuture[RowsMetadata]:
        """This delivery as a `concurrent.futures.Future`, which `concurrent.futures.wait` and `as_completed` accept."""
        return ConcurrentFuture(self)

    def _listen(self, waker: Callable[[RowsMetadata, RowDeliveryError | None], object]) -> None:
        """Call ``waker(metadata, error)``, which returns at once, when done: on the sender thread, or here where it is
        done already."""
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
            # also a CancelledError or a SystemExit of the user's: this thread serves others too
            _log.exception("a callback of a send of rows raised; the rows are not affected")

    def __await__(self) -> Generator[Any, None, RowsMetadata]:
        return awaited(self._listen)

    # --- Completion: the sender thread, or the thread that sends ---

    def delivered(self, batch: ProducerBatch, first: int, count: int, size_bytes: int = 0) -> None:
        """`count` rows of a batch have reached the log, the lowest at offset `first` (-1: not known); `size_bytes` are
        theirs where they were not counted before."""
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
        """`count` rows were not delivered, of which `row` is the lowest."""
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
        with here.section, self._lock:
            # from here on nobody is added
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
    """Stands between the batches and the future: knows which rows of the call went to one topic in which order.

    `place` is where in that order the thread that sends is about to open a new batch.
    """

    def __init__(self, future: RowsFuture, order: array[int], base_row: int) -> None:
        """`order`: row numbers of the columns, as they were appended; `base_row`: the columns' own first row."""
        self._future = future
        self._order = order
        self._base_row = base_row
        self.place = 0

    def row_at(self, place: int) -> int:
        """The number within the call of the row that was appended at `place`."""
        return self._base_row + self._order[place]

    def settle(self, batch: ProducerBatch, start: int, count: int, place: int) -> None:
        """The fate of the rows at `place`, `count` of them, is that of the batch's records from `start` on."""
        if batch.exception is None:
            self._future.delivered(batch, batch.base_offset + start if batch.base_offset >= 0 else -1, count)
            return
        # the others failed along with those that the broker rejected
        index, cause = first_rejected(batch.record_errors, start, count, batch.exception)
        row = self.row_at(place + index - start)
        self._future.failed(row, count, batch.topic_partition, cause)

    def settle_record(
        self, row: int, sent: RecordFuture, metadata: RecordMetadata, exception: BaseException | None
    ) -> None:
        """The fate of one row that was sent by itself."""
        if exception is not None:
            self._future.failed(self._base_row + row, 1, metadata.topic_partition, exception)
            return
        sizes = (metadata.serialized_key_size, metadata.serialized_value_size, metadata.serialized_header_size)
        self._future.delivered(sent.final_batch, metadata.offset, 1, sum(size for size in sizes if size > 0))
