"""From the token endpoint to the server's half: real HTTP, the credentials' thread, signed tokens."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.token_endpoint import IdentityProvider, TokenEndpoint, answering

from headrace.network.config import key
from headrace.network.protocol.errors import SaslAuthenticationFailedError
from headrace.network.security.mechanism import ClientMechanism, Credentials
from headrace.network.security.oauthbearer import OAuthBearerServer
from headrace.network.security.token_config import TokenConfig
from headrace.network.security.token_credentials import token_credentials

SECRET = "planted-secret"


class Table(TokenConfig):
    sasl_mechanism: str = key(default="OAUTHBEARER", doc="")


class Login:
    """Credentials whose wakeups can be waited for, as a sender does."""

    def __init__(self, url: str, **changes: Any) -> None:
        given = {
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.oauthbearer.client.credentials.client.id": "orders",
            "sasl.oauthbearer.client.credentials.client.secret": SECRET,
            "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-1",
            "sasl.login.retry.backoff.ms": 10,
            "sasl.login.retry.backoff.max.ms": 20,
            **changes,
        }
        self.woken = threading.Event()
        self.credentials: Credentials = token_credentials(Table.resolve_from(given, {}, {}))
        self.credentials.start(self.woken.set)

    def begin(self) -> ClientMechanism:
        """The next mechanism. Raises what `begin` raises."""
        while (client := self.credentials.begin("broker")) is None:
            assert self.woken.wait(30)
            self.woken.clear()
        return client


@pytest.fixture
def provider() -> IdentityProvider:
    return IdentityProvider()


@pytest.fixture
def endpoint(provider: IdentityProvider) -> Iterator[TokenEndpoint]:
    with TokenEndpoint(provider.answer) as endpoint:
        yield endpoint


def test_a_token_authenticates_many_connections(
    provider: IdentityProvider, endpoint: TokenEndpoint, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    login = Login(endpoint.url)
    names: list[str] = []
    for _ in range(3):
        client, server = login.begin(), OAuthBearerServer(provider.validator())
        client.respond(server.respond(client.initial_message()))
        assert client.is_complete
        names.append(server.principal_name)
    login.credentials.close()
    assert names == ["orders"] * 3
    assert len(endpoint.requests) == 1
    [token] = provider.authorizations
    shown = f"{caplog.text} {login.credentials!r} {[each.name for each in threading.enumerate()]}"
    assert SECRET not in shown
    assert token not in shown


def test_an_identity_provider_that_recovers_needs_no_restart(provider: IdentityProvider, endpoint: TokenEndpoint):
    provider.is_open = False
    login = Login(endpoint.url)
    with pytest.raises(SaslAuthenticationFailedError, match="answered 401 Unauthorized: invalid_client") as raised:
        login.begin()
    assert SECRET not in str(raised.value)
    provider.is_open = True
    while True:
        try:
            login.begin()
            break
        except SaslAuthenticationFailedError:
            threading.Event().wait(0.005)
    login.credentials.close()


def test_an_endpoint_that_is_down_fails_authentications_after_the_retries():
    with TokenEndpoint(answering({})) as gone:
        pass
    login = Login(gone.url, **{"sasl.login.retry.backoff.max.ms": 50})
    with pytest.raises(
        SaslAuthenticationFailedError, match=r"no token from the token endpoint http://localhost:.*failed"
    ):
        login.begin()
    login.credentials.close()


def test_a_token_is_replaced_without_a_connection_that_asks_for_it(provider: IdentityProvider, endpoint: TokenEndpoint):
    provider.lifetime_s = 2
    login = Login(endpoint.url)
    login.begin()
    while len(endpoint.requests) < 3:
        threading.Event().wait(0.02)
    login.credentials.close()
