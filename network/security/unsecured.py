"""Unsecured JSON Web Tokens (RFC 7519, section 6), for development: anyone can make them.

As librdkafka's `enable.sasl.oauthbearer.unsecure.jwt`, with its `sasl.oauthbearer.config`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from ..clock import SYSTEM_CLOCK, Clock
from ..protocol.errors import KafkaConfigurationError, SaslAuthenticationFailedError
from .token import Token, check_extensions, encode_segment

_EXTENSION = "extension_"
_EXPECTED = "expected: principal=NAME [principalClaimName=sub] [scope=A,B] [scopeClaimName=scope] [lifeSeconds=3600]"


class Unsecured(NamedTuple):
    """The content of unsecured tokens."""

    principal: str
    principal_claim_name: str
    scopes: tuple[str, ...]
    scope_claim_name: str
    life_seconds: int
    extensions: dict[str, str]


def parse_unsecured(text: str) -> Unsecured:
    """Parse the `sasl.oauthbearer.config` of unsecured tokens: name=value pairs, separated by white space.

    Names beginning with ``extension_`` are SASL extensions. Raises KafkaConfigurationError.
    """
    known = {
        "principal": "",
        "principalClaimName": "sub",
        "scope": "",
        "scopeClaimName": "scope",
        "lifeSeconds": "3600",
    }
    extensions: dict[str, str] = {}
    for pair in text.split():
        name, equals, value = pair.partition("=")
        if equals and name.startswith(_EXTENSION):
            extensions[name.removeprefix(_EXTENSION)] = value
        elif equals and name in known:
            known[name] = value
        else:
            raise KafkaConfigurationError(f"sasl.oauthbearer.config has {name!r}, which is not known; {_EXPECTED}")
    if not known["principal"]:
        raise KafkaConfigurationError(f"sasl.oauthbearer.config names no principal for unsecured tokens; {_EXPECTED}")
    if re.fullmatch(r"[1-9][0-9]{0,8}", known["lifeSeconds"]) is None:
        raise KafkaConfigurationError(f"sasl.oauthbearer.config: lifeSeconds is no positive number; {_EXPECTED}")
    try:
        check_extensions(extensions)
    except SaslAuthenticationFailedError as error:
        raise KafkaConfigurationError(f"sasl.oauthbearer.config: {error}") from None
    return Unsecured(
        known["principal"],
        known["principalClaimName"],
        tuple(each for each in known["scope"].split(",") if each),
        known["scopeClaimName"],
        int(known["lifeSeconds"]),
        extensions,
    )


class UnsecuredSource:
    """Unsecured tokens, made here. Implements TokenSource."""

    def __init__(
        self, content: Unsecured, extensions: Mapping[str, str] | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """Store the arguments. `extensions` are added to those of the content."""
        self._content = content
        self._extensions = {**(extensions or {}), **content.extensions}
        self._clock = clock

    def __repr__(self) -> str:
        return f"unsecured tokens for {self._content.principal}"

    def fetch(self) -> Token:
        content = self._content
        now_s = self._clock.wall_ms() / 1000.0
        claims: dict[str, object] = {
            content.principal_claim_name: content.principal,
            "iat": now_s,
            "exp": now_s + content.life_seconds,
        }
        if content.scopes:
            claims[content.scope_claim_name] = list(content.scopes)
        parts = ({"alg": "none"}, claims)
        encoded = [encode_segment(json.dumps(part, separators=(",", ":")).encode()) for part in parts]
        return Token(f"{'.'.join(encoded)}.", extensions=self._extensions)

    def close(self) -> None:
        """Nothing is kept open."""
