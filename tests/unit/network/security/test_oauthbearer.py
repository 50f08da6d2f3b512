"""OAUTHBEARER: the vectors of RFC 7628, and the two halves against each other."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest

from headrace.network.protocol.errors import IllegalStateError, SaslAuthenticationFailedError
from headrace.network.security.oauthbearer import (
    InvalidTokenError,
    OAuthBearerClient,
    OAuthBearerServer,
    ValidToken,
    parse_client_message,
)

RFC_TOKEN = "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="
# RFC 7628, section 4.1
RFC_MESSAGE = (
    b"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01auth=Bearer " + RFC_TOKEN.encode() + b"\x01\x01"
)
# RFC 7628, section 4.3
RFC_ERROR = b'{"status":"invalid_token","scope":"example_scope",' + (
    b'"openid-configuration":"https://example.com/.well-known/openid-configuration"}'
)


class Validator:
    def __init__(self, name: str = "alice", error: Exception | None = None) -> None:
        self.seen: list[tuple[str, Mapping[str, str]]] = []
        self._name = name
        self._error = error

    def __call__(self, token: str, extensions: Mapping[str, str]) -> ValidToken:
        self.seen.append((token, extensions))
        if self._error is not None:
            raise self._error
        return ValidToken(self._name, 5000.0)


def test_the_message_of_the_rfc_is_parsed():
    message = parse_client_message(RFC_MESSAGE)
    assert message == (RFC_TOKEN, "user@example.com", {"host": "server.example.com", "port": "143"})


def test_the_client_writes_the_message_that_kafka_writes():
    client = OAuthBearerClient("abc.def", {"logicalCluster": "lkc-1", "identityPoolId": "pool-2"})
    expected = b"n,,\x01auth=Bearer abc.def\x01logicalCluster=lkc-1\x01identityPoolId=pool-2\x01\x01"
    assert client.initial_message() == expected


def test_both_halves_agree():
    validator = Validator()
    client, server = OAuthBearerClient("abc.def", {"traceId": "1 2"}), OAuthBearerServer(validator)
    assert (client.is_complete, server.is_complete) == (False, False)
    assert client.respond(server.respond(client.initial_message())) is None
    assert (client.is_complete, server.is_complete) == (True, True)
    assert (server.principal_name, server.expires_ms) == ("alice", 5000.0)
    assert validator.seen == [("abc.def", {"traceId": "1 2"})]


def test_a_rejected_token_fails_after_the_dummy_answer():
    rejected: list[bool] = []
    server = OAuthBearerServer(Validator(error=InvalidTokenError("expired", "insufficient_scope", "produce")))
    client = OAuthBearerClient("abc", on_rejected=lambda: rejected.append(True))
    challenge = server.respond(client.initial_message())
    assert challenge == b'{"status":"insufficient_scope","scope":"produce"}'
    answer = client.respond(challenge)
    assert (answer, rejected, client.is_complete) == (b"\x01", [True], False)
    with pytest.raises(SaslAuthenticationFailedError, match="insufficient_scope"):
        server.respond(b"\x01")
    with pytest.raises(SaslAuthenticationFailedError, match="is over"):
        server.respond(client.initial_message())
    assert not server.is_complete
    with pytest.raises(IllegalStateError):
        _ = server.principal_name


def test_the_error_of_the_rfc_is_put_into_words():
    client = OAuthBearerClient("abc")
    client.initial_message()
    assert client.respond(RFC_ERROR) == b"\x01"
    with pytest.raises(SaslAuthenticationFailedError, match=r"status invalid_token, scope example_scope, openid-conf"):
        client.respond(b"")


@pytest.mark.parametrize("challenge", [b"\xff\x00", b"[" * 5000, b"{}", b'"text"', b"x" * 1_000_000])
def test_an_error_that_is_not_json_does_no_harm(challenge: bytes):
    client = OAuthBearerClient("abc")
    client.initial_message()
    assert client.respond(challenge) == b"\x01"
    with pytest.raises(SaslAuthenticationFailedError) as raised:
        client.respond(b"")
    assert len(str(raised.value)) < 400
    assert str(raised.value).isprintable()


def test_a_message_after_the_end_is_an_error():
    client = OAuthBearerClient("abc")
    client.initial_message()
    client.respond(b"")
    with pytest.raises(SaslAuthenticationFailedError, match="after the end"):
        client.respond(b"")


@pytest.mark.parametrize(
    ("token", "problem"),
    [
        ("", "empty"),
        ("abc\n", "U\\+000A at position 3"),
        ("a b", "U\\+0020"),
        ("a=b", "misplaced"),
        ("a\x01auth=Bearer b", "U\\+0001"),
        ("tökén", "U\\+00F6"),
        ("x" * 500_001, "500001 characters"),
        (None, "NoneType"),
        (b"abc", "bytes"),
    ],
)
def test_a_token_that_cannot_be_sent_is_an_error_without_the_token(token: str, problem: str):
    with pytest.raises(SaslAuthenticationFailedError, match=problem) as raised:
        OAuthBearerClient(token)
    assert not token or str(token) not in str(raised.value)


@pytest.mark.parametrize(
    "extensions", [{"auth": "x"}, {"": "x"}, {"a1": "x"}, {"a": ""}, {"a": "x\x01y"}, {"a": "ö"}, {"a": 1}, {1: "a"}]
)
def test_extensions_are_checked_on_both_sides(extensions: dict[str, str]):
    with pytest.raises(SaslAuthenticationFailedError):
        OAuthBearerClient("abc", extensions)
    pairs = "\x01".join(f"{name}={value}" for name, value in extensions.items())
    if extensions not in ({"a": 1},):
        with pytest.raises(SaslAuthenticationFailedError):
            OAuthBearerServer(Validator()).respond(f"n,,\x01auth=Bearer abc\x01{pairs}\x01\x01".encode())


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01auth=Bearer abc",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
        b"n,,\x01host=h\x01\x01",
        b"n,,\x01auth\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer abc\x01\x01",
        b"n,a=,\x01auth=Bearer abc\x01\x01",
        b"n,,auth=Bearer abc\x01\x01",
        b"\xff,,\x01auth=Bearer abc\x01\x01",
        b"\x01",
    ],
)
def test_a_malformed_first_message_fails_and_reaches_no_validator(message: bytes):
    validator = Validator()
    server = OAuthBearerServer(validator)
    with pytest.raises(SaslAuthenticationFailedError):
        server.respond(message)
    assert (validator.seen, server.is_complete) == ([], False)


@pytest.mark.parametrize(("requested", "is_accepted"), [("alice", True), ("bob", False), ("a=2Cb=3Dc", False)])
def test_the_authorization_id_has_to_be_the_principal(requested: str, is_accepted: bool):
    server = OAuthBearerServer(Validator())
    message = f"n,a={requested},\x01auth=Bearer abc\x01\x01".encode()
    if is_accepted:
        assert server.respond(message) == b""
    else:
        with pytest.raises(SaslAuthenticationFailedError, match="authorization id"):
            server.respond(message)
    assert server.is_complete == is_accepted


def test_an_escaped_authorization_id_is_decoded():
    server = OAuthBearerServer(Validator("a,b=c"))
    assert server.respond(b"n,a=a=2Cb=3Dc,\x01auth=Bearer abc\x01\x01") == b""


def test_a_validator_that_fails_rejects_the_token_and_is_logged_without_it(caplog: pytest.LogCaptureFixture):
    server = OAuthBearerServer(Validator(error=RuntimeError("cannot look up planted-secret in the database")))
    with caplog.at_level(logging.DEBUG):
        assert server.respond(b"n,,\x01auth=Bearer planted-secret\x01\x01") == b'{"status":"invalid_token"}'
    assert "RuntimeError: cannot look up ****** in the database" in caplog.text
    assert "planted-secret" not in caplog.text


def test_other_than_the_dummy_answer_is_an_error():
    server = OAuthBearerServer(Validator(error=InvalidTokenError("no")))
    server.respond(b"n,,\x01auth=Bearer abc\x01\x01")
    with pytest.raises(SaslAuthenticationFailedError, match="0x01"):
        server.respond(b"n,,\x01auth=Bearer abc\x01\x01")
