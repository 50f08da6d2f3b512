"""GSSAPI with a real KDC (MIT Kerberos, started by k5test), both halves in this process."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.kdc import kerberos_realm

from headrace.network.protocol.errors import SaslAuthenticationFailedError
from headrace.network.security.gssapi import GssapiCredentials, GssapiServer, GssapiSettings
from headrace.network.security.mechanism import ClientMechanism

HOST = "broker-1.example"

# a KDC takes a moment to start: one is enough
pytestmark = pytest.mark.xdist_group("kdc")


@pytest.fixture(scope="module")
def realm() -> Iterator[Any]:
    yield from kerberos_realm([HOST])


def begun(settings: GssapiSettings, host: str = HOST) -> ClientMechanism:
    """The client's half, once the thread has its ticket."""
    woken = threading.Event()
    credentials = GssapiCredentials(settings)
    try:
        credentials.start(woken.set)
        assert credentials.begin(host) is None
        assert woken.wait(30)
        client = credentials.begin(host)
        assert client is not None
        return client
    finally:
        credentials.close()


def authenticate(client: ClientMechanism, server: GssapiServer) -> None:
    message: bytes | None = client.initial_message()
    while message is not None:
        message = client.respond(server.respond(message))
    assert client.is_complete


def test_a_keytab_authenticates(realm: Any):
    server = GssapiServer(realm.keytab)
    client = begun(GssapiSettings(keytab=realm.client_keytab, principal=f"alice/laptop@{realm.realm}"))
    authenticate(client, server)
    assert (server.is_complete, server.principal_name, server.expires_ms) == (True, "alice", None)


def test_the_credential_cache_authenticates(realm: Any):
    server = GssapiServer(realm.keytab)
    # with a trailing dot, as a name may be written in bootstrap.servers
    authenticate(begun(GssapiSettings(), f"{HOST}."), server)
    assert server.principal_name == "user"


def test_the_target_may_be_configured(realm: Any):
    gssapi = importlib.import_module("gssapi")
    for settings in (
        GssapiSettings(domain_name=HOST),
        GssapiSettings(target=f"kafka@{HOST}"),
        GssapiSettings(target=gssapi.Name(f"kafka@{HOST}", gssapi.NameType.hostbased_service)),
    ):
        authenticate(begun(settings, "10.0.0.1"), GssapiServer(realm.keytab))


def test_without_a_ticket_the_error_names_the_service(realm: Any):
    with pytest.raises(SaslAuthenticationFailedError, match=r"no Kerberos ticket for kafka@unknown\.example"):
        begun(GssapiSettings(), "unknown.example")
    with pytest.raises(SaslAuthenticationFailedError, match=r"no Kerberos ticket for hdfs@broker-1\.example"):
        begun(GssapiSettings(service_name="hdfs"))
    with pytest.raises(SaslAuthenticationFailedError, match="no Kerberos ticket"):
        begun(GssapiSettings(keytab="/no/such/keytab"))


def test_altered_and_replayed_messages_fail(realm: Any):
    client = begun(GssapiSettings())
    first = client.initial_message()
    with pytest.raises(SaslAuthenticationFailedError, match="not valid"):
        GssapiServer(realm.keytab).respond(first[:-1] + bytes([first[-1] ^ 1]))
    with pytest.raises(SaslAuthenticationFailedError, match="not valid"):
        GssapiServer(realm.keytab).respond(first[: len(first) // 2])
    server = GssapiServer(realm.keytab)
    answer = server.respond(first)
    with pytest.raises(SaslAuthenticationFailedError, match="not valid"):
        client.respond(answer[:-1] + bytes([answer[-1] ^ 1]))
    with pytest.raises(SaslAuthenticationFailedError, match="not valid"):
        GssapiServer(realm.keytab).respond(first)


def test_an_altered_choice_fails(realm: Any):
    client, server = begun(GssapiSettings()), GssapiServer(realm.keytab)
    message = client.respond(server.respond(client.initial_message()))
    while message == b"":
        message = client.respond(server.respond(message))
    assert message is not None
    with pytest.raises(SaslAuthenticationFailedError, match="not valid"):
        server.respond(message[:-1] + bytes([message[-1] ^ 1]))
    assert not server.is_complete


@pytest.mark.usefixtures("realm")
def test_a_keytab_that_is_missing_is_an_error():
    with pytest.raises(SaslAuthenticationFailedError, match="keytab"):
        GssapiServer("/no/such/keytab").respond(b"x")
