# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""Requests that were handed to a connection and are not complete yet (Kafka's InFlightRequests)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from .. import _cython as cython
from ..clock import NEVER_MS
from ..protocol.errors import IllegalStateError

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from .request_cy import ClientRequest
elif not TYPE_CHECKING:
    from cython.cimports.headrace.network.client.request_cy import ClientRequest


class Send(Protocol):
    """The part of the selector's `NetworkSend` used here: the number of bytes not written yet."""

    @property
    def remaining_bytes(self) -> int: ...


@cython.final
@cython.cclass
class InFlightRequest:
    """A request with the version it was encoded in and the progress of its write.

    `deadline_ms` is when it times out. The time for which the node throttles the connection does not count.
    """

    if not cython.compiled:
        # for type checkers; in_flight_cy.pxd has the C types
        send: Send

    def __init__(
        self, request: ClientRequest, version: int, sent_ms: float, send: Any, is_internal: bool = False
    ) -> None:
        self.request = request
        self.version = version
        self.sent_ms = sent_ms
        self.send = send
        self.is_internal = is_internal
        self.deadline_ms = sent_ms + request.timeout_ms


@cython.final
@cython.cclass
class InFlightRequests:
    """The requests in flight per node, oldest first: a node answers in the order of its requests.

    Belongs to the client's I/O thread. Invariants: `can_send_more` admits at most `max_per_connection` requests per
    node, and only the newest request of a node can be unsent. No deadline is before `_no_deadline_before_ms`.
    """

    if not cython.compiled:
        # for type checkers; in_flight_cy.pxd has the C types
        _nodes: dict[int, deque[InFlightRequest]]

    def __init__(self, max_per_connection: int) -> None:
        self.max_per_connection = max_per_connection
        self._nodes = {}
        self._no_deadline_before_ms = NEVER_MS

    @cython.ccall
    def can_send_more(self, node_id: Any) -> cython.bint:
        """Whether the node's connection can take another request: the last one is written, and there is room."""
        queue = self._nodes.get(node_id)
        if not queue:
            return True
        last: InFlightRequest = queue[len(queue) - 1]
        return len(queue) < self.max_per_connection and last.send.remaining_bytes == 0

    @cython.ccall
    def add(self, request: InFlightRequest) -> object:
        """Add the newest request of a node."""
        node_id = request.request.node_id
        queue = self._nodes.get(node_id)
        if queue is None:
            queue = self._nodes[node_id] = deque()
        queue.append(request)
        self._no_deadline_before_ms = min(self._no_deadline_before_ms, request.deadline_ms)
        return None

    @cython.ccall
    def oldest(self, node_id: Any) -> InFlightRequest | None:
        """The request that the node's next response belongs to; None if nothing is in flight."""
        queue = self._nodes.get(node_id)
        return queue[0] if queue else None

    @cython.ccall
    def complete_next(self, node_id: Any) -> InFlightRequest:
        """Remove and return the oldest request, whose response has arrived."""
        queue = self._nodes.get(node_id)
        if not queue:
            raise IllegalStateError(f"no request is in flight to node {node_id}")
        request: InFlightRequest = queue.popleft()
        self._forget_if_idle(node_id, queue)
        return request

    @cython.ccall
    def complete_sent(self, node_id: Any, send: Any) -> InFlightRequest | None:
        """Remove and return the request that `send` has written, if it expects no response; else None."""
        request: InFlightRequest
        queue = self._nodes.get(node_id)
        if queue is None:
            return None
        for request in queue:
            if request.send is send and not request.request.expect_response:
                queue.remove(request)
                self._forget_if_idle(node_id, queue)
                return request
        return None

    @cython.cfunc
    def _forget_if_idle(self, node_id: Any, queue: Any) -> object:
        if not queue:
            del self._nodes[node_id]
            if not self._nodes:
                self._no_deadline_before_ms = NEVER_MS
        return None

    def clear(self, node_id: int) -> list[InFlightRequest]:
        """Remove and return all requests of the node, oldest first."""
        requests = list(self._nodes.pop(node_id, ()))
        if not self._nodes:
            self._no_deadline_before_ms = NEVER_MS
        return requests

    def count(self, node_id: int | None = None) -> int:
        """The number of requests in flight to the node, or to all nodes. Any thread."""
        if node_id is None:
            return sum(map(len, list(self._nodes.values())))
        return len(self._nodes.get(node_id, ()))

    def waiting(self, node_id: int, now_ms: float) -> tuple[int, float | None]:
        """The number of requests in flight to the node, and how long the oldest has waited. Any thread."""
        oldest: InFlightRequest
        try:
            oldest = self._nodes[node_id][0]
        except LookupError:
            # there is none, or the I/O thread has just removed it
            return 0, None
        return self.count(node_id), max(now_ms - oldest.sent_ms, 0.0)

    def add_throttle_time(self, node_id: int, throttle_ms: float) -> None:
        """Extend the deadlines of the node's requests by `throttle_ms`, during which it does not answer."""
        request: InFlightRequest
        for request in self._nodes.get(node_id, ()):
            request.deadline_ms += throttle_ms

    @cython.ccall
    @cython.exceptval(check=False)
    def may_have_timed_out(self, now_ms: cython.double) -> cython.bint:
        """Whether `nodes_with_timed_out_requests` may find any; it has to look if so."""
        return now_ms >= self._no_deadline_before_ms

    def nodes_with_timed_out_requests(self, now_ms: cython.double) -> list[int]:
        """The nodes with a request in flight past its deadline."""
        if now_ms < self._no_deadline_before_ms:
            return []
        self._find_next_deadline()
        if now_ms < self._no_deadline_before_ms:
            return []
        return [
            node_id
            for node_id, queue in self._nodes.items()
            if any([request.deadline_ms <= now_ms for request in queue])
        ]

    @cython.ccall
    def next_timeout_ms(self, now_ms: cython.double) -> cython.double:
        """At most how long until the first request times out; infinity if nothing is in flight.

        It may be less than that, if requests have been answered since it was last reached.
        """
        if self._no_deadline_before_ms <= now_ms:
            self._find_next_deadline()
        return max(self._no_deadline_before_ms - now_ms, 0.0)

    @cython.cfunc
    def _find_next_deadline(self) -> object:
        """Compute the next deadline exactly: once per request timeout, as the deadlines of requests that are complete
        are not removed before."""
        request: InFlightRequest
        self._no_deadline_before_ms = NEVER_MS
        for queue in self._nodes.values():
            for request in queue:
                self._no_deadline_before_ms = min(self._no_deadline_before_ms, request.deadline_ms)
        return None
