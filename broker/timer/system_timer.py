"""The timer: timing wheels, the queue of their buckets, one lock, and an executor for expired tasks."""

from __future__ import annotations

import math
import threading
from typing import Protocol

from ...network.clock import Clock
from ...network.protocol.errors import IllegalStateError, KafkaConfigurationError
from .executor import SerialExecutor, TaskExecutor
from .timer_task import TimerTask, TimerTaskEntry
from .timing_wheel import DelayQueue, TimingWheel

_CLOSE_TIMEOUT_MS = 5_000.0


class Timer(Protocol):
    """The timer as a purgatory uses it (Kafka's interface of the same name)."""

    def add(self, task: TimerTask) -> None: ...

    def advance_clock(self, timeout_ms: float) -> bool: ...

    def wakeup(self) -> None: ...

    @property
    def size(self) -> int: ...

    def close(self) -> None: ...


class SystemTimer:
    """Runs tasks when their delay expires, with hierarchical timing wheels over the injected clock.

    A task never expires before its delay, and at most one tick after it, provided that a thread keeps calling
    `advance_clock`. Tasks of the same tick run in no particular order.

    Every method may be called from any thread. One lock guards the wheels, the queue and all entries. Each critical
    section is a few steps long (a flush is as long as its bucket), and under the interpreter lock finer-grained locks
    would cost more than they save. Tasks are submitted with the lock released: an executor may run them immediately,
    and they may use the timer.

    After Kafka's `SystemTimer`, whose wheel of 20 ticks of 1 ms is the default. Unlike there, a delay that is not a
    multiple of the tick is rounded up.

    name: Names the executor's thread.
    clock: The time and the waiting.
    tick_ms: The resolution, 1 ms or more.
    wheel_size: Buckets per wheel, two or more.
    executor: Runs expired tasks; None: a `SerialExecutor` of the timer's own.
    """

    def __init__(
        self,
        name: str,
        *,
        clock: Clock,
        tick_ms: int = 1,
        wheel_size: int = 20,
        executor: TaskExecutor | None = None,
    ) -> None:
        if tick_ms < 1 or wheel_size < 2:
            raise KafkaConfigurationError(
                f"a timer needs two ticks or more, of 1 ms or more, not {wheel_size} of {tick_ms} ms"
            )
        self._clock = clock
        self._tick_ms = tick_ms
        self._executor = SerialExecutor(f"executor-{name}") if executor is None else executor
        self._changed = threading.Condition(threading.Lock())  # advance_clock waits on it
        self._queue = DelayQueue(on_new_first=self._changed.notify)
        self._wheel = TimingWheel(
            tick_ms=tick_ms, wheel_size=wheel_size, start_ms=int(clock.now_ms()), queue=self._queue
        )
        self._size = 0
        self._woken = False
        self._closed = False

    def add(self, task: TimerTask) -> None:
        """Run `task` when its delay expires. A delay of zero or less runs it at once, on the executor.

        Raises IllegalStateError after `close`.
        """
        expiration_ms = math.ceil((self._clock.now_ms() + task.delay_ms) / self._tick_ms) * self._tick_ms
        entry = TimerTaskEntry(task, expiration_ms, self)
        with self._changed:
            if self._closed:
                raise IllegalStateError("the timer is closed: no task can be added to it")
            held = task._entry
            if held is not None:
                self._unlink(held)
            if task.delay_ms > 0 and self._wheel.add(entry):
                task._entry = entry
                self._size += 1
                return
        self._executor.submit(task.run)

    def cancel_entry(self, entry: TimerTaskEntry) -> None:
        """Remove an entry if it is still in the timer. Called by `TimerTask.cancel`."""
        with self._changed:
            self._unlink(entry)

    def advance_clock(self, timeout_ms: float) -> bool:
        """Submit every task that has expired. If no bucket is due, first wait up to `timeout_ms` for one.

        False if there was none (the timeout passed, or a thread called `wakeup` or `close`).
        """
        end_ms = self._clock.now_ms() + timeout_ms
        with self._changed:
            while True:
                if self._closed:
                    return False
                now_ms = self._clock.now_ms()
                next_ms = self._queue.next_expiration_ms()
                if next_ms is not None and next_ms <= now_ms:
                    break
                if self._woken or now_ms >= end_ms:
                    self._woken = False
                    return False
                self._clock.wait_until(self._changed, end_ms if next_ms is None else min(end_ms, next_ms))
        while (expired := self._flush_next_bucket(now_ms)) is not None:
            for task in expired:
                self._executor.submit(task.run)
        return True

    def wakeup(self) -> None:
        """Make the current `advance_clock`, or else the next one, return without waiting."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    @property
    def size(self) -> int:
        """Number of tasks that have not expired yet."""
        return self._size

    def close(self) -> None:
        """Accept no more tasks, run those already submitted, and drop the rest. May be called again."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._executor.close(_CLOSE_TIMEOUT_MS)

    def _flush_next_bucket(self, now_ms: float) -> list[TimerTask] | None:
        """Empty the first bucket that is due and return its expired tasks; None if no bucket is due.

        The lock is held for one bucket at a time, so that a big step of the clock doesn't block other threads.
        """
        with self._changed:
            bucket = self._queue.poll(now_ms)
            if bucket is None:
                return None
            self._wheel.advance_clock(bucket.expiration_ms)
            expired = []
            for entry in bucket.flush():
                if not self._wheel.add(entry):
                    entry.task._entry = None
                    expired.append(entry.task)
            self._size -= len(expired)
            return expired

    def _unlink(self, entry: TimerTaskEntry) -> None:
        if entry.bucket is not None:
            entry.bucket.remove(entry)
            entry.task._entry = None
            self._size -= 1
