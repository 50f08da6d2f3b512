"""Validators of the OAUTHBEARER server: for unsecured JSON Web Tokens (development), and for signed ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..clock import SYSTEM_CLOCK, Clock
from ..extras import optional_module
from ..protocol.errors import KafkaConfigurationError
from .oauthbearer import InvalidTokenError, ValidToken
from .token import claimed_time_ms, decode_segment, jwt_parts, scrubbed

#: Signatures of a public key. Never HMAC, for which the public key would serve as the secret.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


class UnsecuredJwtValidator:
    """Accepts any JSON Web Token with ``alg: none``, a name and an expiry: for development only.

    As Kafka's default for OAUTHBEARER (OAuthBearerUnsecuredValidatorCallbackHandler).
    """

    def __init__(
        self,
        *,
        sub_claim_name: str = "sub",
        scope_claim_name: str = "scope",
        required_scope: tuple[str, ...] = (),
        clock_skew_ms: float = 0.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Store the arguments.

        `sub_claim_name` is the claim that holds the principal's name.
        `scope_claim_name` is the claim with the scopes, a list or text separated by spaces.
        `required_scope` lists scopes that a token must have.
        `clock_skew_ms` is tolerated for issue and expiry.
        """
        self._sub_claim_name = sub_claim_name
        self._scope_claim_name = scope_claim_name
        self._required_scope = required_scope
        self._clock_skew_ms = clock_skew_ms
        self._clock = clock

    def __call__(self, token: str, extensions: Mapping[str, str]) -> ValidToken:
        try:
            header, claims = jwt_parts(token)
        except ValueError as error:
            raise InvalidTokenError(f"not a JSON Web Token: {error}") from None
        if header.get("alg") != "none" or decode_segment(token.rpartition(".")[2]):
            raise InvalidTokenError(f"its algorithm is {header.get('alg')!r}; expected 'none', without a signature")
        name = _name_of(claims, self._sub_claim_name)
        now_ms, skew_ms = self._clock.wall_ms(), self._clock_skew_ms
        expires_ms, issued_ms = claimed_time_ms(claims, "exp"), claimed_time_ms(claims, "iat")
        not_before_ms = claimed_time_ms(claims, "nbf")
        if expires_ms is None:
            raise InvalidTokenError("it has no expiry (exp)")
        if now_ms - skew_ms >= expires_ms:
            raise InvalidTokenError(f"it expired {(now_ms - expires_ms) / 1000.0:.0f} s ago")
        for begin_ms in (issued_ms, not_before_ms):
            if begin_ms is not None and (begin_ms > now_ms + skew_ms or begin_ms >= expires_ms):
                raise InvalidTokenError("it is issued or valid (iat, nbf) only later")
        scope = claims.get(self._scope_claim_name, ())
        scopes = scope.split() if isinstance(scope, str) else scope if isinstance(scope, (list, tuple)) else ()
        missing = [each for each in self._required_scope if each not in scopes]
        if missing:
            raise InvalidTokenError("it lacks a scope", "insufficient_scope", " ".join(self._required_scope))
        return ValidToken(name, expires_ms)


class SignedJwtValidator:
    """Accepts JSON Web Tokens with a signature of one of the given keys (Kafka's BrokerJwtValidator).

    Needs PyJWT and cryptography: ``pip install 'headrace[jwt]'``.
    """

    def __init__(
        self,
        jwks: Mapping[str, Any],
        *,
        issuer: str | None = None,
        audience: str | None = None,
        sub_claim_name: str = "sub",
        clock_skew_seconds: float = 30.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Store the arguments.

        `jwks` is the identity provider's key set (RFC 7517), decoded.
        `issuer` and `audience` must be the token's, if given (`sasl.oauthbearer.expected.issuer`, `.audience`).
        `sub_claim_name` is the claim that holds the principal's name.
        `clock_skew_seconds` is tolerated for issue and expiry.

        Raises KafkaConfigurationError if the key set is not valid or PyJWT is not installed.
        """
        self._jwt = jwt = optional_module("jwt", "jwt", "validating signed tokens")
        optional_module("cryptography", "jwt", "validating signed tokens")
        try:
            self._keys = jwt.PyJWKSet.from_dict(dict(jwks)).keys
        except (jwt.PyJWTError, TypeError, ValueError, KeyError) as error:
            raise KafkaConfigurationError(f"the JSON Web Key Set is not valid: {error}") from error
        self._issuer = issuer
        self._audience = audience
        self._sub_claim_name = sub_claim_name
        self._skew_ms = clock_skew_seconds * 1000.0
        self._clock = clock

    def __call__(self, token: str, extensions: Mapping[str, str]) -> ValidToken:
        jwt = self._jwt
        try:
            header = jwt.get_unverified_header(token)
            algorithm = header.get("alg")
            if algorithm not in ALGORITHMS:
                raise InvalidTokenError(f"its algorithm is {scrubbed(repr(algorithm))}; expected one of {ALGORITHMS}")
            claims = jwt.decode(
                token,
                self._key(header.get("kid")),
                algorithms=[algorithm],
                issuer=self._issuer,
                audience=self._audience,
                # the times are checked below, by the injected clock
                options={
                    "require": ["exp"],
                    "verify_aud": self._audience is not None,
                    "verify_exp": False,
                    "verify_iat": False,
                    "verify_nbf": False,
                },
            )
        except (jwt.PyJWTError, TypeError, ValueError) as error:
            raise InvalidTokenError(f"{type(error).__name__}: {error}") from None
        now_ms, expires_ms = self._clock.wall_ms(), claimed_time_ms(claims, "exp")
        if expires_ms is None or now_ms - self._skew_ms >= expires_ms:
            raise InvalidTokenError("it has expired")
        for name in ("iat", "nbf"):
            begin_ms = claimed_time_ms(claims, name)
            if begin_ms is not None and begin_ms > now_ms + self._skew_ms:
                raise InvalidTokenError(f"it is valid only later ({name})")
        return ValidToken(_name_of(claims, self._sub_claim_name), expires_ms)

    def _key(self, key_id: Any) -> Any:
        """The key with the id of the token; the only key, if the token names none."""
        for key in self._keys:
            if key.key_id == key_id or (key_id is None and len(self._keys) == 1):
                return key
        raise InvalidTokenError(f"its key {scrubbed(repr(key_id))} is not in the key set of {len(self._keys)} keys")


def _name_of(claims: Mapping[str, Any], claim_name: str) -> str:
    name = claims.get(claim_name)
    if not isinstance(name, str) or not name.strip():
        raise InvalidTokenError(f"its claim {claim_name} is no name")
    return name
