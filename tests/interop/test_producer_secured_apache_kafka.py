"""This producer against Apache Kafka 4.x and 3.9, over each protocol and with each mechanism.

Rejections and rotated passwords are in `test_producer_sasl_apache_kafka.py`, TLS versions in `test_tls_clients.py`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.apache_kafka import ApacheKafka
from support.apache_kafka.cluster import HOST, free_ports
from support.apache_kafka.fixtures import start_or_skip
from support.apache_kafka.releases import ApacheKafka39
from support.confluent import PATIENCE_S, create_topic, read_topic
from support.tls import Credentials

from headrace.network.addresses import parse_address
from headrace.network.client.blocking_connection import BlockingConnection
from headrace.network.protocol.errors import SaslAuthenticationFailedError
from headrace.network.protocol.messages.security.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from headrace.network.security.scram import ScramMechanism
from headrace.producer import KafkaProducer

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("apache_kafka")]

PASSWORD = "s3cret"
SESSION_MS = 2_500
PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LOGIN_MODULES = {
    "plain": f'plain.PlainLoginModule required user_alice="{PASSWORD}"',
    "scram-sha-256": "scram.ScramLoginModule required",
    "scram-sha-512": "scram.ScramLoginModule required",
    "oauthbearer": 'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="kafka"',
}


class Secured:
    """Adds a listener per protocol to a release of Apache Kafka."""

    credentials: Credentials
    ports: dict[str, int]
    _brokers: dict[int, Any]

    def _prepare(self, folder: Path) -> None:
        super()._prepare(folder)  # type: ignore[misc]
        (broker,) = self._brokers.values()
        protocols = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
        self.ports = dict(zip(protocols, (broker.port, *free_ports(3)), strict=True))
        listeners = ",".join(f"{protocol}://{HOST}:{port}" for protocol, port in self.ports.items())
        lines = [
            f"listeners={listeners},CONTROLLER://{HOST}:{broker.controller_port}",
            f"advertised.listeners={listeners}",
            f"listener.security.protocol.map=CONTROLLER:PLAINTEXT,{','.join(f'{name}:{name}' for name in protocols)}",
            "inter.broker.listener.name=PLAINTEXT",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={self.credentials.server}",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={self.credentials.ca}",
            "listener.name.ssl.ssl.client.auth=required",
            f"sasl.enabled.mechanisms={','.join(LOGIN_MODULES).upper()}",
            f"connections.max.reauth.ms={SESSION_MS}",
        ]
        for protocol in ("sasl_plaintext", "sasl_ssl"):
            for mechanism, module in LOGIN_MODULES.items():
                key = f"listener.name.{protocol}.{mechanism}.sasl.jaas.config"
                lines.append(f"{key}=org.apache.kafka.common.security.{module};")
        with open(broker.config, "a", encoding="utf-8") as file:
            file.write("\n" + "\n".join(lines) + "\n")


class Kafka4(Secured, ApacheKafka):
    """The current release."""


class Kafka39(Secured, ApacheKafka39):
    """The last release before 4.0."""


@pytest.fixture(scope="module", params=[Kafka4, Kafka39], ids=["4.x", "3.9"])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    request.param.credentials = Credentials(Path(tmp_path_factory.mktemp("tls")))
    running = start_or_skip(request.param)
    try:
        store(running, "alice")
        yield running
    finally:
        running.__exit__()


def store(kafka: ApacheKafka, name: str) -> None:
    """Store a SCRAM user, over the listener without SASL."""
    connection = BlockingConnection(
        parse_address(kafka.bootstrap_servers), client_id="test", timeout_ms=30_000, max_response_bytes=2**20
    )
    for mechanism in ScramMechanism:
        upsertion = ScramCredentialUpsertion(
            name=name,
            mechanism=mechanism.type_id,
            iterations=4096,
            salt=b"0123456789",
            salted_password=mechanism.salted_password(PASSWORD, b"0123456789", 4096),
        )
        (result,) = connection.request(AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])).results
        assert result.error_code == 0, result
    connection.close()


def settings(kafka: Any, protocol: str, mechanism: str | None) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap.servers": f"{HOST}:{kafka.ports[protocol]}",
        "security.protocol": protocol,
        "linger.ms": 0,
    }
    if protocol.endswith("SSL"):
        config["ssl.truststore.location"] = kafka.credentials.ca
    if protocol == "SSL":
        config["ssl.keystore.location"] = kafka.credentials.client
    if mechanism == "OAUTHBEARER":
        config |= {
            "sasl.mechanism": mechanism,
            "enable.sasl.oauthbearer.unsecure.jwt": True,
            "sasl.oauthbearer.config": "principal=alice lifeSeconds=60",
        }
    elif mechanism is not None:
        config |= {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": PASSWORD}
    return config


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [
        ("SSL", None),
        *((protocol, mechanism) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in PASSWORDS),
        ("SASL_PLAINTEXT", "OAUTHBEARER"),
        ("SASL_SSL", "OAUTHBEARER"),
    ],
)
def test_records_arrive_while_sessions_are_renewed(
    kafka: Any, protocol: str, mechanism: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "headrace.network.client")
    for _ in range(3):
        caplog.clear()
        send_through_sessions(kafka, protocol, mechanism)
        renewals = sum("is renewed in" in record.message for record in caplog.records)
        assert renewals >= (0 if mechanism is None else 3)
        warnings = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
        # Kafka moves its leaders if the machine is so busy that the broker's heartbeats are late: then it is done again
        if not any("This broker is not the partition's leader" in each for each in warnings):
            break
    assert warnings == []


def send_through_sessions(kafka: Any, protocol: str, mechanism: str | None) -> None:
    """Send for as long as two sessions last, and check what arrived."""
    topic = create_topic(kafka.bootstrap_servers, partitions=2)
    values = []
    with KafkaProducer(settings(kafka, protocol, mechanism)) as producer:
        futures = []
        end = time.monotonic() + (0 if mechanism is None else 2 * SESSION_MS / 1000)
        while not futures or time.monotonic() < end:
            values.append(b"%d" % len(values) + b"x" * 20_000 * (len(values) % 50 == 0))
            futures.append(producer.send(topic, values[-1]))
            time.sleep(0.005)
        for future in futures:
            future.get(PATIENCE_S)
    assert sorted(each.value() for each in read_topic(kafka.bootstrap_servers, topic)) == sorted(values)


@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_a_wrong_password_over_tls(kafka: Any, mechanism: str) -> None:
    with (
        KafkaProducer({**settings(kafka, "SASL_SSL", mechanism), "sasl.password": "guess"}) as producer,
        pytest.raises(SaslAuthenticationFailedError, match=f"rejected the {mechanism} credentials"),
    ):
        producer.send("t", b"v")
