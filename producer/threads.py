"""The places where a call must not wait: threads that run users' callbacks, and sections (`network.sections`)."""

from __future__ import annotations

import os
import threading

from ..network.protocol.errors import IllegalStateError
from ..network.sections import interrupted

_callback_threads: set[int] = set()


def enter_callback_thread() -> None:
    """Register the calling thread as one that runs callbacks."""
    _callback_threads.add(threading.get_ident())


def leave_callback_thread() -> None:
    """Unregister the calling thread, which is about to end."""
    _callback_threads.discard(threading.get_ident())


def on_callback_thread() -> bool:
    """Whether the calling thread runs the callbacks of any producer, and so must not wait for callbacks.

    `Engine.is_own_thread` is about the threads of one producer.
    """
    return threading.get_ident() in _callback_threads


def check_may_wait(call: str) -> None:
    """Raise IllegalStateError inside a section: the event that `call` waits for can't happen before it returns."""
    if interrupted():
        raise IllegalStateError(
            f"{call} can't wait here: the call comes from a finalizer or signal handler that interrupted a producer, "
            f"which continues only after that returns. Set a flag or keep the future, and make the call elsewhere."
        )


# A forked child has none of the parent's threads.
os.register_at_fork(after_in_child=_callback_threads.clear)
