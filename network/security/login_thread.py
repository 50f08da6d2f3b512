"""The thread that logs in: fetches tokens and tickets, so that no other thread waits for an identity provider."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ..clock import Clock
from ..sections import here, section_thread

_log = logging.getLogger(__name__)


def start_thread(run: Callable[[], object], name: str) -> None:
    """Start a daemon thread that is in a section."""
    section_thread(run, name).start()


class LoginThread:
    """A daemon thread that runs steps, started by the first `wake`. Any thread may call any method.

    It is in a section for as long as it runs, because senders wait for its results: user code that it calls may send,
    but never waits for a producer that waits for it.
    """

    def __init__(
        self,
        name: str,
        due_ms: Callable[[], float],
        step: Callable[[], object],
        on_end: Callable[[], object],
        clock: Clock,
        start: Callable[[Callable[[], object], str], object] = start_thread,
    ) -> None:
        """Store the arguments.

        `due_ms` returns when the next step is due, on the monotonic clock. It is called while `condition` is held, and
        again after `wake`.
        `step` is called without the condition when it is due. It must not raise.
        `on_end` is called on the thread, last.
        `start` starts the thread; tests that step by hand start none.
        """
        self.condition = threading.Condition()
        self._name = name
        self._due_ms = due_ms
        self._step = step
        self._on_end = on_end
        self._clock = clock
        self._start = start
        self._is_started = False
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether `close` has been called."""
        return self._is_closed

    def wake(self) -> None:
        """Make the thread read `due_ms` again; start it if necessary. No effect after `close`.

        An interpreter that is shutting down starts no threads. Then the step runs on the calling thread, if it is due:
        the records of producers that were not closed are still to be delivered.
        """
        with here.section, self.condition:
            must_start = not self._is_started and not self._is_closed
            self._is_started = self._is_started or must_start
            self.condition.notify_all()
        if not must_start:
            return
        try:
            self._start(self._run, self._name)
        except RuntimeError as error:
            _log.debug("Logging in on the calling thread: %s", error)
            self._is_started = False
            if self._clock.now_ms() >= self._due_ms():
                self._step()

    def close(self) -> None:
        """End the thread after the step that it runs. Does not wait: the step may be blocked in user code."""
        with here.section, self.condition:
            self._is_closed = True
            self.condition.notify_all()

    def _run(self) -> None:
        try:
            while self._wait():
                self._step()
        finally:
            self._on_end()

    def _wait(self) -> bool:
        """Wait until a step is due. Returns False once closed."""
        with self.condition:
            while not self._is_closed:
                due_ms = self._due_ms()
                if self._clock.now_ms() >= due_ms:
                    return True
                self._clock.wait_until(self.condition, due_ms)
            return False
