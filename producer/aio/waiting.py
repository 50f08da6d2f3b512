"""Waiting on an event loop: for a latch, for a topic's metadata, and for memory.

Every line here belongs to one event loop, whose thread alone touches it. Its sends proceed in the order in which they
came. A line wakes at most WAKES_PER_TURN of them per turn of the loop.

Source: `waitOnMetadata` in Kafka's KafkaProducer, and Kafka's BufferPool.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

from ...network.clock import Clock
from ...network.latch_cy import Latch
from ...network.protocol.errors import KafkaTimeoutError
from ..accumulator.accumulator_cy import RecordAccumulator
from ..accumulator.batch_cy import RecordFuture
from ..accumulator.buffer_pool_cy import NO_WAIT, BufferPool, MemoryWait, Turn
from ..accumulator.queues_cy import TopicQueues
from ..engine import Engine

_log = logging.getLogger(__name__)

#: Waiting sends that a line wakes per turn of the loop.
WAKES_PER_TURN = 200


class LoopSignal:
    """Calls a function on an event loop's thread. Any thread may call `set`, a latch calls `release`.

    If the loop has been closed, it calls `on_closed` instead, on the calling thread.
    """

    __slots__ = ("_call", "_loop", "_on_closed")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, call: Callable[[], object], on_closed: Callable[[], object] | None = None
    ) -> None:
        self._loop = loop
        self._call = call
        self._on_closed = on_closed

    def set(self) -> None:
        """Call the function, in a later turn of the loop."""
        try:
            self._loop.call_soon_threadsafe(self._call)
        except RuntimeError:
            _log.debug("an event loop was closed while a send waited on it")
            if self._on_closed is not None:
                self._on_closed()

    release = set


async def await_latch(latch: Latch, timeout_ms: float | None = None) -> bool:
    """Wait on the running loop until the latch is set or woken, at most `timeout_ms`; whether it is set."""
    loop = asyncio.get_running_loop()
    woken = loop.create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    turn = LoopSignal(loop, wake)
    latch.add(turn)
    timer = None if timeout_ms is None else loop.call_later(max(timeout_ms, 0.0) / 1000.0, wake)
    try:
        await woken
    finally:
        if timer is not None:
            timer.cancel()
        latch.leave(turn)
    return latch.is_set


class _Line(ABC):
    """Futures with deadlines, in order. All of them wait equally long, so that the first expires first."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        #: The places, in order.
        self.line: deque[Any] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self.line)

    def _arm(self) -> None:
        """Call `_expire` at the first deadline."""
        if self._timer is None and self.line:
            left_ms = self.line[0].deadline_ms - self._clock.now_ms()
            self._timer = self._loop.call_later(max(left_ms, 0.0) / 1000.0, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_ms = self._clock.now_ms()
        expired = 0
        while self.line and (self.line[0].done.done() or self.line[0].deadline_ms <= now_ms):
            waiting = self.line.popleft()
            if not waiting.done.done():
                expired += 1
                waiting.done.set_exception(self._timeout(waiting))
        self._expired(expired)
        self._arm()

    def _stop_if_empty(self) -> None:
        if not self.line and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @abstractmethod
    def _timeout(self, waiting: Any) -> KafkaTimeoutError:
        """The error of one that has waited too long."""

    @abstractmethod
    def _expired(self, count: int) -> None:
        """`count` of them have waited too long."""


class _Waiting:
    """A place in a line."""

    __slots__ = ("deadline_ms", "done", "started_ms")

    def __init__(self, done: asyncio.Future[Any], started_ms: float, deadline_ms: float) -> None:
        self.done = done
        self.started_ms = started_ms
        self.deadline_ms = deadline_ms


class TopicLine(_Line):
    """The sends that wait for a topic's metadata, or for one of its partitions. Its task asks for the metadata."""

    def __init__(self, loop: asyncio.AbstractEventLoop, engine: Engine, topic: str, partition: int) -> None:
        """Wait for `partition` of `topic` (-1: for any)."""
        super().__init__(loop, engine.clock)
        self._engine = engine
        self._topic = topic
        self._partition = partition
        self._task: asyncio.Task[None] | None = None

    async def wait(self, budget_ms: float) -> TopicQueues:
        """Return the topic's queues, waiting at most `budget_ms`. Raises what `Topics.await_partitions` raises."""
        now_ms = self._clock.now_ms()
        waiting = _Waiting(self._loop.create_future(), now_ms, now_ms + budget_ms)
        self.line.append(waiting)
        self._arm()
        if self._task is None:
            self._task = self._loop.create_task(self._ask(), name=f"headrace-metadata-{self._topic}")
        try:
            return await waiting.done
        finally:
            self._engine.metrics.waited_for_metadata(self._clock.now_ms() - now_ms)

    async def _ask(self) -> None:
        """Wait for the metadata, step by step, and wake the line."""
        metadata = self._engine.metadata
        steps = self._engine.topics.steps(self._topic, self._partition)
        found: TopicQueues | None = None
        failure: Exception | None = None
        try:
            while self.line:
                try:
                    version = next(steps)
                except StopIteration as end:
                    found = end.value
                    break
                fatal_count = metadata.fatal_count
                # woken now and then, to end when nobody waits any longer
                while self.line and (change := metadata.change_after(version, fatal_count)) is not None:
                    await await_latch(change, max(self.line[-1].deadline_ms - self._clock.now_ms(), 1.0))
                    self._drop_done()
        except Exception as error:
            failure = error
        finally:
            # those that come from here on start a task of their own
            self._task = None
            woken, self.line = self.line, deque()
            self._wake(woken, found, failure)

    def _drop_done(self) -> None:
        while self.line and self.line[0].done.done():
            self.line.popleft()

    def _wake(self, woken: deque[_Waiting], found: TopicQueues | None, failure: Exception | None) -> None:
        for _ in range(min(len(woken), WAKES_PER_TURN)):
            waiting = woken.popleft()
            if waiting.done.done():
                continue
            if failure is not None:
                waiting.done.set_exception(failure)
            elif found is not None:
                waiting.done.set_result(found)
            else:
                # the task was cancelled, as `asyncio.run` does at its end
                waiting.done.cancel()
        self._stop_if_empty()
        if woken:
            self._loop.call_soon(self._wake, woken, found, failure)

    def _timeout(self, waiting: _Waiting) -> KafkaTimeoutError:
        budget_ms = waiting.deadline_ms - waiting.started_ms
        timeout = self._engine.metadata.timeout_error(budget_ms)
        return self._engine.topics.no_metadata(self._topic, budget_ms, timeout)

    def _expired(self, count: int) -> None:
        pass


class _Send(_Waiting):
    """A record that waits for memory."""

    __slots__ = ("arguments",)

    def __init__(
        self, done: asyncio.Future[RecordFuture], started_ms: float, deadline_ms: float, arguments: tuple[Any, ...]
    ) -> None:
        super().__init__(done, started_ms, deadline_ms)
        #: All but the last two of `RecordAccumulator.append`.
        self.arguments = arguments


class MemoryLine(_Line):
    """The sends of an event loop that wait for memory. They are appended in order, as far as memory is granted.

    `_turn` is the line's place in the buffer pool's line, None unless records wait.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, engine: Engine) -> None:
        super().__init__(loop, engine.clock)
        self._accumulator: RecordAccumulator = engine.accumulator
        self._pool: BufferPool = engine.pool
        self._turn: Turn | None = None

    async def append(self, budget_ms: float, *arguments: Any) -> RecordFuture:
        """Append a record behind those that wait, waiting at most `budget_ms` for memory.

        `arguments`: all but the last two of `RecordAccumulator.append`. Raises what that raises. If the task is
        cancelled while it waits, the record is not sent.
        """
        if not self.line:
            try:
                return self._accumulator.append(*arguments, NO_WAIT)  # pyright: ignore[reportCallIssue]
            except MemoryWait as wait:
                self._join_pool(wait.size_bytes)
        now_ms = self._clock.now_ms()
        send = _Send(self._loop.create_future(), now_ms, now_ms + budget_ms, arguments)
        self.line.append(send)
        self._arm()
        try:
            return await send.done
        except BaseException:
            if self._loop.is_closed():
                # the coroutine is collected, perhaps in a section: the pool recovers the memory without a lock
                self._turn = None
            elif self.line and self.line[0] is send:
                # the next one may need less memory, or there is none and the line leaves the pool's
                self._loop.call_soon(self._append_waiting)
            raise

    def _append_waiting(self) -> None:
        """Append the first of the waiting records: when memory was granted, or the producer is closed."""
        for _ in range(WAKES_PER_TURN):
            while self.line and self.line[0].done.done():
                self.line.popleft()
            if not self.line:
                break
            send = self.line[0]
            try:
                record = self._accumulator.append(*send.arguments, NO_WAIT, self._turn)  # pyright: ignore[reportCallIssue]
            except MemoryWait as wait:
                self._join_pool(wait.size_bytes)
                return
            except Exception as error:
                send.done.set_exception(error)
            else:
                send.done.set_result(record)
            self.line.popleft()
        if self.line:
            self._loop.call_soon(self._append_waiting)
        else:
            self._leave_pool()
            self._stop_if_empty()

    def _join_pool(self, size_bytes: int) -> None:
        """Wait for that much memory, unless the line waits for it already."""
        if self._turn is not None and self._turn.waits_for(size_bytes):
            return
        self._leave_pool()
        signal = LoopSignal(self._loop, self._append_waiting, self._forget_turn)
        self._turn = self._pool.join_line(size_bytes, signal)

    def _forget_turn(self) -> None:
        """The loop was closed: drop the memory it was granted, which the pool then recovers. Under the pool's lock."""
        self._turn = None

    def _leave_pool(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            self._pool.leave_line(turn)

    def _timeout(self, waiting: _Waiting) -> KafkaTimeoutError:
        size_bytes = 0 if self._turn is None else self._turn.size_bytes
        return self._pool.exhausted_error(size_bytes, waiting.deadline_ms - waiting.started_ms)

    def _expired(self, count: int) -> None:
        if count:
            self._pool.note_exhausted(count)
        if not self.line:
            self._leave_pool()
