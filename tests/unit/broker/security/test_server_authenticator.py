"""The broker's side of SASL on one connection, with a mock clock."""

from __future__ import annotations

import pytest

from headrace.broker.config.sasl_keys import MECHANISMS as CONFIGURABLE
from headrace.broker.config.sasl_keys import SaslListener
from headrace.broker.security.mechanisms import MECHANISMS, BrokerCredentials
from headrace.broker.security.server_authenticator import SaslServerAuthenticator
from headrace.broker.security.users import Users, scram_from_json, scram_to_json
from headrace.network.client.api_versions import NodeApiVersions
from headrace.network.client.authenticator import SaslClientAuthenticator
from headrace.network.clock import MockClock
from headrace.network.protocol.api_keys import ApiKey
from headrace.network.protocol.errors import SaslAuthenticationFailedError
from headrace.network.protocol.messages.security.sasl_handshake import SaslHandshakeRequest
from headrace.network.security.mechanism_names import PASSWORD_MECHANISMS
from headrace.network.security.passwords import PasswordCredentials

USERS = Users().with_passwords({"alice": "secret", "bob": "hush"})
VERSIONS = NodeApiVersions({ApiKey.SASL_HANDSHAKE: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, 2)})
ILLEGAL = 34


class Server:
    def __init__(self, max_reauth_ms: int = 0) -> None:
        self.clock = MockClock()
        self.names: list[str] = []
        listener = SaslListener(CONFIGURABLE, 1000, 0, {}, dict.fromkeys(CONFIGURABLE, max_reauth_ms), {})
        self.authenticator = SaslServerAuthenticator(listener, lambda: USERS, self.clock, self.names.append)

    def sign_in(
        self, mechanism: str = "PLAIN", user: str = "alice", password: str = "secret"
    ) -> SaslClientAuthenticator:
        """The client's authenticator against this one."""
        client = SaslClientAuthenticator(PasswordCredentials(mechanism, user, password), "host", "host:1")
        while not client.is_complete:
            request = client.next_request(VERSIONS)
            assert request is not None
            assert self.authenticator.refusal(request.api_key, self.clock.now_ms()) is None
            if isinstance(request, SaslHandshakeRequest):
                client.handle(self.authenticator.handshake(request.mechanism, 1))
            else:
                client.handle(self.authenticator.authenticate(request.auth_bytes))
        return client

    def refuses(self, api_key: ApiKey) -> bool:
        return self.authenticator.refusal(api_key, self.clock.now_ms()) is not None


def test_the_table_has_what_can_be_configured():
    assert tuple(MECHANISMS) == CONFIGURABLE


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_both_ends_agree(mechanism):
    server = Server(max_reauth_ms=5_000)
    client = server.sign_in(mechanism)
    assert server.names == ["alice"]
    assert client.session_lifetime_ms == 5_000
    assert not server.refuses(ApiKey.PRODUCE)


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "guess"), ("nobody", "secret")])
def test_a_wrong_password_and_an_unknown_user_are_rejected(mechanism, user, password):
    server = Server()
    with pytest.raises(SaslAuthenticationFailedError, match=f"rejected the {mechanism} credentials"):
        server.sign_in(mechanism, user, password)
    assert server.authenticator.has_failed
    assert server.names == []


def test_the_order_of_requests():
    server = Server()
    assert not server.refuses(ApiKey.API_VERSIONS)
    assert server.refuses(ApiKey.METADATA)
    assert server.refuses(ApiKey.SASL_AUTHENTICATE)
    server.authenticator.handshake("PLAIN", 1)
    assert server.refuses(ApiKey.API_VERSIONS)
    assert server.refuses(ApiKey.SASL_HANDSHAKE)
    assert not server.refuses(ApiKey.SASL_AUTHENTICATE)


def test_a_session_ends_and_only_the_handshake_is_served_then():
    server = Server(max_reauth_ms=5_000)
    server.sign_in()
    server.clock.advance(5_000)
    assert not server.refuses(ApiKey.PRODUCE)
    server.clock.advance(1)
    assert server.refuses(ApiKey.PRODUCE)
    server.sign_in()
    assert not server.refuses(ApiKey.PRODUCE)
    server.clock.advance(5_001)
    assert server.refuses(ApiKey.PRODUCE)


def test_a_session_is_renewed_at_most_once_per_second():
    server = Server(max_reauth_ms=5_000)
    server.sign_in()
    server.sign_in()
    assert server.authenticator.handshake("PLAIN", 1).error_code == ILLEGAL
    server.clock.advance(1_000)
    server.sign_in()


def test_a_user_that_is_removed_keeps_the_session_but_cannot_renew_it():
    users = USERS.with_passwords({"alice": None})
    assert set(users.passwords) == {"bob"}
    assert users.scram_of("alice") == {}
    assert len(users.scram_of("bob")) == 2


def test_scram_credentials_survive_json():
    stored = scram_to_json(USERS.scram)
    assert scram_from_json(stored) == USERS.scram
    assert "secret" not in str(stored)
    with pytest.raises(ValueError, match="MD5"):
        scram_from_json([["a", "MD5", 1, "", "", ""]])
    assert "secret" not in repr(USERS)


def test_brokers_authenticate_as_the_first_user_or_the_login_module():
    listener = SaslListener(CONFIGURABLE, 1000, 0, {}, {}, {"PLAIN": ("broker", "b")})
    assert BrokerCredentials("PLAIN", listener, Users).begin("h").initial_message() == b"\0broker\0b"
    without = SaslListener(CONFIGURABLE, 1000, 0, {}, {}, {})
    assert BrokerCredentials("PLAIN", without, lambda: USERS).begin("h").initial_message() == b"\0alice\0secret"
    with pytest.raises(SaslAuthenticationFailedError, match="brokers have no user"):
        BrokerCredentials("PLAIN", without, Users).begin("h")
