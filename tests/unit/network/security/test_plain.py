"""The two halves of PLAIN against each other."""

from __future__ import annotations

import pytest

from headrace.network.protocol.errors import IllegalStateError, SaslAuthenticationFailedError
from headrace.network.security.plain import PlainClient, PlainServer, same_secret

USERS = {"alice": "s3cret, =\u00e9"}


def server() -> PlainServer:
    return PlainServer(lambda name, password: same_secret(USERS.get(name, ""), password))


def test_the_right_password_completes_both_halves():
    client, other = PlainClient("alice", USERS["alice"]), server()
    answer = other.respond(client.initial_message())
    assert not client.is_complete
    assert client.respond(answer) is None
    assert client.is_complete
    assert other.is_complete
    assert other.principal_name == "alice"
    assert other.expires_ms is None


def test_the_message_is_that_of_rfc_4616():
    assert PlainClient("tim", "tanstaaftanstaaf").initial_message() == b"\0tim\0tanstaaftanstaaf"


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (b"\0alice\0wrong", "Invalid username or password"),
        (b"\0bob\0wrong", "Invalid username or password"),
        (b"\0alice", "2 parts"),
        (b"\0alice\0a\0b", "4 parts"),
        (b"", "1 parts"),
        (b"\0\0x", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"\xff\0alice\0x", "not UTF-8"),
        (b"bob\0alice\0s3cret, =\xc3\xa9", "authorization id"),
    ],
)
def test_a_bad_message_is_refused(message, problem):
    other = server()
    with pytest.raises(SaslAuthenticationFailedError, match=problem) as failed:
        other.respond(message)
    assert "s3cret" not in str(failed.value)
    assert not other.is_complete
    with pytest.raises(IllegalStateError):
        _ = other.principal_name


def test_a_challenge_or_a_second_answer_is_refused():
    client = PlainClient("alice", "x")
    with pytest.raises(SaslAuthenticationFailedError, match="unexpected challenge of 1 bytes"):
        client.respond(b"?")
    client.respond(b"")
    with pytest.raises(SaslAuthenticationFailedError):
        client.respond(b"")


def test_a_replayed_message_is_refused():
    client, other = PlainClient("alice", USERS["alice"]), server()
    other.respond(client.initial_message())
    with pytest.raises(SaslAuthenticationFailedError):
        other.respond(client.initial_message())
