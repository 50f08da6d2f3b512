# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""The listeners of a batch's completion: callbacks of single records, and runs of rows.

They are added to a batch under a queue's lock, so the garbage collector must not track them: allocating a tracked
object could start a collection there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...network import _cython as cython

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython


#: What a listener is called with: the metadata and the error,
OUTCOME: Final = 0
#: the metadata, and not at all after a failure,
METADATA: Final = 1
#: the error, and not at all after a success,
ERROR: Final = 2
#: the metadata or the error,
EITHER: Final = 3
#: or the future.
FUTURE: Final = 4


@cython.final
@cython.no_gc
@cython.cclass
class Run:
    """Consecutive rows of a columnar send in one batch, whose outcome is reported once.

    The sender thread calls ``target.settle(batch, start, count, place)`` when the batch completes: its outcome is that
    of `count` records from the batch's record `start` on. `place` is meaningful to the target only. The runs of a batch
    form a linked list.
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
    """A callback or waker of a record, with the record's future. A batch may have one for each record."""

    if not cython.compiled:
        # set by new_listener; listeners_cy.pxd has the C types
        callback: Any
        future: Any
        kind: int


@cython.cfunc
def new_listener(callback: object, future: object, kind: cython.int) -> Listener:
    """Create a listener without a tuple of arguments, which the garbage collector would track.

    `kind`: what `callback` is called with.
    """
    listener: Listener = Listener.__new__(Listener)
    listener.callback = callback
    listener.future = future
    listener.kind = kind
    return listener
