"""Exponential backoff with jitter and an upper bound (KIP-580; Kafka's ExponentialBackoff)."""

from __future__ import annotations

import math
from collections.abc import Callable

from .chance import random_unit as any_unit

#: Kafka's constants for retries, reconnects and connection setup alike.
BACKOFF_BASE = 2
BACKOFF_JITTER = 0.2


class ExponentialBackoff:
    """`initial_ms * base ** attempts`, times a random factor within `1 ± jitter`, never above `max_ms`.

    Immutable; may be shared between threads. If `max_ms <= initial_ms`, the backoff is always
    `min(initial_ms, max_ms)`, without jitter, as in Java.
    """

    def __init__(
        self,
        initial_ms: float,
        max_ms: float,
        *,
        base: float = BACKOFF_BASE,
        jitter: float = BACKOFF_JITTER,
        random_unit: Callable[[], float] = any_unit,
    ) -> None:
        """Store the parameters. `random_unit` returns numbers in [0, 1); tests pass a fixed one."""
        self.initial_ms = min(initial_ms, max_ms)
        self.max_ms = max_ms
        self._base = base
        self._jitter = jitter
        self._random_unit = random_unit
        self._max_exponent = math.log(max_ms / max(initial_ms, 1.0), base) if max_ms > initial_ms else 0.0

    def backoff_ms(self, attempts: int) -> float:
        """How long to wait after `attempts` earlier failures (0: the first time)."""
        if self._max_exponent == 0.0:
            return self.initial_ms
        term_ms = self.initial_ms * self._base ** min(attempts, self._max_exponent)
        factor = 1.0 - self._jitter + 2.0 * self._jitter * self._random_unit()
        return min(term_ms * factor, self.max_ms)
