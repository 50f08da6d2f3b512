"""OAUTHBEARER with any token and extensions, and with messages that were cut or altered."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.network.protocol.errors import SaslAuthenticationFailedError
from headrace.network.security.oauthbearer import OAuthBearerClient, OAuthBearerServer, ValidToken

TOKENS = st.from_regex(r"[-._~+/A-Za-z0-9]{1,60}={0,2}", fullmatch=True)
EXTENSIONS = st.dictionaries(
    st.from_regex(r"[A-Za-z]{1,12}", fullmatch=True).filter(lambda name: name != "auth"),
    st.from_regex(r"[\x21-\x7e \t\r\n]{1,20}", fullmatch=True),
    max_size=4,
)


def only(token: str):
    def validate(received: str, extensions: Mapping[str, str]) -> ValidToken:
        if received != token:
            raise ValueError("not the token")
        return ValidToken("alice", None)

    return validate


@given(TOKENS, EXTENSIONS)
def test_what_the_client_sends_the_server_receives(token: str, extensions: dict[str, str]):
    seen: list[tuple[str, Mapping[str, str]]] = []

    def validate(received: str, given: Mapping[str, str]) -> ValidToken:
        seen.append((received, given))
        return ValidToken("alice", None)

    client, server = OAuthBearerClient(token, extensions), OAuthBearerServer(validate)
    assert client.respond(server.respond(client.initial_message())) is None
    assert seen == [(token, extensions)]
    assert client.is_complete
    assert server.is_complete


@given(TOKENS, EXTENSIONS, st.data())
def test_a_cut_message_never_authenticates(token: str, extensions: dict[str, str], data: st.DataObject):
    message = OAuthBearerClient(token, extensions).initial_message()
    server = OAuthBearerServer(only(token))
    with pytest.raises(SaslAuthenticationFailedError):
        server.respond(message[: data.draw(st.integers(0, len(message) - 1))])
    assert not server.is_complete


@given(TOKENS, EXTENSIONS, st.data())
def test_an_altered_message_authenticates_only_with_the_same_token(
    token: str, extensions: dict[str, str], data: st.DataObject
):
    message = bytearray(OAuthBearerClient(token, extensions).initial_message())
    at = data.draw(st.integers(0, len(message) - 1))
    message[at] ^= data.draw(st.integers(1, 255))
    server = OAuthBearerServer(only(token))
    try:
        answer = server.respond(bytes(message))
    except SaslAuthenticationFailedError:
        answer = None
    # an altered extension or the case of "Bearer" may pass; an altered token may not
    assert server.is_complete == (answer == b"")
    assert not server.is_complete or token.encode() in message


@given(st.binary(max_size=200))
def test_any_bytes_end_in_an_error_or_a_challenge(message: bytes):
    server = OAuthBearerServer(only("x"))
    with contextlib.suppress(SaslAuthenticationFailedError):
        server.respond(message)
    assert not server.is_complete
    client = OAuthBearerClient("x")
    client.initial_message()
    assert client.respond(message) in (None, b"\x01")
