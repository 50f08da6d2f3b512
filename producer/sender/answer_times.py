"""How long a broker takes to answer, so that nothing is sent whose answer would come too late."""

from __future__ import annotations

from collections import deque

#: Of so many answers the slowest counts.
MAX_ANSWERS = 8
#: The next answer may take so much longer than that one.
MARGIN = 1.5


class AnswerTimes:
    """How long one broker is expected to take for a produce request, from its last answers. Sender thread.

    Under overload a queue is as long as its oldest batches have time left, and a broker that were sent those would
    spend all its capacity on records that have failed before it answers. So the estimate errs on the long side, and
    falls at once when it may: an answer to a probe, which was sent while nothing else was on the way, is believed
    alone. A broker that has recovered is noticed with the first answer.
    """

    def __init__(self, delivery_timeout_ms: float) -> None:
        self._half_timeout_ms = delivery_timeout_ms / 2
        self._latest_ms: deque[float] = deque(maxlen=MAX_ANSWERS)
        self._on_the_way = 0
        self._is_probing = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on the way: what is sent next is a probe."""
        return self._on_the_way == 0

    @property
    def expected_ms(self) -> float:
        """How long the next answer may take; 0 before the first one.

        The margin is not to fail what there would be time for, so it ends at half the delivery timeout.
        """
        if not self._latest_ms:
            return 0.0
        slowest_ms = max(self._latest_ms)
        return max(slowest_ms, min(slowest_ms * MARGIN, self._half_timeout_ms))

    def sent(self) -> None:
        """A request goes out."""
        self._is_probing = self.is_idle
        self._on_the_way += 1

    def ended(self, answer_ms: float | None) -> None:
        """A request has ended: with an answer after so many milliseconds, or without one (None)."""
        self._on_the_way -= 1
        if answer_ms is None:
            return
        if self._is_probing:
            self._is_probing = False
            self._latest_ms.clear()
        self._latest_ms.append(answer_ms)
