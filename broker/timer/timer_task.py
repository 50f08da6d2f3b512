"""A task with a delay, its entry in a wheel, and the bucket that holds entries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Protocol


class EntryOwner(Protocol):
    """The timer as its entries see it."""

    def cancel_entry(self, entry: TimerTaskEntry) -> None: ...


class TimerTask(ABC):
    """A task to run once, `delay_ms` milliseconds after it is added to a timer. Subclasses define `run`.

    A task is in one timer at most. Adding it to that timer again moves it and restarts its delay.
    `cancel` and `is_pending` may be called from any thread.
    """

    __slots__ = ("_entry", "delay_ms")

    def __init__(self, delay_ms: float) -> None:
        self.delay_ms = delay_ms
        self._entry: TimerTaskEntry | None = None

    @abstractmethod
    def run(self) -> None:
        """Called on the timer's executor when the delay expires. An exception goes to `threading.excepthook`."""

    def cancel(self) -> None:
        """Remove the task from its timer, in constant time. No effect if it has expired or was never added."""
        entry = self._entry
        if entry is not None:
            entry.owner.cancel_entry(entry)

    @property
    def is_pending(self) -> bool:
        """Whether the task is in a timer, neither expired nor cancelled."""
        return self._entry is not None


class TimedCall(TimerTask):
    """Calls a function."""

    __slots__ = ("_call",)

    def __init__(self, delay_ms: float, call: Callable[[], object]) -> None:
        super().__init__(delay_ms)
        self._call = call

    def run(self) -> None:
        self._call()


class TimerTaskEntry:
    """One addition of a task to a timer: a node of a bucket's list. The timer's lock guards all fields."""

    __slots__ = ("bucket", "expiration_ms", "next", "owner", "previous", "task")

    def __init__(self, task: TimerTask, expiration_ms: int, owner: EntryOwner) -> None:
        self.task = task
        self.expiration_ms = expiration_ms
        self.owner = owner
        self.bucket: TimerTaskList | None = None
        self.next: TimerTaskEntry | None = None
        self.previous: TimerTaskEntry | None = None


class TimerTaskList:
    """A bucket: the entries of one tick of a wheel, as a doubly linked list in the order they were added.

    `expiration_ms` is the start of the tick, or `NOT_QUEUED` while the bucket is not in the delay queue. Not
    thread-safe: the timer's lock guards it.
    """

    NOT_QUEUED = -1

    __slots__ = ("_first", "_last", "expiration_ms")

    def __init__(self) -> None:
        self.expiration_ms = self.NOT_QUEUED
        self._first: TimerTaskEntry | None = None
        self._last: TimerTaskEntry | None = None

    def add(self, entry: TimerTaskEntry) -> None:
        """Append an entry that is in no bucket."""
        entry.bucket = self
        last = self._last
        if last is None:
            self._first = entry
        else:
            entry.previous = last
            last.next = entry
        self._last = entry

    def remove(self, entry: TimerTaskEntry) -> None:
        """Unlink an entry of this bucket, in constant time."""
        before, after = entry.previous, entry.next
        if before is None:
            self._first = after
        else:
            before.next = after
        if after is None:
            self._last = before
        else:
            after.previous = before
        entry.bucket = entry.next = entry.previous = None

    def flush(self) -> Iterator[TimerTaskEntry]:
        """Remove every entry, oldest first, and leave the bucket ready for the wheel's next turn.

        The caller may add a yielded entry to any bucket before it asks for the next one.
        """
        entry = self._first
        self._first = self._last = None
        self.expiration_ms = self.NOT_QUEUED
        while entry is not None:
            following = entry.next
            entry.bucket = entry.next = entry.previous = None
            yield entry
            entry = following
