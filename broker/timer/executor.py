"""Where expired tasks run."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from typing import Protocol

from ...network.sections import section_thread


class TaskExecutor(Protocol):
    """Runs what it is given, at once or later. `submit` may be called from any thread."""

    def submit(self, run: Callable[[], object]) -> object: ...

    def close(self, timeout_ms: float) -> object: ...


class SerialExecutor:
    """One daemon thread that runs what was submitted, in its order.

    A task that raises is reported to `threading.excepthook`, as it would be if the thread were its own, and the next
    one runs: a task's failure must not keep other people's requests from their timeouts. (An executor of
    `concurrent.futures` would keep the exception in a future that nobody reads.)

    What waits is bounded by who submits: there are so many timers, each submitted once, or so many connections.
    """

    def __init__(self, name: str) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread = section_thread(self._run_tasks, name)
        self._thread.start()

    def submit(self, run: Callable[[], object]) -> None:
        self._tasks.put(run)

    def close(self, timeout_ms: float) -> None:
        """Run what was submitted before, then end; wait at most `timeout_ms` for that. May be called again."""
        self._tasks.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_ms / 1000.0)

    def _run_tasks(self) -> None:
        while (run := self._tasks.get()) is not None:
            try:
                run()
            except BaseException:
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), self._thread)))
            del run  # not held while waiting for the next one
