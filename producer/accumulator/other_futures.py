"""Deliveries as futures of other libraries: `asyncio` and `concurrent.futures`."""

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
    """The `concurrent.futures.Future` of a delivery, returned by `as_concurrent`.

    `settle` completes it, on the sender thread. Its callbacks run on the callback thread, like those of the delivery,
    so that a callback that blocks doesn't delay the producer. It can't be cancelled: an accepted record is sent. Usable
    from any thread.
    """

    def __init__(self, source: Any, *how: Any) -> None:
        """Wrap `source`, the future of the delivery: ``source._listen(settle, *how)`` calls `settle` when done."""
        super().__init__()
        self._source = source
        self._process_id = os.getpid()
        self.set_running_or_notify_cancel()
        source._listen(self.settle, *how)

    def settle(self, result: T, error: BaseException | None) -> None:
        """Complete the future with a result or an error. Called once, by the sender thread or the creating thread."""
        if error is None:
            self.set_result(result)
        else:
            self.set_exception(error)

    def result(self, timeout: float | None = None) -> T:
        """Return the delivery's result.

        Raises its error; TimeoutError after `timeout` seconds; IllegalStateError if waiting would never end, which is
        in a finalizer or signal handler that interrupted a producer, and in a forked child.
        """
        error = self.exception(timeout)
        if error is not None:
            # futures share the error, and each raise would extend its traceback
            raise error.with_traceback(None)
        return super().result()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the delivery's error, None if it succeeded; waits and raises like `result`."""
        if not self.done():
            check_may_wait("a future")
            if os.getpid() != self._process_id:
                raise IllegalStateError(
                    f"process {self._process_id} sent this before {os.getpid()} was forked from it, and delivers it"
                )
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call ``fn(future)`` when done: on the callback thread, or here if it is done already."""

        def call(_source: Any) -> None:
            # the delivery may be done before the sender thread has called `settle`
            self.exception()
            fn(self)

        self._source.add_done_callback(call)


def awaited(listen: Callable[..., object], *how: Any) -> Generator[Any, None, Any]:
    """Wait on the running event loop for a delivery's result or error: the result of its ``__await__``.

    ``listen(wake, *how)`` registers ``wake(result, error)``, which the sender thread calls when the delivery is done.
    """
    import asyncio  # noqa: PLC0415  (imported only by programs that await)

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
            # the loop was closed during the delivery: nothing waits any longer
            _log.debug("an event loop was closed before a delivery it awaited was acknowledged")

    listen(wake, *how)
    return waiter.__await__()


class NoExecutorsCondition:
    """Stands in for the lock that `concurrent.futures.wait` and `as_completed` expect of a future.

    They acquire it for every future before they read any state. A future without the lock would make them fail while
    they hold the locks of the others, whose executors would hang.
    """

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


class NoExecutorsState:
    """Stands in for the state they read next: an attribute whose error names the alternative."""

    def __get__(self, instance: Any, owner: type) -> Any:
        raise AttributeError(
            "concurrent.futures.wait and as_completed don't accept this future: pass its as_concurrent()"
        )


def check_done_callback(callback: Callable[..., object]) -> None:
    """Reject the callback of `asyncio.wait`: it has to run on the event loop's thread, or the loop hangs.

    Raises TypeError.
    """
    if getattr(callback, "__module__", None) == "asyncio.tasks":
        raise TypeError("asyncio.wait doesn't accept this future: pass asyncio.ensure_future(future)")
