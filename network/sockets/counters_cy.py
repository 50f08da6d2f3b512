# cython: language_level=3
# cython: freethreading_compatible=True
"""What a selector counts for metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _cython as cython

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython


@cython.final
@cython.cclass
class SelectorCounters:
    """Counters of a selector since its creation, written on its thread and readable from any.

    A connection counts once it is ready. `operations` are reads and writes; `waited_ms` is the time that polls waited
    for I/O.
    """

    def __init__(self) -> None:
        self.connections_created = 0
        self.connections_closed = 0
        self.operations = 0
        self.waited_ms = 0.0

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return self.connections_created - self.connections_closed
