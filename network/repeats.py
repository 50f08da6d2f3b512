"""Limits log lines about a lasting problem to one when it begins and one per minute after that."""

from __future__ import annotations

import logging
from collections.abc import Hashable

#: How long a problem is not logged again at its own level.
QUIET_MS = 60_000.0
#: The number of problems remembered. Beyond it the oldest is forgotten and logged again.
MAX_REMEMBERED = 1000


class Repeats:
    """Chooses the level of a log line: its own for a new problem, DEBUG for one logged within the last minute.

    Belongs to one thread. Bounded by MAX_REMEMBERED.
    """

    def __init__(self) -> None:
        self._said_ms: dict[Hashable, float] = {}

    def level(self, trouble: Hashable, level: int, now_ms: float) -> int:
        """`level` or DEBUG. `trouble` identifies the problem, without the parts that vary from line to line."""
        said_ms = self._said_ms.pop(trouble, None)
        if said_ms is not None and now_ms - said_ms < QUIET_MS:
            self._said_ms[trouble] = said_ms
            return logging.DEBUG
        if len(self._said_ms) >= MAX_REMEMBERED:
            del self._said_ms[next(iter(self._said_ms))]
        self._said_ms[trouble] = now_ms
        return level

    def over(self, trouble: Hashable) -> bool:
        """Forget a problem that has ended. Returns whether it was logged."""
        return self._said_ms.pop(trouble, None) is not None
