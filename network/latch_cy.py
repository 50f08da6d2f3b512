# cython: language_level=3
# cython: freethreading_compatible=True
"""A latch: threads wait until it is set, and it stays set. `LateWakes` wakes them without the GIL.

Unlike `threading.Event` it has no lock of its own. If a signal handler raises out of `wait`, no lock remains held, so
`set` never blocks. A finalizer that interrupted one `set` may call another.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Protocol

from . import _cython as cython
from .memory_order import store_load_fence

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if cython.compiled:
    from cython.cimports.headrace.network.memory_order import store_load_fence


class Turn(Protocol):
    """What `Latch.wake` releases: a `ThreadTurn`, or an object of an event loop."""

    def release(self) -> object: ...


@cython.final
@cython.cclass
class ThreadTurn:
    """Where one thread sleeps until it is released: a held lock, which can be released without the GIL."""

    if not cython.compiled:
        # for type checkers; latch_cy.pxd has the C types
        _lock: threading.Lock

    def __init__(self) -> None:
        if cython.compiled:
            self._lock = held_lock()  # type: ignore  # noqa: F821
        else:
            self._lock = threading.Lock()
            self._lock.acquire()

    def __dealloc__(self) -> None:
        free_lock(self._lock)  # type: ignore  # noqa: F821

    @cython.ccall
    def sleep(self, seconds: cython.double) -> cython.bint:
        """Sleep until released, at most `seconds` (negative: no limit). Returns whether it was released.

        Called once. Signal handlers run, and may raise out of it.
        """
        if not cython.compiled:
            return self._lock.acquire(True, -1 if seconds < 0.0 else seconds)
        return sleep_on(self._lock, seconds)  # type: ignore  # noqa: F821

    @cython.ccall
    def release(self) -> object:
        """Wake the thread. Called once, by any thread."""
        if cython.compiled:
            release_lock(self._lock)  # type: ignore  # noqa: F821
        else:
            self._lock.release()
        return None


@cython.final
@cython.cclass
class Latch:
    """Blocks waiting threads until `set`. Any thread may call any method.

    Each waiting thread sleeps on a lock of its own. It joins the list before it checks `is_set`, and `set` changes
    `is_set` before it empties the list, so that no thread is missed.
    """

    if not cython.compiled:
        # for type checkers; latch_cy.pxd has the C types
        is_set: bool
        _turns: list[Turn]

    def __init__(self) -> None:
        self.is_set = False
        self._turns = []

    @cython.ccall
    def set(self) -> object:
        """Release all waiting threads. Later waits return at once."""
        self.is_set = True
        self.wake()
        return None

    @cython.ccall
    def wake(self) -> object:
        """Make the waiting threads check again."""
        turns: list = self._turns
        # `set` has written `is_set` before the list is read, and a waiting thread joins the list before it reads that.
        # Interpreted, only the list's own lock, which copying it takes, orders the two.
        store_load_fence()
        while turns or (not cython.compiled and turns.copy()):
            try:  # noqa: SIM105  (runs for every record that is waited for)
                turns.pop().release()
            except IndexError:
                pass  # another thread or a finalizer has emptied the list meanwhile
        return None

    @cython.ccall
    def join(self) -> ThreadTurn:
        """Add and return the calling thread's turn, which `wake` releases. `leave` removes it."""
        turn: ThreadTurn = ThreadTurn()
        self._turns.append(turn)
        store_load_fence()
        return turn

    def add(self, turn: Turn) -> None:
        """Call ``turn.release()`` once the latch is set or woken: at once if it is set already. For event loops.

        Any thread may call `release`, and must get no exception from it.
        """
        self._turns.append(turn)
        store_load_fence()
        if self.is_set:
            self.wake()

    @cython.ccall
    def leave(self, turn: Any) -> object:
        """Remove what `join` returned or `add` was given."""
        if self._turns:
            try:  # noqa: SIM105
                self._turns.remove(turn)
            except ValueError:
                pass  # `wake` has removed it
        return None

    @cython.ccall
    def wait(self, timeout: Any = None) -> cython.bint:
        """Wait until the latch is set, at most `timeout` seconds (None: no limit). Returns whether it is set."""
        if self.is_set:
            return True
        turn: ThreadTurn = self.join()
        try:
            if not self.is_set:
                turn.sleep(-1.0 if timeout is None else min(max(timeout, 0.0), threading.TIMEOUT_MAX))
        finally:
            self.leave(turn)
        return self.is_set


@cython.final
@cython.cclass
class LateWakes:
    """The threads that one thread wakes as soon as it gives the GIL away: before that they would only wait for it.

    All methods are for that thread.
    """

    if not cython.compiled:
        # for type checkers; latch_cy.pxd has the C types
        _latches: list[Latch]

    def __init__(self) -> None:
        self._latches = []

    @cython.ccall
    def add(self, latch: Latch) -> object:
        """Set a latch on the next `take` or `wake`."""
        self._latches.append(latch)
        return None

    @cython.ccall
    def take(self, most: cython.Py_ssize_t) -> list | None:
        """Set the latches, and return the turns of their threads, which the caller releases; None if there are none.

        Wakes the threads beyond `most` now.
        """
        latch: Latch
        if not self._latches:
            return None
        latches, self._latches = self._latches, []
        taken: list = []
        for latch in latches:
            latch.is_set = True
            turns: list = latch._turns
            store_load_fence()
            while turns or (not cython.compiled and turns.copy()):
                try:
                    turn = turns.pop()
                except IndexError:
                    break  # another thread has emptied the list meanwhile
                if turn.__class__ is ThreadTurn and len(taken) < most:
                    taken.append(turn)
                else:
                    turn.release()
        return taken or None

    @cython.ccall
    def wake(self) -> object:
        """Set the latches and wake their threads now."""
        self.take(0)
        return None
