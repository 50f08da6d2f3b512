"""SASL in the client: authentication, its failures, and the renewal of sessions, with a mock clock."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from support.client_harness import ClientHarness, Waiter, api_versions_response
from support.mock_client import metadata_response

from headrace.network.protocol.api_keys import ApiKey
from headrace.network.protocol.errors import (
    DisconnectedError,
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)
from headrace.network.protocol.messages.records.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.network.protocol.messages.security.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from headrace.network.protocol.messages.security.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from headrace.network.protocol.messages.topics.metadata import MetadataRequest
from headrace.network.security.passwords import PasswordCredentials
from headrace.network.security.scram import ScramCredential, ScramMechanism, ScramServer

PLAIN = PasswordCredentials("PLAIN", "alice", "secret")
LIFETIME_MS = 100_000
#: The harness's random numbers are 0.5.
RENEWED_AT = 0.9


class FetchedCredentials:
    """Credentials that are fetched: `begin` returns None until `ready` is set, and raises `error`."""

    mechanism = "PLAIN"

    def __init__(self) -> None:
        self.ready = False
        self.error: KafkaError | None = None
        self.begun = 0
        self.closed = False
        self.wakeup: Callable[[], object] = lambda: None

    def begin(self, host: str) -> Any:
        self.begun += 1
        if self.error is not None:
            raise self.error
        return PLAIN.begin(host) if self.ready else None

    def start(self, wakeup: Callable[[], object]) -> None:
        self.wakeup = wakeup

    def close(self) -> None:
        self.closed = True


class Harness(ClientHarness):
    """A client with credentials, and what a broker answers."""

    def __init__(self, credentials: Any = PLAIN, **settings: Any) -> None:
        super().__init__(credentials=credentials, **settings)

    def message(self, node_id: int) -> Any:
        (only,) = self.selector.unanswered(str(node_id))
        return only.message

    def answer(self, node_id: int, response: Any) -> list[Any]:
        self.selector.respond(str(node_id), response)
        return self.step()

    def begin(self, node_id: int = -1) -> None:
        """Connect and answer ApiVersions, so that SaslHandshake is sent."""
        self.step()
        self.handshake(str(node_id))

    def accept(self, node_id: int = -1, lifetime_ms: int = 0) -> None:
        """Accept a PLAIN exchange from its handshake on."""
        assert self.message(node_id) == SaslHandshakeRequest(mechanism="PLAIN")
        self.answer(node_id, SaslHandshakeResponse(mechanisms=["PLAIN"]))
        assert self.message(node_id) == SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
        self.answer(node_id, SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms))

    def sign_in(self, lifetime_ms: int = 0) -> None:
        """Connect to node 0 and authenticate."""
        self.begin()
        self.accept()
        self.step()
        self.answer_metadata("-1", metadata_response())
        assert not self.ready(0)
        self.handshake("0")
        self.accept(0, lifetime_ms)
        assert self.ready(0)

    def reach_renewal(self) -> None:
        """Let the time pass after which the session of node 0 is to be renewed."""
        self.clock.advance(LIFETIME_MS * RENEWED_AT)
        self.step()

    def begin_renewal(self) -> None:
        """Let the session of node 0 lapse, and want the node, so that SaslHandshake is sent."""
        self.reach_renewal()
        assert not self.ready(0)

    def renew(self) -> None:
        """Accept the renewal of node 0; the connection serves requests again."""
        self.accept(0, LIFETIME_MS)
        assert self.ready(0)
        self.ask()
        assert [each.message for each in self.answer(0, ANSWER)] == [ANSWER]

    def ask(self) -> Any:
        return self.send(0, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1))

    def sent_to(self, node_id: int) -> list[ApiKey]:
        return [each.header.api_key for each in self.selector.sent if each.channel_id == str(node_id)]


ANSWER = InitProducerIdResponse(producer_id=1, producer_epoch=0)


def test_requests_wait_for_authentication():
    harness = Harness()
    harness.begin()
    assert not harness.client.can_send(-1, harness.now_ms)
    harness.accept()
    harness.step()
    assert isinstance(harness.message(-1), MetadataRequest)
    assert harness.sent_to(-1) == [
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.METADATA,
    ]


def test_scram_takes_two_round_trips_and_checks_the_broker():
    mechanism = ScramMechanism.SHA_512
    server = ScramServer(mechanism, lambda name: ScramCredential.from_password(mechanism, "secret"))
    harness = Harness(PasswordCredentials("SCRAM-SHA-512", "alice", "secret"))
    harness.begin()
    harness.answer(-1, SaslHandshakeResponse(mechanisms=["SCRAM-SHA-512"]))
    for _ in range(2):
        harness.answer(-1, SaslAuthenticateResponse(auth_bytes=server.respond(harness.message(-1).auth_bytes)))
    assert server.is_complete
    assert harness.client.can_send(-1, harness.now_ms)


@pytest.mark.parametrize(
    ("responses", "kind", "problem"),
    [
        (
            [SaslHandshakeResponse(error_code=33, mechanisms=["GSSAPI", "SCRAM-SHA-256"])],
            UnsupportedSaslMechanismError,
            r"does not offer the SASL mechanism PLAIN, but GSSAPI and SCRAM-SHA-256; change sasl.mechanism",
        ),
        ([SaslHandshakeResponse(error_code=34, mechanisms=[])], IllegalSaslStateError, "security.protocol"),
        ([SaslHandshakeResponse(error_code=42, mechanisms=[])], SaslAuthenticationFailedError, "SaslHandshake"),
        (
            [
                SaslHandshakeResponse(mechanisms=["PLAIN"]),
                SaslAuthenticateResponse(error_code=58, error_message="Invalid username or password"),
            ],
            SaslAuthenticationFailedError,
            "host0:9000 rejected the PLAIN credentials: Invalid username or password",
        ),
        (
            [SaslHandshakeResponse(mechanisms=["PLAIN"]), SaslAuthenticateResponse(auth_bytes=b"more?")],
            SaslAuthenticationFailedError,
            "unexpected challenge",
        ),
    ],
)
def test_a_rejection_is_typed_and_reaches_those_who_wait_at_once(responses, kind, problem):
    harness = Harness()
    waiter = Waiter(harness.metadata, harness.clock)
    harness.begin()
    for response in responses:
        harness.answer(-1, response)
    with pytest.raises(kind, match=problem) as failed:
        waiter.result()
    assert "secret" not in str(failed.value)
    assert isinstance(harness.client.authentication_error(), kind)
    assert not harness.client.can_send(-1, harness.now_ms)


def test_a_rejected_client_tries_again_with_backoff_and_few_log_lines(caplog):
    caplog.set_level(logging.INFO, "headrace")
    harness = Harness()
    for _ in range(200):
        harness.clock.advance(100)
        harness.step()
        for channel in list(harness.selector._connecting):
            harness.handshake(channel)
            harness.answer(-1, SaslHandshakeResponse(mechanisms=["PLAIN"]))
            harness.answer(-1, SaslAuthenticateResponse(error_code=58, error_message="no"))
    # 20 seconds: the backoff is a second soon
    assert 10 <= len(harness.selector.connects) <= 30
    assert len([line for line in caplog.records if line.levelno >= logging.WARNING]) == 1
    # the password is changed on the broker
    harness.clock.advance(2000)
    harness.begin()
    harness.accept()
    assert harness.client.authentication_error() is None
    assert harness.client.can_send(-1, harness.now_ms)


def test_one_refusing_node_is_no_error_while_another_is_ready():
    harness = Harness()
    harness.begin()
    harness.accept()
    harness.step()
    harness.answer_metadata("-1", metadata_response(brokers=2))
    harness.ready(0)
    harness.handshake("0")
    harness.answer(0, SaslHandshakeResponse(error_code=33, mechanisms=[]))
    assert isinstance(harness.client.authentication_error(), UnsupportedSaslMechanismError)
    harness.ready(1)
    assert harness.client.authentication_error() is None, "it may succeed"
    harness.handshake("1")
    harness.accept(1)
    assert harness.client.authentication_error() is None


def test_a_broker_before_kafka_1_is_reported():
    harness = Harness()
    harness.step()
    harness.handshake("-1", api_versions_response({int(ApiKey.SASL_HANDSHAKE): (0, 0)}))
    assert isinstance(harness.client.connection_errors[-1], UnsupportedVersionError)
    assert "Kafka 1.0" in str(harness.client.connection_errors[-1])


@pytest.mark.parametrize("stalled_at", [0, 1])
def test_a_stalled_exchange_ends_with_the_setup_timeout(stalled_at):
    harness = Harness(connection_setup_timeout_ms=5_000)
    harness.begin()
    if stalled_at:
        harness.answer(-1, SaslHandshakeResponse(mechanisms=["PLAIN"]))
    harness.clock.advance(4_000)
    harness.step(60_000)
    assert harness.selector.polls[-1] <= 2_000, "it would wake up late"
    harness.clock.advance(2_000)
    harness.step()
    error = harness.client.connection_errors[-1]
    assert "did not authenticate this client within 5" in str(error)
    assert ("SaslAuthenticate" if stalled_at else "SaslHandshake") in str(error)


@pytest.mark.parametrize("step", [0, 1])
def test_a_connection_cut_during_the_exchange_says_so(step):
    harness = Harness()
    harness.begin()
    if step:
        harness.answer(-1, SaslHandshakeResponse(mechanisms=["PLAIN"]))
    harness.selector.fail("-1", DisconnectedError("it was closed"))
    harness.step()
    assert "during SASL authentication" in str(harness.client.connection_errors[-1])


def test_credentials_that_are_fetched_are_waited_for_without_a_busy_loop():
    credentials = FetchedCredentials()
    harness = Harness(credentials)
    harness.begin()
    assert harness.sent_to(-1) == [ApiKey.API_VERSIONS]
    harness.step(60_000)
    assert harness.selector.polls[-1] >= 5_000
    credentials.ready = True
    credentials.wakeup()
    assert harness.selector.wakeups == 1
    harness.step()
    harness.accept()
    assert harness.client.can_send(-1, harness.now_ms)
    harness.client.close()
    assert credentials.closed


def test_credentials_that_never_come_end_with_the_setup_timeout():
    harness = Harness(FetchedCredentials())
    harness.begin()
    harness.clock.advance(12_001)
    harness.step()
    assert "still being fetched" in str(harness.client.connection_errors[-1])


def test_credentials_that_fail_are_an_authentication_error():
    credentials = FetchedCredentials()
    harness = Harness(credentials)
    waiter = Waiter(harness.metadata, harness.clock)
    harness.begin()
    credentials.error = SaslAuthenticationFailedError("the endpoint answered 500")
    harness.step()
    with pytest.raises(SaslAuthenticationFailedError, match="500"):
        waiter.result()


# --- Sessions ---


def test_a_session_is_renewed_on_the_same_connection_before_it_ends():
    harness = Harness()
    harness.sign_in(LIFETIME_MS)
    connects = len(harness.selector.connects)
    for _ in range(3):
        harness.step(10 * LIFETIME_MS)
        assert harness.selector.polls[-1] == pytest.approx(min(LIFETIME_MS * RENEWED_AT, 300_000), rel=0.01)
        harness.clock.advance(LIFETIME_MS * RENEWED_AT)
        harness.step()
        assert not harness.ready(0)
        harness.accept(0, LIFETIME_MS)
        assert harness.ready(0)
    assert len(harness.selector.connects) == connects


def test_a_session_without_an_end_is_not_renewed():
    harness = Harness()
    harness.sign_in(0)
    harness.clock.advance(250_000)
    harness.step()
    assert harness.sent_to(0).count(ApiKey.SASL_HANDSHAKE) == 1


def test_requests_in_flight_finish_before_and_new_ones_wait():
    harness = Harness(max_in_flight_requests_per_connection=2)
    harness.sign_in(LIFETIME_MS)
    harness.clock.advance(LIFETIME_MS * RENEWED_AT - 1)
    harness.ask()
    harness.ask()
    assert not harness.ready(0), "the pipeline is full"
    harness.clock.advance(1)
    harness.step()
    assert harness.sent_to(0).count(ApiKey.SASL_HANDSHAKE) == 1, "a request is in flight"
    harness.step(60_000)
    assert harness.selector.polls[-1] > 0, "it spins"
    assert len(harness.answer(0, ANSWER)) == 1
    assert not harness.ready(0)
    # the last answer and the handshake are in the same poll
    assert len(harness.answer(0, ANSWER)) == 1
    harness.renew()


def test_the_sender_need_not_look_at_a_node_that_is_being_renewed():
    harness = Harness()
    harness.sign_in(LIFETIME_MS)
    harness.begin_renewal()
    assert harness.client.poll_delay_ms(harness.node(0), harness.now_ms) == float("inf")
    assert harness.client.authentication_error() is None


def test_an_idle_session_is_renewed_by_the_next_request_only():
    harness = Harness()
    harness.sign_in(LIFETIME_MS)
    harness.reach_renewal()
    # long after its end, too
    harness.clock.advance(LIFETIME_MS)
    harness.step(60_000)
    assert harness.selector.polls[-1] > 1000, "nothing is due"
    assert harness.sent_to(0).count(ApiKey.SASL_HANDSHAKE) == 1
    assert not harness.ready(0)
    harness.renew()


def test_a_metadata_update_renews_an_idle_session():
    harness = Harness()
    harness.sign_in(LIFETIME_MS)
    harness.reach_renewal()
    harness.metadata.request_update()
    harness.clock.advance(1000)
    harness.step()
    harness.accept(0, LIFETIME_MS)
    harness.step()
    assert isinstance(harness.message(0), MetadataRequest)


def test_without_credentials_a_metadata_update_uses_a_session_that_lasts():
    credentials = FetchedCredentials()
    credentials.ready = True
    harness = Harness(credentials)
    harness.sign_in(LIFETIME_MS)
    credentials.ready = False
    harness.reach_renewal()
    harness.metadata.request_update()
    harness.clock.advance(1000)
    harness.step()
    assert isinstance(harness.message(0), MetadataRequest)


def test_a_throttled_connection_is_renewed_and_its_answer_waited_for():
    harness = Harness(request_timeout_ms=1000)
    harness.sign_in(LIFETIME_MS)
    harness.clock.advance(LIFETIME_MS * RENEWED_AT - 1)
    harness.ask()
    harness.answer(0, InitProducerIdResponse(throttle_time_ms=5_000, producer_id=1, producer_epoch=0))
    harness.clock.advance(1)
    harness.step()
    assert not harness.ready(0)
    harness.clock.advance(4_000)
    harness.step()
    # the broker reads again when the throttle time is over
    harness.accept(0, LIFETIME_MS)
    harness.clock.advance(1_000)
    assert harness.ready(0)


def test_a_rejected_renewal_closes_the_connection_with_the_error():
    harness = Harness()
    harness.sign_in(LIFETIME_MS)
    harness.begin_renewal()
    harness.answer(0, SaslHandshakeResponse(mechanisms=["PLAIN"]))
    waiter = Waiter(harness.metadata, harness.clock)
    harness.answer(0, SaslAuthenticateResponse(error_code=58, error_message="no such user"))
    with pytest.raises(SaslAuthenticationFailedError, match=r"re-authentication: .*no such user"):
        waiter.result()


def test_a_broker_that_does_not_renew_the_session_gets_a_new_connection():
    harness = Harness()
    harness.sign_in(LIFETIME_MS)
    harness.begin_renewal()
    harness.answer(0, SaslHandshakeResponse(error_code=34, mechanisms=[]))
    assert isinstance(harness.client.connection_errors[0], DisconnectedError)
    assert harness.client.authentication_error() is None


@pytest.mark.parametrize(("lifetime_ms", "after_ms"), [(2_000, 1_800), (1_100, 1_020), (500, 500)])
def test_a_short_session_is_not_renewed_more_often_than_brokers_allow(lifetime_ms, after_ms):
    harness = Harness()
    harness.sign_in(lifetime_ms)
    harness.step(60_000)
    assert harness.selector.polls[-1] == pytest.approx(after_ms)


def test_another_principal_gets_a_new_connection_once():
    harness = Harness()
    harness.sign_in(LIFETIME_MS)
    harness.begin_renewal()
    harness.answer(0, SaslHandshakeResponse(mechanisms=["PLAIN"]))
    refusal = "Cannot change principals during re-authentication from User.alice: User.bob"
    harness.answer(0, SaslAuthenticateResponse(error_code=58, error_message=refusal))
    assert isinstance(harness.client.connection_errors[0], DisconnectedError)
    assert harness.client.authentication_error() is None
    harness.clock.advance(100)
    assert not harness.ready(0)
    harness.handshake("0")
    harness.answer(0, SaslHandshakeResponse(mechanisms=["PLAIN"]))
    harness.answer(0, SaslAuthenticateResponse(error_code=58, error_message=refusal))
    assert isinstance(harness.client.connection_errors[0], SaslAuthenticationFailedError)


@pytest.mark.parametrize("error", [None, SaslAuthenticationFailedError("the endpoint is down")])
def test_without_new_credentials_a_session_is_used_to_its_end(error, caplog):
    credentials = FetchedCredentials()
    credentials.ready = True
    harness = Harness(credentials)
    harness.sign_in(LIFETIME_MS)
    credentials.ready, credentials.error = False, error
    harness.reach_renewal()
    assert harness.ready(0)
    harness.step(60_000)
    assert harness.selector.polls[-1] == pytest.approx(1000), "it asks again soon, without spinning"
    harness.clock.advance(LIFETIME_MS * (1 - RENEWED_AT))
    harness.step()
    assert "has ended" in str(harness.client.connection_errors[0])
    assert len([line for line in caplog.records if "cannot be renewed" in line.message]) == (error is not None)


def test_credentials_that_come_late_renew_the_session():
    credentials = FetchedCredentials()
    credentials.ready = True
    harness = Harness(credentials)
    harness.sign_in(LIFETIME_MS)
    credentials.ready = False
    harness.reach_renewal()
    assert harness.ready(0), "the session still lasts"
    credentials.ready = True
    harness.clock.advance(1000)
    harness.step()
    harness.accept(0, LIFETIME_MS)
    assert harness.ready(0)


def test_a_closed_connection_has_no_session():
    harness = Harness()
    harness.sign_in(LIFETIME_MS)
    harness.selector.fail("0", DisconnectedError("it was closed"))
    harness.step()
    harness.clock.advance(LIFETIME_MS)
    harness.step()
    assert harness.sent_to(0).count(ApiKey.SASL_HANDSHAKE) == 1
