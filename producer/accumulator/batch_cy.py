# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""A batch of records for one partition, and the future of each record.

A future refers to its batch and to its place in it. Completing a batch does no work per record, except for records
with a callback or an `await`; that keeps `send` cheap.

Source: Kafka's ProducerBatch, FutureRecordMetadata, ProduceRequestResult.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from ...network import _cython as cython
from ...network.clock import SYSTEM_CLOCK
from ...network.cluster import TopicPartition
from ...network.protocol.errors import KafkaTimeoutError, RetriableError
from ...network.records.builder_cy import NO_LIMIT
from ...network.sections import here, interrupted
from ..threads import check_may_wait, on_callback_thread
from .callback_progress import CALLBACK_GRACE_SECONDS, callback_progress
from .listeners_cy import EITHER, ERROR, FUTURE, METADATA, OUTCOME
from .other_futures import NoExecutorsCondition, NoExecutorsState, awaited, check_done_callback

if TYPE_CHECKING:
    from .concurrent_future import ConcurrentFuture

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from ...network.latch_cy import Latch
    from ...network.memory_order import acquire_fence, release_fence
    from ...network.records.builder_cy import RecordBatchBuilder
    from .buffer_pool_cy import Lease
    from .listeners_cy import Listener, Run, new_listener
    from .record_metadata_cy import RecordMetadata
elif not TYPE_CHECKING:
    from cython.cimports.headrace.network.latch_cy import Latch
    from cython.cimports.headrace.network.memory_order import acquire_fence, release_fence
    from cython.cimports.headrace.network.records.builder_cy import RecordBatchBuilder
    from cython.cimports.headrace.producer.accumulator.buffer_pool_cy import Lease
    from cython.cimports.headrace.producer.accumulator.listeners_cy import Listener, Run, new_listener
    from cython.cimports.headrace.producer.accumulator.record_metadata_cy import RecordMetadata

_log = logging.getLogger(__name__)

# Guards the completion of every batch against late callbacks and waiters. It is held for a few instructions,
# never while user code runs. A leaf, and reentrant: a finalizer or signal handler may read a future or add a callback.
_completion = threading.RLock()


def _reset_after_fork() -> None:
    """After a fork: another thread of the parent may hold the lock, and never releases it in the child."""
    global _completion  # noqa: PLW0603  (a lock that is never released can only be replaced)
    _completion = threading.RLock()


os.register_at_fork(after_in_child=_reset_after_fork)


@cython.final
@cython.cclass
class ProducerBatch:
    """The records of one produce batch, from the first append to the broker's response.

    While it is the open batch of its queue, it belongs to the thread that holds the queue's lock; once drained, to the
    sender thread. It completes exactly once, by `complete`, `fail` or `split_into`, on the sender thread.
    An open batch that is `full` is ready to be sent, and grows until it is. `records` are the parts of a sealed batch.
    `last_error` is the error of the last attempt. `maybe_persisted_error` is the error of an attempt that may have
    appended the batch to a log; it is None once the broker is known not to have the batch.
    """

    if not cython.compiled:
        # types that a checker can't infer from __init__; batch_cy.pxd has the C types
        callbacks: Any
        wakers: Any
        records: Any
        compression: Any
        last_error: BaseException | None
        maybe_persisted_error: BaseException | None
        exception: BaseException | None
        record_errors: dict[int, BaseException] | None
        children: list[tuple[int, ProducerBatch]] | None
        latch: Latch | None
        settled_latch: Latch | None
        runs: Run | None

    def __init__(
        self,
        topic: str,
        partition: int,
        buffer: bytearray,
        now_ms: float,
        lease: Lease | None = None,
        full_bytes: int = NO_LIMIT,
        max_bytes: int = 0,
    ) -> None:
        """Create an empty batch that encodes into `buffer`.

        `now_ms`: the time of its creation, from which it expires. `lease`: the pool's lease of `buffer`; None if the
        buffer isn't the pool's. `full_bytes`: the size from which it is ready to be sent. `max_bytes`: the size up to
        which it may grow by further buffers.
        """
        self.topic = topic
        self.partition = partition
        self.builder = RecordBatchBuilder(buffer, full_bytes)
        self.full_bytes = full_bytes
        self.max_bytes = max_bytes
        self.full = False
        self.lease = lease
        self.first_index = 0
        self.callbacks = []
        self.wakers = []
        self.created_ms = now_ms
        self.last_attempt_ms = now_ms
        self.retry_at_ms = 0.0
        self.drained_ms = now_ms
        self.attempts = 0
        self.leader_epoch = -1
        self.last_error = None
        self.maybe_persisted_error = None
        self.closed = False
        self.records = None
        self.compression = None
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = -1
        self.in_flight = False
        self.done = False
        self.settled = False
        self.exception = None
        self.record_errors = None
        self.base_offset = -1
        self.log_append_time = -1
        self.children = None
        self.latch = None
        self.settled_latch = None
        self.raw_bytes = 0
        self.runs = None

    @cython.cfunc
    def try_append(
        self,
        timestamp: cython.longlong,
        key: bytes | None,
        value: bytes | None,
        headers: bytes | None,
        callback: object,
    ) -> RecordFuture | None:
        """Append one record and return its future, or None if there is no room. The caller holds the queue's lock."""
        builder: RecordBatchBuilder = self.builder
        if not builder.try_append(timestamp, key, value, headers):
            return None
        future: RecordFuture = RecordFuture.__new__(RecordFuture)
        future.batch = self
        future.index = builder.count - 1
        future.timestamp = timestamp
        future.key_size = -1 if key is None else len(key)
        future.value_size = -1 if value is None else len(value)
        future.headers_size = -1 if headers is None else len(headers)
        if callback is not None:
            # a single step, because `listen` adds to the list under another lock
            self.callbacks.append(new_listener(callback, future, OUTCOME))
        return future

    def append_record(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: bytes | None, callback: Any
    ) -> RecordFuture | None:
        """`try_append` for callers outside the per-record path: batch splits and tests."""
        return self.try_append(timestamp, key, value, headers, callback)

    @property
    def topic_partition(self) -> TopicPartition:
        """The batch's destination."""
        return TopicPartition(self.topic, self.partition)

    @property
    def count(self) -> int:
        """Number of records."""
        return self.builder.count

    @property
    def size_bytes(self) -> int:
        """Bytes encoded so far, including the batch header."""
        return self.builder.earlier_bytes + self.builder.position

    @property
    def capacity_bytes(self) -> int:
        """Bytes of memory taken."""
        return self.builder.capacity_bytes

    @property
    def max_record_bytes(self) -> int:
        """Bytes of the largest record."""
        return self.builder.max_record_bytes

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; after 2^31 - 1 sequence numbers wrap to 0."""
        return (self.base_sequence + self.builder.count - 1) & 0x7FFFFFFF

    @property
    def has_sequence(self) -> bool:
        """Whether this batch has been assigned a producer id and a sequence number."""
        return self.base_sequence >= 0

    def become_part(self, whole: ProducerBatch, start: int) -> None:
        """Inherit the lease and sequence numbers of `whole`; this batch is its part that begins at record `start`."""
        self.closed = True
        self.lease = whole.lease
        if self.lease is not None and start > 0:
            # the first part takes the whole's place among the holders
            self.lease.share()
        self.first_index = whole.first_index + start
        self.last_attempt_ms = whole.last_attempt_ms
        if whole.has_sequence:
            self.producer_id = whole.producer_id
            self.producer_epoch = whole.producer_epoch
            self.base_sequence = (whole.base_sequence + start) & 0x7FFFFFFF

    @cython.ccall
    def complete(self, base_offset: cython.longlong, log_append_time: cython.longlong = -1) -> cython.bint:
        """Complete the batch as delivered. False if it was complete already."""
        first: cython.bint = self._finish(base_offset, log_append_time, None, None)
        self._wake_waiters()
        return first

    @cython.cfunc
    def complete_quietly(self, base_offset: cython.longlong, log_append_time: cython.longlong) -> cython.bint:
        """`complete`, but threads that wait for it sleep on until `latch` is set, if there is one."""
        return self._finish(base_offset, log_append_time, None, None)

    @cython.cfunc
    def _wake_waiters(self) -> object:
        """Wake the threads that wait for the batch, which is complete: no other thread begins to wait for it."""
        latch: Latch | None = self.latch
        if latch is not None:
            latch.set()
        return None

    def fail(self, exception: BaseException, record_errors: dict[int, BaseException] | None = None) -> bool:
        """Complete the batch as failed. False if it was complete already.

        `record_errors` (index -> error) has the errors of records that the broker rejected by themselves (KIP-467).
        """
        first: cython.bint = self._finish(-1, -1, exception, record_errors)
        self._wake_waiters()
        return first

    def abandon(self, exception: BaseException) -> None:
        """Fail the batch without running callbacks: for a forked child, where no sender thread completes it."""
        self.exception = exception
        self.callbacks = None
        self.done = True
        self.settled = True

    @cython.ccall
    def take_lease(self) -> Lease | None:
        """Release the records' memory and return its lease; None if it isn't the pool's or was released before.

        A program may keep futures for any length of time; they must not keep this memory from being freed.
        """
        self.records = None
        self.builder.detach()
        lease, self.lease = self.lease, None
        return lease

    @cython.cfunc
    def _finish(
        self,
        base_offset: cython.longlong,
        log_append_time: cython.longlong,
        exception: Any,
        record_errors: dict | None,
    ) -> cython.bint:
        with here.section, _completion:
            if self.done or self.children is not None:
                return False
            self.base_offset = base_offset
            self.log_append_time = log_append_time
            with cython.critical_section(self):
                self.exception = exception
                self.record_errors = record_errors
            # an event loop's thread reads `done` without the lock, and then the outcome
            release_fence()
            # from here on no listener is added and no thread starts to wait: the lists are final
            self.done = True
            self.settled = not self.callbacks
            wakers: list = self.wakers
            self.wakers = None
        self._settle_runs()
        self._run_callbacks(wakers)
        return True

    def run_callbacks(self) -> None:
        """Call every callback, in record order. Called once, after completion, on the callback thread."""
        with here.section, _completion:
            callbacks: list = self.callbacks
            self.callbacks = None
        try:
            if callbacks is not None:
                self._run_callbacks(callbacks)
        finally:
            callback_progress.returned += 1
            with here.section, _completion:
                self.settled = True
                latch = self.settled_latch
            if latch is not None:
                latch.set()

    @cython.cfunc
    def _settle_runs(self) -> object:
        run: Run | None = self.runs
        self.runs = None
        while run is not None:
            run.target.settle(self, run.start, run.count, run.place)
            run = run.next
        return None

    @cython.cfunc
    def _run_callbacks(self, callbacks: list) -> object:
        listener: Listener
        future: RecordFuture
        for listener in callbacks:
            future = listener.future
            try:
                future._call(listener.callback, listener.kind)
            except BaseException:
                # even a CancelledError or a SystemExit from user code: this thread serves other records too
                _log.exception(
                    "the callback of the record at %s-%d, offset %d raised; the record itself is not affected",
                    self.topic,
                    self.partition,
                    self.base_offset + future.index - self.first_index if self.base_offset >= 0 else -1,
                )
        return None

    def split_into(self, children: list[tuple[int, ProducerBatch]]) -> None:
        """Replace the batch by its parts `children`, each with the index of its first record here (KIP-126).

        Callbacks move with their records; threads that wait for a record continue to wait for its part.
        """
        listener: Listener
        part: ProducerBatch
        with here.section, _completion:
            release_fence()
            self.children = children
            callbacks: list = self.callbacks
            self.callbacks = None
            for listener in callbacks:
                part = cython.cast(RecordFuture, listener.future)._live_batch()
                part.callbacks.append(listener)
            wakers: list = self.wakers
            self.wakers = None
            for listener in wakers:
                part = cython.cast(RecordFuture, listener.future)._live_batch()
                part.wakers.append(listener)
            self._split_runs(children)
            latch = self.latch
        if latch is not None:
            latch.set()

    def move_to(self, future: RecordFuture, appended: RecordFuture) -> None:
        """Redirect `future`, of this batch's only record, to the batch that the record was appended to as `appended`.

        Callbacks and waiting threads move along. Sender thread.
        """
        batch: ProducerBatch = appended.batch
        with here.section, _completion:
            with cython.critical_section(future):
                future.batch = batch
            future.index = appended.index
            batch.callbacks.extend(self.callbacks)
            batch.wakers.extend(self.wakers)
            self.callbacks = None
            self.wakers = None
            self.children = [(0, batch)]
            latch = self.latch
        if latch is not None:
            latch.set()
        self.take_lease()

    @cython.cfunc
    def _split_runs(self, children: list) -> object:
        """Divide the runs of a split batch among its parts."""
        run: Run | None = self.runs
        share: Run
        part: ProducerBatch
        first: cython.Py_ssize_t
        begin: cython.Py_ssize_t
        end: cython.Py_ssize_t
        self.runs = None
        while run is not None:
            for first, part in children:
                begin = max(run.start, first)
                end = min(run.start + run.count, first + part.builder.count)
                if begin < end:
                    share = Run(run.target)
                    share.start = begin - first
                    share.count = end - begin
                    share.place = run.place + begin - run.start
                    share.next = part.runs
                    part.runs = share
            run = run.next
        return None

    @cython.ccall
    def listen(
        self, future: RecordFuture, callback: object, waker: cython.bint = False, kind: cython.int = OUTCOME
    ) -> cython.bint:
        """Register a callback for completion; False if the batch is complete already. `kind`: what it is called with.

        A `waker` is an internal callback that returns immediately; the sender thread calls it itself.
        """
        batch: ProducerBatch
        listener: Listener = new_listener(callback, future, kind)
        with here.section, _completion:
            batch = future._live_batch()
            if batch.done:
                return False
            (batch.wakers if waker else batch.callbacks).append(listener)
            return True

    @cython.ccall
    def wait(self, timeout: Any = None) -> cython.bint:
        """Wait until the batch is complete or split, at most `timeout` seconds."""
        with here.section, _completion:
            if self.done or self.children is not None:
                return True
            latch: Latch | None = self.latch
            if latch is None:
                latch = self.latch = Latch()
        if latch.wait(timeout):
            return True
        with here.section, _completion:  # the latch is set later, as the sender thread begins to wait
            return self.done or self.children is not None

    def wait_settled(self, timeout: float | None = None) -> bool:
        """Wait until the callbacks of a complete batch have returned, at most `timeout` seconds."""
        with here.section, _completion:
            if self.settled:
                return True
            latch = self.settled_latch
            if latch is None:
                latch = self.settled_latch = Latch()
        return latch.wait(timeout)

    def __repr__(self) -> str:
        return f"ProducerBatch({self.topic}-{self.partition}, {self.count} records, {self.size_bytes} bytes)"


@cython.final
@cython.freelist(256)
@cython.no_gc
@cython.cclass
class RecordFuture:
    """The future of one record, as returned by `send`: wait for it, await it, or add callbacks.

    Usable from any thread and, through ``await``, from any asyncio-compatible event loop. The sender thread completes
    the futures of a partition in send order. The method names are those of `concurrent.futures.Future` and of
    kafka-python's ``FutureRecordMetadata``; `as_concurrent` returns a real `concurrent.futures.Future`.

    The garbage collector doesn't track it: completion of the batch breaks the only cycle it is part of (batch ->
    callbacks -> future), and every batch completes.
    """

    _condition, _state = NoExecutorsCondition(), NoExecutorsState()
    if not cython.compiled:
        # set by ProducerBatch.try_append; batch_cy.pxd has the C types
        batch: ProducerBatch
        index: int
        timestamp: int
        key_size: int
        value_size: int
        headers_size: int

    @cython.cfunc
    def _first_batch(self) -> ProducerBatch:
        """The batch it was appended to. The sender thread replaces the own batch of a stashed record (`move_to`)."""
        with cython.critical_section(self):
            return self.batch

    @cython.cfunc
    @cython.exceptval(check=False)
    def _is_done(self) -> cython.bint:
        """`done` without the lock, for event loops: if it is true, the outcome can be read."""
        done: cython.bint = self._live_batch().done
        acquire_fence()
        return done

    @cython.cfunc
    def _live_batch(self) -> ProducerBatch:
        """The batch that has the record now: the one it was appended to, or a part of it after a split."""
        batch: ProducerBatch = self._first_batch()
        child: ProducerBatch
        while batch.children is not None:
            acquire_fence()
            for _, child in reversed(batch.children):
                if self.index >= child.first_index:
                    batch = child
                    break
        return batch

    @cython.cfunc
    def _metadata(self) -> RecordMetadata:
        batch: ProducerBatch = self._live_batch()
        metadata: RecordMetadata = RecordMetadata.__new__(RecordMetadata)
        metadata.topic = batch.topic
        metadata.partition = batch.partition
        metadata.offset = batch.base_offset + self.index - batch.first_index if batch.base_offset >= 0 else -1
        metadata.timestamp = batch.log_append_time if batch.log_append_time >= 0 else self.timestamp
        metadata.serialized_key_size = self.key_size
        metadata.serialized_value_size = self.value_size
        metadata.serialized_header_size = self.headers_size
        return metadata

    @cython.cfunc
    def _error(self) -> Any:
        batch: ProducerBatch = self._live_batch()
        if batch.exception is not None and batch.record_errors is not None:
            return batch.record_errors.get(self.index - batch.first_index, batch.exception)
        return batch.exception

    @property
    def final_batch(self) -> ProducerBatch:
        """The batch that was delivered or failed with this record in it. Valid once done."""
        return self._live_batch()

    def done(self) -> bool:
        """Whether the record has been acknowledged or has failed."""
        with here.section, _completion:
            return self._live_batch().done

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Return the record's metadata, waiting at most `timeout` seconds for it (None: without limit).

        Raises the delivery's error; KafkaTimeoutError after the timeout (the record may still be delivered).
        The record's callbacks have returned by then, unless one of them, or of another record of its batch, blocks.
        """
        self._wait(timeout)
        error = self._error()
        if error is not None:
            # many futures share the error, and each raise would extend its traceback
            raise error.with_traceback(None)
        return self._metadata()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """`get` under the name of `concurrent.futures`."""
        return self.get(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the delivery's error, None if it succeeded; waits like `get`."""
        self._wait(timeout)
        return self._error()

    def _wait(self, timeout: float | None) -> None:
        batch: ProducerBatch
        deadline_ms = None
        left = timeout
        while True:
            batch = self._live_batch()
            if batch.done:
                acquire_fence()
                break
            check_may_wait("a future")
            if timeout is not None:
                # a split of the batch meanwhile doesn't restart the timeout
                now_ms = SYSTEM_CLOCK.now_ms()
                if deadline_ms is None:
                    deadline_ms = now_ms + timeout * 1000.0
                left = max(deadline_ms - now_ms, 0.0) / 1000.0
            if not batch.wait(left):
                raise KafkaTimeoutError(
                    f"the record for {batch.topic}-{batch.partition} was not acknowledged within {timeout:g} s; it is "
                    f"still being delivered, within delivery.timeout.ms"
                )
        if batch.settled or on_callback_thread() or interrupted() or callback_progress.is_stuck:
            return
        if not batch.wait_settled(CALLBACK_GRACE_SECONDS):
            callback_progress.note_stuck()

    def add_callback(self, callback: Callable[..., object], *args: Any, **kwargs: Any) -> RecordFuture:
        """Call ``callback(*args, metadata, **kwargs)`` on success: on the callback thread, or here if already done."""
        call = functools.partial(callback, *args, **kwargs) if args or kwargs else callback
        self._listen(call, False, METADATA)
        return self

    def add_errback(self, errback: Callable[..., object], *args: Any, **kwargs: Any) -> RecordFuture:
        """Call ``errback(*args, exception, **kwargs)`` on failure: on the callback thread, or here if already done."""
        call = functools.partial(errback, *args, **kwargs) if args or kwargs else errback
        self._listen(call, False, ERROR)
        return self

    def add_both(self, callback: Callable[..., object], *args: Any, **kwargs: Any) -> RecordFuture:
        """Call `callback` with the metadata or the exception, as kafka-python's ``add_both`` does."""
        call = functools.partial(callback, *args, **kwargs) if args or kwargs else callback
        self._listen(call, False, EITHER)
        return self

    def add_done_callback(self, callback: Callable[[RecordFuture], object]) -> None:
        """Call ``callback(future)`` when done, as `concurrent.futures.Future` does."""
        check_done_callback(callback)
        self._listen(callback, False, FUTURE)

    def as_concurrent(self) -> ConcurrentFuture[RecordMetadata]:
        """Return a `concurrent.futures.Future` of this delivery, for `concurrent.futures.wait` and `as_completed`."""
        from .concurrent_future import ConcurrentFuture  # noqa: PLC0415 - few programs have such futures

        return ConcurrentFuture(self, True)

    @cython.ccall
    def _listen(self, callback: object, waker: cython.bint = False, kind: cython.int = OUTCOME) -> object:
        batch: ProducerBatch = self._first_batch()
        if batch.listen(self, callback, waker, kind):
            return None
        try:
            self._call(callback, kind)
        except Exception:
            # as on the callback thread: the program's code may raise anything; KeyboardInterrupt goes on to the caller
            _log.exception("a callback of a record for %s-%d raised", batch.topic, batch.partition)
        return None

    @cython.cfunc
    def _call(self, callback: Any, kind: cython.int) -> object:
        """Call a listener of the record, which is done, with what its `kind` says."""
        if kind == FUTURE:
            callback(self)
            return None
        error = self._error()
        if kind == OUTCOME:
            callback(self._metadata(), error)
        elif error is None:
            if kind != ERROR:
                callback(self._metadata())
        elif kind != METADATA:
            callback(error)
        return None

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return awaited(self._listen, True)

    @property
    def is_done(self) -> bool:
        """`done()` under kafka-python's name."""
        return self.done()

    @property
    def value(self) -> RecordMetadata | None:
        """The metadata if the record has been delivered, else None (kafka-python)."""
        return self._metadata() if self.succeeded() else None

    def succeeded(self) -> bool:
        """Whether the record has been delivered."""
        return self.done() and self._error() is None

    def failed(self) -> bool:
        """Whether delivery of the record has failed."""
        return self.done() and self._error() is not None

    def retriable(self) -> bool:
        """Whether it failed with a retriable error (kafka-python)."""
        return self.failed() and isinstance(self._error(), RetriableError)

    @property
    def topic_partition(self) -> TopicPartition:
        """The record's destination, known as soon as it is sent."""
        batch: ProducerBatch = self._first_batch()
        return TopicPartition(batch.topic, batch.partition)

    def cancelled(self) -> bool:
        """Always False: a single record can't be cancelled once `send` has accepted it."""
        return False

    def __repr__(self) -> str:
        if not self.done():
            batch: ProducerBatch = self._first_batch()
            return f"<RecordFuture for {batch.topic}-{batch.partition}: pending>"
        error = self._error()
        return f"<RecordFuture: {self._metadata() if error is None else repr(error)}>"
