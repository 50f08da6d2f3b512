"""Where a call must not wait: on a thread that runs users' callbacks, and inside a section (`network.sections`)."""

from __future__ import annotations

import os
import threading

from ..network.protocol.errors import IllegalStateError
from ..network.sections import interrupted

_callback_threads: set[int] = set()


def enter_callback_thread() -> None:
    """The calling thread runs callbacks from now on."""
    _callback_threads.add(threading.get_ident())


def leave_callback_thread() -> None:
    """The calling thread ends."""
    _callback_threads.discard(threading.get_ident())


def on_callback_thread() -> bool:
    """Whether this thread runs the callbacks of any producer: nobody there is kept waiting for callbacks.
    `Engine.is_own_thread` asks for those of one producer."""
    return threading.get_ident() in _callback_threads


def check_may_wait(call: str) -> None:
    """Raise IllegalStateError inside a section: what `call` would wait for can't happen before it returns."""
    if interrupted():
        raise IllegalStateError(
            f"{call} can't wait here: the call comes from a finalizer or signal handler that interrupted a producer, "
            f"which goes on only when that returns. Set a flag or keep the future, and make the call elsewhere."
        )


# The threads of the parent stayed there.
os.register_at_fork(after_in_child=_callback_threads.clear)
