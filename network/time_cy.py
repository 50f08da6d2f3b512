# cython: language_level=3
# cython: freethreading_compatible=True
"""The readings of the system's clocks, in C where compiled. Only `network.clock` uses them; everything else takes a
`Clock`. A record that is sent alone reads the time a dozen times."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from . import _cython as cython

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if cython.compiled:
    from cython.cimports.posix.time import CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec


def now_ms() -> float:
    """Monotonic milliseconds, from the clock of `time.monotonic`."""
    if cython.compiled:
        now: timespec  # pyright: ignore[reportUndefinedVariable]
        clock_gettime(CLOCK_MONOTONIC, cython.address(now))  # type: ignore  # noqa: F821
        return cython.cast(cython.double, now.tv_sec) * 1e3 + cython.cast(cython.double, now.tv_nsec) / 1e6  # noqa: F821
    return time.monotonic() * 1000.0


def wall_ms() -> int:
    """Milliseconds since 1970."""
    if cython.compiled:
        now: timespec  # pyright: ignore[reportUndefinedVariable]
        clock_gettime(CLOCK_REALTIME, cython.address(now))  # type: ignore  # noqa: F821
        return cython.cast(cython.longlong, now.tv_sec) * 1000 + now.tv_nsec // 1_000_000  # noqa: F821
    return time.time_ns() // 1_000_000
