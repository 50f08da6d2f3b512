"""A latch: threads wait until it is set, once and for all.

Unlike `threading.Event` it has no lock of its own: an exception that a signal handler raises out of `wait` leaves
nothing taken, so that `set` can never block, and `set` may be called by a finalizer that interrupted another `set`.
"""

from __future__ import annotations

import threading
from contextlib import suppress


class Latch:
    """Open until `set`. Any thread may call any method.

    Each waiting thread sleeps on a lock of its own. It joins the list before it looks at `is_set`, and `set` changes
    `is_set` before it takes the list apart: no thread is missed.
    """

    __slots__ = ("_turns", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._turns: list[threading.Lock] = []

    def set(self) -> None:
        """Let everybody go who waits, and everybody who comes later."""
        self.is_set = True
        self.wake()

    def wake(self) -> None:
        """Make those who wait now look again."""
        while self._turns:
            # another thread may have been quicker, or a finalizer in between
            with suppress(IndexError):
                self._turns.pop().release()

    def join(self) -> threading.Lock:
        """A turn of the caller's: a held lock that `wake` releases. `leave` gives it back."""
        turn = threading.Lock()
        turn.acquire()
        self._turns.append(turn)
        return turn

    def leave(self, turn: threading.Lock) -> None:
        """Forget a turn that nobody waits for any more."""
        with suppress(ValueError):
            self._turns.remove(turn)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the latch is set, at most `timeout` seconds (None: without limit); returns whether it is."""
        if self.is_set:
            return True
        turn = self.join()
        try:
            if not self.is_set:
                turn.acquire(True, -1 if timeout is None else min(max(timeout, 0.0), threading.TIMEOUT_MAX))
        finally:
            self.leave(turn)
        return self.is_set
