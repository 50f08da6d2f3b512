"""Sections: code that its own thread must not enter a second time.

Theory of operation. A finalizer or a signal handler runs between two instructions of its thread's code and may call
this library again: `send` in a logging handler, in ``__del__``, in a Celery time limit. If the thread was inside a
locked region, the nested call must not take a lock: it would wait for itself, or for a thread that waits for it.

Every thread therefore has one marker, and every locked region that a nested call could reach is a section, entered as
``with here.section, self._lock:``. A nested call checks with `interrupted` whether it runs inside a section of its own
thread. If so, it takes a path without locks (`producer.accumulator.stash`) or raises; it never waits. A thread in a
section never waits for a lock on behalf of a nested call, so two threads cannot deadlock this way either.

Rules for the code of a section:

- The marker comes first and the lock second, in one ``with`` statement. Both are C objects: CPython raises no
  exception of a signal handler between acquiring them and entering the ``with`` block.
- A handler may raise after any call the section makes. A state change that must not be lost is a single statement
  without a call (an assignment, ``d[key] = value``, ``del d[key]``), or a single call of a C method.
- User code (serializers, partitioners, interceptors, callbacks) runs outside sections.

A thread that others wait for is in a section for as long as it runs (`section_thread`). Examples are a producer's
sender thread and the threads of an embedded broker, which a producer in the same process may wait for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any


class _NewMarker:
    """Creates the calling thread's marker when it is first read. From then on the thread's own attribute hides it.

    Not in ``__init__``: a handler that interrupted that would find no marker. Not by ``__getattr__`` either, which
    would make each later read cost three times as much.
    """

    def __get__(self, thread: _Here, _owner: object = None) -> object:
        marker: Any = threading.RLock()
        thread.section = marker
        return marker


class _Here(threading.local):
    """The calling thread's marker. Owned by the thread while it is in a section, and entered by no other thread."""

    if TYPE_CHECKING:
        section: threading._RLock  # pyright: ignore[reportPrivateUsage]
    else:
        section = _NewMarker()


here = _Here()


def section_thread(run: Callable[[], object], name: str) -> threading.Thread:
    """A daemon thread, not started yet, that is in a section for as long as it runs."""

    def run_in_section() -> None:
        with here.section:
            run()

    return threading.Thread(target=run_in_section, name=name, daemon=True)


def interrupted() -> bool:
    """Whether the caller runs inside a section of its own thread and therefore must not wait."""
    return here.section._is_owned()  # type: ignore[attr-defined]  # threading.Condition uses it, too
