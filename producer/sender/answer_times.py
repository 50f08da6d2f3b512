"""Brokers' response times, so that no batch is sent that would expire before its response."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Container

from ...network.clock import LONG_AGO_MS

#: The requests in flight from which a broker is busy: it works on one while another arrives.
BUSY_FROM = 2
#: The estimate is based on this many recent observations.
MAX_OBSERVATIONS = 8
#: The factor by which the next response may be slower than the estimate.
MARGIN = 1.5


class AnswerTimes:
    """The expected time of one broker's response to a produce request, from its recent responses. Sender thread.

    Under overload, the oldest batches of a queue are close to expiry. A broker that received those would spend all its
    capacity on records that fail before it responds.

    A broker that stalls once delays all requests in flight, so requests that overlap count as one observation, by the
    fastest of them. One slow observation must not fail the batches that queued up behind it: the estimate is the
    median, and no more than the slower of the last two. The response to a probe, a request sent while no other is in
    flight, ends a slow estimate by itself, so that a broker that has recovered is noticed within one round trip.
    """

    def __init__(self, delivery_timeout_ms: float) -> None:
        self._half_timeout_ms = delivery_timeout_ms / 2
        self._observed_ms: deque[float] = deque(maxlen=MAX_OBSERVATIONS)
        self._last_observed_at_ms = LONG_AGO_MS
        self._usual_ms = 0.0
        #: Milliseconds the next response may take; 0 before the first one.
        self.expected_ms = 0.0
        self._in_flight = 0
        self._is_probing = False  # the next response is that to a probe, because responses come in order

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight: the next request is a probe."""
        return self._in_flight == 0

    @property
    def is_busy(self) -> bool:
        """Whether so much is in flight that the broker does not run out of work while full batches grow."""
        return self._in_flight >= BUSY_FROM

    def _estimate(self) -> None:
        """Compute the estimate from the observations, of which there are some."""
        observed_ms = self._observed_ms
        usual_ms = _median(observed_ms)
        if len(observed_ms) > 1:
            usual_ms = min(usual_ms, max(observed_ms[-1], observed_ms[-2]))
        self._usual_ms = usual_ms
        # the margin is capped at half the delivery timeout, so that it doesn't fail batches that could be delivered
        self.expected_ms = max(usual_ms, min(usual_ms * MARGIN, self._half_timeout_ms))

    def sent(self) -> None:
        """Record that a request was sent."""
        self._is_probing = self._is_probing or self.is_idle
        self._in_flight += 1

    def ended(self, now_ms: float, answer_ms: float | None) -> None:
        """Record that a request has ended, with a response after `answer_ms` or without one (None)."""
        self._in_flight -= 1
        is_probe, self._is_probing = self._is_probing, False
        if answer_ms is None:
            return
        if is_probe and answer_ms < self._usual_ms:
            self._observed_ms.clear()
            self._last_observed_at_ms = LONG_AGO_MS
        if now_ms - answer_ms >= self._last_observed_at_ms:
            self._observed_ms.append(answer_ms)
            self._last_observed_at_ms = now_ms
        else:
            self._observed_ms[-1] = min(self._observed_ms[-1], answer_ms)
        self._estimate()


class TimesByNode:
    """The `AnswerTimes` of every node that a request was sent to. Sender thread; `busy` may be read by any."""

    def __init__(self, delivery_timeout_ms: float) -> None:
        self._delivery_timeout_ms = delivery_timeout_ms
        self._nodes: dict[int, AnswerTimes] = {}
        #: The ids of the nodes that are busy.
        self.busy: set[int] = set()

    def of(self, node_id: int) -> AnswerTimes:
        """The times of a node."""
        times = self._nodes.get(node_id)
        return AnswerTimes(self._delivery_timeout_ms) if times is None else times

    def sent(self, node_id: int, nodes: Container[int]) -> None:
        """Record that a request was sent. Forgets idle nodes that are not among `nodes`, those of the cluster."""
        times = self._nodes.get(node_id)
        if times is None:
            for known in [known for known, each in self._nodes.items() if each.is_idle and known not in nodes]:
                del self._nodes[known]
            times = self._nodes[node_id] = AnswerTimes(self._delivery_timeout_ms)
        times.sent()
        if times.is_busy:
            self.busy.add(node_id)

    def ended(self, node_id: int, now_ms: float, answer_ms: float | None) -> None:
        """Record that a request has ended, with a response after `answer_ms` or without one (None)."""
        times = self._nodes[node_id]
        times.ended(now_ms, answer_ms)
        if not times.is_busy:
            self.busy.discard(node_id)


def _median(numbers: Collection[float]) -> float:
    """The median. The `statistics` module would import decimal and fractions for it, at every start."""
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
