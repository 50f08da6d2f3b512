"""Clients that nobody here wrote, over SASL against the embedded broker."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import kafka
import pytest
from support.apache_kafka import ApacheKafka

from headrace.broker import ApiKey, EmbeddedCluster

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD = "s3cret"
VALUES = [b"value-%d" % number for number in range(100)]


@pytest.fixture
def cluster():
    with EmbeddedCluster(users={"alice": PASSWORD}) as running:
        yield running


def librdkafka(
    cluster: EmbeddedCluster, mechanism: str, password: str = PASSWORD, user: str = "alice"
) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }


def python_client(cluster: EmbeddedCluster, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }


def written(cluster: EmbeddedCluster) -> list[bytes]:
    return [each.value for each in cluster.records("t", 0)]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_writes_and_reads(cluster, mechanism):
    producer = confluent_kafka.Producer({**librdkafka(cluster, mechanism), "enable.idempotence": True})
    for value in VALUES:
        producer.produce("t", value)
    assert producer.flush(30) == 0
    assert written(cluster) == VALUES
    consumer = confluent_kafka.Consumer(
        {**librdkafka(cluster, mechanism), "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    values: list[bytes | None] = []
    end = time.monotonic() + 60
    while len(values) < len(VALUES) and time.monotonic() < end:
        values += [each.value() for each in consumer.consume(len(VALUES), 0.2)]
    consumer.close()
    assert values == VALUES


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_renews_sessions(mechanism):
    with EmbeddedCluster(users={"alice": PASSWORD}, connections_max_reauth_ms=3_000) as cluster:
        producer = confluent_kafka.Producer({**librdkafka(cluster, mechanism), "enable.idempotence": True})
        sent = 0
        end = time.monotonic() + 7
        while time.monotonic() < end:
            producer.produce("t", b"v")
            producer.poll(0.01)
            sent += 1
        assert producer.flush(30) == 0
        assert len(written(cluster)) == sent
        assert cluster.control.counts[ApiKey.SASL_HANDSHAKE] >= 3


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_is_told_about_a_wrong_password(cluster, mechanism):
    errors: list[Any] = []
    producer = confluent_kafka.Producer({**librdkafka(cluster, mechanism, "guess"), "error_cb": errors.append})
    end = time.monotonic() + 30
    while not errors and time.monotonic() < end:
        producer.poll(0.1)
    assert errors[0].code() == confluent_kafka.KafkaError._AUTHENTICATION


def test_librdkafkas_admin_stores_and_describes_scram_users(cluster):
    admin = confluent_kafka.admin.AdminClient(librdkafka(cluster, "PLAIN"))
    mechanism = confluent_kafka.admin.ScramMechanism.SCRAM_SHA_256
    info = confluent_kafka.admin.ScramCredentialInfo(mechanism, 8192)
    upsertion = confluent_kafka.admin.UserScramCredentialUpsertion("carol", info, b"first")
    for future in admin.alter_user_scram_credentials([upsertion]).values():
        future.result(30)
    described = admin.describe_user_scram_credentials(["carol"])["carol"].result(30)
    assert [(each.mechanism, each.iterations) for each in described.scram_credential_infos] == [(mechanism, 8192)]
    producer = confluent_kafka.Producer(librdkafka(cluster, "SCRAM-SHA-256", "first", "carol"))
    producer.produce("t", b"v")
    assert producer.flush(30) == 0
    deletion = confluent_kafka.admin.UserScramCredentialDeletion("carol", mechanism)
    for future in admin.alter_user_scram_credentials([deletion]).values():
        future.result(30)
    assert "carol" not in admin.describe_user_scram_credentials().result(30)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_writes_and_renews_sessions(mechanism):
    with EmbeddedCluster(users={"alice": PASSWORD}, connections_max_reauth_ms=3_000) as cluster:
        producer = kafka.KafkaProducer(**python_client(cluster, mechanism))
        sent = 0
        end = time.monotonic() + 7
        while time.monotonic() < end:
            producer.send("t", b"v").get(30)
            sent += 1
        producer.close()
        assert len(written(cluster)) == sent
        assert cluster.control.counts[ApiKey.SASL_HANDSHAKE] >= 3


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_writes_and_reads(cluster, mechanism):
    async def run() -> list[bytes]:
        async with aiokafka.AIOKafkaProducer(**python_client(cluster, mechanism)) as producer:
            for value in VALUES:
                await producer.send_and_wait("t", value)
        consumer = aiokafka.AIOKafkaConsumer("t", **python_client(cluster, mechanism), auto_offset_reset="earliest")
        async with consumer:
            return [(await consumer.getone()).value for _ in VALUES]

    assert asyncio.run(run()) == VALUES


# --- Apache Kafka's tools ---


@pytest.fixture
def client_properties(cluster, tmp_path):
    def write(mechanism: str, user: str = "alice", password: str = PASSWORD) -> str:
        module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        path = tmp_path / f"{mechanism}.properties"
        path.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f"sasl.jaas.config=org.apache.kafka.common.security.{module}LoginModule required "
            f'username="{user}" password="{password}";\n'
        )
        return str(path)

    return write


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_javas_producer_and_consumer(apache_kafka: ApacheKafka, cluster, client_properties, mechanism):
    properties = client_properties(mechanism)
    apache_kafka.run_class(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", "t", "--command-config", properties),
        input=b"\n".join(VALUES),
    )
    assert written(cluster) == VALUES
    output = apache_kafka.run_class(
        apache_kafka.console_consumer_class,
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", "t", "--from-beginning"),
        *("--max-messages", str(len(VALUES)), "--timeout-ms", "30000", "--command-config", properties),
    )
    assert output.split(b"\n")[:-1] == VALUES


def test_javas_admin_stores_scram_users(apache_kafka: ApacheKafka, cluster, client_properties):
    properties = client_properties("PLAIN")
    users = ("--bootstrap-server", cluster.bootstrap_servers, "--command-config", properties, "--entity-type", "users")
    configs = "kafka.admin.ConfigCommand"
    apache_kafka.run_class(
        configs,
        *users,
        *("--entity-name", "carol", "--alter"),
        *("--add-config", "SCRAM-SHA-256=[iterations=8192,password=first]"),
    )
    # Kafka's brokers reject two credentials of a user in one request
    apache_kafka.run_class(
        configs, *users, *("--entity-name", "carol", "--alter", "--add-config", "SCRAM-SHA-512=[password=first]")
    )
    assert [each.iterations for each in cluster.controller.image.users.scram_of("carol").values()] == [8192, 4096]
    carol = client_properties("SCRAM-SHA-512", "carol", "first")
    output = apache_kafka.run_class(
        "org.apache.kafka.tools.TopicCommand",
        *(
            "--bootstrap-server",
            cluster.bootstrap_servers,
            "--command-config",
            carol,
            "--create",
            "--topic",
            "by-carol",
        ),
    )
    assert b"by-c" in output
    apache_kafka.run_class(configs, *users, "--entity-name", "carol", "--alter", "--delete-config", "SCRAM-SHA-256")
    assert len(cluster.controller.image.users.scram_of("carol")) == 1
