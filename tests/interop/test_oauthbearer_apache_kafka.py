"""The client's half of OAUTHBEARER against Apache Kafka with its default, unsecured tokens.

The frames around the messages are encoded by hand: SaslHandshake version 1 and SaslAuthenticate version 1.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support.apache_kafka.cluster import HOST, ApacheKafka, free_ports
from support.apache_kafka.fixtures import start_or_skip

from headrace.network.clock import SYSTEM_CLOCK, MockClock
from headrace.network.security.mechanism import ClientMechanism
from headrace.network.security.oauthbearer import OAuthBearerClient
from headrace.network.security.unsecured import UnsecuredSource, parse_unsecured

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("apache_kafka")]

JAAS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
LISTENER = "listener.name.tokens."


class WithTokens(ApacheKafka):
    """A broker with a further listener, TOKENS, on `tokens_port`."""

    tokens_port = 0

    def _prepare(self, folder: Path) -> None:
        super()._prepare(folder)
        [self.tokens_port] = free_ports(1)
        for broker in self._brokers.values():
            text = broker.config.read_text()
            text = re.sub(
                r"(?m)^(listeners|advertised.listeners)=.*", rf"\g<0>,TOKENS://{HOST}:{self.tokens_port}", text
            )
            text = re.sub(r"(?m)^listener.security.protocol.map=.*", r"\g<0>,TOKENS:SASL_PLAINTEXT", text)
            text += f"{LISTENER}sasl.enabled.mechanisms=OAUTHBEARER\n{LISTENER}oauthbearer.sasl.jaas.config={JAAS} "
            text += f'unsecuredLoginStringClaim_sub="kafka";\n{LISTENER}oauthbearer.connections.max.reauth.ms=3600000\n'
            broker.config.write_text(text)


class Answer(NamedTuple):
    """A SaslAuthenticate response."""

    error_code: int
    error_message: str
    auth_bytes: bytes
    session_lifetime_ms: int


class Conversation:
    """A connection that has chosen OAUTHBEARER."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), 20)
        assert self._ask(17, 1, struct.pack(">h11s", 11, b"OAUTHBEARER"))[:2] == b"\x00\x00"

    def close(self) -> None:
        self._socket.close()

    def authenticate(self, message: bytes) -> Answer:
        body = self._ask(36, 1, struct.pack(">i", len(message)) + message)
        code, size = struct.unpack_from(">hh", body)
        text, rest = body[4 : 4 + max(size, 0)], body[4 + max(size, 0) :]
        (length,) = struct.unpack_from(">i", rest)
        (lifetime_ms,) = struct.unpack_from(">q", rest, 4 + length)
        return Answer(code, text.decode(), rest[4 : 4 + length], lifetime_ms)

    def _ask(self, api_key: int, version: int, body: bytes) -> bytes:
        request = struct.pack(">hhih", api_key, version, 1, -1) + body
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        with self._socket.makefile("rb") as file:
            (size,) = struct.unpack(">i", file.read(4))
            return file.read(size)[4:]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    kafka = start_or_skip(WithTokens)
    assert isinstance(kafka, WithTokens)
    try:
        yield kafka.tokens_port
    finally:
        kafka.__exit__()


@pytest.fixture
def conversation(port: int) -> Iterator[Conversation]:
    conversation = Conversation(port)
    yield conversation
    conversation.close()


def client(config: str, clock: MockClock | None = None) -> ClientMechanism:
    token = UnsecuredSource(parse_unsecured(config), clock=clock or SYSTEM_CLOCK).fetch()
    return OAuthBearerClient(token.value, token.extensions)


def test_kafka_accepts_a_token_with_extensions(conversation: Conversation):
    made = client("principal=alice lifeSeconds=600 extension_logicalCluster=lkc-1 extension_traceId=7")
    answer = conversation.authenticate(made.initial_message())
    assert (answer.error_code, answer.auth_bytes) == (0, b"")
    assert made.respond(answer.auth_bytes) is None
    assert made.is_complete
    # the session ends with the token
    assert 590_000 < answer.session_lifetime_ms <= 600_000


@pytest.mark.parametrize("is_expired", [True, False])
def test_kafka_rejects_a_token(conversation: Conversation, is_expired: bool):
    # expired for years, or without the claim that Kafka reads the principal from
    made = client("principal=alice", MockClock()) if is_expired else client("principal=a principalClaimName=name")
    challenge = conversation.authenticate(made.initial_message())
    assert (challenge.error_code, challenge.auth_bytes) == (0, b'{"status":"invalid_token"}')
    answer = made.respond(challenge.auth_bytes)
    assert answer == b"\x01"
    final = conversation.authenticate(answer)
    assert (final.error_code, final.error_message) == (58, '{"status":"invalid_token"}')
    assert not made.is_complete


def test_kafka_rejects_a_truncated_message(conversation: Conversation):
    message = client("principal=alice").initial_message()
    assert conversation.authenticate(message[:-1]).error_code == 58
