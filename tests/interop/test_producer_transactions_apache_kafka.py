"""Transactions on Apache Kafka: 4.x with TV2, 4.x with the feature turned down, and 3.9 with the classic protocol."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from integration.producer.transaction_cases import *  # noqa: F403
from integration.producer.transaction_cases import transactional
from support.apache_kafka import ApacheKafka
from support.apache_kafka.fixtures import start_or_skip
from support.apache_kafka.releases import ApacheKafka39
from support.bank_transfer import Bank, run
from support.confluent import PATIENCE_S, check_committed, create_topic

from headrace.producer.sender.transaction_protocol import Protocol

PROPERTIES = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}

#: Name -> release, the feature's level to set (None: the release's own), and the protocol that follows.
CLUSTERS = {
    "4.x": (ApacheKafka, None, Protocol.TV2),
    "4.x-turned-down": (ApacheKafka, 1, Protocol.CLASSIC),
    "3.9": (ApacheKafka39, None, Protocol.CLASSIC),
}


class Cluster:
    """A running cluster and the protocol that its producers have to choose."""

    def __init__(self, kafka: ApacheKafka, protocol: Protocol) -> None:
        self.kafka = kafka
        self.protocol = protocol


def set_level(kafka: ApacheKafka, level: int) -> None:
    """Set the feature while the cluster runs."""
    kafka.run_class(
        "org.apache.kafka.tools.FeatureCommand",
        *("--bootstrap-server", kafka.bootstrap_servers, "downgrade", "--feature", f"transaction.version={level}"),
    )


@pytest.fixture(scope="module", params=list(CLUSTERS))
def old_apache_kafka(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Under the name of the fixture for older releases, whose tests run on one worker and have more time."""
    release, level, protocol = CLUSTERS[request.param]
    kafka = start_or_skip(release, properties=PROPERTIES)
    try:
        if level is not None:
            set_level(kafka, level)
        yield Cluster(kafka, protocol)
    finally:
        kafka.__exit__()


@pytest.fixture
def servers(old_apache_kafka: Cluster) -> str:
    return old_apache_kafka.kafka.bootstrap_servers


def test_the_protocol_follows_the_feature(old_apache_kafka: Cluster, topic: str) -> None:
    with transactional(old_apache_kafka.kafka.bootstrap_servers) as producer:
        with producer.transaction():
            producer.send(topic, b"v")
        assert producer._engine.transactions is not None
        assert producer._engine.transactions.gate is not None
        assert producer._engine.transactions.gate._protocol is old_apache_kafka.protocol


@pytest.fixture
def changeable() -> Iterator[ApacheKafka]:
    """A cluster of its own, whose feature a test may change."""
    kafka = start_or_skip(properties={**PROPERTIES, "group.min.session.timeout.ms": "500"})
    try:
        yield kafka
    finally:
        kafka.__exit__()


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("apache_kafka")
def test_a_level_that_changes_is_followed_and_workers_may_be_killed(changeable: ApacheKafka) -> None:
    servers = changeable.bootstrap_servers
    topic = create_topic(servers)
    with transactional(servers, connections_max_idle_ms=1_000) as producer:
        producer.begin_transaction()
        producer.send(topic, b"across").get(PATIENCE_S)
        set_level(changeable, 1)
        producer.commit_transaction()
        assert producer._engine.transactions is not None
        requests = producer._engine.transactions.gate
        assert requests is not None
        deadline = time.monotonic() + PATIENCE_S
        count = 0
        # brokers report the level when a connection begins
        while requests._protocol is not Protocol.CLASSIC:
            assert time.monotonic() < deadline
            with producer.transaction():
                producer.send(topic, b"v")
            count += 1
            time.sleep(2)
    check_committed(servers, topic, [b"across", *[b"v"] * count])
    with Bank(servers, workers=2, seed=3) as bank:
        run(bank, seconds=8)
