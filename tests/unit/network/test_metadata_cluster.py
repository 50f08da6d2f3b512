"""Cluster: an immutable snapshot and its queries."""

from __future__ import annotations

import pytest

from headrace.network.cluster import Cluster, Node, PartitionInfo, TopicPartition

A, B = Node(0, "a", 9092), Node(1, "b", 9092, rack="r1")


def info(topic: str, partition: int, leader: Node | None, epoch: int = 0) -> PartitionInfo:
    return PartitionInfo(topic, partition, leader, -1 if leader is None else leader.id, epoch)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(
        nodes=[A, B],
        partitions={
            "t": (info("t", 0, A, 3), info("t", 1, B), info("t", 2, None)),
            "gap": (info("gap", 1, A), info("gap", 3, B)),
        },
        controller_id=1,
    )


def test_names() -> None:
    assert str(TopicPartition("t", 3)) == "t-3"
    assert str(B) == "b:9092 (id 1, rack r1)"
    assert Node(2, "::1", 9092).address == "[::1]:9092"
    assert info("t", 1, A).topic_partition == ("t", 1)


def test_questions_about_partitions(cluster: Cluster) -> None:
    assert cluster.partition_count("t") == 3
    assert cluster.partition_count("?") is None
    assert cluster.partitions_for("?") is None
    assert cluster.partition(TopicPartition("t", 1)).leader == B
    assert cluster.partition(TopicPartition("t", 2)).leader is None
    assert cluster.partition(TopicPartition("t", 0)).leader_epoch == 3
    assert cluster.partition(TopicPartition("?", 0)) is None
    for outside in (-1, 3, 10**9):
        assert cluster.partition(TopicPartition("t", outside)) is None
    assert [each.partition for each in cluster.available_partitions_for("t")] == [0, 1]
    assert cluster.available_partitions_for("?") == ()


def test_partitions_that_the_broker_left_out(cluster: Cluster) -> None:
    assert cluster.partition(TopicPartition("gap", 3)).leader == B
    assert cluster.partition(TopicPartition("gap", 1)).leader == A
    assert cluster.partition(TopicPartition("gap", 0)) is None
    assert cluster.partition(TopicPartition("gap", 2)) is None


def test_questions_about_nodes(cluster: Cluster) -> None:
    assert cluster.node(1) == B
    assert cluster.node(9) is None
    assert cluster.controller == B
    assert not cluster.is_bootstrap


def test_with_nodes_looks_leaders_up_anew(cluster: Cluster) -> None:
    moved = Node(0, "elsewhere", 9092)
    later = cluster.with_nodes([moved])
    assert later.partition(TopicPartition("t", 0)).leader == moved
    assert later.partition(TopicPartition("t", 1)).leader is None
    assert cluster.partition(TopicPartition("t", 0)).leader == A
    assert later.with_nodes([moved, B]).partition(TopicPartition("t", 1)).leader == B


def test_with_partitions_replaces_what_it_knows(cluster: Cluster) -> None:
    later = cluster.with_partitions({TopicPartition("t", 2): info("t", 2, A, 9)})
    assert later.partition(TopicPartition("t", 2)).leader_epoch == 9
    assert later.partition(TopicPartition("t", 0)).leader == A
    assert cluster.partition(TopicPartition("t", 2)).leader is None
    assert later.partition_count("t") == 3


def test_a_snapshot_cannot_be_changed(cluster: Cluster) -> None:
    with pytest.raises(TypeError):
        cluster.nodes[7] = A  # type: ignore[index]
    with pytest.raises(TypeError):
        cluster.partitions["t"] = ()  # type: ignore[index]
    with pytest.raises(AttributeError):
        A.host = "x"  # type: ignore[misc]
