"""The client's half of GSSAPI against Apache Kafka, whose half is Java's, with a real KDC."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.apache_kafka.fixtures import start_or_skip
from support.kdc import kerberos_realm
from support.sasl_conversation import Answer, Conversation, WithSasl

from headrace.network.security.gssapi import GssapiCredentials, GssapiSettings

# as the tests of the fixture `apache_kafka`: one JVM at a time
pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("apache_kafka")]

HOST = "broker-1.example"


@pytest.fixture(scope="module")
def realm() -> Iterator[Any]:
    yield from kerberos_realm([HOST])


@pytest.fixture(scope="module")
def port(realm: Any) -> Iterator[int]:
    jaas = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
        f'keyTab="{realm.keytab}" principal="kafka/{HOST}@{realm.realm}" serviceName="kafka";'
    )
    settings = {
        "sasl.enabled.mechanisms": "GSSAPI",
        "gssapi.sasl.jaas.config": jaas,
    }
    options = [f"-Djava.security.krb5.conf={realm.env['KRB5_CONFIG']}"]
    kafka = start_or_skip(WithSasl, settings=settings, jvm_options=options)
    assert isinstance(kafka, WithSasl)
    try:
        yield kafka.sasl_port
    finally:
        kafka.__exit__()


def test_kafka_accepts_a_ticket(realm: Any, port: int):
    woken = threading.Event()
    credentials = GssapiCredentials(
        GssapiSettings(keytab=realm.client_keytab, principal=f"alice/laptop@{realm.realm}", domain_name=HOST)
    )
    credentials.start(woken.set)
    assert credentials.begin("127.0.0.1") is None
    assert woken.wait(30)
    client = credentials.begin("127.0.0.1")
    credentials.close()
    assert client is not None
    conversation = Conversation(port, "GSSAPI")
    answers: list[Answer] = []
    message: bytes | None = client.initial_message()
    while message is not None:
        answers.append(conversation.authenticate(message))
        assert answers[-1].error_code == 0, answers[-1].error_message
        message = client.respond(answers[-1].auth_bytes)
    conversation.close()
    assert client.is_complete
    assert answers[-1].auth_bytes == b""
