"""A producer whose cluster changes: leaders move, topics grow, vanish and return, metadata are old, wrong or large."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.waiting import JumpingClock, wait_until

from headrace.broker import EmbeddedCluster
from headrace.broker.controller.controller_api import MorePartitions
from headrace.broker.requests.control import Fault
from headrace.network.cluster import Cluster
from headrace.network.protocol.api import ApiKey
from headrace.network.protocol.errors import (
    DeliveryTimeoutError,
    IllegalStateError,
    KafkaError,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)
from headrace.network.protocol.messages.topics.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.network.protocol.types import ZERO_UUID
from headrace.producer import KafkaProducer

PATIENCE_S = 60
#: Longer than any test runs, so that a test that waits for this backoff fails.
FOR_EVER_MS = 100_000
IMPATIENT = {
    "linger_ms": 0,
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 20,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, racks={1: "north", 2: "south"}) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def without_faults(cluster: EmbeddedCluster) -> Iterator[None]:
    yield
    cluster.control.clear()


def producer_of(cluster: EmbeddedCluster, **options: Any) -> KafkaProducer:
    return KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **{**IMPATIENT, **options})


def metadata_of(cluster: EmbeddedCluster, *topics: MetadataResponseTopic) -> MetadataResponse:
    """A Metadata response with those topics and the running brokers."""
    brokers = [broker.endpoint for broker in cluster.brokers.values()]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port) for each in brokers],
        cluster_id="c",
        controller_id=1,
        topics=list(topics),
    )


def topic_of(cluster: EmbeddedCluster, name: str, leader_id: int, epoch: int = 0) -> MetadataResponseTopic:
    """A topic of one partition with that leader, and with its real id if it exists."""
    state = cluster.controller.image.topics.get(name)
    partition = MetadataResponsePartition(
        partition_index=0, leader_id=leader_id, leader_epoch=epoch, replica_nodes=[1, 2], isr_nodes=[1, 2]
    )
    topic_id = ZERO_UUID if state is None else state.topic_id
    return MetadataResponseTopic(name=name, topic_id=topic_id, partitions=[partition])


# --- Leaders ---


def test_a_leader_that_moves_is_followed_without_backing_off(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("moving", 1, replication_factor=2)
    with producer_of(cluster, retry_backoff_ms=FOR_EVER_MS, retry_backoff_max_ms=FOR_EVER_MS) as producer:
        for number in range(6):
            assert producer.send("moving", b"%d" % number).get(PATIENCE_S).offset == number
            cluster.move_leader("moving", 0, 3 - cluster.leader_of("moving", 0))
    assert [record.value for record in cluster.records("moving", 0)] == [b"%d" % number for number in range(6)]


@pytest.mark.parametrize("leader_id", [-1, 99], ids=["none", "one that is no broker"])
def test_metadata_without_a_leader_are_asked_for_until_there_is_one(cluster: EmbeddedCluster, leader_id: int) -> None:
    topic = f"leaderless{leader_id}"
    cluster.create_topic(topic, 1)
    wrong = metadata_of(cluster, topic_of(cluster, topic, leader_id))
    cluster.inject(ApiKey.METADATA, Fault(response=wrong), times=5)
    with producer_of(cluster) as producer:
        assert producer.send(topic, b"x").get(PATIENCE_S).offset == 0


def test_a_partition_that_has_lost_its_leader_is_named() -> None:
    with (
        EmbeddedCluster(brokers=2) as cluster,
        producer_of(cluster, delivery_timeout_ms=1500, request_timeout_ms=1000) as producer,
    ):
        producer.send("t", b"0").get(PATIENCE_S)
        cluster.kill_broker(cluster.leader_of("t", 0))
        wait_until(lambda: cluster.leader_of("t", 0) < 0)
        with pytest.raises(
            DeliveryTimeoutError, match=r"1 record for t-0 not delivered .*; the partition has no leader"
        ):
            producer.send("t", b"1").get(PATIENCE_S)
        with pytest.raises(IllegalStateError, match="the partition t-0 has no leader"):
            cluster.records("t", 0)


def test_metadata_that_name_another_broker_than_the_leader(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("misled", 1)
    other = 3 - cluster.leader_of("misled", 0)
    wrong = metadata_of(cluster, topic_of(cluster, "misled", other, epoch=0))
    cluster.inject(ApiKey.METADATA, Fault(response=wrong), times=5)
    with producer_of(cluster) as producer:
        assert producer.send("misled", b"x").get(PATIENCE_S).offset == 0


def test_metadata_that_go_on_naming_a_dead_leader() -> None:
    """The answering broker doesn't know the new leader yet, so the producer requests metadata until it does."""
    with EmbeddedCluster(brokers=2, min_insync_replicas=1) as cluster, producer_of(cluster) as producer:
        cluster.create_topic("t", 1, replication_factor=2)
        assert producer.send("t", b"0").get(PATIENCE_S).offset == 0
        dead = cluster.leader_of("t", 0)
        old = metadata_of(cluster, topic_of(cluster, "t", dead))
        cluster.inject(ApiKey.METADATA, Fault(response=old), times=10)
        cluster.kill_broker(dead)
        assert producer.send("t", b"1").get(PATIENCE_S).offset == 1


# --- Topics that come and go ---


def test_new_partitions_are_found_by_age_and_used(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("widening", 1)
    with producer_of(cluster, metadata_max_age_ms=20, batch_size=0) as producer:
        assert producer.send("widening", b"x").get(PATIENCE_S).partition == 0
        cluster.controller.create_partitions([MorePartitions("widening", 3)])
        seen: set[int] = set()
        for _ in range(100_000):
            seen.add(producer.send("widening", b"x").get(PATIENCE_S).partition)
            if len(seen) == 3:
                break
        assert seen == {0, 1, 2}


def test_a_topic_that_vanishes_and_returns_wider_under_another_id(cluster: EmbeddedCluster) -> None:
    """Twice, while records wait for the topic: none is lost, and each goes to the topic as it is now."""
    cluster.create_topic("phoenix", 1)

    def retries(producer: KafkaProducer) -> float:
        return producer.metrics()["producer-metrics"]["record-retry-total"]

    with producer_of(cluster, allow_auto_create_topics=False) as producer, ThreadPoolExecutor(1) as sender:
        producer.send("phoenix", b"first", partition=0).get(PATIENCE_S)
        for partitions in (2, 3):
            before = cluster.controller.image.topics["phoenix"].topic_id
            cluster.controller.delete_topic("phoenix")
            retried = retries(producer)
            # on a thread of their own: once the producer knows that the topic is gone, a send waits for it
            sends = sender.submit(lambda: [producer.send("phoenix", b"%d" % n, partition=0) for n in range(20)])
            wait_until(lambda before=retried: retries(producer) > before)
            cluster.create_topic("phoenix", partitions)
            assert cluster.controller.image.topics["phoenix"].topic_id != before
            assert [future.get(PATIENCE_S).offset for future in sends.result(PATIENCE_S)] == list(range(20))
            new = producer.send("phoenix", b"new", partition=partitions - 1)
            assert new.get(PATIENCE_S).offset == 0
            assert producer.partitions_for("phoenix") == set(range(partitions))


def test_a_topic_that_was_not_used_for_long_is_forgotten_and_found_again(cluster: EmbeddedCluster) -> None:
    for topic in ("idle", "busy"):
        cluster.create_topic(topic, 1)
    clock = JumpingClock()
    with producer_of(cluster, clock=clock, metadata_max_age_ms=20, metadata_max_idle_ms=10_000) as producer:
        metadata = producer._engine.metadata
        assert producer.send("idle", b"x").get(PATIENCE_S).offset == 0
        clock.ahead_ms = 10_000.0
        while metadata.contains_topic("idle"):
            producer.send("busy", b"x").get(PATIENCE_S)
        assert metadata.contains_topic("busy")
        assert metadata.cluster.partitions_for("idle") is None
        assert not any(group.endswith(".idle") for group in producer.metrics())
        assert producer.send("idle", b"x").get(PATIENCE_S).offset == 1


# --- Connections ---


def test_a_connection_that_idled_is_closed_and_made_again(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("seldom", 1)
    with producer_of(cluster, connections_max_idle_ms=50) as producer:

        def connections(what: str) -> float:
            return producer.metrics()["producer-metrics"][f"connection-{what}"]

        for number in range(3):
            made = connections("creation-total")
            assert producer.send("seldom", b"x").get(PATIENCE_S).offset == number
            assert connections("creation-total") > made
            wait_until(lambda: connections("count") == 0)


# --- Metadata that are hard to get ---


@pytest.mark.parametrize("max_age_ms", [0, 20, 300_000])
@pytest.mark.parametrize("often", [0.0, 0.5])
def test_one_broker_that_hangs_up_on_metadata_which_never_last(often: float, max_age_ms: int) -> None:
    """Without backoff between metadata requests, and each connection that closes is the only one to the cluster."""
    dice = random.Random(7)
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", 1)
        for api in (ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.INIT_PRODUCER_ID):
            cluster.on_request(api, lambda context, request: Fault(close=True) if dice.random() < often else None)
        with producer_of(
            cluster, metadata_max_age_ms=max_age_ms, retry_backoff_ms=0, retry_backoff_max_ms=0, batch_size=250
        ) as producer:
            futures = [producer.send("t", b"%03d" % number) for number in range(300)]
            producer.flush(PATIENCE_S)
        assert [future.get(0).offset for future in futures] == list(range(300))
        assert [record.value for record in cluster.records("t", 0)] == [b"%03d" % number for number in range(300)]


def test_ten_thousand_topics(cluster: EmbeddedCluster) -> None:
    """Each new topic is requested once, all of them once the metadata expire, and records flow meanwhile."""
    cluster.create_topic("real", 1)
    leader_id = cluster.leader_of("real", 0)
    asked: list[int] = []

    def answer(context: object, request: Any) -> Fault:
        names = [topic.name or "" for topic in request.topics or []]
        asked.append(len(names))
        return Fault(response=metadata_of(cluster, *(topic_of(cluster, name, leader_id) for name in names)))

    cluster.on_request(ApiKey.METADATA, answer)
    names = [f"topic-{number}" for number in range(10_000)]
    told: list[Cluster] = []
    changes: list[str] = []

    def hear(cluster: Cluster, changed: Collection[str]) -> None:
        told.append(cluster)
        changes.extend(changed)

    with producer_of(cluster) as producer:
        metadata = producer._engine.metadata
        metadata.add_listener(hear)

        def learn(part: list[str]) -> None:
            for name in part:
                assert producer.partitions_for(name) == {0}

        threads = [threading.Thread(target=learn, args=(names[start::20],)) for start in range(20)]
        for thread in threads:
            thread.start()
        producer.send("real", b"0").get(PATIENCE_S)
        for thread in threads:
            thread.join(PATIENCE_S)
        producer.send("real", b"1").get(PATIENCE_S)
        assert len(list(metadata.cluster.topics)) == 10_001
        assert sum(asked) <= 10_001 + len(asked), "a new topic is requested alone, and hardly ever twice"
        assert len(changes) == 10_001, "an update names what it changes"
        version = metadata.request_update(reset_backoff=True)
        producer._engine.sender.wakeup()
        metadata.await_update(version, PATIENCE_S * 1000)
        assert 10_001 in asked
        producer.send("real", b"2").get(PATIENCE_S)
        assert len(changes) == 10_001, "nothing has changed"
        assert metadata.cluster.partitions_for("topic-1") is told[-2].partitions_for("topic-1")
    assert [record.value for record in cluster.records("real", 0)] == [b"0", b"1", b"2"]


def test_a_wrong_partition_is_reported_at_once_while_another_topic_is_unknown() -> None:
    """The other topic is asked for again and again, which must not look like an answer that is still to come."""
    with EmbeddedCluster(config={"auto.create.topics.enable": "false"}) as cluster:
        cluster.create_topic("good", 1)
        with producer_of(cluster, max_block_ms=PATIENCE_S * 1000) as producer:
            producer.send("good", b"x").get(PATIENCE_S)

            def send_to_none() -> None:
                with contextlib.suppress(KafkaError):
                    producer.send("none", b"x")

            thread = threading.Thread(target=send_to_none)
            thread.start()
            wait_until(lambda: producer._engine.metadata.topic_error("none") is not None)
            with pytest.raises(UnknownTopicOrPartitionError, match="has 1 partition, number 0"):
                producer.send("good", b"x", partition=5)
            producer.close(timeout=0)
            thread.join(PATIENCE_S)


def test_topics_that_are_made_one_after_the_other_are_asked_for_by_themselves(cluster: EmbeddedCluster) -> None:
    """Like real brokers, this one creates an unknown topic on request, but its first response names no leader."""
    asked: list[int] = []
    made: set[str] = set()

    def answer(context: object, request: Any) -> Fault | None:
        names = [topic.name or "" for topic in request.topics or []]
        asked.append(len(names))
        new = set(names) - made
        made.update(new)
        return Fault(error=LeaderNotAvailableError, topic=new.pop()) if new else None

    cluster.on_request(ApiKey.METADATA, answer)
    with producer_of(cluster) as producer:
        for number in range(100):
            assert producer.send(f"made-{number}", b"x").get(PATIENCE_S).offset == 0
    assert len(made) == 100
    assert sum(asked) < 400


# --- Racks (KIP-1123) ---


def test_records_without_a_key_stay_in_the_rack(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("racks", 6, replication_factor=2)

    def used(rack: str, **options: Any) -> set[int]:
        with producer_of(cluster, client_rack=rack, partitioner_rack_aware=True, batch_size=0) as producer:
            futures = [producer.send("racks", b"x", **options) for _ in range(200)]
            return {future.get(PATIENCE_S).partition for future in futures}

    led = {
        rack: {p for p in range(6) if cluster.leader_of("racks", p) == node}
        for node, rack in ((1, "north"), (2, "south"))
    }
    assert len(led["north"]) == 3
    assert used("north") == led["north"]
    assert used("south") == led["south"]
    assert used("nowhere") == set(range(6))
    cluster.move_leader("racks", min(led["north"]), 2)
    assert used("south") == led["south"] | {min(led["north"])}
    with producer_of(cluster, client_rack="north", partitioner_rack_aware=True) as producer:
        keyed = {producer.send("racks", b"x", key=b"%d" % number).get(PATIENCE_S).partition for number in range(60)}
        assert keyed == set(range(6)), "a key's partition does not depend on the rack"
