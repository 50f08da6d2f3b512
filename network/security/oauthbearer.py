"""SASL OAUTHBEARER (RFC 7628; KIP-255, extensions by KIP-342): the client's half and the server's half.

The client sends its token and extensions in one message. The server answers with an empty message, which ends the
exchange, or with a JSON document that describes the error. To that the client answers with a single byte 0x01, which
allows the server to fail the authentication (RFC 7628, section 3.2.3).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..config_values import MASK
from ..protocol.errors import IllegalStateError, SaslAuthenticationFailedError
from .token import check_extensions, check_token, scrubbed

_SEPARATOR = "\x01"
_DUMMY = b"\x01"
_MALFORMED = "Invalid OAUTHBEARER client first message"

_log = logging.getLogger(__name__)


# --- The client ---


class OAuthBearerClient:
    """The client's half. Implements ClientMechanism."""

    def __init__(
        self,
        token: str,
        extensions: Mapping[str, str] | None = None,
        on_rejected: Callable[[], object] = lambda: None,
    ) -> None:
        """Check and store what is sent. `on_rejected` is called if the broker reports that it rejects the token.

        Raises SaslAuthenticationFailedError, without the token, if one of them can't be sent.
        """
        check_token(token)
        check_extensions(extensions or {})
        self._pairs = [f"auth=Bearer {token}", *(f"{name}={value}" for name, value in (extensions or {}).items())]
        self._on_rejected = on_rejected
        self._rejection: str | None = None
        self._is_complete = False

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    def initial_message(self) -> bytes:
        message = f"n,,{_SEPARATOR}{_SEPARATOR.join(self._pairs)}{_SEPARATOR}{_SEPARATOR}"
        self._pairs = []
        return message.encode("ascii")

    def respond(self, challenge: bytes) -> bytes | None:
        if self._is_complete:
            raise SaslAuthenticationFailedError("the broker sent a challenge after the end of the OAUTHBEARER exchange")
        if self._rejection is not None:
            raise SaslAuthenticationFailedError(f"the broker rejected the token: {self._rejection}")
        if challenge:
            self._rejection = _description(challenge)
            self._on_rejected()
            return _DUMMY
        self._is_complete = True
        return None


def _description(challenge: bytes) -> str:
    """The server's error in words. It is shown, so it is neither trusted nor long."""
    try:
        answer = json.loads(challenge[:10_000])
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        return scrubbed(repr(challenge[:300]))
    known = (f"{name} {answer[name]}" for name in ("status", "scope", "openid-configuration") if name in answer)
    return scrubbed(", ".join(known)) or "it gave no reason"


# --- The server ---


class InvalidTokenError(Exception):
    """A validator rejects a token. Never leaves this package: the client receives `status` and `scope`.

    The message is logged by the server and not sent. `status` is an error code of RFC 6750, section 3.1.
    """

    def __init__(self, reason: str, status: str = "invalid_token", scope: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


class ValidToken(NamedTuple):
    """What a validator returns: the principal's name, and when the token expires, in wall-clock milliseconds."""

    principal_name: str
    expires_ms: float | None


#: Called with the token and the extensions, on the server's thread. Raises InvalidTokenError.
TokenValidator = Callable[[str, Mapping[str, str]], "ValidToken | tuple[str, float | None]"]


class ClientMessage(NamedTuple):
    """The parts of the client's first message. Its repr does not show them."""

    token: str
    authorization_id: str
    extensions: Mapping[str, str]

    def __repr__(self) -> str:
        return f"ClientMessage({MASK})"


# "y" is a client that could bind to the TLS channel, "p" one that does; Kafka binds to none
_HEADER = re.compile(r"[ny],(?:a=((?:[^=,\x00]|=2C|=3D)+))?,")
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-._~+/A-Za-z0-9]+=*)")


def parse_client_message(message: bytes) -> ClientMessage:
    """Parse the client's first message. Raises SaslAuthenticationFailedError, without a part of it."""
    try:
        text = message.decode("utf-8")
    except UnicodeDecodeError:
        raise SaslAuthenticationFailedError(f"{_MALFORMED}: it is not UTF-8") from None
    header, *pairs = text.split(_SEPARATOR)
    matched = _HEADER.fullmatch(header)
    if matched is None:
        raise SaslAuthenticationFailedError(f"{_MALFORMED}: expected the GS2 header n,, without channel binding")
    if len(pairs) < 2 or pairs[-2:] != ["", ""]:
        raise SaslAuthenticationFailedError(f"{_MALFORMED}: it does not end with two bytes 0x01")
    fields: dict[str, str] = {}
    for pair in pairs[:-2]:
        name, equals, value = pair.partition("=")
        if not equals or name in fields:
            raise SaslAuthenticationFailedError(f"{_MALFORMED}: expected distinct names with values")
        fields[name] = value
    auth = fields.pop("auth", None)
    if auth is None:
        raise SaslAuthenticationFailedError(f"{_MALFORMED}: 'auth' not specified")
    check_extensions(fields)
    credentials = _AUTH.fullmatch(auth)
    if credentials is None or credentials["scheme"].lower() != "bearer":
        raise SaslAuthenticationFailedError(f"{_MALFORMED}: invalid 'auth' format; expected: Bearer TOKEN")
    authorization_id = (matched[1] or "").replace("=2C", ",").replace("=3D", "=")
    return ClientMessage(credentials["token"], authorization_id, fields)


class OAuthBearerServer:
    """The server's half. Implements ServerMechanism.

    A token that the validator rejects is answered with an error challenge; `respond` raises for the next message.
    """

    def __init__(self, validate: TokenValidator) -> None:
        """Store the validator. An error of it that is not InvalidTokenError is logged and rejects the token, too."""
        self._validate = validate
        self._rejection: str | None = None
        self._failed = False
        self._valid: ValidToken | None = None

    @property
    def is_complete(self) -> bool:
        return self._valid is not None

    @property
    def principal_name(self) -> str:
        return self._result().principal_name

    @property
    def expires_ms(self) -> float | None:
        return self._result().expires_ms

    def _result(self) -> ValidToken:
        if self._valid is None:
            raise IllegalStateError("the OAUTHBEARER exchange is not complete")
        return self._valid

    def respond(self, message: bytes) -> bytes:
        if self._failed or self._valid is not None:
            raise SaslAuthenticationFailedError("the OAUTHBEARER exchange is over")
        if self._rejection is not None:
            self._failed = True
            if message != _DUMMY:
                raise SaslAuthenticationFailedError("expected the byte 0x01 after the OAUTHBEARER error challenge")
            raise SaslAuthenticationFailedError(self._rejection)
        try:
            return self._respond_first(message)
        except SaslAuthenticationFailedError:
            self._failed = True
            raise

    def _respond_first(self, message: bytes) -> bytes:
        client = parse_client_message(message)
        try:
            valid = ValidToken(*self._validate(client.token, client.extensions))
        except InvalidTokenError as error:
            _log.info("A client's token is not valid: %s", scrubbed(str(error), [client.token]))
            return self._reject(error.status, error.scope)
        except Exception as error:
            _log.warning(
                "The token validator failed: %s: %s", type(error).__name__, scrubbed(str(error), [client.token])
            )
            return self._reject("invalid_token", None)
        if client.authorization_id and client.authorization_id != valid.principal_name:
            raise SaslAuthenticationFailedError(
                f"Authentication failed: Client requested an authorization id ({scrubbed(client.authorization_id)}) "
                "that is different from the token's principal name"
            )
        self._valid = valid
        return b""

    def _reject(self, status: str, scope: str | None) -> bytes:
        answer: dict[str, Any] = {"status": status}
        if scope is not None:
            answer["scope"] = scope
        self._rejection = json.dumps(answer, separators=(",", ":"))
        return self._rejection.encode("ascii")
