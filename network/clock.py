"""Injectable clocks. Only `time_cy`, which has the system's, reads the time.

There are two clocks. The monotonic one (milliseconds as a float, from an arbitrary start) is for deadlines, backoffs
and ages. The wall clock (integer milliseconds since 1970) is for record timestamps only, because it may jump.
"""

from __future__ import annotations

import math
import threading
from typing import Final

from .latch_cy import Latch
from .time_cy import MAX_WAIT_SECONDS, Clock

__all__ = ["LONG_AGO_MS", "MAX_WAIT_SECONDS", "NEVER_MS", "SYSTEM_CLOCK", "Clock", "MockClock"]

NEVER_MS: Final = math.inf
"""A deadline or delay that never ends."""

LONG_AGO_MS: Final = -math.inf
"""A time before any other: a monotonic clock may start below 0."""


class MockClock(Clock):
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
                    turn.sleep(-1.0)
                finally:
                    latch.leave(turn)
        finally:
            with self._lock:
                self._latches.remove(latch)

    def sleep(self, duration_ms: float) -> None:
        self.advance(duration_ms)


SYSTEM_CLOCK: Final = Clock()
