"""The timing wheel, and the queue that orders its buckets by expiration."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from .timer_task import TimerTaskEntry, TimerTaskList


class DelayQueue:
    """Buckets by their expiration: a heap in which each bucket appears at most once.

    Not thread-safe: the timer's lock guards it.
    """

    def __init__(self, *, on_new_first: Callable[[], object]) -> None:
        self._on_new_first = on_new_first
        self._heap: list[tuple[int, int, TimerTaskList]] = []
        self._order = itertools.count()  # a tiebreaker, so that buckets are never compared

    def offer(self, bucket: TimerTaskList) -> None:
        """Add a bucket. Calls `on_new_first` if it is due before all others."""
        heapq.heappush(self._heap, (bucket.expiration_ms, next(self._order), bucket))
        if self._heap[0][2] is bucket:
            self._on_new_first()

    def next_expiration_ms(self) -> int | None:
        """The time at which the first bucket is due, or None if there is none."""
        return self._heap[0][0] if self._heap else None

    def poll(self, now_ms: float) -> TimerTaskList | None:
        """Remove and return the first bucket if it is due, else None."""
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        return heapq.heappop(self._heap)[2]


class TimingWheel:
    """A circle of `wheel_size` buckets of `tick_ms` milliseconds each, and a coarser wheel for everything later.

    An entry goes into the finest wheel that reaches its expiration. When the bucket of a coarser wheel is due, its
    entries are added again starting from the finest wheel, so each moves down through the wheels to its own tick. One
    tick of an overflow wheel is a whole turn of the wheel below it. An overflow wheel is created when an entry first
    needs it.

    Invariants:

    - `current_ms` is a multiple of `tick_ms`. The wheel holds expirations from `current_ms + tick_ms` up to, but not
      including, `current_ms + tick_ms * wheel_size`; so a bucket never mixes two turns.
    - A bucket is in the queue exactly while its `expiration_ms` is set. The clock only moves to the expiration of a
      bucket just taken from the queue, in the queue's order, so no bucket is skipped.

    Not thread-safe: the timer's lock guards it and everything in it.
    """

    __slots__ = ("_buckets", "_interval_ms", "_overflow_wheel", "_queue", "_tick_ms", "_wheel_size", "current_ms")

    def __init__(self, *, tick_ms: int, wheel_size: int, start_ms: int, queue: DelayQueue) -> None:
        self._tick_ms = tick_ms
        self._wheel_size = wheel_size
        self._interval_ms = tick_ms * wheel_size
        self._queue = queue
        self._buckets = [TimerTaskList() for _ in range(wheel_size)]
        self._overflow_wheel: TimingWheel | None = None
        self.current_ms = start_ms - start_ms % tick_ms

    def add(self, entry: TimerTaskEntry) -> bool:
        """Put an entry into the bucket of its expiration. Returns False and does nothing if it has expired.

        The cost is the number of wheels it passes through, whatever the number of timers.
        """
        expiration_ms = entry.expiration_ms
        if expiration_ms < self.current_ms + self._tick_ms:
            return False
        wheel = self
        while expiration_ms >= wheel.current_ms + wheel._interval_ms:
            wheel = wheel._overflow_wheel or wheel._add_overflow_wheel()
        tick = expiration_ms // wheel._tick_ms
        bucket = wheel._buckets[tick % wheel._wheel_size]
        bucket.add(entry)
        if bucket.expiration_ms == TimerTaskList.NOT_QUEUED:
            bucket.expiration_ms = tick * wheel._tick_ms
            wheel._queue.offer(bucket)
        return True

    def advance_clock(self, time_ms: int) -> None:
        """Move this wheel, and every coarser one that has a tick in between, on to `time_ms`."""
        wheel: TimingWheel | None = self
        while wheel is not None and time_ms >= wheel.current_ms + wheel._tick_ms:
            wheel.current_ms = time_ms - time_ms % wheel._tick_ms
            wheel = wheel._overflow_wheel

    def _add_overflow_wheel(self) -> TimingWheel:
        self._overflow_wheel = TimingWheel(
            tick_ms=self._interval_ms, wheel_size=self._wheel_size, start_ms=self.current_ms, queue=self._queue
        )
        return self._overflow_wheel
