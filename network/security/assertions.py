"""JWT assertions: what a client proves its identity with to an identity provider (RFC 7523; KIP-1139, KIP-1258)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from ..clock import SYSTEM_CLOCK, Clock
from ..config_values import MASK
from ..extras import optional_module
from ..protocol.errors import SaslAuthenticationFailedError
from .token import jwt_parts

#: Files of tokens, keys and templates are read up to this size.
MAX_FILE_BYTES = 1024 * 1024


class AssertionSource(Protocol):
    """Where assertions come from. Its repr has no secret. One thread calls it."""

    def create(self) -> str:
        """A new assertion. Raises SaslAuthenticationFailedError, or OSError if a file can't be read."""
        ...


def read_file(path: str, what: str) -> str:
    """The text of a small file. Raises SaslAuthenticationFailedError, or OSError, neither with any of its content."""
    with open(path, "rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise SaslAuthenticationFailedError(f"the file {path} of the {what} has more than {MAX_FILE_BYTES} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise SaslAuthenticationFailedError(f"the file {path} of the {what} is not text in UTF-8") from None


class FileAssertion:
    """Assertions from a file that another program renews. It is read for each request."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __repr__(self) -> str:
        return f"the assertion in {self._path}"

    def create(self) -> str:
        assertion = read_file(self._path, "assertion").strip()
        try:
            jwt_parts(assertion)
        except ValueError as error:
            raise SaslAuthenticationFailedError(f"the file {self._path} holds no JSON Web Token: {error}") from None
        return assertion


class AssertionSettings(NamedTuple):
    """The keys `sasl.oauthbearer.assertion.*` of assertions that are signed here. The repr does not show the key.

    The private key is in a PEM file, or is PEM text.
    """

    algorithm: str = "RS256"
    private_key_file: str | None = None
    private_key_pem: str | None = None
    private_key_passphrase: str | None = None
    audience: str | None = None
    issuer: str | None = None
    subject: str | None = None
    expires_seconds: int = 300
    not_before_seconds: int = 60
    include_id: bool = False
    template_file: str | None = None

    def __repr__(self) -> str:
        return f"AssertionSettings({self.algorithm}, {self.private_key_file or MASK})"


class SignedAssertion:
    """Assertions signed with a private key. The key and the template are read again for each."""

    def __init__(self, settings: AssertionSettings, clock: Clock = SYSTEM_CLOCK) -> None:
        """Store the arguments. Raises KafkaConfigurationError if PyJWT or cryptography is not installed."""
        self._settings = settings
        self._clock = clock
        self._jwt = optional_module("jwt", "jwt", "a signed assertion (sasl.oauthbearer.assertion.private.key.file)")
        self._serialization = optional_module(
            "cryptography.hazmat.primitives.serialization", "jwt", "a signed assertion"
        )

    def __repr__(self) -> str:
        settings = self._settings
        return f"assertions signed with the {settings.algorithm} key {settings.private_key_file or '(PEM text)'}"

    def create(self) -> str:
        settings = self._settings
        header, claims = self._template()
        now_s = self._clock.wall_ms() // 1000
        given = {"aud": settings.audience, "iss": settings.issuer, "sub": settings.subject}
        claims.update((name, value) for name, value in given.items() if value is not None)
        claims.update(iat=now_s, exp=now_s + settings.expires_seconds, nbf=now_s - settings.not_before_seconds)
        if settings.include_id:
            claims["jti"] = str(uuid.uuid4())
        header.pop("alg", None)
        try:
            return self._jwt.encode(claims, self._key(), algorithm=settings.algorithm, headers=header)
        except (self._jwt.PyJWTError, TypeError, ValueError) as error:
            raise SaslAuthenticationFailedError(
                f"{self!r} can't be made ({type(error).__name__}); is it a key for {settings.algorithm}?"
            ) from None

    def _template(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The header and the claims of the template (KIP-1139), a JSON object with both."""
        path = self._settings.template_file
        if path is None:
            return {}, {}
        text = read_file(path, "assertion template")
        try:
            template = json.loads(text)
        except (ValueError, RecursionError):
            template = None
        parts = (template.get("header", {}), template.get("payload", {})) if isinstance(template, Mapping) else (0, 0)
        if not all(isinstance(part, dict) for part in parts):
            raise SaslAuthenticationFailedError(
                f'the assertion template {path} is not a JSON object {{"header": {{...}}, "payload": {{...}}}}'
            )
        return parts  # pyright: ignore[reportReturnType]

    def _key(self) -> Any:
        settings = self._settings
        if settings.private_key_file is not None:
            pem = read_file(settings.private_key_file, "private key").encode()
        else:
            pem = (settings.private_key_pem or "").encode()
        passphrase = settings.private_key_passphrase
        try:
            return self._serialization.load_pem_private_key(pem, passphrase.encode() if passphrase else None)
        except (TypeError, ValueError):
            # the library's text may quote the input
            where = settings.private_key_file or "sasl.oauthbearer.assertion.private.key.pem"
            raise SaslAuthenticationFailedError(
                f"{where} is not a private key in PEM, or sasl.oauthbearer.assertion.private.key.passphrase is "
                f"{'wrong for it' if passphrase else 'missing'}"
            ) from None
