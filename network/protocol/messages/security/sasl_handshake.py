"""SaslHandshake: chooses the SASL mechanism of a connection (KIP-43, KIP-152)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, request, response
from ...types import Int16, String


@request(api_key=ApiKey.SASL_HANDSHAKE, versions="0-1")
class SaslHandshakeRequest(Request):
    """The client's mechanism.

    The messages of the mechanism follow in SaslAuthenticate; after version 0 they follow as frames without a header.
    """

    mechanism: String


@response(of=SaslHandshakeRequest)
class SaslHandshakeResponse(Response):
    """The result, with the mechanisms that the listener offers."""

    error_code: Int16 = 0
    mechanisms: list[String]
