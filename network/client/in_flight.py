"""Requests that were handed to a connection and have not ended yet (Kafka's InFlightRequests)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from ..clock import NEVER_MS
from ..protocol.errors import IllegalStateError
from .request import ClientRequest


class Send(Protocol):
    """What is asked of the selector's `NetworkSend`: how much of it isn't written yet."""

    @property
    def remaining_bytes(self) -> int: ...


@dataclass(eq=False, slots=True)
class InFlightRequest:
    """A request with the version it was encoded in and its way through the socket.

    `throttled_ms` is the time during which the node kept the connection throttled: it doesn't count as waiting.
    """

    request: ClientRequest
    version: int
    sent_ms: float
    send: Send
    is_internal: bool = False
    throttled_ms: float = 0.0

    def deadline_ms(self) -> float:
        """When the answer is overdue."""
        return self.sent_ms + self.throttled_ms + self.request.timeout_ms


class InFlightRequests:
    """Per node, oldest first: a node answers in the order in which it was asked.

    Belongs to the client's I/O thread. Invariants: at most `max_per_connection` requests a node were let in by
    `can_send_more`, and only the youngest of a node can be unsent.
    """

    def __init__(self, max_per_connection: int) -> None:
        self.max_per_connection = max_per_connection
        self._nodes: dict[int, deque[InFlightRequest]] = {}

    def can_send_more(self, node_id: int) -> bool:
        """Whether another request may be handed to the node's connection: the last is written, and there's room."""
        queue = self._nodes.get(node_id)
        return not queue or (queue[-1].send.remaining_bytes == 0 and len(queue) < self.max_per_connection)

    def add(self, request: InFlightRequest) -> None:
        self._nodes.setdefault(request.request.node_id, deque()).append(request)

    def oldest(self, node_id: int) -> InFlightRequest | None:
        """The request that the node's next answer belongs to, None when it owes none."""
        queue = self._nodes.get(node_id)
        return queue[0] if queue else None

    def complete_next(self, node_id: int) -> InFlightRequest:
        """Take out the oldest request: its answer has arrived."""
        queue = self._nodes.get(node_id)
        if not queue:
            raise IllegalStateError(f"no request is in flight to node {node_id}")
        request = queue.popleft()
        if not queue:
            del self._nodes[node_id]
        return request

    def complete_sent(self, node_id: int, send: Send) -> InFlightRequest | None:
        """Take out the request that was written by `send`, if no answer is expected to it; else None."""
        queue = self._nodes.get(node_id, ())
        for request in queue:
            if request.send is send and not request.request.expect_response:
                self._nodes[node_id].remove(request)
                if not queue:
                    del self._nodes[node_id]
                return request
        return None

    def clear(self, node_id: int) -> list[InFlightRequest]:
        """Take out all requests of the node, oldest first."""
        return list(self._nodes.pop(node_id, ()))

    def count(self, node_id: int | None = None) -> int:
        """How many requests are in flight to the node, or to all nodes: that may be asked by any thread."""
        if node_id is None:
            return sum(map(len, list(self._nodes.values())))
        return len(self._nodes.get(node_id, ()))

    def add_throttle_time(self, node_id: int, throttle_ms: float) -> None:
        """The node won't answer for `throttle_ms`: its requests may wait that much longer."""
        for request in self._nodes.get(node_id, ()):
            request.throttled_ms += throttle_ms

    def nodes_with_timed_out_requests(self, now_ms: float) -> list[int]:
        """The nodes that owe an answer for longer than the request's timeout."""
        return [
            node_id
            for node_id, queue in self._nodes.items()
            if any(request.deadline_ms() <= now_ms for request in queue)
        ]

    def next_timeout_ms(self, now_ms: float) -> float:
        """How long until the first answer is overdue, infinity when nothing is in flight."""
        deadline_ms = min(
            (request.deadline_ms() for queue in self._nodes.values() for request in queue), default=NEVER_MS
        )
        return max(deadline_ms - now_ms, 0.0)
