"""TLS with clients that nobody here wrote, and this producer over TLS with Apache Kafka."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, Producer
from support.apache_kafka import ApacheKafka
from support.apache_kafka.cluster import HOST, free_ports
from support.apache_kafka.fixtures import start_or_skip
from support.tls import Credentials

from headrace.broker import EmbeddedCluster
from headrace.broker.security.certificates import ThrowAwayAuthority
from headrace.network.protocol.errors import SslAuthenticationError
from headrace.producer import KafkaProducer

VALUES = [b"value", b"x" * 300_000, b"y" * 20_000]


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    return Credentials(Path(tmp_path_factory.mktemp("tls")))


@pytest.fixture(params=[("TLSv1.2", "none"), ("TLSv1.3", "none"), ("TLSv1.3", "required")], ids="-".join)
def cluster(request: pytest.FixtureRequest, credentials: Credentials) -> Iterator[EmbeddedCluster]:
    version, client_auth = request.param
    with EmbeddedCluster(
        listeners="SSL://127.0.0.1:0",
        ssl_keystore_location=credentials.server,
        ssl_truststore_location=credentials.ca,
        ssl_enabled_protocols=version,
        ssl_client_auth=client_auth,
        group_initial_rebalance_delay_ms=0,
    ) as started:
        yield started


def key_of(credentials: Credentials) -> str:
    return str(ThrowAwayAuthority.key_path(Path(credentials.client)))


def test_confluent_kafka(cluster: EmbeddedCluster, credentials: Credentials) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.ca.location": credentials.ca,
        "ssl.certificate.location": credentials.client,
        "ssl.key.location": key_of(credentials),
    }
    producer = Producer(settings)
    for value in VALUES:
        producer.produce("t", value)
    assert producer.flush(20) == 0
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    assert [message.value() for message in consumer.consume(len(VALUES), 20)] == VALUES
    consumer.close()


def test_kafka_python(cluster: EmbeddedCluster, credentials: Credentials) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "security_protocol": "SSL",
        "ssl_cafile": credentials.ca,
        "ssl_certfile": credentials.client,
        "ssl_keyfile": key_of(credentials),
    }
    producer = kafka.KafkaProducer(**settings)
    for value in VALUES:
        producer.send("t", value)
    producer.flush(20)
    producer.close()
    consumer = kafka.KafkaConsumer("t", auto_offset_reset="earliest", consumer_timeout_ms=20_000, **settings)
    read = []
    for record in consumer:
        read.append(record.value)
        if len(read) == len(VALUES):
            break
    consumer.close()
    assert read == VALUES


def test_aiokafka(cluster: EmbeddedCluster, credentials: Credentials) -> None:
    context = ssl.create_default_context(cafile=credentials.ca)
    context.load_cert_chain(credentials.client)
    settings: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "security_protocol": "SSL",
        "ssl_context": context,
    }

    async def run() -> list[bytes]:
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            for value in VALUES:
                await producer.send_and_wait("t", value)
        async with aiokafka.AIOKafkaConsumer("t", auto_offset_reset="earliest", **settings) as consumer:
            return [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in VALUES]

    assert asyncio.run(run()) == VALUES


# --- Apache Kafka ---


class SecuredKafka(ApacheKafka):
    """Apache Kafka with a second listener, for TLS with client certificates."""

    credentials: Credentials
    ssl_port: int

    def _prepare(self, folder: Path) -> None:
        super()._prepare(folder)
        (broker,) = self._brokers.values()
        (type(self).ssl_port,) = free_ports(1)
        plaintext = f"PLAINTEXT://{HOST}:{broker.port}"
        secured = f"SSL://{HOST}:{self.ssl_port}"
        lines = [
            f"listeners={plaintext},{secured},CONTROLLER://{HOST}:{broker.controller_port}",
            f"advertised.listeners={plaintext},{secured}",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={self.credentials.server}",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={self.credentials.ca}",
            "ssl.client.auth=required",
        ]
        with open(broker.config, "a", encoding="utf-8") as file:
            file.write("\n" + "\n".join(lines) + "\n")


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("apache_kafka")
def test_apache_kafka(credentials: Credentials) -> None:
    SecuredKafka.credentials = credentials
    kafka = start_or_skip(SecuredKafka)
    try:
        bootstrap = f"127.0.0.1:{SecuredKafka.ssl_port}"
        trusting = {"security_protocol": "SSL", "ssl_cafile": credentials.ca, "bootstrap_servers": bootstrap}
        for version in ("TLSv1.2", "TLSv1.3"):
            with KafkaProducer(
                ssl_keystore_location=credentials.client, ssl_enabled_protocols=version, **trusting
            ) as producer:
                futures = [producer.send(f"topic-{version}", value) for value in VALUES]
                assert [future.get(30).offset for future in futures] == [0, 1, 2]
            with (
                KafkaProducer(ssl_enabled_protocols=version, **trusting) as producer,
                pytest.raises(SslAuthenticationError, match="demand"),
            ):
                producer.send("t", b"v").get(30)
        with (
            KafkaProducer(bootstrap_servers=bootstrap, security_protocol="SSL") as producer,
            pytest.raises(SslAuthenticationError, match=r"ssl\.truststore\.location"),
        ):
            producer.send("t", b"v").get(30)
    finally:
        kafka.__exit__()
