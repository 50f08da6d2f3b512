"""An accumulator with one topic on a mock clock."""

from __future__ import annotations

from typing import Any

from headrace.network.clock import MockClock
from headrace.network.cluster import Cluster, Node, PartitionInfo
from headrace.network.records.compression import Compression
from headrace.producer.accumulator.accumulator_cy import MAX_OPEN_SHARE, RecordAccumulator
from headrace.producer.accumulator.batch_cy import ProducerBatch, RecordFuture
from headrace.producer.accumulator.buffer_pool_cy import BufferPool

LINGER_MS = 10
BACKOFF_MS = 100
DELIVERY_MS = 1000
BATCH = 200
NODES = [Node(0, "a", 1), Node(1, "b", 2)]
MAX_OPEN_MS = DELIVERY_MS * MAX_OPEN_SHARE


def cluster(partitions: int = 4, nodes: list[Node] | None = None, without_leader: tuple[int, ...] = ()) -> Cluster:
    """A cluster with topic t, whose partition i is led by the i-th node, modulo their number."""
    nodes = nodes or NODES
    infos = []
    for index in range(partitions):
        leader = None if index in without_leader else nodes[index % len(nodes)]
        infos.append(
            PartitionInfo(
                topic="t",
                partition=index,
                leader=leader,
                leader_id=-1 if leader is None else leader.id,
                leader_epoch=0,
                replicas=(),
                isr=(),
                offline=(),
            )
        )
    return Cluster(nodes=nodes, partitions={"t": tuple(infos)} if infos else {})


class Bench:
    """An accumulator with topic t on a mock clock."""

    def __init__(
        self,
        partitions: int = 4,
        *,
        nodes: list[Node] | None = None,
        memory: int = 100_000,
        chunk_bytes: int = BATCH,
        **options: Any,
    ) -> None:
        self.clock = MockClock(1000)
        self.pool = BufferPool(memory, chunk_bytes, self.clock)
        self.accumulator = RecordAccumulator(
            **{
                "pool": self.pool,
                "batch_size": BATCH,
                "compression": Compression.NONE,
                "linger_ms": LINGER_MS,
                "retry_backoff": lambda attempts: BACKOFF_MS,
                "delivery_timeout_ms": DELIVERY_MS,
                "clock": self.clock,
                **options,
            }
        )
        self.wakeups = 0
        self.accumulator.wakeup = self._wake
        self.queues = self.accumulator.topic_queues("t", lambda: cluster(partitions, nodes))

    def _wake(self) -> None:
        self.wakeups += 1

    def append(
        self, partition: int = 0, value: bytes | None = b"v", key: bytes | None = None, max_block_ms: float = 0
    ) -> RecordFuture:
        return self.accumulator.append(
            self.queues, partition, self.clock.wall_ms(), key, value, None, None, max_block_ms
        )

    def ready(self) -> list[int]:
        return sorted(self.accumulator.ready(self.clock.now_ms()).nodes)

    def drain(
        self, node: int = 0, max_bytes: int = 1_000_000, answer_ms: float = 0.0, probe: bool = False
    ) -> list[ProducerBatch]:
        """Drain as if every batch had lingered."""
        now_ms = self.clock.now_ms()
        self.accumulator.ready(now_ms + LINGER_MS)
        return self.accumulator.drain(node, max_bytes, now_ms, answer_ms, probe)
