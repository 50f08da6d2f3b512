"""What a forked child must not share with its parent: connections, and locks that a thread of the parent may hold."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """An object that renews its locks and connections in a forked child."""

    def renew_in_child(self) -> None:
        """Called in the child's only thread, before any other code of the program."""
        ...


_live: weakref.WeakSet[Forkable] = weakref.WeakSet()


def renew_after_fork(each: Forkable) -> None:
    """Have an object renewed in every child that is forked while it lives. Any thread."""
    _live.add(each)


def _renew_all() -> None:
    for each in list(_live):
        each.renew_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
