"""Records without a key stay in the producer's rack while a leader is there (KIP-1123)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from headrace.network.clock import MockClock
from headrace.network.cluster import Cluster, Node, PartitionInfo
from headrace.network.protocol.errors import KafkaConfigurationError
from headrace.network.records.compression import Compression
from headrace.producer.accumulator.accumulator_cy import RecordAccumulator
from headrace.producer.accumulator.buffer_pool_cy import BufferPool
from headrace.producer.config import ProducerConfig

RACKS = ("a", "b", "a", None)


def cluster(racks: Sequence[str | None] = RACKS, leaderless: Sequence[int] = ()) -> Cluster:
    """Partition i of topic t is led by node i, which is in the i-th rack."""
    nodes = [Node(index, "host", 9092, rack) for index, rack in enumerate(racks)]
    infos = [
        PartitionInfo("t", node.id, leader=None if node.id in leaderless else node, leader_id=node.id, leader_epoch=0)
        for node in nodes
    ]
    return Cluster(nodes=nodes, partitions={"t": tuple(infos)})


class Bench:
    """An accumulator that reports its sticky partitions."""

    def __init__(self, rack: str | None = "a", known: Cluster | None = None, **options: Any) -> None:
        self.clock = MockClock(1000)
        self.accumulator = RecordAccumulator(
            pool=BufferPool(1_000_000, 200, self.clock),
            batch_size=200,
            compression=Compression.NONE,
            linger_ms=0,
            retry_backoff=lambda attempts: 100,
            delivery_timeout_ms=1000,
            clock=self.clock,
            rack=rack,
            **options,
        )
        self.queues = self.accumulator.topic_queues("t", lambda: known or cluster())

    def update(self, known: Cluster) -> None:
        self.accumulator.update_metadata(known, {"t"})

    def chosen(self, times: int = 60) -> set[int]:
        """The partitions of `times` records, each as large as a batch, after the next switch."""
        self._append()
        return {self._append() for _ in range(times)}

    def _append(self) -> int:
        future = self.accumulator.append(self.queues, -1, 0, None, b"x" * 190, None, None, 0)
        for batch in self.accumulator.take_everything():
            self.accumulator.release(batch)
        return future.batch.partition


@pytest.mark.parametrize("adaptive", [True, False])
def test_the_partitions_that_are_led_in_the_rack(adaptive: bool) -> None:
    b = Bench(adaptive_partitioning=adaptive)
    assert b.queues.sticky.partition in (0, 2)
    assert b.chosen() == {0, 2}


def test_without_a_rack_all_partitions() -> None:
    assert Bench(rack=None).chosen(200) == {0, 1, 2, 3}


@pytest.mark.parametrize("racks", [("b", "b", "c"), (None, None, None), ("", "A", "aa")])
def test_all_partitions_where_nobody_leads_in_the_rack(racks: Sequence[str | None]) -> None:
    assert Bench(known=cluster(racks)).chosen(200) == {0, 1, 2}


def test_others_only_while_nobody_leads_in_the_rack() -> None:
    b = Bench()
    b.update(cluster(leaderless=[0]))
    assert b.chosen() == {2}
    b.update(cluster(leaderless=[0, 2]))
    assert b.chosen(100) == {1, 3}
    b.update(cluster(leaderless=[2]))
    assert b.chosen() == {0}


def test_any_partition_where_nobody_leads() -> None:
    assert Bench(known=cluster(leaderless=[0, 1, 2, 3])).chosen(200) == {0, 1, 2, 3}


def test_a_leader_that_moves_into_the_rack_or_out_of_it() -> None:
    b = Bench()
    b.update(cluster(("b", "a", "b", "b")))
    assert b.chosen() == {1}


def test_brokers_of_the_rack_that_take_nothing_are_passed_over() -> None:
    b = Bench(availability_timeout_ms=100)
    for node_id in range(4):
        b.accumulator.availability.note(node_id, 1000, True)
    b.accumulator.availability.note(0, 1200, False)
    assert b.chosen() == {2}
    b.accumulator.availability.note(2, 1200, False)
    assert b.chosen(100) == {1, 3}, "available before near"
    for node_id in (1, 3):
        b.accumulator.availability.note(node_id, 1200, False)
    assert b.chosen() == {0, 2}, "near if none is available"


def test_nobody_is_passed_over_where_partitioning_is_not_adaptive() -> None:
    b = Bench(availability_timeout_ms=100, adaptive_partitioning=False)
    for node_id in range(4):
        b.accumulator.availability.note(node_id, 1000, True)
    b.accumulator.availability.note(0, 1200, False)
    assert b.chosen() == {0, 2}


@pytest.mark.parametrize("rack", ["", "  ", None])
def test_a_rack_has_to_be_given(rack: str | None) -> None:
    with pytest.raises(KafkaConfigurationError, match=r"partitioner\.rack\.aware=true needs client\.rack"):
        ProducerConfig.resolve(bootstrap_servers="h:1", partitioner_rack_aware=True, client_rack=rack)


def test_a_rack_alone_changes_nothing() -> None:
    config = ProducerConfig.resolve({"bootstrap.servers": "h:1", "client.rack": "eu-1a"})
    assert (config.client_rack, config.partitioner_rack_aware) == ("eu-1a", False)
