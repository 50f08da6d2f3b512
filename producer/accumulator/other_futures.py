"""The delivery of a record, or of rows, as a future of others: awaited on an event loop, or of `concurrent.futures`."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from ...network.protocol.errors import IllegalStateError
from ..threads import check_may_wait

_log = logging.getLogger(__name__)

T = TypeVar("T")


class ConcurrentFuture(Future, Generic[T]):
    """What `as_concurrent` returns: a `concurrent.futures.Future` that is done when the delivery is.

    `settle` completes it, on the sender thread. Callbacks run where those of the delivery run, on the thread for
    callbacks, so that one that blocks does not hold up the producer. It can't be cancelled: a record that was taken is
    sent. Usable from any thread.
    """

    def __init__(self, source: Any, *how: Any) -> None:
        """`source`: the future of the delivery, whose ``_listen(settle, *how)`` has `settle` called when done."""
        super().__init__()
        self._source = source
        self._process_id = os.getpid()
        self.set_running_or_notify_cancel()
        source._listen(self.settle, *how)

    def settle(self, result: T, error: BaseException | None) -> None:
        """Complete it with a result, or with an error. Once; the sender thread, or the one that made it."""
        if error is None:
            self.set_result(result)
        else:
            self.set_exception(error)

    def result(self, timeout: float | None = None) -> T:
        """The delivery's result.

        Raises its error; TimeoutError after `timeout` seconds; IllegalStateError where waiting
        would never end: in a finalizer or signal handler that interrupted a producer, and in a forked child.
        """
        error = self.exception(timeout)
        if error is not None:
            # futures share it, and each raise would add to the traceback that the last one left
            raise error.with_traceback(None)
        return super().result()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The delivery's error, None where it succeeded; waits and raises like `result`."""
        if not self.done():
            check_may_wait("a future")
            if os.getpid() != self._process_id:
                raise IllegalStateError(
                    f"this was sent by process {self._process_id}, before {os.getpid()} was forked from it, and is "
                    "delivered there"
                )
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call ``fn(future)`` when done: on the thread for callbacks, or here where it is done already."""

        def call(_source: Any) -> None:
            # where the delivery is done already, the sender thread may be about to call `settle`
            self.exception()
            fn(self)

        self._source.add_done_callback(call)


def awaited(listen: Callable[..., object], *how: Any) -> Generator[Any, None, Any]:
    """What ``__await__`` of a delivery returns: a wait on the running event loop for its result, or its error.

    ``listen(wake, *how)`` has ``wake(result, error)`` called when the delivery is done, on the sender thread.
    """
    import asyncio  # noqa: PLC0415  (only who awaits pays for it)

    loop = asyncio.get_running_loop()
    waiter = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if waiter.done():
            return
        if error is None:
            waiter.set_result(result)
        else:
            waiter.set_exception(error)

    def wake(result: Any, error: BaseException | None) -> None:
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            # the loop was closed during the delivery: nobody waits any more
            _log.debug("an event loop ended before what it awaited was acknowledged")

    listen(wake, *how)
    return waiter.__await__()


class NoExecutorsCondition:
    """Stands for the lock that `concurrent.futures.wait` and `as_completed` expect of a future.

    They acquire it for every future, and only then look at the state. A future without that lock would make them fail
    with the locks of the others held, and the executors of those would hang.
    """

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


class NoExecutorsState:
    """Stands for the state that those look at next: an attribute that can't be read, and says what to do instead."""

    def __get__(self, instance: Any, owner: type) -> Any:
        raise AttributeError(
            "concurrent.futures.wait and as_completed don't accept this future: pass its as_concurrent()"
        )


def check_done_callback(callback: Callable[..., object]) -> None:
    """Refuse the callback of `asyncio.wait`, which has to be called on the event loop's thread; the loop would hang.

    Raises TypeError.
    """
    if getattr(callback, "__module__", None) == "asyncio.tasks":
        raise TypeError("asyncio.wait doesn't accept this future: pass asyncio.ensure_future(future)")
