"""The thread that runs users' callbacks, so that one that blocks delays neither the sender nor any future.

Callbacks and interceptors' acknowledgements run here, batch by batch, in the order in which the batches completed:
in send order within a partition. A batch returns its memory after its callbacks. So ``buffer.memory`` bounds the
callbacks that are pending, and callbacks that are too slow in the long run slow down `send` instead of piling up.
"""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Callable
from typing import Protocol

from .. import threads
from ..accumulator.batch_cy import ProducerBatch


class Memory(Protocol):
    """What takes a batch's memory back: the accumulator."""

    def release(self, batch: ProducerBatch) -> object: ...


class Callbacks(Protocol):
    """What the sender needs to run callbacks; tests that step the sender run them inline."""

    def settle(self, batch: ProducerBatch, memory: Memory | None) -> None: ...

    def finish(self) -> None: ...


class CallbackThread:
    """Runs the callbacks of completed batches on one daemon thread, started by the first batch that has any.

    The sender thread calls `settle`, `call` and `finish`; the thread that closes the producer calls `join`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def settle(self, batch: ProducerBatch, memory: Memory | None) -> None:
        """Run a completed batch's callbacks, then return it to `memory`; immediately if it has no callbacks."""
        if batch.settled:
            if memory is not None:
                memory.release(batch)
            return
        self.call(functools.partial(_run_and_release, batch, memory))

    def call(self, function: Callable[[], object]) -> None:
        """Call a function, which must not raise, after everything queued before it."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._waiting.put(function)

    def finish(self) -> None:
        """End the thread after everything queued."""
        self._waiting.put(None)

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread."""
        return self._thread is not None and self._thread.ident == threading.get_ident()

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the thread to end; False if a callback did not return in time."""
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


def _run_and_release(batch: ProducerBatch, memory: Memory | None) -> None:
    batch.run_callbacks()
    if memory is not None:
        memory.release(batch)
