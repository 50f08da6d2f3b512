"""Injectable clocks. Only this module and `time_cy`, which is its own, read the time.

There are two clocks. The monotonic one (milliseconds as a float, from an arbitrary start) is for deadlines, backoffs
and ages. The wall clock (integer milliseconds since 1970) is for record timestamps only, because it may jump.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Final, Protocol

from . import time_cy
from .latch_cy import Latch

NEVER_MS: Final = math.inf
"""A deadline or delay that never ends."""

LONG_AGO_MS: Final = -math.inf
"""A time before any other: a monotonic clock may start below 0."""

MAX_WAIT_SECONDS: Final = threading.TIMEOUT_MAX
"""The longest timeout that `threading` accepts, about 292 years."""


class Clock(Protocol):
    """The clock that components use. Any thread may call any method."""

    def now_ms(self) -> float:
        """Monotonic milliseconds."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970, which may jump backwards."""
        ...

    def wall_ns(self) -> int:
        """Nanoseconds since 1970, from the same clock. The per-record path reads this, because it is the fastest."""
        ...

    def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:
        """Wait on a held condition for at most `timeout_ms` (None: no limit). Returns False on a timeout."""
        ...

    def wait_until(self, condition: threading.Condition, end_ms: float) -> bool:
        """Wait on a held condition until `end_ms` on the monotonic clock. Returns False if that time is reached.

        Unlike `wait` it does not miss a step of the clock between the caller's reading and the wait.
        """
        ...

    def await_latch(self, latch: Latch, end_ms: float) -> bool:
        """Wait until the latch is set or until `end_ms` on the monotonic clock. Returns whether it is set."""
        ...

    def sleep(self, duration_ms: float) -> None:
        """Sleep for `duration_ms`."""
        ...


class SystemClock:
    """The system's clocks."""

    # the C functions themselves, without a Python wrapper
    now_ms = staticmethod(time_cy.now_ms)
    wall_ms = staticmethod(time_cy.wall_ms)
    wall_ns = staticmethod(time.time_ns)

    def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:
        # threading accepts neither longer nor negative timeouts
        if timeout_ms is None or timeout_ms > MAX_WAIT_SECONDS * 1000.0:
            return condition.wait()
        return condition.wait(max(timeout_ms, 0.0) / 1000.0)

    def wait_until(self, condition: threading.Condition, end_ms: float) -> bool:
        return self.wait(condition, end_ms - self.now_ms())

    def await_latch(self, latch: Latch, end_ms: float) -> bool:
        return latch.wait((end_ms - self.now_ms()) / 1000.0)

    def sleep(self, duration_ms: float) -> None:
        time.sleep(duration_ms / 1000.0)


class MockClock:
    """A clock that moves only by `advance`: for tests that step state machines and for a broker's virtual time.

    A wait ends if the condition is notified or if `advance` moves past its end.
    """

    def __init__(self, now_ms: float = 0.0, wall_ms: int = 1_600_000_000_000) -> None:
        self._lock = threading.Lock()
        self._now_ms = now_ms
        self._wall_ms = float(wall_ms)
        self._waiting: list[threading.Condition] = []
        self._latches: list[Latch] = []

    def now_ms(self) -> float:
        return self._now_ms

    def wall_ms(self) -> int:
        return int(self._wall_ms)

    def wall_ns(self) -> int:
        return int(self._wall_ms) * 1_000_000

    def advance(self, duration_ms: float) -> None:
        """Advance both clocks and wake all waiting threads, so that they read the time again."""
        with self._lock:
            self._now_ms += duration_ms
            self._wall_ms += duration_ms
            waiting = list(self._waiting)
            latches = list(self._latches)
        for condition in waiting:
            with condition:
                condition.notify_all()
        for latch in latches:
            latch.wake()

    def set_wall_ms(self, wall_ms: int) -> None:
        """Set the wall clock, backwards too. The monotonic clock does not change."""
        self._wall_ms = float(wall_ms)

    def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:
        return self._wait(condition, None if timeout_ms is None else self._now_ms + timeout_ms)

    def wait_until(self, condition: threading.Condition, end_ms: float) -> bool:
        return self._wait(condition, end_ms)

    def _wait(self, condition: threading.Condition, end_ms: float | None) -> bool:
        with self._lock:
            self._waiting.append(condition)
        try:
            if end_ms is not None and self._now_ms >= end_ms:
                return False
            condition.wait()
            return end_ms is None or self._now_ms < end_ms
        finally:
            with self._lock:
                self._waiting.remove(condition)

    def await_latch(self, latch: Latch, end_ms: float) -> bool:
        with self._lock:
            self._latches.append(latch)
        try:
            while True:
                # join first: a step of the clock after reading the time still wakes this thread
                turn = latch.join()
                try:
                    if latch.is_set or self._now_ms >= end_ms:
                        return latch.is_set
                    turn.acquire()
                finally:
                    latch.leave(turn)
        finally:
            with self._lock:
                self._latches.remove(latch)

    def sleep(self, duration_ms: float) -> None:
        self.advance(duration_ms)


SYSTEM_CLOCK = SystemClock()
