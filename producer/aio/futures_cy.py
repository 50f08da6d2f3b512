# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""The futures of an event loop's sends, and the way from the sender thread to the loop.

A future does nothing until it is awaited or gets a callback. Then it joins the futures of its batch that wait, and
only the first of them registers with the batch. Completing a batch costs the sender thread one call, however many of
its records are awaited.

Source: `asyncio.Future`, whose protocol `AsyncRecordFuture` follows.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from ...network import _cython as cython
from ...network.cluster import TopicPartition

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from ...network.clock import Clock
    from ...network.memory_order import store_load_fence
    from ..accumulator.batch_cy import ProducerBatch, RecordFuture
    from ..accumulator.record_metadata_cy import RecordMetadata
elif not TYPE_CHECKING:
    from cython.cimports.headrace.network.memory_order import store_load_fence
    from cython.cimports.headrace.network.time_cy import Clock
    from cython.cimports.headrace.producer.accumulator.batch_cy import ProducerBatch, RecordFuture

    from ..accumulator.record_metadata_cy import RecordMetadata

_log = logging.getLogger(__name__)

#: The milliseconds that a turn of the loop spends on waking what has awaited records, before other work gets a turn.
SLICE_MS = 4.0

#: The clock is read once per this many futures.
FUTURES_PER_LOOK: cython.Py_ssize_t = 32


@cython.final
@cython.cclass
class Completions:
    """The batches whose records are awaited on one event loop.

    `_waiting` has the futures that wait, by batch; only the loop's thread touches it. `_completed` has the batches that
    are done: the sender thread appends to it. Both are bounded by the batches that are pending.
    """

    if not cython.compiled:
        # for type checkers; futures_cy.pxd has the C types
        _waiting: dict[ProducerBatch, list[AsyncRecordFuture]]
        _settling: list[AsyncRecordFuture]

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        """Serve `loop`. `clock` measures the slices of the work."""
        self.loop = loop
        self._clock = clock
        self._waiting = {}
        self._completed: deque[ProducerBatch] = deque()
        # in reverse, so that the next one is taken from the end
        self._settling = []
        self._scheduled = False

    @cython.ccall
    def future_of(self, record: RecordFuture) -> AsyncRecordFuture:
        """The loop's future of a record that was appended."""
        future: AsyncRecordFuture = AsyncRecordFuture.__new__(AsyncRecordFuture)
        future.is_blocking = False
        future.record = record
        future.completions = self
        future.callback = None
        future.context = None
        future.callbacks = None
        future.is_waiting = False
        future.is_cancelled = False
        future.cancel_message = None
        future.found = None
        return future

    @cython.cfunc
    def _await_batch(self, future: AsyncRecordFuture) -> object:
        """Settle a future when its batch is done. The loop's thread."""
        batch: ProducerBatch = future.record._live_batch()
        waiting: list | None = self._waiting.get(batch)
        if waiting is not None:
            # even if the batch is done: it leaves the dict on this thread
            waiting.append(future)
            return None
        self._waiting[batch] = [future]
        completed = functools.partial(self._note_completed, batch)
        if not batch.listen(future.record, completed, True):
            self._note_completed(batch, None, None)
        return None

    def batch_done(self, batch: ProducerBatch) -> asyncio.Future[None]:
        """A future that is done when a batch, or the first part of one that is split, is done. The loop's thread."""
        done = self.loop.create_future()
        record: RecordFuture = RecordFuture.__new__(RecordFuture)
        record.batch = batch
        record.index = 0
        record.timestamp = -1
        record.key_size = record.value_size = record.headers_size = -1
        self.future_of(record).add_done_callback(functools.partial(_finish, done))
        return done

    def _note_completed(self, batch: ProducerBatch, metadata: object, exception: object) -> None:
        """Take a batch that is done, and wake the loop unless it is awake. Any thread."""
        self._completed.append(batch)
        # in the reverse order of `_settle_some`, so that one of the two sees the other
        store_load_fence()
        if not self._scheduled:
            self._scheduled = True
            try:
                self.loop.call_soon_threadsafe(self._settle_some)
            except RuntimeError:
                # the loop was closed: nothing there waits any longer
                _log.debug("an event loop was closed before a record that it awaited was acknowledged")
                self._completed.clear()

    @property
    def is_settled(self) -> bool:
        """Whether everything that is done so far has been reported to what awaits it. The loop's thread."""
        return not (self._completed or self._settling)

    def _settle_some(self) -> None:
        """Call the callbacks of awaited records that are done, until the slice is over. The loop's thread."""
        future: AsyncRecordFuture
        batch: ProducerBatch
        looks: cython.Py_ssize_t = FUTURES_PER_LOOK
        end_ms: cython.double = self._clock.now_ms() + SLICE_MS
        # first: a batch that is appended from here on schedules the next call
        self._scheduled = False
        store_load_fence()
        try:
            while True:
                if not self._settling:
                    if not self._completed:
                        break
                    batch = self._completed.popleft()
                    waiting: list | None = self._waiting.pop(batch, None)
                    if waiting is None:
                        continue
                    waiting.reverse()
                    self._settling = waiting
                future = self._settling.pop()
                if future.record._is_done():
                    future._settle()
                elif future.callback is not None or future.callbacks:
                    # the batch was split, and this record's part is still pending
                    self._await_batch(future)
                else:
                    future.is_waiting = False
                looks -= 1
                if looks == 0:
                    looks = FUTURES_PER_LOOK
                    if self._clock.now_ms() >= end_ms:
                        break
        finally:
            # also after an exception: a callback may raise KeyboardInterrupt
            if (self._settling or self._completed) and not self._scheduled:
                self._scheduled = True
                self.loop.call_soon(self._settle_some)


@cython.freelist(256)
@cython.cclass
class AsyncRecordFuture:
    """The future of one record on an event loop: await it, or pass it to any function that takes asyncio's futures.

    It follows the protocol of `asyncio.Future`, so that `asyncio.wait`, `gather`, `wait_for` and `shield` take it.
    Cancelling it ends the waiting for it and does not affect the record, which is delivered all the same. Only the
    loop's thread may use it. An error that nobody retrieves is not logged.

    `is_waiting`: it is in the list of its batch. `callback` and `context` are those of its first callback, which is
    mostly the only one; `callbacks` has the others.
    """

    if not cython.compiled:
        # set by Completions.future_of; futures_cy.pxd has the C types
        is_blocking: bool
        record: RecordFuture
        completions: Completions
        callback: Callable[..., object] | None
        context: contextvars.Context | None
        callbacks: list[tuple[Callable[..., object], contextvars.Context]] | None
        is_waiting: bool
        is_cancelled: bool
        cancel_message: Any
        found: RecordMetadata | None

    @property
    def _asyncio_future_blocking(self) -> bool | None:
        """Whether a task is about to wait for it. asyncio recognizes a future by this attribute."""
        return self.is_blocking

    @_asyncio_future_blocking.setter
    def _asyncio_future_blocking(self, blocking: bool) -> None:
        self.is_blocking = blocking

    @cython.cfunc
    @cython.exceptval(check=False)
    def _is_over(self) -> cython.bint:
        return self.is_cancelled or self.record._is_done()

    @cython.cfunc
    def _failure(self) -> Any:
        """The error of a future that is done, None if it succeeded."""
        return self.record._error()

    def done(self) -> bool:
        """Whether the record has been acknowledged or has failed, or the future was cancelled."""
        return self._is_over()

    def cancelled(self) -> bool:
        """Whether the future was cancelled before the record was acknowledged."""
        return self.is_cancelled

    def result(self) -> RecordMetadata:
        """Return the record's metadata.

        Raises the delivery's error; CancelledError if the future was cancelled; InvalidStateError if it is not done.
        """
        return self._outcome()

    @cython.cfunc
    def _outcome(self) -> Any:
        error: Any
        if self.is_cancelled:
            raise self._make_cancelled_error()
        if self.found is None:
            if not self._is_over():
                raise asyncio.InvalidStateError("the record has not been acknowledged yet")
            error = self._failure()
            if error is not None:
                # many futures share the error, and each raise would extend its traceback
                raise error.with_traceback(None)
            self.found = self.record._metadata()
        return self.found

    def exception(self) -> BaseException | None:
        """Return the delivery's error, None if it succeeded; raises like `result`."""
        if self.is_cancelled:
            raise self._make_cancelled_error()
        if not self._is_over():
            raise asyncio.InvalidStateError("the record has not been acknowledged yet")
        return self._failure()

    @property
    def _cancel_message(self) -> Any:
        """What was passed to `cancel`, for `gather`."""
        return self.cancel_message

    def _make_cancelled_error(self) -> asyncio.CancelledError:
        if self.cancel_message is None:
            return asyncio.CancelledError()
        return asyncio.CancelledError(self.cancel_message)

    def cancel(self, msg: Any = None) -> bool:
        """End the waiting for this future with CancelledError; False if it is done. The record is delivered anyway."""
        if self._is_over():
            return False
        self.is_cancelled = True
        self.cancel_message = msg
        self._call_back_soon()
        return True

    @cython.cfunc
    def _call_back_soon(self) -> object:
        """Schedule the callbacks, each in a call of its own."""
        call_soon = self.completions.loop.call_soon
        callback, context, callbacks = self.callback, self.context, self.callbacks
        self.callback = self.context = self.callbacks = None
        self.is_waiting = False
        if callback is not None:
            call_soon(callback, self, context=context)
        if callbacks is not None:
            for callback, context in callbacks:
                call_soon(callback, self, context=context)
        return None

    def add_done_callback(
        self, fn: Callable[[AsyncRecordFuture], object], *, context: contextvars.Context | None = None
    ) -> None:
        """Call ``fn(future)`` on the loop when the future is done, as `asyncio.Future` does."""
        if context is None:
            context = contextvars.copy_context()
        if not self.is_waiting and self._is_over():
            self.completions.loop.call_soon(fn, self, context=context)
        else:
            self._add_callback(fn, context)

    @cython.cfunc
    def _add_callback(self, fn: Any, context: Any) -> object:
        if self.callbacks is not None:
            self.callbacks.append((fn, context))
        elif self.callback is not None:
            self.callbacks = [(fn, context)]
        else:
            self.callback = fn
            self.context = context
        if not self.is_waiting and self.record is not None:
            self.is_waiting = True
            self.completions._await_batch(self)
        return None

    def remove_done_callback(self, fn: Callable[[AsyncRecordFuture], object]) -> int:
        """Remove every registration of a callback that has not been called; return their number."""
        removed: cython.Py_ssize_t = 0
        if self.callback is not None and self.callback == fn:
            self.callback = self.context = None
            removed = 1
        if self.callbacks is not None:
            kept = [each for each in self.callbacks if each[0] != fn]
            removed += len(self.callbacks) - len(kept)
            self.callbacks = kept
        return removed

    @cython.cfunc
    def _settle(self) -> object:
        """Call the callbacks. They run here rather than each in a call of the loop, which costs as much again."""
        callback, context, callbacks = self.callback, self.context, self.callbacks
        self.callback = self.context = self.callbacks = None
        self.is_waiting = False
        if callback is not None:
            self._call_back(callback, context)
        if callbacks is not None:
            for callback, context in callbacks:
                self._call_back(callback, context)
        return None

    @cython.cfunc
    def _call_back(self, callback: object, context: Any) -> object:
        try:
            context.run(callback, self)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.completions.loop.call_exception_handler(
                {"message": f"the callback {callback!r} raised", "exception": error, "future": self}
            )
        return None

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that the future belongs to."""
        return self.completions.loop

    @property
    def topic_partition(self) -> TopicPartition:
        """The record's destination, known as soon as it is sent."""
        return self.record.topic_partition

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        # its own iterator, which has no state: an await allocates nothing
        return self  # pyright: ignore[reportReturnType]

    def __iter__(self) -> AsyncRecordFuture:
        return self

    def __next__(self) -> AsyncRecordFuture:
        """A step of an ``await``: the loop is given the future to wait for until it is done."""
        if self._is_over():
            raise StopIteration(self._outcome())
        self.is_blocking = True
        return self

    def __repr__(self) -> str:
        if self.is_cancelled:
            return f"<AsyncRecordFuture for {self.topic_partition}: cancelled>"
        return f"<AsyncRecordFuture{str(self.record)[len('<RecordFuture') :]}"


def _finish(done: asyncio.Future[None], _source: object) -> None:
    if not done.done():
        done.set_result(None)
