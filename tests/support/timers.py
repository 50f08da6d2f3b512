"""Timers for tests that step time by hand: only the test's calls run tasks."""

from __future__ import annotations

from collections.abc import Callable

from headrace.broker.timer import SystemTimer
from headrace.network.clock import MockClock


class InlineExecutor:
    """Runs submitted tasks immediately, in the caller's thread."""

    def submit(self, run: Callable[[], object]) -> None:
        run()

    def close(self, timeout_ms: float) -> None:
        """Do nothing: every submitted task has run."""


def manual_timer(clock: MockClock, *, tick_ms: int = 1, wheel_size: int = 20) -> SystemTimer:
    """The real timer on a mock clock: expired tasks run inside `advance_clock`."""
    return SystemTimer("manual", clock=clock, tick_ms=tick_ms, wheel_size=wheel_size, executor=InlineExecutor())
