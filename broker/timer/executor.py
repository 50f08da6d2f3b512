"""The executor that runs expired tasks."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from typing import Protocol

from ...network.sections import section_thread


class TaskExecutor(Protocol):
    """Runs each submitted task, immediately or later. `submit` may be called from any thread."""

    def submit(self, run: Callable[[], object]) -> object: ...

    def close(self, timeout_ms: float) -> object: ...


class SerialExecutor:
    """One daemon thread that runs tasks in the order they were submitted.

    A task that raises is reported to `threading.excepthook`, as if it had its own thread, and the next task runs: one
    task's failure must not delay the timeouts of other requests. (An executor of `concurrent.futures` would keep the
    exception in a future that nobody reads.)

    The queue is unbounded, but its submitters bound it: each timer is submitted once, and each connection.
    """

    def __init__(self, name: str) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread = section_thread(self._run_tasks, name)
        self._thread.start()

    def submit(self, run: Callable[[], object]) -> None:
        self._tasks.put(run)

    def close(self, timeout_ms: float) -> None:
        """Run the tasks submitted so far, then end; wait up to `timeout_ms` for that. May be called again."""
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
