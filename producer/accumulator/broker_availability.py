"""The availability of brokers, for adaptive partitioning (KIP-794)."""

from __future__ import annotations

from ...network.cluster import Node


class BrokerAvailability:
    """Tracks how long each broker has had ready batches without any being drained.

    The sender thread calls `note`; callers' threads call `is_usable`.
    """

    def __init__(self, timeout_ms: float) -> None:
        """`timeout_ms` is ``partitioner.availability.timeout.ms``, above 0."""
        self._timeout_ms = timeout_ms
        self._times_ms: dict[int, list[float]] = {}  # node id -> last time drained, last time with ready batches

    def note(self, node_id: int, now_ms: float, drained: bool) -> None:
        """Record that a broker had ready batches, and whether they could be drained."""
        times_ms = self._times_ms.get(node_id)
        if times_ms is None:
            self._times_ms[node_id] = [now_ms, now_ms]
        else:
            times_ms[1] = now_ms
            if drained:
                times_ms[0] = now_ms

    def is_usable(self, node: Node) -> bool:
        """False if batches for this broker have been ready without being drained for too long."""
        times_ms = self._times_ms.get(node.id)
        return times_ms is None or times_ms[1] - times_ms[0] <= self._timeout_ms
