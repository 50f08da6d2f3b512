"""A bounded cache that threads share."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from .forks import renew_after_fork

Value = TypeVar("Value")


class LruCache(Generic[Value]):
    """The values that were used last, at most `capacity` of them. Any thread.

    The lock is reentrant: a finalizer that runs within a method may call the cache again.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = threading.RLock()
        renew_after_fork(self)

    def renew_in_child(self) -> None:
        """Forget everything: a thread of the parent may have been changing it."""
        self._lock = threading.RLock()
        self._values = OrderedDict()

    def get(self, key: Hashable) -> Value | None:
        """Return the value of a key; None if it isn't kept."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: Hashable, value: Value) -> None:
        """Keep a value, and drop the one that was not used for longest if there are too many."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._capacity:
                self._values.popitem(last=False)

    def drop(self, matches: Callable[[Hashable], bool]) -> None:
        """Drop the values whose keys match."""
        with self._lock:
            for key in [key for key in self._values if matches(key)]:
                del self._values[key]

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._values.clear()
