"""Transactions over TLS and SASL, with ACLs, in one process and in several."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

from headrace.broker import EmbeddedCluster, ProcessCluster
from headrace.network.protocol.errors import KafkaError, TransactionalIdAuthorizationFailedError
from headrace.producer import KafkaProducer


def committed(cluster: Any, topic: str, count: int) -> list[bytes]:
    """The values that a consumer with `isolation.level=read_committed` sees."""
    config = {"group.id": "readers", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = confluent_kafka.Consumer({**cluster.client_config("confluent-kafka"), **config})
    consumer.subscribe([topic])
    values: list[bytes] = []
    try:
        while len(values) < count:
            message = consumer.poll(30)
            assert message is not None, values
            assert message.error() is None, message.error()
            values.append(message.value())
    finally:
        consumer.close()
    return values


def run_transactions(cluster: Any) -> None:
    with KafkaProducer({**cluster.client_config(), "transactional.id": "orders-1"}) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("orders", b"kept")
        producer.begin_transaction()
        producer.send("orders", b"dropped")
        producer.flush()
        producer.abort_transaction()
        with producer.transaction():
            producer.send("orders", b"kept, too")
    assert committed(cluster, "orders", 2) == [b"kept", b"kept, too"]


@pytest.mark.parametrize("security", ["SSL", "SASL_SSL"])
@pytest.mark.parametrize("level", [1, 2])
def test_over_a_secured_listener(security: str, level: int) -> None:
    with EmbeddedCluster(security=security, features={"transaction.version": level}) as cluster:
        run_transactions(cluster)


def test_markers_reach_other_processes_over_tls() -> None:
    with ProcessCluster(3, security="SASL_SSL", num_partitions=3, default_replication_factor=3) as cluster:
        run_transactions(cluster)


def test_the_acls_of_a_transactional_producer() -> None:
    users = {"admin": "secret", "app": "hush"}
    with EmbeddedCluster(
        security="SASL_PLAINTEXT", users=users, authorizer_class_name="StandardAuthorizer", super_users="User:admin"
    ) as cluster:
        cluster.create_topic("orders")
        keys = {**cluster.client_config(user="app"), "transactional.id": "orders-1", "max.block.ms": 20_000}
        with KafkaProducer(keys) as producer, pytest.raises(TransactionalIdAuthorizationFailedError):
            producer.init_transactions()
        cluster.add_acl(principal="User:app", operation="WRITE", transactional_id="orders-1")
        with KafkaProducer(keys) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            with pytest.raises(KafkaError):
                producer.send("orders", b"denied").get(20)
            producer.abort_transaction()
            cluster.add_acl(principal="User:app", operation="WRITE", topic="orders")
            with producer.transaction():
                producer.send("orders", b"allowed")
        assert committed(cluster, "orders", 1) == [b"allowed"]
