"""`EmbeddedCluster(security=...)`: one line, and every client connects with what `client_config` returns."""

from __future__ import annotations

import asyncio
from typing import Any

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaProducer

from headrace.broker import EmbeddedCluster, ProcessCluster
from headrace.network.protocol.errors import IllegalArgumentError, KafkaConfigurationError
from headrace.producer import KafkaProducer

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def with_headrace(config: dict[str, Any]) -> None:
    with KafkaProducer(config) as producer:
        producer.send("t", b"headrace").get(30)


def with_confluent_kafka(config: dict[str, Any]) -> None:
    producer = confluent_kafka.Producer(config)
    producer.produce("t", b"confluent-kafka")
    assert producer.flush(30) == 0


def with_kafka_python(config: dict[str, Any]) -> None:
    producer = kafka.KafkaProducer(**config)
    producer.send("t", b"kafka-python").get(30)
    producer.close()


def with_aiokafka(config: dict[str, Any]) -> None:
    async def run() -> None:
        async with AIOKafkaProducer(**config) as producer:
            await producer.send_and_wait("t", b"aiokafka")

    asyncio.run(run())


CLIENTS = {
    "headrace": with_headrace,
    "confluent-kafka": with_confluent_kafka,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
}


@pytest.mark.parametrize("security", PROTOCOLS)
def test_every_client_connects_with_its_own_keys(security: str) -> None:
    with EmbeddedCluster(security=security) as cluster:
        for name, send in CLIENTS.items():
            send(cluster.client_config(name))
        assert {record.value for record in cluster.records("t", 0)} == {name.encode() for name in CLIENTS}


@pytest.mark.parametrize("security", ["SSL", "SASL_SSL"])
def test_brokers_replicate_over_the_same_protocol(security: str) -> None:
    with ProcessCluster(3, security=security, default_replication_factor=3) as cluster:
        with KafkaProducer(cluster.client_config()) as producer:
            producer.send("t", b"replicated").get(60)
        partition = cluster.controller.image.partition("t", 0)
        assert partition is not None
        assert len(partition.isr) == 3


def test_a_client_certificate_is_the_principal() -> None:
    with EmbeddedCluster(
        security="SSL",
        ssl_client_auth="required",
        authorizer_class_name="StandardAuthorizer",
        ssl_principal_mapping_rules="RULE:.*CN=([a-z]+).*/$1/",
    ) as cluster:
        cluster.create_topic("t")
        cluster.add_acl(principal="User:app", operation="WRITE", topic="t")
        with_headrace(cluster.client_config(certificate="app"))
        with_confluent_kafka(cluster.client_config("confluent-kafka", certificate="app"))
        assert len(cluster.records("t", 0)) == 2


def test_users_alone_give_a_listener_with_sasl() -> None:
    with EmbeddedCluster(users={"alice": "secret"}) as cluster:
        assert cluster.client_config()["security.protocol"] == "SASL_PLAINTEXT"
        with_headrace(cluster.client_config(user="alice"))
        with_confluent_kafka(cluster.client_config("confluent-kafka"))


def test_each_user_has_its_own_configuration() -> None:
    with EmbeddedCluster(security="SASL_SSL", users={"alice": "secret", "bob": "hush"}) as cluster:
        assert cluster.client_config()["sasl.username"] == "alice"
        with_headrace(cluster.client_config(user="bob"))
        with pytest.raises(IllegalArgumentError, match="there is no user 'carol'; the cluster has alice, bob"):
            cluster.client_config(user="carol")
        with pytest.raises(IllegalArgumentError, match="client is 'sarama'; give one of headrace"):
            cluster.client_config("sarama")
        for name in ("alice", "bob"):
            cluster.set_password(name, None)
        with pytest.raises(IllegalArgumentError, match="the cluster has no user any more"):
            cluster.client_config()


def test_a_token_is_validated_by_a_callable() -> None:
    def validate(token: str, extensions: Any) -> tuple[str, float | None]:
        assert extensions["logicalCluster"] == "lkc-1"
        return token.removeprefix("token-of-"), None

    with EmbeddedCluster(
        security="SASL_SSL", sasl_enabled_mechanisms="PLAIN,OAUTHBEARER", sasl_oauthbearer_token_validator=validate
    ) as cluster:
        config = cluster.client_config()
        del config["sasl.username"], config["sasl.password"]
        config["sasl.mechanism"] = "OAUTHBEARER"
        config["sasl.oauthbearer.extensions"] = "logicalCluster=lkc-1"
        config["sasl_oauth_token_provider"] = lambda: "token-of-app"
        with_headrace(config)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"security": "TLS"}, "security is 'TLS'; give one of PLAINTEXT, SSL"),
        ({"security": "SSL", "listeners": "SSL://localhost:0"}, "listeners and security exclude each other"),
    ],
)
def test_what_can_not_be(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=said):
        EmbeddedCluster(**arguments)
