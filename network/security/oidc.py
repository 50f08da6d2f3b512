"""Tokens from an OAuth 2.0 / OIDC identity provider, or from a file (KIP-768, KIP-1139, KIP-1258)."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

from ..clock import SYSTEM_CLOCK, Clock
from ..protocol.errors import SaslAuthenticationFailedError
from .assertions import AssertionSource, read_file
from .mechanism_names import CLIENT_CREDENTIALS, JWT_BEARER
from .token import Token, scrubbed
from .token_http import Endpoint

_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class FormRequest:
    """What is posted to the token endpoint: a form, headers, and the secrets among them. Its repr shows none of it."""

    __slots__ = ("form", "headers", "secrets")

    def __init__(self, fields: Mapping[str, str | None], headers: Mapping[str, str], secrets: tuple[str, ...]) -> None:
        self.form = urlencode({name: value for name, value in fields.items() if value})
        self.headers = headers
        self.secrets = secrets


#: Makes the request for one token. Raises SaslAuthenticationFailedError or OSError.
MakeRequest = Callable[[], FormRequest]


def client_secret_request(client_id: str, client_secret: str, scope: str | None, *, url_encode: bool) -> MakeRequest:
    """The client credentials grant with HTTP Basic authentication (RFC 6749, sections 2.3.1 and 4.4).

    `url_encode`: whether id and secret are encoded as the RFC says (`sasl.oauthbearer.header.urlencode`).
    """

    def make() -> FormRequest:
        user, password = (
            (quote_plus(client_id), quote_plus(client_secret)) if url_encode else (client_id, client_secret)
        )
        basic = base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
        fields = {"grant_type": CLIENT_CREDENTIALS, "scope": scope}
        return FormRequest(fields, {"Authorization": f"Basic {basic}"}, (client_secret, password, basic))

    return make


def client_assertion_request(assertions: AssertionSource, client_id: str | None, scope: str | None) -> MakeRequest:
    """The client credentials grant with a JWT in place of the secret (RFC 7523, section 2.2; KIP-1258)."""

    def make() -> FormRequest:
        assertion = assertions.create()
        fields = {
            "grant_type": CLIENT_CREDENTIALS,
            "client_assertion_type": _ASSERTION_TYPE,
            "client_assertion": assertion,
            "client_id": client_id,
            "scope": scope,
        }
        return FormRequest(fields, {}, (assertion,))

    return make


def jwt_bearer_request(assertions: AssertionSource, scope: str | None) -> MakeRequest:
    """The JWT bearer grant (RFC 7523, section 2.1; KIP-1139)."""

    def make() -> FormRequest:
        assertion = assertions.create()
        return FormRequest({"grant_type": JWT_BEARER, "assertion": assertion, "scope": scope}, {}, (assertion,))

    return make


class OidcSource:
    """Tokens from a token endpoint. Implements TokenSource."""

    def __init__(
        self,
        endpoint: Endpoint,
        make_request: MakeRequest,
        extensions: Mapping[str, str],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Store the arguments. `extensions` go with each token."""
        self._endpoint = endpoint
        self._make_request = make_request
        self._extensions = extensions
        self._clock = clock

    def __repr__(self) -> str:
        return f"the token endpoint {self._endpoint!r}"

    def fetch(self) -> Token:
        request = self._make_request()
        sent_ms = self._clock.wall_ms()
        answer = self._endpoint.post_form(request.form, request.headers, request.secrets)
        value, kind = answer.get("access_token"), answer.get("token_type", "Bearer")
        if not isinstance(value, str) or not value.strip():
            names = scrubbed(", ".join(sorted(map(str, answer))), request.secrets)
            raise SaslAuthenticationFailedError(f"the answer has no access_token; it has {names or 'nothing'}")
        if not isinstance(kind, str) or kind.lower() != "bearer":
            shown = scrubbed(repr(kind), request.secrets)
            raise SaslAuthenticationFailedError(f"the answer's token_type is {shown}; expected Bearer")
        lifetime_s = _seconds(answer.get("expires_in"))
        # relative to this clock, so a clock that differs from the identity provider's does no harm
        expires_ms = None if lifetime_s is None else sent_ms + lifetime_s * 1000.0
        issued_ms = None if lifetime_s is None else sent_ms
        return Token(value.strip(), expires_ms=expires_ms, issued_ms=issued_ms, extensions=self._extensions)

    def close(self) -> None:
        """Nothing is kept between requests."""


def _seconds(value: Any) -> float | None:
    """`expires_in`, which some identity providers send as text; None if it is no positive number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


class FileSource:
    """Tokens from a file that another program renews, such as a projected service account token. Reads it each time."""

    def __init__(self, url: str, extensions: Mapping[str, str]) -> None:
        """Store the arguments. `url` begins with ``file:``."""
        self._path = unquote(urlsplit(url).path)
        self._extensions = extensions

    def __repr__(self) -> str:
        return f"the token file {self._path}"

    def fetch(self) -> Token:
        return Token(read_file(self._path, "token").strip(), extensions=self._extensions)

    def close(self) -> None:
        """Nothing is kept open."""
