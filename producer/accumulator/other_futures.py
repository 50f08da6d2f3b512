"""Deliveries as futures of `asyncio`, and what rejects their use as futures of `concurrent.futures`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import Any

_log = logging.getLogger(__name__)


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
