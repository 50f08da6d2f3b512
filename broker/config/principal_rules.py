"""`ssl.principal.mapping.rules`: how the subject of a client's certificate becomes its name (KIP-371)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

_PART = r"((?:\\.|[^\\/])*)"
_RULE = re.compile(rf"\s*(?:(?P<default>DEFAULT)|RULE:{_PART}/{_PART}/([LU]?))\s*")
_GROUP = re.compile(r"\$(\d)")


class PrincipalRule(NamedTuple):
    """One rule. `pattern` is None for DEFAULT, which takes the whole subject."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""
    text: str = "DEFAULT"

    def __str__(self) -> str:
        return self.text

    def apply(self, subject: str) -> str | None:
        """The name for a subject; None if the rule does not match the whole of it."""
        if self.pattern is None:
            return subject
        found = self.pattern.fullmatch(subject)
        if found is None:
            return None
        name = _GROUP.sub(lambda group: found[int(group[1])] or "", self.replacement)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


def parse_principal_rules(value: Any) -> tuple[PrincipalRule, ...]:
    """Parse rules in Kafka's syntax: `RULE:pattern/replacement/[LU]` and `DEFAULT`, separated by commas.

    Raises ValueError.
    """
    if isinstance(value, tuple) and all(isinstance(each, PrincipalRule) for each in value):
        return value
    text = ",".join(value) if isinstance(value, (list, tuple)) else value
    if not isinstance(text, str):
        raise ValueError("is not text")
    rules: list[PrincipalRule] = []
    at = 0
    while at < len(text):
        found = _RULE.match(text, at)
        if found is None or (found.end() < len(text) and text[found.end()] != ","):
            raise ValueError(f"has {text[at:]!r}, which is neither RULE:pattern/replacement/[LU] nor DEFAULT")
        rules.append(_rule(found))
        at = found.end() + 1
    return tuple(rules) or (PrincipalRule(None),)


def _rule(found: re.Match[str]) -> PrincipalRule:
    if found["default"]:
        return PrincipalRule(None)
    _, pattern, replacement, case = found.groups()
    try:
        compiled = re.compile(pattern.replace("\\/", "/"))
    except re.error as error:
        raise ValueError(f"has the pattern {pattern!r}, which is not valid: {error}") from None
    for group in _GROUP.findall(replacement):
        if int(group) > compiled.groups:
            raise ValueError(f"refers to ${group}, but the pattern {pattern!r} has {compiled.groups} groups")
    return PrincipalRule(compiled, replacement.replace("\\/", "/"), case, found[0].strip())


def show_principal_rules(rules: Sequence[PrincipalRule]) -> str:
    """The rules as text."""
    return ",".join(each.text for each in rules)


def map_principal(rules: Sequence[PrincipalRule], subject: str) -> str | None:
    """The name of the first rule that matches a subject (RFC 2253 text); None if none does."""
    for rule in rules:
        name = rule.apply(subject)
        if name is not None:
            return name
    return None
