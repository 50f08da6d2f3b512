"""Where delayed operations wait, by what they wait for."""

from __future__ import annotations

import threading
from collections.abc import Collection, Hashable, Iterable
from typing import Generic, TypeVar

from ...network.protocol.errors import IllegalStateError
from ..timer import Timer
from .delayed_operation import DelayedOperation
from .reaper import ExpiredOperationReaper

OperationT = TypeVar("OperationT", bound=DelayedOperation)

#: Kafka has 512. Here the interpreter's lock leaves less to contend for: enough that a thread which is interrupted
#: while it holds a shard seldom stands in another's way.
_SHARDS = 32
DEFAULT_PURGE_INTERVAL = 1_000


class _WatcherList(Generic[OperationT]):
    """A shard of the watched keys. Its lock is never held while an operation is tried.

    Each key has its operations in the order of their coming: a dict, for its order and its constant-time removal.
    `size` is the number of operations under all keys; it may be read without the lock.
    """

    __slots__ = ("_by_key", "_lock", "size")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: dict[Hashable, dict[OperationT, None]] = {}
        self.size = 0

    def watch(self, key: Hashable, operation: OperationT) -> None:
        with self._lock:
            self._by_key.setdefault(key, {})[operation] = None
            self.size += 1

    def watching(self, key: Hashable) -> list[OperationT]:
        with self._lock:
            return list(self._by_key.get(key, ()))

    def unwatch(self, key: Hashable, operations: Iterable[OperationT]) -> None:
        with self._lock:
            self._remove(key, operations)

    def take(self, key: Hashable) -> list[OperationT]:
        """All operations of a key, which nobody else gets then."""
        with self._lock:
            operations = list(self._by_key.pop(key, ()))
            self.size -= len(operations)
            return operations

    def purge_completed(self) -> int:
        with self._lock:
            before = self.size
            for key, watched in list(self._by_key.items()):
                self._remove(key, [operation for operation in watched if operation.is_completed])
            return before - self.size

    def _remove(self, key: Hashable, operations: Iterable[OperationT]) -> None:
        watched = self._by_key.get(key)
        if watched is None:
            return
        before = len(watched)
        for operation in operations:
            watched.pop(operation, None)
        self.size -= before - len(watched)
        if not watched:
            del self._by_key[key]


class DelayedOperationPurgatory(Generic[OperationT]):
    """Keeps operations of a kind until they can be completed, or until their time is over.

    Every method may be called from any thread. It has no thread of its own: timeouts come from the timer's executor,
    and the `reaper`, which drives the timer, also purges (without one, tests call `purge_if_due`).

    Invariants: a watched operation misses no change that is followed by a `check_and_complete` of one of its keys; and
    what completed operations leave behind (they are watched under many keys and found by one) is no more, after the
    reaper's next round, than `purge_interval` places or as many as the waiting operations have.

    Lock order: an operation's lock, then a shard's or the timer's. See the package for what callers must not hold.
    """

    def __init__(
        self,
        name: str,
        timer: Timer,
        reaper: ExpiredOperationReaper | None = None,
        *,
        purge_interval: int = DEFAULT_PURGE_INTERVAL,
    ) -> None:
        self.name = name
        self._timer = timer
        self._purge_interval = purge_interval
        self._watcher_lists: list[_WatcherList[OperationT]] = [_WatcherList() for _ in range(_SHARDS)]
        self._pending_lock = threading.Lock()
        self._pending: dict[DelayedOperation, int] = {}  # what waits, and under how many keys
        self._pending_places = 0
        if reaper is not None:
            reaper.look_after(self)

    def try_complete_else_watch(self, operation: OperationT, keys: Collection[Hashable]) -> bool:
        """Try an operation; if it can't be completed, keep it under `keys` and start its time.

        True if this call completed it. An operation is given to one purgatory, once. Raises IllegalStateError without
        keys, and when the timer is closed. An error, also one of the operation's own, means that the operation is the
        caller's to answer: nobody completes it any more.
        """
        if not keys:
            raise IllegalStateError("a delayed operation needs a key, or nothing could complete it but its timeout")

        def watch() -> None:
            places = set(keys)
            operation._keeper = self
            with self._pending_lock:
                self._pending[operation] = len(places)
                self._pending_places += len(places)
            for key in places:
                self._watcher_list(key).watch(key, operation)

        try:
            # The second try comes when every key is watched: it sees a change before it, and one after it comes with a
            # check that finds the operation. Its lock is held throughout, as in Kafka, so that no check can take it in
            # between and wait for something that this thread's caller holds.
            if operation.safe_try_complete_or_else(watch):
                return True
            if not operation.is_completed:
                self._timer.add(operation)
        except BaseException:
            operation.abandon()
            raise
        if operation.is_completed:
            # Completed while it was being watched or added, when it was too early to undo that.
            operation.cancel()
            self.forget(operation)
        return False

    def check_and_complete(self, key: Hashable) -> int:
        """Try every operation that waits for `key`; the number that this call completed.

        An operation that raises keeps none of the others from its turn; the first error is raised after them.
        """
        watcher_list = self._watcher_list(key)
        operations = watcher_list.watching(key)
        if not operations:
            return 0
        completed = 0
        first_error: Exception | None = None
        for operation in operations:
            try:
                if not operation.is_completed and operation.safe_try_complete():
                    completed += 1
            except Exception as error:
                first_error = first_error or error
        watcher_list.unwatch(key, [operation for operation in operations if operation.is_completed])
        if first_error is not None:
            raise first_error
        return completed

    def cancel_for_key(self, key: Hashable) -> list[OperationT]:
        """Stop the time of the operations that wait for `key` and give them back, uncompleted: they are the caller's.

        One that is watched under another key too may still be completed by a check of that.
        """
        cancelled = [operation for operation in self._watcher_list(key).take(key) if not operation.is_completed]
        for operation in cancelled:
            operation.cancel()
            self.forget(operation)
        return cancelled

    @property
    def watched(self) -> int:
        """Size of all watch lists: an operation counts for each of its keys, and until it is purged."""
        return sum(watcher_list.size for watcher_list in self._watcher_lists)

    @property
    def num_delayed(self) -> int:
        """Number of operations that wait."""
        return len(self._pending)

    def purge_if_due(self) -> int:
        """Drop completed operations from the watch lists if there are more places of theirs than the purge interval.

        The lists are gone through as a whole, so it is not due either before half of what is in them is to go.
        """
        pending_places = self._pending_places
        if self.watched - pending_places <= max(self._purge_interval, pending_places):
            return 0
        return sum(watcher_list.purge_completed() for watcher_list in self._watcher_lists)

    def forget(self, operation: DelayedOperation) -> None:
        """An operation no longer waits (called by the operation when it is completed)."""
        with self._pending_lock:
            self._pending_places -= self._pending.pop(operation, 0)

    def _watcher_list(self, key: Hashable) -> _WatcherList[OperationT]:
        return self._watcher_lists[hash(key) % _SHARDS]
