"""Java's login configuration in one line: `sasl.jaas.config`.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";

Only what Kafka accepts in a property: one login module. Quoted values may have backslash escapes, as in Java.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

#: The mechanisms of each login module, by the last part of its class name: some distributions rename the packages.
MODULES: Mapping[str, tuple[str, ...]] = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
    "Krb5LoginModule": ("GSSAPI",),
}

_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<mark>[=;])|(?P<word>[^\s=;"']+))""", re.DOTALL
)
_EXAMPLE = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="...";'


@dataclass(frozen=True)
class JaasEntry:
    """A login module and its options, whose values may be secrets."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms that the module is for."""
        return MODULES[self.module]


def parse_jaas(text: str) -> JaasEntry:
    """Parse an entry. Raises ValueError; its message has no part of a value and continues a sentence."""
    tokens = _tokens(text)
    if len(tokens) < 2 or tokens[-1] != (";", True):
        raise ValueError(f"is not a login module that ends with a semicolon, such as {_EXAMPLE}")
    (module, _), (flag, _), *rest = tokens
    name = module.rpartition(".")[2]
    if name not in MODULES:
        raise ValueError(f"names a login module that is not supported; choose one of {', '.join(MODULES)}")
    if flag.lower() not in _FLAGS:
        raise ValueError(f"has no control flag behind {name}; write {name} required ...")
    options: dict[str, str] = {}
    while len(rest) > 1:
        if len(rest) < 4 or rest[0][1] or rest[1] != ("=", True) or rest[2][1]:
            many = rest[0] == (";", True)
            raise ValueError("has more than one login module" if many else f"has an option of {name} without a value")
        options[rest[0][0]] = rest[2][0]
        rest = rest[3:]
    return JaasEntry(name, options)


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Words and quoted texts, and the marks `=` and `;`, for which the flag is true."""
    tokens: list[tuple[str, bool]] = []
    position = 0
    text = text.rstrip()
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError(f"has a quotation mark at position {position + 1} that is not closed")
        quoted, mark, word = found.group("quoted", "mark", "word")
        if quoted is not None:
            tokens.append((re.sub(r"\\(.)", r"\1", quoted[1:-1], flags=re.DOTALL), False))
        else:
            tokens.append((mark or word, mark is not None))
        position = found.end()
    return tokens
