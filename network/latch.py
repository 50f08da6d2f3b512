"""A latch: threads wait until it is set, and it stays set.

Unlike `threading.Event` it has no lock of its own. If a signal handler raises out of `wait`, no lock remains held, so
`set` never blocks. A finalizer that interrupted one `set` may call another.
"""

from __future__ import annotations

import threading
from typing import Protocol


class Turn(Protocol):
    """What `Latch.wake` releases: a held lock, or an object of an event loop."""

    def release(self) -> None: ...


class Latch:
    """Blocks waiting threads until `set`. Any thread may call any method.

    Each waiting thread sleeps on a lock of its own. It joins the list before it checks `is_set`, and `set` changes
    `is_set` before it empties the list, so that no thread is missed.
    """

    __slots__ = ("_turns", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._turns: list[Turn] = []

    def set(self) -> None:
        """Release all waiting threads. Later waits return at once."""
        self.is_set = True
        self.wake()

    def wake(self) -> None:
        """Make the waiting threads check again."""
        turns = self._turns
        # Seen empty, the list is copied, which takes its own lock: without the GIL, `set` could otherwise read it
        # before other threads see that the latch is set.
        while turns or turns.copy():
            try:  # noqa: SIM105  (runs for every record that is waited for)
                turns.pop().release()
            except IndexError:
                pass  # another thread or a finalizer has emptied the list meanwhile

    def join(self) -> threading.Lock:
        """Add and return a held lock that `wake` releases. `leave` removes it."""
        turn = threading.Lock()
        turn.acquire()
        self._turns.append(turn)
        return turn

    def add(self, turn: Turn) -> None:
        """Call ``turn.release()`` once the latch is set or woken: at once if it is set already. For event loops.

        Any thread may call `release`, and must get no exception from it.
        """
        self._turns.append(turn)
        if self.is_set:
            self.wake()

    def leave(self, turn: Turn) -> None:
        """Remove what `join` returned or `add` was given."""
        try:  # noqa: SIM105
            self._turns.remove(turn)
        except ValueError:
            pass  # `wake` has removed it

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the latch is set, at most `timeout` seconds (None: no limit). Returns whether it is set."""
        if self.is_set:
            return True
        turn = self.join()
        try:
            if not self.is_set:
                turn.acquire(True, -1 if timeout is None else min(max(timeout, 0.0), threading.TIMEOUT_MAX))
        finally:
            self.leave(turn)
        return self.is_set
