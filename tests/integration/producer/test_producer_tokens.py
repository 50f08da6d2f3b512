"""A producer whose tokens come from an identity provider that misbehaves: typed errors in time, and recovery.

The endpoint alone is tested in `tests/integration/network/security/test_token_endpoint.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from support.token_endpoint import IdentityProvider, TokenEndpoint, answering
from support.waiting import wait_until

from headrace.broker import ApiKey, EmbeddedCluster
from headrace.network.protocol.errors import AuthenticationError, SaslAuthenticationFailedError
from headrace.producer import KafkaProducer

SECRET = "pl4nted-s3cret"


@pytest.fixture
def provider() -> IdentityProvider:
    return IdentityProvider()


@pytest.fixture
def endpoint(provider: IdentityProvider) -> Iterator[TokenEndpoint]:
    with TokenEndpoint(provider.answer) as endpoint:
        yield endpoint


@pytest.fixture
def cluster(provider: IdentityProvider) -> Iterator[EmbeddedCluster]:
    with provider.cluster() as started:
        yield started


def producer_of(cluster: EmbeddedCluster, endpoint: TokenEndpoint, **changes: Any) -> KafkaProducer:
    return KafkaProducer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": endpoint.url,
            "sasl.oauthbearer.client.credentials.client.id": "orders",
            "sasl.oauthbearer.client.credentials.client.secret": SECRET,
            "sasl.login.read.timeout.ms": 300,
            "sasl.login.retry.backoff.ms": 20,
            "sasl.login.retry.backoff.max.ms": 200,
            **changes,
        }
    )


def slow(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(1)


def cut(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{")


def expired_on_arrival(provider: IdentityProvider) -> Callable[[BaseHTTPRequestHandler], None]:
    """As if one of the clocks were an hour wrong: the token is of the past, and the answer does not say how long it
    lasts."""
    provider.lifetime_s = -3600
    return answering({"access_token": provider.token(), "token_type": "Bearer"})


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (slow, r"no answer within 0\.3 s"),
        (answering(b"boom", 500, "text/plain"), "answered 500"),
        (answering(b"<html>maintenance</html>", 200, "text/html"), "text/html"),
        (answering(b"", 302, headers={"Location": "http://elsewhere.invalid/"}), "a redirect to"),
        (cut, "IncompleteRead"),
        (answering({"error": "invalid_client"}, 401), "invalid_client"),
        (expired_on_arrival, "expired"),
    ],
    ids=["slow", "500", "html", "redirect", "cut", "rejected", "clock skew"],
)
def test_an_identity_provider_that_fails_and_recovers(
    cluster: EmbeddedCluster,
    provider: IdentityProvider,
    endpoint: TokenEndpoint,
    caplog: pytest.LogCaptureFixture,
    answer: Any,
    said: str,
) -> None:
    endpoint.answer = answer(provider) if answer is expired_on_arrival else answer
    with producer_of(cluster, endpoint, **{"max.block.ms": 60_000}) as producer:
        with pytest.raises(SaslAuthenticationFailedError, match=said) as failed:
            producer.send("t", b"v").get(30)
        assert SECRET not in str(failed.value) + caplog.text
        asked = len(endpoint.requests)
        assert asked < 40, "it is a busy loop"
        provider.lifetime_s = 3600
        endpoint.answer = provider.answer
        wait_until(lambda: sends(producer))
    warnings = [record for record in caplog.records if record.levelno >= 30]
    assert len(warnings) <= 4, [record.getMessage() for record in warnings]


def sends(producer: KafkaProducer) -> bool:
    try:
        producer.send("t", b"v").get(30)
    except AuthenticationError:
        return False
    return True


def test_an_endpoint_behind_a_proxy(
    cluster: EmbeddedCluster, provider: IdentityProvider, endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the endpoint acts as the proxy: it takes absolute targets
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{endpoint.port}")
    monkeypatch.setenv("no_proxy", "")
    url = "http://idp.invalid/oauth2/token"
    with producer_of(cluster, endpoint, **{"sasl.oauthbearer.token.endpoint.url": url}) as producer:
        producer.send("t", b"v").get(30)
    assert endpoint.requests[0].target == url


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.95])
def test_a_truncated_token_is_rejected(cluster: EmbeddedCluster, provider: IdentityProvider, kept: float) -> None:
    token = provider.token()
    part = token[: int(len(token) * kept)]
    given = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauth.token.provider": lambda: part,
    }
    with KafkaProducer(given) as producer:
        with pytest.raises(SaslAuthenticationFailedError) as failed:
            producer.send("t", b"v").get(30)
        assert part not in str(failed.value)
    assert cluster.control.counts[ApiKey.SASL_HANDSHAKE] < 10
