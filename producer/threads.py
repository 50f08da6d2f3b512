"""Which threads are producers' own: what would wait for one of them must not be called there."""

from __future__ import annotations

import os
import threading
from enum import Enum


class Role(Enum):
    """What one of our threads does."""

    SENDER = "completes the futures"
    CALLBACKS = "runs the users' callbacks"


_roles: dict[int, Role] = {}


def enter(role: Role) -> None:
    """The calling thread has this role from now on."""
    _roles[threading.get_ident()] = role


def leave() -> None:
    """The calling thread ends."""
    _roles.pop(threading.get_ident(), None)


def on_sender_thread() -> bool:
    """Whether this is the thread that completes futures: it must never wait for one."""
    return _roles.get(threading.get_ident()) is Role.SENDER


def on_any_producers_thread() -> bool:
    """Whether this thread is any producer's: nobody there is kept waiting for callbacks. `Engine.is_own_thread` tells
    whether it is a certain producer's."""
    return threading.get_ident() in _roles


# The threads of the parent stayed there.
os.register_at_fork(after_in_child=_roles.clear)
