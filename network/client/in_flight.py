"""Requests that were handed to a connection and are not complete yet (Kafka's InFlightRequests)."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from ..clock import NEVER_MS
from ..protocol.errors import IllegalStateError
from .request import ClientRequest


class Send(Protocol):
    """The part of the selector's `NetworkSend` used here: the number of bytes not written yet."""

    @property
    def remaining_bytes(self) -> int: ...


class InFlightRequest:
    """A request with the version it was encoded in and the progress of its write.

    `throttled_ms` is how long the node has throttled the connection. That time does not count toward the timeout.
    """

    __slots__ = ("is_internal", "request", "send", "sent_ms", "throttled_ms", "version")

    def __init__(
        self,
        request: ClientRequest,
        version: int,
        sent_ms: float,
        send: Send,
        is_internal: bool = False,
        throttled_ms: float = 0.0,
    ) -> None:
        self.request = request
        self.version = version
        self.sent_ms = sent_ms
        self.send = send
        self.is_internal = is_internal
        self.throttled_ms = throttled_ms

    def deadline_ms(self) -> float:
        """When the request times out."""
        return self.sent_ms + self.throttled_ms + self.request.timeout_ms


class InFlightRequests:
    """The requests in flight per node, oldest first: a node answers in the order of its requests.

    Belongs to the client's I/O thread. Invariants: `can_send_more` admits at most `max_per_connection` requests per
    node, and only the newest request of a node can be unsent.
    """

    def __init__(self, max_per_connection: int) -> None:
        self.max_per_connection = max_per_connection
        self._nodes: dict[int, deque[InFlightRequest]] = {}

    def can_send_more(self, node_id: int) -> bool:
        """Whether the node's connection can take another request: the last one is written, and there is room."""
        queue = self._nodes.get(node_id)
        return not queue or (queue[-1].send.remaining_bytes == 0 and len(queue) < self.max_per_connection)

    def add(self, request: InFlightRequest) -> None:
        self._nodes.setdefault(request.request.node_id, deque()).append(request)

    def oldest(self, node_id: int) -> InFlightRequest | None:
        """The request that the node's next response belongs to; None if nothing is in flight."""
        queue = self._nodes.get(node_id)
        return queue[0] if queue else None

    def complete_next(self, node_id: int) -> InFlightRequest:
        """Remove and return the oldest request, whose response has arrived."""
        queue = self._nodes.get(node_id)
        if not queue:
            raise IllegalStateError(f"no request is in flight to node {node_id}")
        request = queue.popleft()
        if not queue:
            del self._nodes[node_id]
        return request

    def complete_sent(self, node_id: int, send: Send) -> InFlightRequest | None:
        """Remove and return the request that `send` has written, if it expects no response; else None."""
        queue = self._nodes.get(node_id, ())
        for request in queue:
            if request.send is send and not request.request.expect_response:
                self._nodes[node_id].remove(request)
                if not queue:
                    del self._nodes[node_id]
                return request
        return None

    def clear(self, node_id: int) -> list[InFlightRequest]:
        """Remove and return all requests of the node, oldest first."""
        return list(self._nodes.pop(node_id, ()))

    def count(self, node_id: int | None = None) -> int:
        """The number of requests in flight to the node, or to all nodes. Any thread may ask for the latter."""
        if node_id is None:
            return sum(map(len, list(self._nodes.values())))
        return len(self._nodes.get(node_id, ()))

    def add_throttle_time(self, node_id: int, throttle_ms: float) -> None:
        """Extend the deadlines of the node's requests by `throttle_ms`, during which it does not answer."""
        for request in self._nodes.get(node_id, ()):
            request.throttled_ms += throttle_ms

    def nodes_with_timed_out_requests(self, now_ms: float) -> list[int]:
        """The nodes with a request in flight past its deadline."""
        return [
            node_id
            for node_id, queue in self._nodes.items()
            if any(request.deadline_ms() <= now_ms for request in queue)
        ]

    def next_timeout_ms(self, now_ms: float) -> float:
        """How long until the first request times out; infinity if nothing is in flight."""
        deadline_ms = min(
            (request.deadline_ms() for queue in self._nodes.values() for request in queue), default=NEVER_MS
        )
        return max(deadline_ms - now_ms, 0.0)
