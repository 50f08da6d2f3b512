"""The rule for valid topic names, shared by the producer, the broker and the Spark sinks."""

from __future__ import annotations

import re
from typing import Any

from .protocol.errors import InvalidTopicError

_MAX_LENGTH = 249
_LEGAL = re.compile(rf"[a-zA-Z0-9._-]{{1,{_MAX_LENGTH}}}")
_RULE = f"a name is a str of 1 to {_MAX_LENGTH} ASCII letters, digits, '.', '_' and '-', and not '.' or '..'"


def plain_name(name: Any) -> Any:
    """The text of a subclass of str, such as a `StrEnum` or numpy's, which compiled code would not take; else `name`.

    Not ``str(name)``: that is ``Topic.ORDERS`` for a member of a class that derives from str and Enum.
    """
    return str.__str__(name) if isinstance(name, str) else name


def validate_topic_name(name: object) -> str:
    """Return a topic's name as a plain str. Any thread. Source: Kafka's ``Topic.validate``.

    Raises InvalidTopicError for a name that no topic can have.
    """
    text = plain_name(name)
    if isinstance(text, str):
        if _LEGAL.fullmatch(text) is not None and text not in (".", ".."):
            return text
        what = f"{text!r:.100}"
        if len(text) > _MAX_LENGTH:
            what += f" ({len(text)} characters)"
    else:
        what = f"{type(name).__name__} {name!r:.100}"
    raise InvalidTopicError(f"{what} can't be the name of a topic: {_RULE}")
