"""Deliveries as futures of `concurrent.futures`. Imported on first use, because most programs have none."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from ...network.protocol.errors import IllegalStateError
from ..threads import check_may_wait

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
