"""Which brokers take batches, for the load-aware partitioner (KIP-794)."""

from __future__ import annotations

from ...network.cluster import Node


class BrokerAvailability:
    """Records since when each broker has had ready batches that it did not take.

    The sender thread calls `note`; callers' threads call `is_usable`.
    """

    def __init__(self, timeout_ms: float) -> None:
        """`timeout_ms` is ``partitioner.availability.timeout.ms``, above 0."""
        self._timeout_ms = timeout_ms
        self._times_ms: dict[int, list[float]] = {}  # by node id: when it last took batches, and was last ready

    def note(self, node_id: int, now_ms: float, drained: bool) -> None:
        """A broker had ready batches, and they were drained or not."""
        times_ms = self._times_ms.get(node_id)
        if times_ms is None:
            self._times_ms[node_id] = [now_ms, now_ms]
        else:
            times_ms[1] = now_ms
            if drained:
                times_ms[0] = now_ms

    def is_usable(self, node: Node) -> bool:
        """False once a broker's batches have been ready for too long."""
        times_ms = self._times_ms.get(node.id)
        return times_ms is None or times_ms[1] - times_ms[0] <= self._timeout_ms
