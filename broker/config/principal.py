"""Principals: the names under which connections are authorized, as Kafka writes them: `User:alice`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

#: The principal of a client that has not authenticated (Kafka's `KafkaPrincipal.ANONYMOUS`).
ANONYMOUS = "User:ANONYMOUS"

#: In an access control entry: every principal.
EVERYONE = "User:*"


def parse_principal(text: str) -> str:
    """Return a principal unchanged. Raises ValueError unless it is a type and a name, such as `User:alice`."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"{text!r} is not a principal; give its type and name, such as User:alice")
    return text


def parse_super_users(value: Any) -> tuple[str, ...]:
    """Parse principals separated by semicolons, because the names of certificates have commas. A list is taken as it
    is. Raises ValueError."""
    if isinstance(value, str):
        given: Iterable[Any] = value.split(";")
    elif isinstance(value, (list, tuple)):
        given = value
    else:
        raise ValueError("is not text or a list")
    texts = [each.strip() if isinstance(each, str) else each for each in given]
    for each in texts:
        if not isinstance(each, str):
            raise ValueError(f"has {each!r}, which is not text")
        try:
            parse_principal(each or EVERYONE)
        except ValueError:
            raise ValueError(f"has {each!r}, which is not a principal such as User:alice") from None
    return tuple(dict.fromkeys(filter(None, texts)))
