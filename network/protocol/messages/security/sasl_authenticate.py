"""SaslAuthenticate: carries the messages of a SASL mechanism (KIP-152, KIP-368)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response
from ...types import Bytes, Int16, Int64, String


@request(api_key=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+")
class SaslAuthenticateRequest(Request):
    """A message of the client's half of the mechanism. It may hold a secret and is not shown."""

    auth_bytes: Bytes = field(repr=False)


@response(of=SaslAuthenticateRequest)
class SaslAuthenticateResponse(Response):
    """The server's message.

    The session ends `session_lifetime_ms` after authentication, unless the client authenticates again; 0 for a session
    without an end.
    """

    error_code: Int16 = 0
    error_message: String | None = field(nullable="0+", default=None)
    auth_bytes: Bytes = field(repr=False, default=b"")
    session_lifetime_ms: Int64 = field(versions="1+", ignorable=True, default=0)
