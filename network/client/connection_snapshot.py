"""A connection as other threads see it."""

from __future__ import annotations

from typing import NamedTuple

from ..protocol.errors import KafkaError


class ConnectionSnapshot(NamedTuple):
    """The connection to one node at a moment.

    `state` is in words, as in `ConnectionState`. `requests_in_flight` includes handshakes and metadata requests, and
    `oldest_request_ms` is how long the oldest of them has waited; None if there are none. `retry_in_ms` is the rest of
    the reconnect backoff, and `throttled_ms` that of the throttle time. `error` is the last one since the node was last
    ready.
    """

    node_id: int
    address: str
    state: str
    failed_attempts: int
    retry_in_ms: float
    throttled_ms: float
    requests_in_flight: int
    oldest_request_ms: float | None
    error: KafkaError | None
