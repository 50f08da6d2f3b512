"""The refreshing login, stepped by hand: no thread, no sleep."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from headrace.network.clock import NEVER_MS, MockClock
from headrace.network.protocol.errors import IllegalStateError, RetriableError, SaslAuthenticationFailedError
from headrace.network.security.assertions import AssertionSettings
from headrace.network.security.oauthbearer import OAuthBearerClient, parse_client_message
from headrace.network.security.oidc import client_secret_request
from headrace.network.security.refresh import RefreshPolicy
from headrace.network.security.token import Token, encode_segment, scrubbed
from headrace.network.security.token_http import Response
from headrace.network.security.tokens import TokenCredentials

DEFAULTS = RefreshPolicy()


class Source:
    """Returns or raises what the test puts into `next`; counts its fetches."""

    def __init__(self, clock: MockClock, lifetime_s: float | None = 3600.0) -> None:
        self._clock = clock
        self.lifetime_s = lifetime_s
        self.error: BaseException | None = None
        self.fetches = 0
        self.is_closed = False

    def __repr__(self) -> str:
        return "the test's source"

    def fetch(self) -> Token:
        self.fetches += 1
        if self.error is not None:
            raise self.error
        expires_ms = None if self.lifetime_s is None else self._clock.wall_ms() + self.lifetime_s * 1000.0
        return Token(f"token-{self.fetches}", expires_ms=expires_ms)

    def close(self) -> None:
        self.is_closed = True


class Login:
    """Credentials without a thread: `step` does what the thread would do now."""

    def __init__(self, policy: RefreshPolicy = DEFAULTS, lifetime_s: float | None = 3600.0) -> None:
        self.clock = MockClock()
        self.source = Source(self.clock, lifetime_s)
        self.started: list[str] = []
        self.wakeups = 0
        self.credentials = TokenCredentials(
            self.source,
            policy,
            clock=self.clock,
            random_unit=lambda: 0.5,
            start=lambda run, name: self.started.append(name),
        )
        self.credentials.start(self._wake)

    def _wake(self) -> None:
        self.wakeups += 1

    def step(self) -> bool:
        """Fetch if that is due. Returns whether it was."""
        is_due = self.clock.now_ms() >= self.credentials.due_ms()
        if is_due:
            self.credentials.fetch()
        return is_due

    def token(self) -> str | None:
        """The token of a new authentication; None while pending."""
        client = self.credentials.begin("broker-1")
        if client is None:
            return None
        return client.initial_message().decode().removeprefix("n,,\x01auth=Bearer ").partition("\x01")[0]


@pytest.fixture
def login() -> Iterator[Login]:
    login = Login()
    yield login
    login.credentials.close()


def test_nothing_is_fetched_before_the_first_use(login: Login):
    assert (login.started, login.source.fetches, login.credentials.due_ms()) == ([], 0, NEVER_MS)
    assert login.token() is None
    assert (login.started, login.source.fetches) == (["headrace-tokens"], 0)
    assert login.step()
    assert (login.wakeups, login.token()) == (1, "token-1")
    assert not login.step()


def test_pending_authentications_cause_one_fetch(login: Login):
    assert [login.token() for _ in range(3)] == [None, None, None]
    assert login.step()
    assert not login.step()
    assert [login.token() for _ in range(3)] == ["token-1"] * 3


def test_the_successor_is_fetched_ahead(login: Login):
    login.token()
    login.step()
    # 0.8 and half of the jitter of 0.05
    login.clock.advance(0.825 * 3_600_000 - 1)
    assert not login.step()
    login.clock.advance(1)
    assert login.step()
    assert (login.token(), login.wakeups) == ("token-2", 1)


def test_a_failed_refresh_leaves_the_token_in_use_until_it_expires(login: Login, caplog: pytest.LogCaptureFixture):
    login.token()
    login.step()
    login.clock.advance(0.825 * 3_600_000)
    login.source.error = SaslAuthenticationFailedError("the secret was revoked")
    for _ in range(20):
        assert login.token() == "token-1"
        login.clock.advance(login.credentials.due_ms() - login.clock.now_ms())
        assert login.step()
    assert len([each for each in caplog.records if each.levelno >= logging.WARNING]) < 5
    login.clock.advance(0.175 * 3_600_000)
    with pytest.raises(SaslAuthenticationFailedError, match="no token from the test's source: the secret was revoked"):
        login.token()
    login.source.error = None
    login.clock.advance(20_000)
    assert login.step()
    assert login.token() == "token-22"


def test_an_error_that_may_pass_fails_authentications_only_after_a_while(login: Login):
    login.source.error = RetriableError("the endpoint answered 503")
    assert login.token() is None
    delays_ms: list[float] = []
    while login.wakeups == 0:
        assert login.token() is None
        before_ms = login.clock.now_ms()
        login.clock.advance(max(0.0, login.credentials.due_ms() - before_ms))
        delays_ms.append(login.clock.now_ms() - before_ms)
        assert login.step()
    assert delays_ms[:5] == [0.0, 100.0, 200.0, 400.0, 800.0]
    assert login.clock.now_ms() >= 10_000
    with pytest.raises(SaslAuthenticationFailedError, match="answered 503"):
        login.token()


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), SaslAuthenticationFailedError("no")])
def test_an_error_that_will_not_pass_fails_authentications_at_once(login: Login, error: BaseException):
    login.source.error = error
    login.token()
    login.step()
    assert login.wakeups == 1
    for _ in range(2):
        with pytest.raises(SaslAuthenticationFailedError) as raised:
            login.token()
        assert raised.value.__cause__ is error
    assert login.credentials.due_ms() == pytest.approx(100.0)


def test_failures_do_not_make_authentications_fetch_more_often(login: Login):
    login.source.error = ValueError("bad")
    login.token()
    login.step()
    for _ in range(100):
        with pytest.raises(SaslAuthenticationFailedError):
            login.token()
        assert not login.step()
    assert login.source.fetches == 1


def test_an_expired_token_is_not_used():
    login = Login()
    login.token()
    login.step()
    # as after the machine slept: the wall clock moved on, the monotonic clock did not
    login.clock.set_wall_ms(login.clock.wall_ms() + 3_600_000)
    assert login.token() is None
    assert login.step()
    assert login.token() == "token-2"


def test_a_token_that_arrives_expired_names_the_clocks(login: Login):
    login.source.lifetime_s = -90.0
    login.token()
    login.step()
    with pytest.raises(SaslAuthenticationFailedError, match=r"expired 90 s before it arrived.*clocks"):
        login.token()


def test_a_token_of_unknown_lifetime_is_used_for_a_minute():
    login = Login(lifetime_s=None)
    assert login.token() is None
    login.step()
    assert login.credentials.due_ms() == NEVER_MS
    login.clock.advance(59_999)
    assert login.token() == "token-1"
    login.clock.advance(1)
    assert login.token() is None
    login.step()
    assert (login.token(), login.wakeups) == ("token-2", 2)


def test_a_token_of_unknown_lifetime_is_used_once_even_without_a_minimum_period():
    login = Login(RefreshPolicy(min_period_seconds=0), lifetime_s=None)
    login.token()
    login.step()
    assert login.token() == "token-1"


def test_a_token_that_the_broker_rejects_is_fetched_again(login: Login):
    login.token()
    login.step()
    login.clock.advance(10_000)
    client = login.credentials.begin("broker-1")
    assert isinstance(client, OAuthBearerClient)
    client.initial_message()
    client.respond(b'{"status":"invalid_token"}')
    assert login.step()
    assert login.token() == "token-2"
    # its successor is young: a broker that rejects everything does not flood the source
    client = login.credentials.begin("broker-1")
    assert client is not None
    client.initial_message()
    client.respond(b'{"status":"invalid_token"}')
    assert not login.step()


def test_a_short_lifetime_does_not_flood_the_source():
    login = Login(lifetime_s=0.001)
    login.token()
    login.step()
    assert login.credentials.due_ms() >= 1000.0


def test_closed_credentials_begin_nothing(login: Login):
    login.credentials.close()
    login.credentials.close()
    with pytest.raises(IllegalStateError):
        login.token()
    assert login.started == []


def test_no_secret_in_a_repr():
    login = Login()
    login.token()
    login.step()
    assert "token-1" not in f"{login.credentials!r} {Token('token-1')!r} {vars(login.credentials)}"
    settings = AssertionSettings(private_key_pem="planted-secret", private_key_passphrase="planted-secret")
    message = parse_client_message(b"n,,\x01auth=Bearer planted-secret\x01\x01")
    response = Response(200, "OK", {"x": "planted-secret"}, b"planted-secret")
    client = OAuthBearerClient("planted-secret")
    request = client_secret_request("c", "planted-secret", None, url_encode=False)()
    assert "planted-secret" not in repr([settings, message, response, client, request])


@pytest.mark.parametrize(
    "claims", [{"exp": 90, "iat": 30}, {"exp": 90.5}, {"exp": "90"}, {"exp": True}, {"exp": 1e400}]
)
def test_the_times_of_a_jwt_are_read(claims: dict[str, object]):
    header, payload = (encode_segment(json.dumps(part).encode()) for part in ({"alg": "RS256"}, claims))
    token = Token(f"{header}.{payload}.c2ln")
    exp = claims.get("exp")
    known = isinstance(exp, (int, float)) and not isinstance(exp, bool) and exp < 1e300
    assert token.expires_ms == (float(exp) * 1000.0 if known else None)
    assert token.issued_ms == (30_000.0 if "iat" in claims else None)


@pytest.mark.parametrize(
    "value", ["abc", "a.b.c", "e30.W10.x", "..", "e30.e30", "e30." + encode_segment(b"[" * 9999) + "."]
)
def test_other_tokens_have_no_times(value: str):
    token = Token(value)
    assert (token.expires_ms, token.issued_ms) == (None, None)


def test_texts_of_others_are_scrubbed():
    text = scrubbed("bad  s3cret in\neyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.sig \x00" + "x" * 500, ["s3cret", None, ""])
    assert text.startswith("bad ****** in ****** ?xxx")
    assert len(text) == 300
