"""The rule for valid topic names, shared by the producer, the broker and the Spark sinks."""

from __future__ import annotations

import re

from .protocol.errors import InvalidTopicError

_MAX_LENGTH = 249
_LEGAL = re.compile(rf"[a-zA-Z0-9._-]{{1,{_MAX_LENGTH}}}")
_RULE = f"a name is a str of 1 to {_MAX_LENGTH} ASCII letters, digits, '.', '_' and '-', and not '.' or '..'"


def validate_topic_name(name: object) -> None:
    """Raise InvalidTopicError for a name that no topic can have. Any thread. Source: Kafka's ``Topic.validate``.

    A subclass of str is rejected as well: compiled code takes str only.
    """
    if type(name) is str and _LEGAL.fullmatch(name) is not None and name not in (".", ".."):
        return
    what = f"{type(name).__name__} {name!r:.100}" if type(name) is not str else f"{name!r:.100}"
    if type(name) is str and len(name) > _MAX_LENGTH:
        what += f" ({len(name)} characters)"
    raise InvalidTopicError(f"{what} can't be the name of a topic: {_RULE}")
