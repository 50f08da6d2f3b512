"""Which records `headrace consume` prints."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from typing import Any

from ...network.protocol.errors import KafkaConfigurationError
from ...network.records.record import Record
from ..text import timestamp_of

Test = Callable[[Record], bool]


def add_filter_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `filters_of`. A record is printed if it passes all of them."""
    group = parser.add_argument_group("filters", "a record is printed if it passes all of them")
    group.add_argument("--key", metavar="REGEX", help="the key matches somewhere")
    group.add_argument("--grep", metavar="REGEX", help="the value matches somewhere")
    group.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME[=REGEX]",
        help="there is such a header (and its value matches); may be repeated",
    )
    group.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="FIELD=TEXT",
        help="the value is JSON, and this field of it is that; FIELD may be a path, as in user.id; may be repeated",
    )
    group.add_argument("--since", metavar="TIME", help="records of this time or later: ISO 8601 (UTC) or milliseconds")
    group.add_argument("--until", metavar="TIME", help="records before this time")


class Filters:
    """The filters of the options. Raises KafkaConfigurationError for one that can't be understood."""

    def __init__(self, options: argparse.Namespace) -> None:
        #: Where to start reading, in milliseconds since 1970; None without --since.
        self.since_ms = _time("--since", options.since)
        until_ms = _time("--until", options.until)
        self._tests: list[Test] = []
        if self.since_ms is not None:
            since_ms = self.since_ms
            self._tests.append(lambda record: record.timestamp >= since_ms)
        if until_ms is not None:
            self._tests.append(lambda record: record.timestamp < until_ms)
        if options.key is not None:
            self._tests.append(_matching("--key", options.key, lambda record: record.key))
        if options.grep is not None:
            self._tests.append(_matching("--grep", options.grep, lambda record: record.value))
        self._tests += map(_header_test, options.header)
        wanted = [_split("--where", each) for each in options.where]
        if wanted:
            self._tests.append(lambda record: _has_fields(record.value, wanted))

    def __bool__(self) -> bool:
        """Whether any record may be left out."""
        return bool(self._tests)

    def pass_(self, record: Record) -> bool:
        """Whether to print the record."""
        return all(test(record) for test in self._tests)


def _time(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return timestamp_of(text)
    except ValueError:
        raise KafkaConfigurationError(
            f"{option} is {text!r}; give ISO 8601, as in 2026-11-23T09:00, or milliseconds since 1970"
        ) from None


def _pattern(option: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as wrong:
        raise KafkaConfigurationError(f"{option} {text!r} is not a regular expression: {wrong}") from None


def _matching(option: str, text: str, part: Callable[[Record], bytes | None]) -> Test:
    pattern = _pattern(option, text)

    def test(record: Record) -> bool:
        content = part(record)
        return content is not None and pattern.search(content.decode("utf-8", "replace")) is not None

    return test


def _split(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise KafkaConfigurationError(f"{option} takes FIELD=TEXT, not {text!r}")
    return name, value


def _header_test(text: str) -> Test:
    name, equals, wanted = text.partition("=")
    if not name:
        raise KafkaConfigurationError(f"--header takes NAME or NAME=REGEX, not {text!r}")
    pattern = _pattern("--header", wanted) if equals else None

    def test(record: Record) -> bool:
        values = [value for each, value in record.headers if each == name]
        if pattern is None:
            return bool(values)
        return any(value is not None and pattern.search(value.decode("utf-8", "replace")) for value in values)

    return test


def _has_fields(value: bytes | None, wanted: list[tuple[str, str]]) -> bool:
    try:
        content = json.loads(value or b"")
    except ValueError:
        return False
    return all(_field_is(content, path.split("."), text) for path, text in wanted)


def _field_is(content: Any, path: list[str], text: str) -> bool:
    for name in path:
        if isinstance(content, list) and name.isdecimal() and int(name) < len(content):
            content = content[int(name)]
        elif isinstance(content, dict) and name in content:
            content = content[name]
        else:
            return False
    return content == text if isinstance(content, str) else json.dumps(content) == text
