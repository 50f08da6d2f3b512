"""Each authorization error of the producer, made by a cluster with ACLs; and what follows when the ACL is added."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.waiting import wait_until

from headrace.broker import EmbeddedCluster
from headrace.cli import main
from headrace.producer import KafkaProducer
from headrace.producer.errors import ClusterAuthorizationFailedError, TopicAuthorizationFailedError

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(authorizer_class_name="StandardAuthorizer") as started:
        started.create_topic("orders")
        yield started


@pytest.fixture(params=[True, False], ids=["idempotent", "plain"])
def producer(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> Iterator[KafkaProducer]:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=request.param) as started:
        yield started


def test_an_unknown_topic_without_describe_fails_at_once_and_recovers(
    cluster: EmbeddedCluster, producer: KafkaProducer
) -> None:
    for topic in ("orders", "missing"):
        with pytest.raises(TopicAuthorizationFailedError, match=f"needs an ACL that allows WRITE on TOPIC '{topic}'"):
            producer.send(topic, b"x").get(30)
    cluster.add_acl(operation="WRITE", topic="orders")
    assert producer.send("orders", b"x").get(30).offset == 0


def test_a_revoked_write_fails_its_topic_alone_and_recovers(cluster: EmbeddedCluster, producer: KafkaProducer) -> None:
    cluster.create_topic("invoices")
    cluster.add_acl(operation="WRITE", topic="invoices")
    cluster.add_acl(operation="WRITE", topic="orders")
    assert producer.send("orders", b"0").get(30).offset == 0
    cluster.add_acl(operation="WRITE", topic="orders", permission="DENY")
    refused, delivered = producer.send("orders", b"refused"), producer.send("invoices", b"0")
    with pytest.raises(TopicAuthorizationFailedError, match=r"orders-0: .* allows WRITE on TOPIC 'orders'"):
        refused.get(30)
    assert delivered.get(30).offset == 0
    cluster.remove_acls(permission="DENY")
    assert [producer.send("orders", b"%d" % at).get(30).offset for at in (1, 2)] == [1, 2]
    assert [each.value for each in cluster.records("orders", 0)] == [b"0", b"1", b"2"]


def test_a_missing_write_with_describe_alone(cluster: EmbeddedCluster) -> None:
    cluster.add_acl(operation="DESCRIBE", topic="orders")
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=False) as producer:
        with pytest.raises(TopicAuthorizationFailedError, match="allows WRITE on TOPIC 'orders'"):
            producer.send("orders", b"x").get(30)
        cluster.add_acl(operation="WRITE", topic="orders")
        assert producer.send("orders", b"x").get(30).offset == 0


def test_a_refused_producer_id_fails_the_records_and_recovers(cluster: EmbeddedCluster) -> None:
    cluster.add_acl(operation="DESCRIBE", topic="orders")
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for _ in range(2):
            with pytest.raises(ClusterAuthorizationFailedError, match=r"WRITE on any topic .*IDEMPOTENT_WRITE"):
                producer.send("orders", b"x").get(30)
        cluster.add_acl(operation="WRITE", topic="orders")
        assert producer.send("orders", b"x").get(30).offset == 0


@pytest.mark.parametrize(
    "acls",
    [
        [{"operation": "WRITE", "topic": "ord", "pattern": "PREFIXED"}],
        [{"operation": "ALL", "topic": "orders"}],
        [{"operation": "WRITE", "topic": "*", "principal": "User:*"}],
        [{"operation": "WRITE", "topic": "orders", "host": "127.0.0.1"}],
    ],
    ids=str,
)
def test_the_acls_that_suffice(cluster: EmbeddedCluster, acls: list[dict[str, str]]) -> None:
    for each in acls:
        cluster.add_acl(**each)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        assert producer.send("orders", b"x").get(30).offset == 0


def test_without_acknowledgements_a_denial_closes_the_connection(cluster: EmbeddedCluster) -> None:
    cluster.add_acl(operation="DESCRIBE", topic="orders")
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks=0, enable_idempotence=False) as producer:
        assert producer.send("orders", b"lost").get(30).offset == -1
        # the broker handles the request after the producer has forgotten it
        wait_until(lambda: producer.metrics()["producer-metrics"]["connection-close-total"] >= 1)
    assert cluster.records("orders", 0) == []


def test_the_commands_name_the_missing_acl(cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        code = main([*arguments, "-b", cluster.bootstrap_servers])
        told = capsys.readouterr()
        return code, told.out + told.err

    code, told = run("consume", "orders")
    assert code != 0
    assert "an ACL that allows DESCRIBE on TOPIC 'orders'" in told
    cluster.add_acl(operation="DESCRIBE", topic="orders")
    cluster.add_acl(operation="WRITE", topic="orders")
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("orders", b"hello").get(30)
    code, told = run("consume", "orders")
    assert code != 0
    assert "orders-0: the client's principal needs an ACL that allows READ on TOPIC 'orders'" in told
    cluster.add_acl(operation="READ", topic="orders")
    code, told = run("consume", "orders")
    assert (code, "hello" in told) == (0, True)
    code, told = run("topics", "create", "new")
    assert code != 0
    assert "no ACL that allows CREATE on TOPIC 'new'" in told
