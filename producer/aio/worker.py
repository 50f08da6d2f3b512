"""The thread for the calls of an `AsyncKafkaProducer` that block."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class BlockingCalls:
    """Runs functions on one daemon thread, in order, which starts with the first one.

    Any event loop may call `run`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, function: Callable[[], T], *, may_skip: bool = True) -> T:
        """Return the function's result, or raise its error.

        If the task is cancelled before the function has begun, it isn't called, unless `may_skip` is false.
        """
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()

        def call() -> None:
            if may_skip and outcome.cancelled():
                return
            result: Any = None
            failure: BaseException | None = None
            try:
                result = function()
            except BaseException as error:
                failure = error

            def settle() -> None:
                if outcome.done():
                    return
                if failure is not None:
                    outcome.set_exception(failure)
                else:
                    outcome.set_result(result)

            try:
                loop.call_soon_threadsafe(settle)
            except RuntimeError:
                # the loop was closed meanwhile: nothing there waits for the outcome
                return

        with self._lock:
            if self._thread is None:
                # not a method: the thread must not keep this object alive
                self._thread = threading.Thread(target=_run, args=(self._calls,), name=self._name, daemon=True)
                self._thread.start()
        self._calls.put(call)
        return await outcome

    def finish(self) -> None:
        """End the thread after everything queued."""
        with self._lock:
            if self._thread is not None:
                self._calls.put(None)

    def __del__(self) -> None:
        # of a producer that was dropped without stop(); without the lock, which this thread may hold
        self._calls.put(None)


def _run(calls: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (call := calls.get()) is not None:
        call()
        # a thread that waits for its next call must not keep the objects of the last one alive
        del call
