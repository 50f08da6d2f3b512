"""An operation that waits and is completed exactly once."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from ..timer import TimerTask


class OperationKeeper(Protocol):
    """The purgatory as an operation sees it."""

    def forget(self, operation: DelayedOperation) -> None: ...


class Lock(Protocol):
    """A re-entrant lock."""

    def __enter__(self) -> object: ...

    def __exit__(self, kind: Any, error: Any, traceback: Any, /) -> object: ...


class DelayedOperation(TimerTask, ABC):
    """An operation to complete when a condition holds, or at the latest `delay_ms` milliseconds after its start.

    Subclasses define `try_complete` and `on_complete`, and may define `on_expiration`.

    Invariant: `on_complete` is called once, by the one `force_complete` that returns True, no matter which threads
    (handlers of other requests, the timer) try to complete the operation concurrently.

    `lock` serialises `try_complete`. It is re-entrant, because completing an operation may lead to a check of its own
    key. Operations on the same thing (the members of a group) may share that thing's lock.
    """

    __slots__ = ("_completion", "_keeper", "_lock")

    def __init__(self, delay_ms: float, lock: Lock | None = None) -> None:
        super().__init__(delay_ms)
        self._lock = threading.RLock() if lock is None else lock
        # A compare-and-set: acquired once, by the thread that completes the operation, and never released.
        self._completion = threading.Lock()
        self._keeper: OperationKeeper | None = None

    @abstractmethod
    def try_complete(self) -> bool:
        """Check whether the operation can be completed now: `return self.force_complete()` if so, else False.

        Called with the operation's lock held, any number of times, also after completion.
        """

    @abstractmethod
    def on_complete(self) -> None:
        """Answer. Called once, on the thread that completes the operation, with or without the operation's lock."""

    def on_expiration(self) -> None:
        """Called after `on_complete`, on the timer's executor, if the timer completed the operation."""

    @property
    def is_completed(self) -> bool:
        """Whether the operation was completed or abandoned. Its `on_complete` may still be running."""
        return self._completion.locked()

    def force_complete(self) -> bool:
        """Complete the operation regardless of its condition. True for the one call that completed it."""
        if not self._completion.acquire(blocking=False):
            return False
        self._leave()
        self.on_complete()
        return True

    def abandon(self) -> None:
        """Drop the operation: `on_complete` is never called, unless it has been already."""
        if self._completion.acquire(blocking=False):
            self._leave()

    def safe_try_complete(self) -> bool:
        """`try_complete` under the operation's lock. True if this call completed it."""
        with self._lock:
            return self.try_complete()

    def safe_try_complete_or_else(self, otherwise: Callable[[], object]) -> bool:
        """Try; if that fails, call `otherwise` and try again, all under the operation's lock."""
        with self._lock:
            if self.try_complete():
                return True
            otherwise()
            return self.try_complete()

    def run(self) -> None:
        """Called by the timer when the operation expires."""
        if self.force_complete():
            self.on_expiration()

    def _leave(self) -> None:
        self.cancel()
        keeper = self._keeper
        if keeper is not None:
            keeper.forget(self)
