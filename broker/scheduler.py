"""A broker's background jobs, on one dedicated thread (Kafka's `KafkaScheduler`)."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable

from ..network.clock import NEVER_MS, Clock
from ..network.protocol.errors import KafkaError
from ..network.sections import section_thread

_log = logging.getLogger(__name__)


class Scheduler:
    """Runs jobs when they are due by the injected clock, one after the other.

    `schedule` and `close` may be called from any thread. If a job raises KafkaError or OSError, the error is logged and
    a periodic job runs again after its period. No client waits for these jobs.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self._clock = clock
        self._condition = threading.Condition()
        self._jobs: list[tuple[float, int, str, Callable[[], object], float | None]] = []
        self._order = itertools.count()
        self._closing = False
        self._thread = section_thread(self._run, name)
        self._thread.start()

    def schedule(
        self, name: str, job: Callable[[], object], *, delay_ms: float, period_ms: float | None = None
    ) -> None:
        """Run `job` after `delay_ms`, then every `period_ms` (None: once only)."""
        with self._condition:
            due_ms = self._clock.now_ms() + delay_ms
            heapq.heappush(self._jobs, (due_ms, next(self._order), name, job, period_ms))
            self._condition.notify()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._closing:
                    due_ms = self._jobs[0][0] if self._jobs else NEVER_MS
                    if due_ms <= self._clock.now_ms():
                        break
                    # Until a time, not for a duration: a virtual clock may advance between these two lines.
                    self._clock.wait_until(self._condition, due_ms)
                if self._closing:
                    return
                _, _, name, job, period_ms = heapq.heappop(self._jobs)
            try:
                job()
            except (KafkaError, OSError):
                _log.exception("the job %s failed; a periodic job runs again after its period", name)
            if period_ms is not None:
                self.schedule(name, job, delay_ms=period_ms, period_ms=period_ms)

    def close(self) -> None:
        """Stop after the job that is running. Jobs not yet due don't run. Blocks until the thread has ended."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        if self._thread is not threading.current_thread():
            self._thread.join()
