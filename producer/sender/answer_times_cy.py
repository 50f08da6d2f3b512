# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""Brokers' response times, so that no batch is sent that would expire before its response."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any

from ...network import _cython as cython
from ...network.clock import LONG_AGO_MS

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

#: The requests in flight from which a broker is busy: it works on one while another arrives.
BUSY_FROM: cython.Py_ssize_t = 2
#: The estimate is based on this many recent observations.
MAX_OBSERVATIONS = 8
#: The factor by which the next response may be slower than the estimate.
MARGIN = 1.5


@cython.final
@cython.cclass
class AnswerTimes:
    """The expected time of one broker's response to a produce request, from its recent responses. Sender thread.

    Under overload, the oldest batches of a queue are close to expiry. A broker that received those would spend all its
    capacity on records that fail before it responds.

    A broker that stalls once delays all requests in flight, so requests that overlap count as one observation, by the
    fastest of them. One slow observation must not fail the batches that queued up behind it: the estimate is the
    median, and no more than the slower of the last two. The response to a probe, a request sent while no other is in
    flight, ends a slow estimate by itself, so that a broker that has recovered is noticed within one round trip.
    """

    if not cython.compiled:
        # for type checkers; answer_times_cy.pxd has the C types
        _observed_ms: list[float]

    def __init__(self, delivery_timeout_ms: float) -> None:
        self._half_timeout_ms = delivery_timeout_ms / 2
        self._observed_ms = []
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

    @cython.cfunc
    def _estimate(self) -> object:
        """Compute the estimate from the observations, of which there are some."""
        observed_ms: list = self._observed_ms
        count: cython.Py_ssize_t = len(observed_ms)
        usual_ms: cython.double = _median(observed_ms)
        last_ms: cython.double
        before_ms: cython.double
        if count > 1:
            last_ms = observed_ms[count - 1]
            before_ms = observed_ms[count - 2]
            usual_ms = min(usual_ms, max(last_ms, before_ms))
        self._usual_ms = usual_ms
        # the margin is capped at half the delivery timeout, so that it doesn't fail batches that could be delivered
        self.expected_ms = max(usual_ms, min(usual_ms * MARGIN, self._half_timeout_ms))
        return None

    @cython.ccall
    def sent(self) -> object:
        """Record that a request was sent."""
        self._is_probing = self._is_probing or self._in_flight == 0
        self._in_flight += 1
        return None

    @cython.ccall
    def ended(self, now_ms: cython.double, answer: Any) -> object:
        """Record that a request has ended, with a response after `answer` milliseconds or without one (None)."""
        is_probe: cython.bint = self._is_probing
        answer_ms: cython.double
        count: cython.Py_ssize_t
        self._in_flight -= 1
        self._is_probing = False
        if answer is None:
            return None
        answer_ms = answer
        if is_probe and answer_ms < self._usual_ms:
            self._observed_ms.clear()
            self._last_observed_at_ms = LONG_AGO_MS
        if now_ms - answer_ms >= self._last_observed_at_ms:
            if len(self._observed_ms) == MAX_OBSERVATIONS:
                del self._observed_ms[0]
            self._observed_ms.append(answer_ms)
            self._last_observed_at_ms = now_ms
        else:
            count = len(self._observed_ms)
            self._observed_ms[count - 1] = min(self._observed_ms[count - 1], answer)
        self._estimate()
        return None


@cython.final
@cython.cclass
class TimesByNode:
    """The `AnswerTimes` of every node that a request was sent to. Sender thread; `busy` may be read by any."""

    if not cython.compiled:
        # for type checkers; answer_times_cy.pxd has the C types
        _nodes: dict[int, AnswerTimes]
        busy: set[int]

    def __init__(self, delivery_timeout_ms: float) -> None:
        self._delivery_timeout_ms = delivery_timeout_ms
        self._nodes = {}
        #: The ids of the nodes that are busy.
        self.busy = set()

    @cython.ccall
    def of(self, node_id: Any) -> AnswerTimes:
        """The times of a node."""
        times: AnswerTimes | None = self._nodes.get(node_id)
        return AnswerTimes(self._delivery_timeout_ms) if times is None else times

    @cython.ccall
    def sent(self, node_id: Any, nodes: Container[int]) -> object:
        """Record that a request was sent. Forgets idle nodes that are not among `nodes`, those of the cluster."""
        times: AnswerTimes | None = self._nodes.get(node_id)
        if times is None:
            for known in list(self._nodes):
                if known not in nodes and self._nodes[known].is_idle:
                    del self._nodes[known]
            times = self._nodes[node_id] = AnswerTimes(self._delivery_timeout_ms)
        times.sent()
        if times.is_busy:
            self.busy.add(node_id)
        return None

    @cython.ccall
    def ended(self, node_id: Any, now_ms: cython.double, answer: Any) -> object:
        """Record that a request has ended, with a response after `answer` milliseconds or without one (None)."""
        times: AnswerTimes = self._nodes[node_id]
        times.ended(now_ms, answer)
        if not times.is_busy:
            self.busy.discard(node_id)
        return None


@cython.cfunc
def _median(numbers: list) -> cython.double:
    """The median. The `statistics` module would import decimal and fractions for it, at every start."""
    ordered: list = sorted(numbers)
    middle: cython.Py_ssize_t = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
