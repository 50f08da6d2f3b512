"""Brokers' response times, so that no batch is sent that would expire before its response."""

from __future__ import annotations

from collections import deque

#: The estimate is based on the slowest of this many recent responses.
MAX_ANSWERS = 8
#: The factor by which the next response may be slower than that one.
MARGIN = 1.5


class AnswerTimes:
    """The expected time of one broker's response to a produce request, from its recent responses. Sender thread.

    Under overload, the oldest batches of a queue are close to expiry. A broker that received those would spend all its
    capacity on records that fail before it responds. So the estimate errs on the long side. A probe, a request sent
    while no other is in flight, lets it fall immediately: its response time replaces all earlier ones. So the first
    response of a broker that has recovered is enough.
    """

    def __init__(self, delivery_timeout_ms: float) -> None:
        self._half_timeout_ms = delivery_timeout_ms / 2
        self._latest_ms: deque[float] = deque(maxlen=MAX_ANSWERS)
        self._on_the_way = 0
        self._is_probing = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight: the next request is a probe."""
        return self._on_the_way == 0

    @property
    def expected_ms(self) -> float:
        """Milliseconds the next response may take; 0 before the first one.

        The margin is capped at half the delivery timeout, so that it doesn't fail batches that could be delivered.
        """
        if not self._latest_ms:
            return 0.0
        slowest_ms = max(self._latest_ms)
        return max(slowest_ms, min(slowest_ms * MARGIN, self._half_timeout_ms))

    def sent(self) -> None:
        """Record that a request was sent."""
        self._is_probing = self.is_idle
        self._on_the_way += 1

    def ended(self, answer_ms: float | None) -> None:
        """Record that a request has ended, with a response after `answer_ms` or without one (None)."""
        self._on_the_way -= 1
        if answer_ms is None:
            return
        if self._is_probing:
            self._is_probing = False
            self._latest_ms.clear()
        self._latest_ms.append(answer_ms)
