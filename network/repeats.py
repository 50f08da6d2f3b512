"""Log lines about trouble that lasts: said when it begins and once a minute from then on, not at each attempt."""

from __future__ import annotations

import logging
from collections.abc import Hashable

#: How long the same trouble is not worth another line.
QUIET_MS = 60_000.0
#: Of so much trouble is remembered that a line was said of it; of more, the oldest is forgotten (and said again).
MAX_REMEMBERED = 1000


class Repeats:
    """Which level a line is logged at: its own when the trouble is new, DEBUG when it was said within the last minute.

    Belongs to one thread. Bounded by MAX_REMEMBERED.
    """

    def __init__(self) -> None:
        self._said_ms: dict[Hashable, float] = {}

    def level(self, trouble: Hashable, level: int, now_ms: float) -> int:
        """`level`, or DEBUG. `trouble` is what the line is about, without what changes from line to line."""
        said_ms = self._said_ms.pop(trouble, None)
        if said_ms is not None and now_ms - said_ms < QUIET_MS:
            self._said_ms[trouble] = said_ms
            return logging.DEBUG
        if len(self._said_ms) >= MAX_REMEMBERED:
            del self._said_ms[next(iter(self._said_ms))]
        self._said_ms[trouble] = now_ms
        return level

    def over(self, trouble: Hashable) -> bool:
        """The trouble has ended: the next time it is new. Whether there was any."""
        return self._said_ms.pop(trouble, None) is not None
