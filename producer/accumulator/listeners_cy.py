# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""What a batch keeps of those who are told of its completion: callbacks of single records, and runs of rows.

They are put into a batch under a queue's lock, so the garbage collector must not track them: making one would let it
run there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...network import _cython as cython

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython


@cython.final
@cython.no_gc
@cython.cclass
class Run:
    """Rows of a columnar send that stand one after another in a batch, and whose fate is reported once.

    ``target.settle(batch, start, count, place)`` is called on the sender thread: `count` records of the batch from its
    record `start` on have the batch's fate; `place` is the target's own. A batch has a chain of them.
    """

    if not cython.compiled:
        next: Run | None

    def __init__(self, target: Any) -> None:
        self.target = target
        self.start = 0
        self.count = 0
        self.place = 0
        self.next = None


@cython.final
@cython.no_gc
@cython.freelist(256)
@cython.cclass
class Listener:
    """A callback of a record, or a waker, with the record's future. There may be as many as records."""

    if not cython.compiled:
        # set by new_listener; listeners_cy.pxd has the C types
        callback: Any
        future: Any


@cython.cfunc
def new_listener(callback: object, future: object) -> Listener:
    """A listener, made without a tuple of arguments, which the garbage collector would track."""
    listener: Listener = Listener.__new__(Listener)
    listener.callback = callback
    listener.future = future
    return listener
