"""The driver's part of exactly-once delivery, on the embedded broker without Spark. Apache Kafka passes the cases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from integration.spark.committer_cases import *  # noqa: F403
from integration.spark.committer_cases import end, record, written
from support.confluent import check_committed, create_topic

from headrace.broker import EmbeddedCluster
from headrace.network.protocol.errors import (
    DeliveryPartlyLostError,
    KafkaConfigurationError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
)
from headrace.network.protocol.messages.records.list_offsets import ListOffsetsRequest
from headrace.producer import ProducerConfig
from headrace.producer.blocking_cluster import BlockingCluster
from headrace.producer.spark.commit_log import TOPIC, CommitLog
from headrace.producer.spark.committer import Committer
from headrace.producer.spark.delivery import Delivery
from headrace.producer.spark.options import SinkOptions
from headrace.producer.spark.transactions import new_job

LATEST = ListOffsetsRequest.LATEST_TIMESTAMP
CLEANUP = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}


@pytest.fixture(scope="module", params=[2, 1], ids=["tv2", "classic"])
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(features={"transaction.version": request.param}, config=CLEANUP) as cluster:
        yield cluster


@pytest.fixture
def servers(cluster: EmbeddedCluster) -> str:
    return cluster.bootstrap_servers


def test_kafka_before_3_0_does_not_describe_transactions(
    cluster: EmbeddedCluster, servers: str, topic: str, options: SinkOptions, query: Delivery
) -> None:
    cluster.act_as("2.8")
    try:
        with Committer(options) as committer:
            assert committer.begin(query)
            attempts = written(options, query, b"a", b"b")
            committer.commit(query, attempts)
            following = Delivery(query.key, query.run, 1)
            attempts = written(options, following, b"c", b"d", first=2)
            record(options, following, attempts)
            end(options, attempts[0], commit=True)
            end(options, attempts[1], commit=False)
            with pytest.raises(DeliveryPartlyLostError, match="the transactions of Spark partitions 1 of 2"):
                committer.begin(following)
    finally:
        cluster.act_as(None)
    check_committed(servers, topic, [b"a", b"b", b"c"])


def test_a_log_that_forgets_is_an_error() -> None:
    with EmbeddedCluster() as cluster:
        create_topic(cluster.bootstrap_servers, name=TOPIC)
        options = SinkOptions.resolve(
            {"bootstrap.servers": cluster.bootstrap_servers, "delivery.guarantee": "exactly_once"}, {}
        )
        with Committer(options) as committer, pytest.raises(KafkaConfigurationError, match="set it to compact"):
            committer.begin(new_job(options))


def test_a_leader_that_does_not_show_all_offsets_yet_is_asked_again(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right after an election its high watermark may be below the one that the leader before it reported."""
    config = ProducerConfig.resolve(
        bootstrap_servers=servers, delivery_timeout_ms=1000, request_timeout_ms=900, linger_ms=0
    )
    cluster = BlockingCluster(config, timeout_ms=1000.0)
    try:
        log = CommitLog(config, cluster)
        log.append("a query", b"first")
        assert log.last("a query") == b"first"
        real = CommitLog._bound
        monkeypatch.setattr(CommitLog, "_bound", lambda log, at: real(log, at) + (at == LATEST))
        with pytest.raises(KafkaTimeoutError, match="shows offsets up to"):
            log.last("a query without a record")
    finally:
        cluster.close()


def test_over_tls_and_sasl() -> None:
    with EmbeddedCluster(3, security="SASL_SSL", num_partitions=2) as cluster:
        cluster.create_topic("t")
        options = SinkOptions.resolve(
            {**cluster.client_config(), "topic": "t", "delivery.guarantee": "exactly_once"}, {}
        )
        job = new_job(options)
        with Committer(options) as committer:
            assert committer.begin(job)
            assert committer.max_timeout_ms() == 900_000
            # enough for several threads, each with its own connections
            committer.commit(job, written(options, job, *[b"%d" % number for number in range(9)]))
        assert sorted(record.value for partition in (0, 1) for record in cluster.records("t", partition)) == [
            b"%d" % number for number in range(9)
        ]
        assert all(
            transaction.state.label in ("PrepareCommit", "CompleteCommit")
            for transaction in cluster.transactions().values()
        )


def test_the_rights_that_a_driver_needs() -> None:
    users = {"admin": "secret", "app": "hush"}
    with EmbeddedCluster(
        security="SASL_PLAINTEXT", users=users, authorizer_class_name="StandardAuthorizer", super_users="User:admin"
    ) as cluster:
        cluster.create_topic("t")
        keys = {**cluster.client_config(user="app"), "topic": "t", "delivery.guarantee": "exactly_once"}
        options = SinkOptions.resolve(keys, {})
        job = new_job(options)
        with Committer(options) as committer, pytest.raises(TopicAuthorizationFailedError, match=TOPIC):
            committer.begin(job)
        cluster.add_acl(principal="User:app", operation="CREATE", topic=TOPIC)
        cluster.add_acl(principal="User:app", operation="WRITE", topic=TOPIC)
        cluster.add_acl(principal="User:app", operation="READ", topic=TOPIC)
        with Committer(options) as committer:
            assert committer.begin(job)
        # no right to see configurations
        cluster.add_acl(principal="User:app", operation="WRITE", topic="t")
        cluster.add_acl(principal="User:app", operation="WRITE", transactional_id="headrace-spark", pattern="PREFIXED")
        with Committer(options) as committer:
            assert committer.max_timeout_ms() == 900_000
            committer.commit(job, written(options, job, b"a"))
        assert [record.value for record in cluster.records("t", 0)] == [b"a"]
