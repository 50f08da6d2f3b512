"""Time, injected: the only module that reads a clock.

Two clocks are kept apart. The monotonic one (milliseconds as a float, from an arbitrary start) is for every deadline,
backoff and age. The wall clock (whole milliseconds since 1970) is for record timestamps only, because it may jump.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Final, Protocol

from .latch import Latch

NEVER_MS: Final = math.inf
"""A deadline, a due time or a delay that never comes."""

LONG_AGO_MS: Final = -math.inf
"""A time before every other: a monotonic clock may begin below 0."""

MAX_WAIT_SECONDS: Final = threading.TIMEOUT_MAX
"""The longest timeout that `threading` accepts, about 292 years."""


class Clock(Protocol):
    """What a component may ask of time. Every method may be called from any thread."""

    def now_ms(self) -> float:
        """Monotonic milliseconds."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970, which may jump backwards."""
        ...

    def wall_ns(self) -> int:
        """Nanoseconds since 1970, of the same clock: what the per-record path reads, because it is the quickest."""
        ...

    def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:
        """Wait on a held condition for at most `timeout_ms` (None: no limit). False when the time passed."""
        ...

    def wait_until(self, condition: threading.Condition, end_ms: float) -> bool:
        """Wait on a held condition until it is `end_ms` on the monotonic clock. False when it is.

        Unlike `wait` it can't miss a step that the clock makes between the caller's look at the time and the wait.
        """
        ...

    def await_latch(self, latch: Latch, end_ms: float) -> bool:
        """Wait until the latch is set, or until it is `end_ms` on the monotonic clock. Returns whether it is set."""
        ...

    def sleep(self, duration_ms: float) -> None:
        """Pass `duration_ms` milliseconds."""
        ...


class SystemClock:
    """The machine's clocks."""

    # the C function itself, without a Python call around it
    wall_ns = staticmethod(time.time_ns)

    def now_ms(self) -> float:
        return time.monotonic() * 1000.0

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:
        # threading accepts no longer waits, and no negative ones
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
    """A clock that moves only by `advance`: for stepping state machines in tests and for a broker's virtual time.

    A wait on it ends when someone notifies the condition, or when `advance` has moved past its end.
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
        """Move both clocks on and wake everybody who waits on this clock, so that they look at the time again."""
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
        """Make the wall clock jump (backwards too); the monotonic clock stays."""
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
                # the turn first: a step of the clock after the look at the time still wakes it
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
