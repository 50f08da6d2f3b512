"""Bearer tokens, and the sources that they are fetched from.

A token is opaque to a client, except that the expiry of a JSON Web Token (RFC 7519) can be read from it.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from ..config_values import MASK
from ..protocol.errors import SaslAuthenticationFailedError

#: Apache Kafka's `sasl.server.max.receive.size`, less room for the header and the extensions of the message.
MAX_TOKEN_CHARACTERS = 500_000

#: Error texts of other programs are shown up to this length.
MAX_SHOWN_CHARACTERS = 300

# b64token of RFC 6750, section 2.1
_TOKEN = re.compile(r"[-._~+/A-Za-z0-9]+=*")
_NOT_OF_A_TOKEN = re.compile(r"[^-._~+/=A-Za-z0-9]")
_JWT_IN_TEXT = re.compile(r"eyJ[-\w]*\.[-\w.]+")
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")


class Token:
    """A bearer token with its extensions (KIP-342). Immutable. Its repr does not show the value.

    `expires_ms` and `issued_ms` are wall-clock milliseconds, or None if unknown.
    """

    __slots__ = ("expires_ms", "extensions", "issued_ms", "value")

    def __init__(
        self,
        value: str,
        *,
        expires_ms: float | None = None,
        issued_ms: float | None = None,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        """Check and store a token. A time of None is read from the value if that is a JSON Web Token.

        Raises SaslAuthenticationFailedError, without the value, if it can't be sent as a bearer token.
        """
        check_token(value)
        check_extensions(extensions or {})
        claimed_issue_ms, claimed_expiry_ms = jwt_times_ms(value)
        self.value = value
        self.expires_ms = claimed_expiry_ms if expires_ms is None else float(expires_ms)
        self.issued_ms = claimed_issue_ms if issued_ms is None else float(issued_ms)
        self.extensions: Mapping[str, str] = MappingProxyType(dict(extensions or {}))

    def __repr__(self) -> str:
        return f"Token({MASK}, expires_ms={self.expires_ms}, extensions={sorted(self.extensions)})"


class TokenSource(Protocol):
    """Where tokens come from. Its repr is shown in messages and has no secret. One thread calls it."""

    def fetch(self) -> Token:
        """A new token. May block.

        Raises RetriableError or OSError if another attempt may soon succeed, and any other error if that is unlikely.
        """
        ...

    def close(self) -> None:
        """Release what `fetch` keeps. Called by the thread that calls `fetch`, last."""
        ...


def check_token(value: Any) -> None:
    """Raise SaslAuthenticationFailedError, without the value, if it is not a bearer token (RFC 6750)."""
    if not isinstance(value, str):
        raise SaslAuthenticationFailedError(f"the token is of type {type(value).__name__}; expected a str")
    if not value:
        raise SaslAuthenticationFailedError("the token is empty; expected a bearer token (RFC 6750)")
    if len(value) > MAX_TOKEN_CHARACTERS:
        raise SaslAuthenticationFailedError(
            f"the token has {len(value)} characters; brokers accept at most {MAX_TOKEN_CHARACTERS}"
        )
    if _TOKEN.fullmatch(value) is None:
        wrong = _NOT_OF_A_TOKEN.search(value)
        where = "a misplaced '='" if wrong is None else f"U+{ord(wrong[0]):04X} at position {wrong.start()}"
        raise SaslAuthenticationFailedError(
            f"the token of {len(value)} characters has {where}; allowed are letters, digits, -._~+/ and = at the end "
            "(RFC 6750). Is there white space around it?"
        )


def check_extensions(extensions: Mapping[Any, Any]) -> None:
    """Raise SaslAuthenticationFailedError for a name or value that RFC 7628, section 3.1, doesn't allow."""
    for name, value in extensions.items():
        if not isinstance(name, str) or _EXTENSION_NAME.fullmatch(name) is None or name == "auth":
            raise SaslAuthenticationFailedError(
                f"{name!r} can't be the name of a SASL extension; allowed are letters, except the name auth"
            )
        if not isinstance(value, str) or _EXTENSION_VALUE.fullmatch(value) is None:
            raise SaslAuthenticationFailedError(
                f"the value of the SASL extension {name} is empty or has a character outside of printable ASCII"
            )


def decode_segment(segment: str) -> bytes:
    """The bytes of a segment of a JSON Web Token: base64url without padding. Raises ValueError."""
    if re.fullmatch(r"[-_A-Za-z0-9]*", segment) is None:
        raise ValueError("not base64url")
    try:
        return base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    except binascii.Error as error:
        raise ValueError("not base64url") from error


def encode_segment(data: bytes) -> str:
    """The base64url text of bytes, without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def jwt_parts(value: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the claims of a JSON Web Token, not verified. Raises ValueError, without the value."""
    segments = value.split(".")
    if len(segments) != 3:
        raise ValueError(f"it has {len(segments)} segments instead of 3")
    try:
        header, claims = (json.loads(decode_segment(segment)) for segment in segments[:2])
    except (ValueError, RecursionError):
        raise ValueError("its header or its claims are not JSON in base64url") from None
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise ValueError("its header or its claims are not a JSON object")
    return header, claims


def claimed_time_ms(claims: Mapping[str, Any], name: str) -> float | None:
    """A claim of a time (NumericDate, seconds since 1970) in milliseconds; None if it is absent or no finite number."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        milliseconds = float(value) * 1000.0
    except OverflowError:
        return None
    return milliseconds if math.isfinite(milliseconds) else None


def jwt_times_ms(value: str) -> tuple[float | None, float | None]:
    """When a JSON Web Token was issued and when it expires; None for what it doesn't say or if it is another token."""
    try:
        _, claims = jwt_parts(value)
    except ValueError:
        return None, None
    return claimed_time_ms(claims, "iat"), claimed_time_ms(claims, "exp")


def scrubbed(text: str, secrets: Iterable[str | None] = ()) -> str:
    """`text` of another program, for a message: secrets and JSON Web Tokens masked, in one line, shortened."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, MASK)
    text = " ".join(_JWT_IN_TEXT.sub(MASK, text).split())
    text = "".join(each if each.isprintable() else "?" for each in text)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[: MAX_SHOWN_CHARACTERS - 3]}..."
