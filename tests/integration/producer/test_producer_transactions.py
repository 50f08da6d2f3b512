"""Transactions on the embedded broker, in both protocols: the cases that Apache Kafka passes, too, and local ones."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from integration.producer.transaction_cases import *  # noqa: F403
from integration.producer.transaction_cases import transactional, unique
from support.confluent import PATIENCE_S, check_committed, create_topic
from support.waiting import wait_until

from headrace.broker import EmbeddedCluster
from headrace.broker.requests.control import Fault
from headrace.network.clock import SYSTEM_CLOCK, MockClock
from headrace.network.protocol.api import ApiKey
from headrace.producer import KafkaProducer
from headrace.producer.errors import IllegalStateError

CLEANUP = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}


@pytest.fixture(scope="module", params=[2, 1], ids=["tv2", "classic"])
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(features={"transaction.version": request.param}, config=CLEANUP) as cluster:
        yield cluster


@pytest.fixture
def servers(cluster: EmbeddedCluster) -> str:
    return cluster.bootstrap_servers


def _use_in_child(producer: KafkaProducer, topic: str, said: Any) -> None:
    for call in (producer.begin_transaction, lambda: producer.send(topic, b"child")):
        try:
            call()
        except IllegalStateError as error:
            said.put(str(error))


def test_a_forked_child_is_told_to_create_its_own(servers: str) -> None:
    topic = create_topic(servers)
    with transactional(servers) as producer:
        producer.begin_transaction()
        producer.send(topic, b"parent")
        context = multiprocessing.get_context("fork")
        said = context.Queue()
        child = context.Process(target=_use_in_child, args=(producer, topic, said))
        child.start()
        messages = [said.get(timeout=PATIENCE_S) for _ in range(2)]
        child.join(PATIENCE_S)
        assert all("create a producer with another transactional.id here" in message for message in messages)
        producer.commit_transaction()
    check_committed(servers, topic, [b"parent"])


class SendsWhenCollected:
    """Sends from its finalizer, once it is garbage."""

    def __init__(self, producer: KafkaProducer, topic: str) -> None:
        self.cycle = self
        self.producer = producer
        self.topic = topic

    def __del__(self) -> None:
        self.producer.send(self.topic, b"finalizer")


def test_records_of_finalizers_belong_to_the_open_transaction(servers: str) -> None:
    topic = create_topic(servers)
    with transactional(servers) as producer:
        with producer.transaction():
            producer.send(topic, b"send")
            SendsWhenCollected(producer, topic)
            gc.collect()
        producer.begin_transaction()
        SendsWhenCollected(producer, topic)
        gc.collect()
        producer.abort_transaction()
    check_committed(servers, topic, [b"finalizer", b"send"])


def test_the_coordinator_moves_to_another_broker(servers: str) -> None:
    with EmbeddedCluster(brokers=3, config=CLEANUP) as cluster:
        topic = create_topic(cluster.bootstrap_servers, partitions=3, replication_factor=3)
        with transactional(cluster.bootstrap_servers, unique()) as producer:
            for node_id in cluster.node_ids:
                producer.begin_transaction()
                producer.send(topic, b"%d" % node_id)
                cluster.stop_broker(node_id)
                producer.send(topic, b"%d, too" % node_id)
                producer.commit_transaction()
                cluster.start_broker(node_id)
        expected = [value for node_id in cluster.node_ids for value in (b"%d" % node_id, b"%d, too" % node_id)]
        check_committed(cluster.bootstrap_servers, topic, sorted(expected))


def metadata_requests(cluster: EmbeddedCluster) -> int:
    return sum(each.api_key is ApiKey.METADATA for each in cluster.requests)


def test_a_send_that_waits_while_its_transaction_ends_is_not_part_of_the_next(
    cluster: EmbeddedCluster, servers: str
) -> None:
    known, unknown = create_topic(servers), create_topic(servers)
    with transactional(servers) as producer, ThreadPoolExecutor(1) as thread:
        producer.begin_transaction()
        producer.send(known, b"in time").get(PATIENCE_S)
        cluster.inject(ApiKey.METADATA, Fault(delay_ms=500), times=1)
        asked = metadata_requests(cluster)
        late = thread.submit(producer.send, unknown, b"late")
        # the send waits for the answer
        wait_until(lambda: metadata_requests(cluster) > asked)
        producer.commit_transaction()
        with pytest.raises(IllegalStateError, match="send is not possible now"):
            late.result(PATIENCE_S)
    check_committed(servers, known, [b"in time"])
    check_committed(servers, unknown, [])


def test_transactions_one_after_the_other_in_virtual_time() -> None:
    """The broker's time stands still, while the producer's does not: it must not wait for the broker to ask again."""
    with (
        EmbeddedCluster(clock=MockClock(wall_ms=SYSTEM_CLOCK.wall_ms())) as cluster,
        transactional(
            cluster.bootstrap_servers, delivery_timeout_ms=3_600_000, request_timeout_ms=1_800_000
        ) as producer,
    ):
        for number in range(8):
            producer.begin_transaction()
            futures = [producer.send(f"t{topic}", b"%d" % number) for topic in range(3)]
            producer.commit_transaction()
            assert all(future.get(PATIENCE_S).offset >= 0 for future in futures)
