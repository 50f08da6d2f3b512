"""Templates: the parts of a record made from the columns of a row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from string import Formatter
from typing import Any, NamedTuple

from ...network.protocol.errors import KafkaConfigurationError
from ..text import milliseconds_of, timestamp_of
from .bad_rows import BadRow

LINE = "line"

Row = Mapping[str, Any]


class Part(NamedTuple):
    """What is sent of one row."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    partition: int | None
    timestamp_ms: int | None


class Template:
    """Text with {column}; {{ and }} are braces. Bytes and nulls of a template of one column are sent as they are.

    Raises KafkaConfigurationError for text that isn't a template.
    """

    def __init__(self, option: str, text: str) -> None:
        self._option = option
        try:
            parsed = list(Formatter().parse(text))
        except ValueError as wrong:
            raise KafkaConfigurationError(
                f"{option} {text!r}: {wrong}; write {{column}}, or {{{{ for a brace"
            ) from wrong
        self._pieces: list[tuple[str, str | None]] = []
        for literal, column, form, conversion in parsed:
            if column == "" or form or conversion:
                raise KafkaConfigurationError(f"{option} {text!r} may only have the names of columns in braces")
            self._pieces.append((literal, column))
        self._only = self._pieces[0][1] if len(self._pieces) == 1 and not self._pieces[0][0] else None

    def fill(self, row: Row) -> Any:
        """The text; for a template of one column, the column's value. Raises BadRow for a missing column."""
        if self._only is not None:
            return self._take(row, self._only)
        return "".join(
            literal + ("" if column is None else _text(self._take(row, column))) for literal, column in self._pieces
        )

    def _take(self, row: Row, column: str) -> Any:
        try:
            return row[column]
        except KeyError:
            known = ", ".join(map(str, row)) or "none"
            raise BadRow(f"{self._option} needs the column {column!r}; the row has: {known}") from None


class RecordTemplate:
    """Makes records of rows."""

    def __init__(
        self,
        *,
        topic: str,
        value: str | None,
        key: str | None,
        headers: Sequence[str],
        partition: str | None,
        timestamp: str | None,
    ) -> None:
        """The options of these names. Raises KafkaConfigurationError."""
        self._topic = Template("--topic", topic)
        self._value = None if value is None else Template("--value", value)
        self._key = None if key is None else Template("--key", key)
        self._partition = None if partition is None else Template("--partition", partition)
        self._timestamp = None if timestamp is None else Template("--timestamp", timestamp)
        self._headers: list[tuple[str, Template]] = []
        for each in headers:
            name, equals, text = each.partition("=")
            if not equals:
                raise KafkaConfigurationError(f"--header takes NAME=TEMPLATE, not {each!r}")
            self._headers.append((name, Template("--header", text)))

    def part_of(self, row: Row, raw: bytes | None) -> Part:
        """The record of a row. `raw` is its text, if that is its value by default. Raises BadRow."""
        default = _json(row) if raw is None and self._value is None else raw
        return Part(
            topic=_text(self._topic.fill(row)),
            value=default if self._value is None else _bytes(self._value.fill(row)),
            key=None if self._key is None else _bytes(self._key.fill(row)),
            headers=[(name, _bytes(each.fill(row))) for name, each in self._headers] or None,
            partition=None if self._partition is None else _number(self._partition.fill(row), "--partition"),
            timestamp_ms=None if self._timestamp is None else _timestamp(self._timestamp.fill(row)),
        )


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, (bool, dict, list)):
        return _json(value).decode()
    return _plain(value) if isinstance(value, (datetime, date, time)) else str(value)


def _bytes(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else _text(value).encode()


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain).encode()


def _plain(value: Any) -> Any:
    """What JSON has no type for: times in ISO 8601, decimals and anything else as text, bytes as UTF-8."""
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return int(value) if isinstance(value, Decimal) and value == value.to_integral_value() else str(value)


def _number(value: Any, option: str) -> int | None:
    if value is None or value == "":
        return None
    try:
        return int(value)
    except (TypeError, ValueError):
        raise BadRow(f"{option} is {value!r}, which is not a whole number") from None


def _timestamp(value: Any) -> int | None:
    if value is None or value == "":
        return None
    if isinstance(value, str):
        try:
            return timestamp_of(value)
        except ValueError:
            raise BadRow(f"--timestamp is {value!r}; give milliseconds since 1970, or ISO 8601") from None
    if isinstance(value, datetime):
        return milliseconds_of(value)
    return _number(value, "--timestamp")
