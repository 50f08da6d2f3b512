"""The thread that advances a broker's timer."""

from __future__ import annotations

from typing import Protocol

from ...network.sections import section_thread
from ..timer import Timer

#: How late a purge may be, in milliseconds. An expiration wakes the thread by itself.
_POLL_MS = 200.0


class Purgeable(Protocol):
    def purge_if_due(self) -> int: ...


class ExpiredOperationReaper:
    """A daemon thread that advances a timer and purges the purgatories that share it.

    It only passes expired operations to the timer's executor, so no operation ever blocks it. `look_after` and
    `shutdown` may be called from any thread.
    """

    def __init__(self, name: str, timer: Timer) -> None:
        self._timer = timer
        self._purgatories: list[Purgeable] = []
        self._stopping = False
        self._thread = section_thread(self._reap, name)
        self._thread.start()

    def look_after(self, purgatory: Purgeable) -> None:
        """Purge this purgatory as well from now on."""
        self._purgatories.append(purgatory)

    def shutdown(self) -> None:
        """Stop the thread, then close the timer. Pending operations are not completed. May be called again."""
        self._stopping = True
        self._timer.wakeup()
        self._thread.join()
        self._timer.close()

    def _reap(self) -> None:
        while not self._stopping:
            self._timer.advance_clock(_POLL_MS)
            for purgatory in self._purgatories:
                purgatory.purge_if_due()
