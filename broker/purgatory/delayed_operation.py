"""An operation that waits, and the rule that it is completed once."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from ..timer import TimerTask


class OperationKeeper(Protocol):
    """What an operation knows of the purgatory that it waits in."""

    def forget(self, operation: DelayedOperation) -> None: ...


class Lock(Protocol):
    """A re-entrant lock."""

    def __enter__(self) -> object: ...

    def __exit__(self, kind: Any, error: Any, traceback: Any, /) -> object: ...


class DelayedOperation(TimerTask, ABC):
    """Something to complete when a condition holds, and `delay_ms` milliseconds after its start at the latest.

    Subclasses define `try_complete` and `on_complete`, and may define `on_expiration`.

    Invariant: `on_complete` is called once, by the one `force_complete` that returns True; whatever is thrown at it
    (handlers of other requests, the timer), on whatever threads.

    `lock` serialises `try_complete`; it is re-entrant, because completing an operation may lead to a check of its own
    key. Operations that work on one thing (the members of a group) may share that thing's lock.
    """

    __slots__ = ("_completion", "_keeper", "_lock")

    def __init__(self, delay_ms: float, lock: Lock | None = None) -> None:
        super().__init__(delay_ms)
        self._lock = threading.RLock() if lock is None else lock
        # A compare-and-set: taken once, by whoever completes the operation, and never released.
        self._completion = threading.Lock()
        self._keeper: OperationKeeper | None = None

    @abstractmethod
    def try_complete(self) -> bool:
        """Look whether the operation can be completed now; if so `return self.force_complete()`, else return False.

        Called with the operation's lock held, any number of times, also after completion.
        """

    @abstractmethod
    def on_complete(self) -> None:
        """Answer. Called once, on the thread that completes the operation, which may hold its lock or not."""

    def on_expiration(self) -> None:
        """Called after `on_complete`, on the timer's executor, if it was the timer that completed the operation."""

    @property
    def is_completed(self) -> bool:
        """Whether somebody has completed (or abandoned) the operation; their `on_complete` may still be running."""
        return self._completion.locked()

    def force_complete(self) -> bool:
        """Complete the operation whatever its condition says. True for the one call that did it."""
        if not self._completion.acquire(blocking=False):
            return False
        self._leave()
        self.on_complete()
        return True

    def abandon(self) -> None:
        """Give the operation up: `on_complete` is not called, now or ever, unless it has been already."""
        if self._completion.acquire(blocking=False):
            self._leave()

    def safe_try_complete(self) -> bool:
        """`try_complete` under the operation's lock. True if this call completed it."""
        with self._lock:
            return self.try_complete()

    def safe_try_complete_or_else(self, otherwise: Callable[[], object]) -> bool:
        """Try; if it can't be completed call `otherwise` and try once more, all under the operation's lock."""
        with self._lock:
            if self.try_complete():
                return True
            otherwise()
            return self.try_complete()

    def run(self) -> None:
        """The time is over: called by the timer."""
        if self.force_complete():
            self.on_expiration()

    def _leave(self) -> None:
        self.cancel()
        keeper = self._keeper
        if keeper is not None:
            keeper.forget(self)
