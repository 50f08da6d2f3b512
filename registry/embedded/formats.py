"""What the three types of schemas have in common: parsing, a canonical text, and compatibility checks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from .errors import invalid_schema


class Parsed(NamedTuple):
    """A parsed schema."""

    #: The text that is stored and returned.
    text: str
    #: Equal for schemas that are the same to the registry.
    identity: str
    #: What the format compares.
    model: Any


class Format(Protocol):
    """One type of schemas. Without state."""

    def parse(self, text: str, references: Mapping[str, Any], normalize: bool) -> Parsed:
        """Parse a schema. `references`: the texts of the schemas that it refers to, by name, the innermost first.

        Raises RestError (42201) for a schema that is not valid.
        """
        ...

    def problems(self, reader: Any, writer: Any) -> list[str]:
        """Why data of the model `writer` can't be read with `reader`; empty if it can."""
        ...


def load_json(text: str) -> Any:
    """Decode a schema's text. Raises RestError."""
    try:
        return json.loads(text)
    except ValueError as wrong:
        raise invalid_schema(f"it is not JSON ({wrong})") from wrong


def compact(value: Any, sort_keys: bool = False) -> str:
    """A schema's text without white space. `sort_keys` makes the order of properties irrelevant."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=sort_keys)
