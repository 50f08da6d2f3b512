# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""The sends of an event loop: `LoopSends` for those that need no wait, `AwaitedSend` for each `send_and_wait`.

An `AwaitedSend` is a coroutine and a future at once. ``await`` and `create_task` run it as a coroutine.
`asyncio.ensure_future`, and therefore `gather`, `wait_for` and `shield`, take it for a future and need no task for it;
a task costs several times as much as the record.

It has three stages. When it is created nothing is sent. It is scheduled when asyncio takes it for a future: it then
begins in a later turn of the loop, where a task would begin. Once it has begun, it is a future: the record is appended,
or it waits in a line to be appended.

Source: `asyncio.Task`, which it stands in for, and `types.CoroutineType`.
"""

from __future__ import annotations

import asyncio
import contextvars
import warnings
from asyncio import get_running_loop
from collections.abc import Callable, Sized
from typing import TYPE_CHECKING, Any

from ...network import _cython as cython
from ...network.cluster import TopicPartition
from ..record import ProducerRecord

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from ...network.clock import Clock
    from ..accumulator.batch_cy import RecordFuture
    from .futures_cy import AsyncRecordFuture, Completions
elif not TYPE_CHECKING:
    from cython.cimports.headrace.network.time_cy import Clock
    from cython.cimports.headrace.producer.accumulator.batch_cy import RecordFuture
    from cython.cimports.headrace.producer.aio.futures_cy import AsyncRecordFuture, Completions

#: A task that sends without ever waiting gives the loop a turn after this many milliseconds.
TURN_MS = 5.0

#: The clock is read once per this many sends.
SENDS_PER_LOOK: cython.Py_ssize_t = 16


class NotAppended(Exception):
    """The record's serializers have run, and it has to wait. Never raised by a public call."""

    def __init__(self, record: ProducerRecord) -> None:
        """`record` has the serialized key and value."""
        super().__init__(record)
        self.record = record


class NotDirect(Exception):
    """The record takes the path with awaits; nothing has been done for it. Never raised by a public call."""


@cython.final
@cython.cclass
class LoopSends:
    """The sends of one event loop that need no wait. Only the loop's thread uses it.

    `turn_is_over`: the sends have kept the loop from other work for TURN_MS. `serialized`: the record that the last
    `send` could not append although its serializers had run, else None.
    """

    if not cython.compiled:
        # for type checkers
        serialized: Any

    def __init__(
        self,
        completions: Completions,
        clock: Clock,
        send: Callable[..., RecordFuture],
        waiting: Sized,
        is_direct: bool = True,
    ) -> None:
        """Send with `send`, which raises NotDirect or NotAppended if it would have to wait.

        `waiting`: the sends that wait for memory, which come first. `clock` measures the turns of the loop.
        `is_direct`: whether records may take the direct path; if not, `send` and `awaited` return None.
        """
        self.loop = completions.loop
        self.completions = completions
        self._clock = clock
        self._send = send
        self._waiting = waiting
        self._is_direct = is_direct
        self._left = SENDS_PER_LOOK
        self._turn_began_ms = clock.now_ms()
        self.turn_is_over = False
        self.serialized = None

    def send(
        self, topic: Any, value: Any, key: Any, headers: Any, partition: Any, timestamp_ms: Any
    ) -> AsyncRecordFuture | None:
        """Append a record and return its future; None if it has to wait, or if another loop runs.

        Raises what `KafkaProducer.send` raises for the record.
        """
        if get_running_loop() is not self.loop:
            return None
        record: RecordFuture | None = self._append(topic, value, key, headers, partition, timestamp_ms)
        return None if record is None else self.completions.future_of(record)

    @cython.cfunc
    def _append(
        self, topic: Any, value: Any, key: Any, headers: Any, partition: Any, timestamp_ms: Any
    ) -> RecordFuture | None:
        if not self._is_direct or self._waiting:
            return None
        try:
            record: RecordFuture = self._send(topic, value, key, headers, partition, timestamp_ms)
        except NotDirect:
            return None
        except NotAppended as wait:
            self.serialized = wait.record
            return None
        self._left -= 1
        if self._left <= 0:
            self._left = SENDS_PER_LOOK
            self.turn_is_over = self._clock.now_ms() - self._turn_began_ms >= TURN_MS
        return record

    def awaited(
        self, producer: Any, topic: Any, value: Any, key: Any, headers: Any, partition: Any, timestamp_ms: Any
    ) -> Any:
        """Return the AwaitedSend of a record, which sends nothing yet; None if only a coroutine can send it.

        `producer`: sends what has to wait; see `AwaitedSend`. The other arguments are those of `send`.
        """
        if not self._is_direct:
            return None
        call: AwaitedSend = AwaitedSend.__new__(AwaitedSend)
        call.completions = self.completions
        call._sends = self
        call._producer = producer
        call._topic = topic
        call._value = value
        call._key = key
        call._headers = headers
        call._partition = partition
        call._timestamp_ms = timestamp_ms
        return call

    async def give_turn(self) -> None:
        """Let the loop do other work."""
        self.turn_is_over = False
        await asyncio.sleep(0)
        self._turn_began_ms = self._clock.now_ms()


@cython.final
@cython.cclass
class AwaitedSend(AsyncRecordFuture):
    """The coroutine of one `send_and_wait`, which is a future of the loop as well. Only the loop's thread uses it.

    `record` is None until the record is appended. If it has to wait for that, `_steps` is the coroutine of
    `producer._send_with_waits`, which must await nothing but futures of the loop, and `_awaits` the future it awaits.
    `_error` is what prevented the record from being appended.
    """

    if not cython.compiled:
        # set by LoopSends.awaited; sends_cy.pxd has the C types
        is_blocking = False
        record: Any = None
        callback = None
        context = None
        callbacks = None
        is_waiting = False
        is_cancelled = False
        cancel_message = None
        found = None
        _sends: LoopSends | None
        _producer: Any
        _topic: Any
        _value: Any
        _key: Any
        _headers: Any
        _partition: Any
        _timestamp_ms: Any
        _is_scheduled = False
        _has_begun = False
        _is_watched = False
        _steps: Any = None
        _awaits: Any = None
        _error: BaseException | None = None

    # --- A future ---

    @property
    def _asyncio_future_blocking(self) -> bool | None:
        """Whether a task is about to wait for it; None to another loop, which has to run it as a coroutine.

        `asyncio.isfuture` reads this, and is all that `ensure_future` asks a future. So the first read schedules it.
        """
        if not (self._has_begun or self._is_scheduled):
            try:
                if get_running_loop() is not self.completions.loop:
                    return None
            except RuntimeError:
                return None
            self._schedule()
        return self.is_blocking

    @_asyncio_future_blocking.setter
    def _asyncio_future_blocking(self, blocking: bool) -> None:
        self.is_blocking = blocking

    @cython.cfunc
    def _schedule(self) -> object:
        """Begin in a later turn of the loop, in a copy of the present context: as a task would."""
        self._is_scheduled = True
        self._is_watched = True
        self.completions.loop.call_soon(self._begin_scheduled)
        return None

    def _begin_scheduled(self) -> None:
        if not (self._has_begun or self.is_cancelled):
            self._begin(True)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _is_over(self) -> cython.bint:
        if self.is_cancelled or self._error is not None:
            return True
        return self.record is not None and self.record._is_done()

    @cython.cfunc
    def _failure(self) -> Any:
        self._is_watched = False
        return self.record._error() if self._error is None else self._error

    def cancel(self, msg: Any = None) -> bool:
        """End the waiting with CancelledError; False if it is done. What was appended is delivered anyway."""
        if self._awaits is not None and self._awaits.cancel(msg):
            # the record is not appended yet, and leaves its line
            return True
        if self._is_over():
            return False
        self.is_cancelled = True
        self.cancel_message = msg
        self._forget_record()
        self._call_back_soon()
        return True

    def add_done_callback(
        self, fn: Callable[[AsyncRecordFuture], object], *, context: contextvars.Context | None = None
    ) -> None:
        """Call ``fn(future)`` on the loop when the record is acknowledged or has failed."""
        if not (self._has_begun or self._is_scheduled or self.is_cancelled):
            self._schedule()
        if context is None:
            context = contextvars.copy_context()
        if not self.is_waiting and self._is_over():
            self.completions.loop.call_soon(fn, self, context=context)
        else:
            self._add_callback(fn, context)

    @property
    def topic_partition(self) -> TopicPartition:
        """The record's destination. Raises InvalidStateError until the record is appended."""
        if self.record is None:
            raise asyncio.InvalidStateError("the record has not been appended yet")
        return self.record.topic_partition

    # --- A coroutine ---

    def __next__(self) -> AsyncRecordFuture:
        """A step of the coroutine: the task is given this object to wait for until it is done."""
        if not (self._has_begun or self._is_scheduled):
            self._begin(False)
        if self._is_over():
            raise StopIteration(self._outcome())
        self.is_blocking = True
        return self

    def send(self, value: Any) -> AsyncRecordFuture:
        """A step of the coroutine."""
        return self.__next__()

    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> AsyncRecordFuture:
        """End the coroutine with an exception. What was not appended is not sent."""
        self.close()
        if isinstance(kind, BaseException):
            value = kind
        elif not isinstance(value, BaseException):
            value = kind() if value is None else kind(value)
        raise value if traceback is None else value.with_traceback(traceback)

    def close(self) -> None:
        """End the coroutine. What was not appended is not sent, unless asyncio has taken this for a future."""
        if self._is_scheduled or self.record is not None:
            return
        if self._awaits is None or not self.completions.loop.is_closed():
            self.cancel()

    # --- The record ---

    @cython.cfunc
    def _forget_record(self) -> object:
        self._has_begun = True
        self._sends = None
        self._producer = self._topic = self._value = self._key = None
        self._headers = self._partition = self._timestamp_ms = None
        return None

    @cython.cfunc
    def _begin(self, is_scheduled: cython.bint) -> object:
        """Append the record, or take its place in the line of those that wait."""
        sends: LoopSends | None = self._sends
        producer: Any = self._producer
        topic, value, key = self._topic, self._value, self._key
        headers, partition, timestamp_ms = self._headers, self._partition, self._timestamp_ms
        record: RecordFuture | None = None
        self._forget_record()
        try:
            if sends is None or (not is_scheduled and get_running_loop() is not sends.loop):
                # created on one loop and awaited on another
                self.completions = producer._completions_here()
                sends = None
            else:
                record = sends._append(topic, value, key, headers, partition, timestamp_ms)
            if record is None:
                self._steps = producer._send_with_waits(sends, topic, value, key, headers, partition, timestamp_ms)
        except BaseException as error:
            self._fail(error)
            return None
        if record is None:
            self._step(None)
        else:
            self._appended(record)
        return None

    def _step(self, _awaited: object) -> None:
        """Run the path with awaits up to its next wait. Its first step takes a place in a line, so it comes at once."""
        future: AsyncRecordFuture
        self._awaits = None
        if self.is_cancelled:
            self._steps.close()
            self._steps = None
            return
        try:
            awaits = self._steps.send(None)
        except StopIteration as end:
            self._steps = None
            future = end.value
            self.completions = future.completions
            self._appended(future.record)
        except BaseException as error:
            self._steps = None
            self._fail(error)
        else:
            if awaits is None:
                self.completions.loop.call_soon(self._step, None)
                return
            awaits._asyncio_future_blocking = False
            self._awaits = awaits
            awaits.add_done_callback(self._step)

    @cython.cfunc
    def _appended(self, record: RecordFuture) -> object:
        self.record = record
        if self.callback is not None or self.callbacks:
            self.is_waiting = True
            self.completions._await_batch(self)
        return None

    @cython.cfunc
    def _fail(self, error: Any) -> object:
        """The record was not appended."""
        if isinstance(error, asyncio.CancelledError):
            self.is_cancelled = True
            self.cancel_message = error.args[0] if error.args else None
        elif isinstance(error, StopIteration):
            # as in a coroutine: it would end one that awaits this
            self._error = RuntimeError("send_and_wait raised StopIteration")
            self._error.__cause__ = error
        else:
            self._error = error
        self._call_back_soon()
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            raise error
        return None

    def __repr__(self) -> str:
        if self.is_cancelled:
            return "<AwaitedSend: cancelled>"
        if self._error is not None:
            return f"<AwaitedSend: {self._error!r}>"
        if self.record is None:
            return f"<AwaitedSend: {'not appended yet' if self._has_begun else 'not begun'}>"
        return f"<AwaitedSend{str(self.record)[len('<RecordFuture') :]}"

    def __del__(self) -> None:
        if not (self._has_begun or self._is_scheduled):
            warnings.warn("coroutine 'AsyncKafkaProducer.send_and_wait' was never awaited", RuntimeWarning, 2, self)
        elif self._is_watched and not self.is_cancelled and self._is_over():
            error = self._failure()
            if error is not None:
                self.completions.loop.call_exception_handler(
                    {"message": "a send_and_wait failed, and its exception was never retrieved", "exception": error}
                )
