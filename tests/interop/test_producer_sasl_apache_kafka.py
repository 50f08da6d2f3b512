"""This producer over SASL with Apache Kafka: PLAIN, SCRAM, sessions that are renewed, and rejections."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.apache_kafka import ApacheKafka
from support.apache_kafka.fixtures import start_or_skip
from support.confluent import PATIENCE_S, create_topic, read_topic

from headrace.network.addresses import parse_address
from headrace.network.client.blocking_connection import BlockingConnection
from headrace.network.protocol.errors import (
    IllegalSaslStateError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from headrace.network.protocol.messages.security.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from headrace.network.security.passwords import PasswordCredentials
from headrace.network.security.scram import ScramMechanism
from headrace.producer import KafkaProducer

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("apache_kafka")]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD = "s3cret, =p\u00e4ss"
LIFETIME_MS = 2_500


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    running = start_or_skip(sasl_users={"alice": "s3cret"}, properties={"connections.max.reauth.ms": str(LIFETIME_MS)})
    try:
        store(running, "bob", PASSWORD)
        yield running
    finally:
        running.__exit__()


def store(kafka: ApacheKafka, name: str, password: str) -> None:
    """Store a SCRAM user, over the listener without SASL."""
    connection = BlockingConnection(
        parse_address(kafka.bootstrap_servers), client_id="test", timeout_ms=30_000, max_response_bytes=2**20
    )
    for mechanism in ScramMechanism:
        upsertion = ScramCredentialUpsertion(
            name=name,
            mechanism=mechanism.type_id,
            iterations=8192,
            salt=b"0123456789",
            salted_password=mechanism.salted_password(password, b"0123456789", 8192),
        )
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
        (result,) = connection.request(request).results
        assert result.error_code == 0, result
    connection.close()


def settings(mechanism: str, password: str | None = None) -> dict[str, Any]:
    name, known = ("alice", "s3cret") if mechanism == "PLAIN" else ("bob", PASSWORD)
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": name,
        "sasl_password": known if password is None else password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_records_arrive_while_sessions_are_renewed(kafka, mechanism, caplog):
    caplog.set_level(logging.DEBUG, "headrace.network.client.authentications")
    topic = create_topic(kafka.bootstrap_servers, partitions=3)
    config = {**settings(mechanism), "linger_ms": 0}
    with KafkaProducer(bootstrap_servers=kafka.sasl_bootstrap_servers, **config) as producer:
        futures = []
        end = time.monotonic() + 4 * LIFETIME_MS / 1000
        while time.monotonic() < end:
            futures.append(producer.send(topic, value=b"%d" % len(futures)))
            time.sleep(0.002)
        for future in futures:
            future.get(PATIENCE_S)
    values = [each.value() for each in read_topic(kafka.bootstrap_servers, topic)]
    assert sorted(values) == sorted(b"%d" % number for number in range(len(futures)))
    assert sum("is renewed in" in each.message for each in caplog.records) >= 5


def test_an_idle_session_is_renewed(kafka):
    topic = create_topic(kafka.bootstrap_servers)
    with KafkaProducer(bootstrap_servers=kafka.sasl_bootstrap_servers, **settings("SCRAM-SHA-512")) as producer:
        producer.send(topic, value=b"1").get(PATIENCE_S)
        time.sleep(2 * LIFETIME_MS / 1000)
        producer.send(topic, value=b"2").get(PATIENCE_S)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_rejected(kafka, mechanism):
    with (
        KafkaProducer(bootstrap_servers=kafka.sasl_bootstrap_servers, **settings(mechanism, "guess")) as producer,
        pytest.raises(SaslAuthenticationFailedError, match=f"rejected the {mechanism} credentials: Authentication"),
    ):
        producer.send("t", value=b"v")


def test_a_password_is_rotated(kafka):
    store(kafka, "carol", "first")
    passwords = ["first"]
    topic = create_topic(kafka.bootstrap_servers)
    with KafkaProducer(
        bootstrap_servers=kafka.sasl_bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_credentials=lambda: ("carol", passwords[-1]),
    ) as producer:
        producer.send(topic, value=b"1").get(PATIENCE_S)
        passwords.append("second")
        store(kafka, "carol", "second")
        time.sleep(LIFETIME_MS / 1000)
        producer.send(topic, value=b"2").get(PATIENCE_S)


def test_protocols_and_mechanisms_that_do_not_fit_are_named(kafka):
    with (
        KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, **settings("PLAIN")) as producer,
        pytest.raises(IllegalSaslStateError, match=r"security\.protocol"),
    ):
        producer.send("t", value=b"v")
    with (
        KafkaProducer(bootstrap_servers=kafka.sasl_bootstrap_servers, max_block_ms=3_000) as producer,
        pytest.raises(KafkaTimeoutError, match="closed the connection"),
    ):
        producer.send("t", value=b"v")


def test_a_blocking_connection_authenticates_again(kafka):
    connection = BlockingConnection(
        parse_address(kafka.sasl_bootstrap_servers),
        client_id="test",
        timeout_ms=30_000,
        max_response_bytes=2**20,
        credentials=PasswordCredentials("SCRAM-SHA-256", "bob", PASSWORD),
    )
    for _ in range(3):
        assert connection.api_versions() is not None
        connection.request(AlterUserScramCredentialsRequest(deletions=[], upsertions=[]))
        time.sleep(LIFETIME_MS / 1000)
    connection.close()


def test_a_mechanism_that_is_not_offered_is_named():
    kafka = start_or_skip(sasl_users={"alice": "s3cret"}, properties={"sasl.enabled.mechanisms": "PLAIN"})
    try:
        with (
            KafkaProducer(bootstrap_servers=kafka.sasl_bootstrap_servers, **settings("SCRAM-SHA-256")) as producer,
            pytest.raises(UnsupportedSaslMechanismError, match="but PLAIN; change"),
        ):
            producer.send("t", value=b"v")
    finally:
        kafka.__exit__()
