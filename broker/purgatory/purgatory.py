"""The purgatory: watches delayed operations under the keys of what they wait for."""

from __future__ import annotations

import threading
from collections.abc import Collection, Hashable, Iterable
from typing import Generic, TypeVar

from ...network.protocol.errors import IllegalStateError
from ..timer import Timer
from .delayed_operation import DelayedOperation
from .reaper import ExpiredOperationReaper

OperationT = TypeVar("OperationT", bound=DelayedOperation)

#: Kafka has 512. Here the interpreter lock leaves less contention: 32 shards are enough that a thread preempted while
#: it holds a shard's lock rarely blocks another.
_SHARDS = 32
DEFAULT_PURGE_INTERVAL = 1_000


class _WatcherList(Generic[OperationT]):
    """A shard of the watched keys. Its lock is never held while an operation is tried.

    Each key has its operations in the order they were added: a dict, for its order and its constant-time removal.
    `size` is the number of entries under all keys. It may be read without the lock.
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
        """Remove and return all operations of a key, so that no other thread gets them."""
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
    """Keeps operations of one kind until they can be completed or expire.

    Every method may be called from any thread. A purgatory has no thread of its own: expired operations run on the
    timer's executor, and the `reaper`, which drives the timer, also purges (without one, tests call `purge_if_due`).

    Invariants: a watched operation misses no change that is followed by a `check_and_complete` of one of its keys. An
    operation is watched under several keys but completed through one, which leaves stale entries under the others.
    After each reaper pass at most `max(purge_interval, pending entries)` of them remain.

    Lock order: an operation's lock, then a shard's or the timer's. The package's docstring says which locks callers
    must not hold.

    name: Names the kind of operation.
    timer: Expires the operations. Shared by the broker's purgatories.
    reaper: Purges this purgatory regularly; None: the caller calls `purge_if_due`.
    purge_interval: The number of stale entries from which a purge may run.
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
        self._pending: dict[DelayedOperation, int] = {}  # waiting operation -> number of its keys
        self._pending_places = 0
        if reaper is not None:
            reaper.look_after(self)

    def try_complete_else_watch(self, operation: OperationT, keys: Collection[Hashable]) -> bool:
        """Try an operation. If it can't be completed, watch it under `keys` and start its timer.

        True if this call completed it. An operation is added to one purgatory, once. Raises IllegalStateError if there
        are no keys or the timer is closed. After an error, including one from the operation itself, the caller has to
        answer the request: nothing else completes the operation.
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
            # The second try runs once every key is watched. It sees every change made before it, and each later change
            # is followed by a check that finds the operation. The operation's lock is held throughout, as in Kafka:
            # otherwise a check could take it in between and wait for something that this thread's caller holds.
            if operation.safe_try_complete_or_else(watch):
                return True
            if not operation.is_completed:
                self._timer.add(operation)
        except BaseException:
            operation.abandon()
            raise
        if operation.is_completed:
            # Completed while it was being watched or added, too early for its completion to undo that.
            operation.cancel()
            self.forget(operation)
        return False

    def check_and_complete(self, key: Hashable) -> int:
        """Try every operation that waits for `key`. Returns the number that this call completed.

        If an operation raises, the others are still tried; the first error is raised after them.
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
        """Cancel the timers of the operations that wait for `key` and return them, uncompleted: the caller owns them.

        An operation that is also watched under another key may still be completed by a check of that key.
        """
        cancelled = [operation for operation in self._watcher_list(key).take(key) if not operation.is_completed]
        for operation in cancelled:
            operation.cancel()
            self.forget(operation)
        return cancelled

    @property
    def watched(self) -> int:
        """Number of entries in all watch lists: an operation counts once per key until it is purged."""
        return sum(watcher_list.size for watcher_list in self._watcher_lists)

    @property
    def num_delayed(self) -> int:
        """Number of pending operations."""
        return len(self._pending)

    def purge_if_due(self) -> int:
        """Remove completed operations from the watch lists if their entries outnumber the purge interval.

        A purge scans all lists, so it also waits until more than half of the entries are stale. Returns the number
        removed.
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
