"""Reads configuration files, Java properties or TOML, as (key, value, origin) items. It does not interpret keys."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from .protocol.errors import KafkaConfigurationError

_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_config_file(path: str) -> list[tuple[str, Any, str]]:
    """Read a file whose name ends in `.toml` as TOML and any other as Java properties; UTF-8 either way.

    A leading `~` is the home directory. An item's origin names the file and line, for messages and origins. Raises
    KafkaConfigurationError if the file can't be read or parsed. Blocks on the disk.
    """
    path = os.path.expanduser(path)
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except OSError as error:
        raise KafkaConfigurationError(
            f"the configuration file {path} can't be read ({error.strerror}); check config.file"
        ) from error
    except UnicodeDecodeError as error:
        raise KafkaConfigurationError(f"the configuration file {path} is not UTF-8 text: {error}") from error
    if path.lower().endswith(".toml"):
        return [(key, value, f"file {path}") for key, value in _toml(text, path)]
    return [(key, value, f"file {path} line {line}") for key, value, line in _properties(text, path)]


def _toml(text: str, path: str) -> Iterator[tuple[str, Any]]:
    try:
        import tomllib  # noqa: PLC0415  # pyright: ignore[reportMissingImports]  (since Python 3.11 only)
    except ImportError:
        raise KafkaConfigurationError(
            f"{path} is TOML, which this Python (before 3.11) can't read; write it as a .properties file"
        ) from None
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise KafkaConfigurationError(f"the configuration file {path} is not TOML: {error}") from None
    return _flat(tables, "")


def _flat(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    # `linger.ms = 5` is a nested table in TOML and one key in Kafka
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _properties(text: str, path: str) -> Iterator[tuple[str, str, int]]:
    """Java's format: `key=value`, `key: value` or `key value`, # and ! comments, continued lines, backslash escapes."""
    lines = enumerate(re.split(r"\r\n|\n|\r", text), start=1)
    for number, line in lines:
        logical = line.lstrip(" \t\f")
        if not logical or logical[0] in "#!":
            continue
        while _is_continued(logical):
            _, following = next(lines, (0, ""))
            logical = logical[:-1] + following.lstrip(" \t\f")
        end = _end_of_key(logical)
        key, value = logical[:end], logical[end:].lstrip(" \t\f")
        if value[:1] in ("=", ":"):
            value = value[1:].lstrip(" \t\f")
        if not key:
            raise KafkaConfigurationError(f"{path} line {number} has no key before the {logical[0]!r}")
        yield _unescape(key), _unescape(value), number


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _end_of_key(line: str) -> int:
    escaped = False
    for position, character in enumerate(line):
        if not escaped and character in "=: \t\f":
            return position
        escaped = character == "\\" and not escaped
    return len(line)


def _unescape(text: str) -> str:
    def replacement(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPED.get(code, code)

    # two \\u escapes may be the surrogates of one character
    return _ESCAPE.sub(replacement, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
