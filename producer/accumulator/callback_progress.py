"""Whether a thread that gets a record's outcome waits for the callbacks of the record's batch."""

from __future__ import annotations

# `get` returns after the callbacks of the batch have returned, as users of other clients expect. It waits at most this
# many seconds for them, because a callback that blocks must not delay other threads.
CALLBACK_GRACE_SECONDS = 0.1


class CallbackProgress:
    """After a wait that timed out, no thread waits until another batch's callbacks have returned. Any thread."""

    __slots__ = ("_stuck_at", "returned")

    def __init__(self) -> None:
        #: The number of batches whose callbacks have returned.
        self.returned = 0
        self._stuck_at = -1

    @property
    def is_stuck(self) -> bool:
        """Whether no callbacks have returned since a wait timed out."""
        return self._stuck_at == self.returned

    def note_stuck(self) -> None:
        """Record that a wait timed out."""
        self._stuck_at = self.returned


callback_progress = CallbackProgress()
