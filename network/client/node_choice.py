"""The choice of a node for a request that any node can answer (Kafka's NetworkClient.leastLoadedNode)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..cluster import Node
from .connection_states_cy import ClusterConnectionStates
from .in_flight_cy import InFlightRequests


def least_loaded(
    nodes: Iterable[Node],
    states: ClusterConnectionStates,
    in_flight: InFlightRequests,
    can_send: Callable[[int, float], bool],
    now_ms: float,
) -> tuple[Node | None, bool]:
    """The usable node with the fewest requests in flight, else one that `is_preparing`, else the one tried longest ago
    among those whose backoff has elapsed; and whether any node is connected. The first of `nodes` among equals."""
    ready: Node | None = None
    connecting: Node | None = None
    connectable: Node | None = None
    resolving: Node | None = None
    fewest = 0
    any_connected = False
    for node in nodes:
        any_connected = any_connected or states.state(node.id).was_ready
        if can_send(node.id, now_ms):
            count = in_flight.count(node.id)
            if ready is None or count < fewest:
                ready, fewest = node, count
        elif states.is_resolving_slowly(node.id, now_ms):
            resolving = node
        elif states.is_preparing(node.id):
            connecting = node
        elif states.can_connect(node.id, now_ms) and (
            connectable is None or states.last_attempt_ms(node.id) < states.last_attempt_ms(connectable.id)
        ):
            connectable = node
    return ready or connecting or connectable or resolving, any_connected
