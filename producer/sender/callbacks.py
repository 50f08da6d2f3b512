"""The thread on which users' callbacks run, so that one that blocks holds up neither the sender nor anybody's future.

Callbacks and interceptors' acknowledgements run here, batch by batch, in the order in which batches were completed: so
in send order within a partition. A batch gives its memory back when its callbacks have returned. That bounds what waits
here by ``buffer.memory``: callbacks that are too slow in the long run slow the sends down, instead of piling up.
"""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Callable
from typing import Protocol

from .. import threads
from ..accumulator.batch_cy import ProducerBatch


class Callbacks(Protocol):
    """What the sender asks of those who run callbacks; tests that step the sender run them inline."""

    def settle(self, batch: ProducerBatch, release: Callable[[ProducerBatch], None] | None) -> None: ...

    def finish(self) -> None: ...


class CallbackThread:
    """Runs the callbacks of completed batches on one daemon thread, which begins with the first batch that has any.

    `settle`, `call` and `finish` belong to the sender thread, `join` to whoever closes.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def settle(self, batch: ProducerBatch, release: Callable[[ProducerBatch], None] | None) -> None:
        """Have a completed batch's callbacks run, and then `release` called with it; at once where it has none."""
        if batch.settled:
            if release is not None:
                release(batch)
            return
        self.call(functools.partial(_run_and_release, batch, release))

    def call(self, function: Callable[[], object]) -> None:
        """Have a function called that doesn't raise, after what waits here already."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._waiting.put(function)

    def finish(self) -> None:
        """Let the thread end after what waits for it."""
        self._waiting.put(None)

    @property
    def is_current(self) -> bool:
        """Whether it is this thread that asks."""
        return self._thread is not None and self._thread.ident == threading.get_ident()

    def join(self, timeout_seconds: float) -> bool:
        """Wait for that end; False where a callback did not return in time."""
        thread = self._thread
        if thread is None or self.is_current:
            return True
        thread.join(timeout_seconds)
        return not thread.is_alive()

    def _run(self) -> None:
        threads.enter_callback_thread()
        try:
            while (function := self._waiting.get()) is not None:
                function()
                # a thread that waits for its next batch must not keep the last one alive
                del function
        finally:
            threads.leave_callback_thread()


def _run_and_release(batch: ProducerBatch, release: Callable[[ProducerBatch], None] | None) -> None:
    batch.run_callbacks()
    if release is not None:
        release(batch)
