"""A name service that does not answer blocks only what needs it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.broker import EmbeddedCluster
from headrace.broker.requests.control import Fault
from headrace.network.protocol.api import ApiKey
from headrace.network.protocol.errors import DeliveryTimeoutError, KafkaTimeoutError
from headrace.network.protocol.messages.topics.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.producer import KafkaProducer

PATIENCE_S = 60
#: Far longer than the measured operations may take, and far shorter than PATIENCE_S.
SOON_S = 20
SLOW = "slow.invalid"
TOPIC = "half-named"


class NameService:
    """The system's, except for SLOW, which resolves to 127.0.0.1 once the test releases it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers = threading.Event()
        self.asked = threading.Event()
        self._system = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._look_up)

    def _look_up(self, host: Any, *args: Any, **options: Any) -> Any:
        if host == SLOW.encode() and not options.get("flags", 0) & socket.AI_NUMERICHOST:
            self.asked.set()
            assert self.answers.wait(PATIENCE_S)
            host = "127.0.0.1"
        return self._system(host, *args, **options)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameService]:
    service = NameService(monkeypatch)
    yield service
    service.answers.set()


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """Two brokers that lead one partition each; metadata name broker 2 by the slow name."""
    with EmbeddedCluster(brokers=2) as cluster:
        cluster.create_topic(TOPIC, 2, replication_factor=2)
        topic = cluster.controller.image.topics[TOPIC]
        for partition, leader in enumerate((1, 2)):
            cluster.move_leader(TOPIC, partition, leader)
        ends = [broker.endpoint for broker in cluster.brokers.values()]
        told = MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=end.node_id, host=SLOW if end.node_id == 2 else end.host, port=end.port)
                for end in ends
            ],
            cluster_id="c",
            controller_id=1,
            topics=[
                MetadataResponseTopic(
                    name=TOPIC,
                    topic_id=topic.topic_id,
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=partition,
                            leader_id=partition + 1,
                            leader_epoch=0,
                            replica_nodes=[1, 2],
                            isr_nodes=[1, 2],
                        )
                        for partition in (0, 1)
                    ],
                )
            ],
        )
        cluster.on_request(ApiKey.METADATA, lambda context, request: Fault(response=told))
        yield cluster


def producer_of(cluster: EmbeddedCluster, **options: Any) -> KafkaProducer:
    return KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **{"linger_ms": 0, **options})


def test_records_for_other_brokers_do_not_wait(cluster: EmbeddedCluster, names: NameService) -> None:
    with producer_of(cluster) as producer:
        waiting = producer.send(TOPIC, b"waits", partition=1)
        assert names.asked.wait(PATIENCE_S)
        for number in range(20):
            assert producer.send(TOPIC, b"%d" % number, partition=0).get(SOON_S).offset == number
        assert not waiting.done()
        names.answers.set()
        assert waiting.get(PATIENCE_S).partition == 1


def test_delivery_timeout_holds(cluster: EmbeddedCluster, names: NameService) -> None:
    with producer_of(cluster, delivery_timeout_ms=700, request_timeout_ms=700) as producer:
        record = producer.send(TOPIC, b"late", partition=1)
        assert names.asked.wait(PATIENCE_S)
        with pytest.raises(DeliveryTimeoutError):
            record.get(SOON_S)
        assert producer.send(TOPIC, b"in time", partition=0).get(SOON_S).partition == 0


def test_close_with_a_timeout_holds(cluster: EmbeddedCluster, names: NameService) -> None:
    producer = producer_of(cluster)
    record = producer.send(TOPIC, b"left", partition=1)
    assert names.asked.wait(PATIENCE_S)
    started = time.monotonic()
    with pytest.raises(KafkaTimeoutError, match="1 records not acknowledged"):
        producer.close(timeout=0.3)
    assert time.monotonic() - started < SOON_S
    assert record.done()


@pytest.mark.parametrize("lookup", ["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"])
def test_max_block_holds_and_a_slow_bootstrap_server_is_passed_over(
    cluster: EmbeddedCluster, names: NameService, lookup: str
) -> None:
    with producer_of(cluster, max_block_ms=SOON_S * 1000, client_dns_lookup=lookup) as producer:
        assert producer.partitions_for(TOPIC) == {0, 1}
    slow = f"{SLOW}:9092"
    with (
        KafkaProducer(bootstrap_servers=slow, max_block_ms=300, client_dns_lookup=lookup) as producer,
        pytest.raises(KafkaTimeoutError, match=r"being (resolved|looked up)|name service does not answer"),
    ):
        producer.send(TOPIC, b"x")
    if lookup == "use_all_dns_ips":
        with KafkaProducer(bootstrap_servers=[slow, *cluster.bootstrap_servers.split(",")]) as producer:
            assert producer.send(TOPIC, b"x", partition=0).get(SOON_S).partition == 0
