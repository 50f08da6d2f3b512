# cython: language_level=3
# cython: freethreading_compatible=True
"""The system's clocks, read in C where compiled: a record that is sent alone reads the time a dozen times.

Import `Clock` from `network.clock`.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from . import _cython as cython
from .latch_cy import Latch

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if cython.compiled:
    from cython.cimports.posix.time import CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

MAX_WAIT_SECONDS: Final = threading.TIMEOUT_MAX
"""The longest timeout that `threading` accepts, about 292 years."""


@cython.cclass
class Clock:
    """The clock that components use: the system's. A subclass may replace any method. Any thread may call them."""

    @cython.ccall
    def now_ms(self) -> cython.double:
        """Monotonic milliseconds, from the clock of `time.monotonic`."""
        if cython.compiled:
            now: timespec  # pyright: ignore[reportUndefinedVariable]
            clock_gettime(CLOCK_MONOTONIC, cython.address(now))  # type: ignore  # noqa: F821
            return cython.cast(cython.double, now.tv_sec) * 1e3 + cython.cast(cython.double, now.tv_nsec) / 1e6  # noqa: F821
        return time.monotonic() * 1000.0

    @cython.ccall
    def wall_ms(self) -> cython.longlong:
        """Milliseconds since 1970, which may jump backwards."""
        if cython.compiled:
            now: timespec  # pyright: ignore[reportUndefinedVariable]
            clock_gettime(CLOCK_REALTIME, cython.address(now))  # type: ignore  # noqa: F821
            return cython.cast(cython.longlong, now.tv_sec) * 1000 + now.tv_nsec // 1_000_000  # noqa: F821
        return time.time_ns() // 1_000_000

    def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:
        """Wait on a held condition for at most `timeout_ms` (None: no limit). Returns False on a timeout."""
        # threading accepts neither longer nor negative timeouts
        if timeout_ms is None or timeout_ms > MAX_WAIT_SECONDS * 1000.0:
            return condition.wait()
        return condition.wait(max(timeout_ms, 0.0) / 1000.0)

    def wait_until(self, condition: threading.Condition, end_ms: float) -> bool:
        """Wait on a held condition until `end_ms` on the monotonic clock. Returns False if that time is reached.

        Unlike `wait` it does not miss a step of the clock between the caller's reading and the wait.
        """
        return self.wait(condition, end_ms - self.now_ms())

    def await_latch(self, latch: Latch, end_ms: float) -> bool:
        """Wait until the latch is set or until `end_ms` on the monotonic clock. Returns whether it is set."""
        return latch.wait((end_ms - self.now_ms()) / 1000.0)

    def sleep(self, duration_ms: float) -> None:
        """Sleep for `duration_ms`."""
        time.sleep(duration_ms / 1000.0)
