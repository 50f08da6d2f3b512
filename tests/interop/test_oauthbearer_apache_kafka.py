"""The client's half of OAUTHBEARER against Apache Kafka with its default, unsecured tokens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.apache_kafka.fixtures import start_or_skip
from support.sasl_conversation import Conversation, WithSasl

from headrace.network.clock import SYSTEM_CLOCK, MockClock
from headrace.network.security.mechanism import ClientMechanism
from headrace.network.security.oauthbearer import OAuthBearerClient
from headrace.network.security.unsecured import UnsecuredSource, parse_unsecured

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("apache_kafka")]

JAAS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
SETTINGS = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "oauthbearer.sasl.jaas.config": f'{JAAS} unsecuredLoginStringClaim_sub="kafka";',
    "oauthbearer.connections.max.reauth.ms": "3600000",
}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    kafka = start_or_skip(WithSasl, settings=SETTINGS)
    assert isinstance(kafka, WithSasl)
    try:
        yield kafka.sasl_port
    finally:
        kafka.__exit__()


@pytest.fixture
def conversation(port: int) -> Iterator[Conversation]:
    conversation = Conversation(port, "OAUTHBEARER")
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
