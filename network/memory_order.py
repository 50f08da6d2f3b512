"""The order in which other threads see a thread's writes: what interpreted hot modules use.

Compiled ones use ``memory_order.pxd``. An interpreter without the GIL orders the accesses to attributes of Python
objects itself, so nothing is to be done here.
"""

from __future__ import annotations

#: Whether this is compiled code without the GIL, where an attribute read without its lock may be freed meanwhile.
FREE_THREADED = False


def release_fence() -> None:
    """Everything written before is visible to a thread that sees what is written next."""


def acquire_fence() -> None:
    """What is read next is at least as new as what was read before."""


def store_load_fence() -> None:
    """What is read next is read after everything before was written."""
