"""GSSAPI's negotiation of security layers, with contexts that the test plays; `test_gssapi_kdc.py` uses a real KDC."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from headrace.network.protocol.errors import SaslAuthenticationFailedError
from headrace.network.security.gssapi import GssapiClient


class GssError(Exception):
    pass


class Message(NamedTuple):
    message: bytes


class Context:
    """Is complete after two steps; wraps by a prefix."""

    def __init__(self) -> None:
        self.steps: list[bytes] = []

    @property
    def complete(self) -> bool:
        return bool(self.steps)

    def step(self, token: bytes) -> bytes | None:
        if token == b"bad":
            raise GssError("Message stream modified")
        self.steps.append(token)
        return None

    def wrap(self, message: bytes, encrypt: bool) -> Message:
        assert not encrypt
        return Message(b"wrapped" + message)

    def unwrap(self, message: bytes) -> Message:
        if not message.startswith(b"wrapped"):
            raise GssError("A token was invalid")
        return Message(message.removeprefix(b"wrapped"))


@pytest.fixture
def client() -> GssapiClient:
    return GssapiClient(Context(), b"first", GssError)


def test_the_client_chooses_no_layer_and_waits_for_the_end(client: GssapiClient):
    assert client.initial_message() == b"first"
    # the context is complete without another token: an empty message asks for the offer
    assert client.respond(b"second") == b""
    assert client.respond(b"wrapped\x07\x00\xff\xff") == b"wrapped\x01\x00\x00\x00"
    assert not client.is_complete
    assert client.respond(b"") is None
    assert client.is_complete
    with pytest.raises(SaslAuthenticationFailedError, match="after the end"):
        client.respond(b"")


@pytest.mark.parametrize(
    ("offer", "problem"),
    [
        (b"wrapped\x06\x00\xff\xff", "requires a GSSAPI security layer"),
        (b"wrapped", "has 0 bytes; expected 4"),
        (b"wrapped\x01\x00\x00\x00\x00", "has 5 bytes"),
        (b"altered", "not valid: A token was invalid"),
        (b"", "not valid"),
    ],
)
def test_an_offer_that_does_not_fit_is_an_error(client: GssapiClient, offer: bytes, problem: str):
    client.respond(b"second")
    with pytest.raises(SaslAuthenticationFailedError, match=problem):
        client.respond(offer)
    assert not client.is_complete


def test_an_altered_token_is_an_error(client: GssapiClient):
    with pytest.raises(SaslAuthenticationFailedError, match="not valid: Message stream modified"):
        client.respond(b"bad")


def test_more_after_the_choice_is_an_error(client: GssapiClient):
    client.respond(b"second")
    client.respond(b"wrapped\x01\x00\x00\x00")
    with pytest.raises(SaslAuthenticationFailedError, match="after the end"):
        client.respond(b"more")


def test_nothing_of_a_context_is_in_a_repr(client: GssapiClient):
    shown: Any = repr(client)
    assert "first" not in shown
