"""Parsers of configuration values, from text or from Python objects.

Each raises ValueError. Its message continues a sentence that starts with the value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from operator import index
from typing import Any

#: Stands for a secret in messages and listings.
MASK = "******"


def parse_bool(value: Any) -> bool:
    """A bool, or the text true or false."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ValueError("is neither true nor false")


def parse_int(value: Any) -> int:
    """An integer, as a number (numpy integers and floats without a fraction included) or as decimal text."""
    if isinstance(value, str):
        if re.fullmatch(r"\s*[+-]?[0-9]{1,20}\s*", value) is None:
            raise ValueError("is not a whole number")
        return int(value)
    if isinstance(value, bool):
        raise ValueError("is not a whole number")
    try:
        if isinstance(value, float):
            value = int(value) if value.is_integer() else None
        return index(value)
    except TypeError:
        raise ValueError("is not a whole number") from None


def parse_str(value: Any) -> str:
    """Text only: a number in place of a name is a mistake."""
    if isinstance(value, str):
        return value
    raise ValueError("is not text")


def parse_list(value: Any) -> tuple[str, ...]:
    """Strings, as a list or tuple or separated by commas. Items are stripped, and empty ones dropped."""
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise ValueError("is not a list of texts")
    return tuple(stripped for item in value if (stripped := item.strip()))


def parse_path(value: Any) -> str:
    """A path, as text or as a path object."""
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(path, str) or not path.strip():
        raise ValueError("is not the path of a file")
    return path


#: The text of an annotation -> its description and its parser.
PARSERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "bool": ("true or false", parse_bool),
    "int": ("a whole number", parse_int),
    "str": ("text", parse_str),
    "tuple[str, ...]": ("a list, or text separated by commas", parse_list),
}


def shown(value: Any) -> str:
    """A rejected value as messages show it: shortened, and without the password of a URL."""
    text = repr(value)
    if "@" in text:
        # user:password@host
        masked = f"{MASK}@{(value if isinstance(value, str) else text).rpartition('@')[2]}"
        text = repr(masked) if isinstance(value, str) else masked
    return text if len(text) <= 200 else f"{text[:197]}..."
