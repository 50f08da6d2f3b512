"""Bytes as text that a person can read. Nothing of it is markup, and no character changes how the rest is shown."""

from __future__ import annotations

import base64
import json
import struct
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

_MAGIC = 0
_GUID_MAGIC = 1
#: The magic and a schema's GUID, in a header.
_GUID_BYTES = 17
_PREFIX = struct.Struct(">BI")
_MAX_DEPTH = 100
_HEX_WIDTH = 16
#: Characters of a list's row. The rest is in the record's own view.
LINE_CHARACTERS = 400

#: Decodes data by a schema's id or GUID: format and value. Raises Undecodable.
Decode = Callable[[int | str, bytes], "tuple[str, Any]"]


class Undecodable(Exception):
    """The data can't be decoded by its schema; the message says why."""


class Readable(NamedTuple):
    """Content as text. format: "null", "empty", "json", "text", "msgpack", "hex", or that of a schema ("avro", ...).
    note: what a person should know about it."""

    format: str
    text: str
    note: str = ""


def readable(
    content: bytes | None,
    size: int,
    header: bytes | None = None,
    decode: Decode | None = None,
    *,
    pretty: bool = True,
) -> Readable:
    """The first bytes of a key or value as text.

    content: what is known of `size` bytes. header: the record's header that names its schema, if it has one. decode:
    looks up schemas. pretty: over several lines.
    """
    if content is None:
        return Readable("null", "null")
    if size == 0:
        return Readable("empty", "")
    note = "" if len(content) >= size else f"the first {len(content):,} of {size:,} bytes"
    is_whole = not note
    framed = _framed(content, header)
    if framed is not None:
        found = (
            _by_schema(*framed, content, decode, pretty) if is_whole else Readable("hex", _hex(content, pretty), note)
        )
        if found is not None:
            return found
    if is_whole:
        parsed = _json(content) or _msgpack(content)
        if parsed is not None:
            name, value = parsed
            try:
                return Readable(name, json_text(value, pretty))
            except (RecursionError, ValueError):
                # nested too deeply to be shown as a structure
                note = f"{name}, nested too deeply to be laid out"
    text = _text(content, is_whole)
    if text is not None:
        return Readable("text", printable(text, keep_lines=pretty), note)
    return Readable("hex", _hex(content, pretty), note)


def line_of(shown: Readable) -> str:
    """The start of the text, for a row of a list."""
    text = shown.text
    return text if len(text) <= LINE_CHARACTERS else f"{text[:LINE_CHARACTERS]}…"


def raw_views(content: bytes | None) -> dict[str, str]:
    """The same bytes without any interpretation: as text, with escapes for what is not text, and as a hex dump."""
    if content is None:
        return {"text": "null", "hex": ""}
    return {"text": printable(content.decode(errors="backslashreplace"), keep_lines=True), "hex": _hex(content, True)}


def printable(text: str, *, keep_lines: bool) -> str:
    """Text without control characters, which could hide or reorder what surrounds them: they become escapes."""
    if text.isprintable():
        return text
    kept = "\n\t" if keep_lines else ""
    return "".join(each if each.isprintable() or each in kept else _escape(each) for each in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape", errors="backslashreplace").decode("ascii")


def _hex(content: bytes, pretty: bool) -> str:
    if not pretty:
        return content.hex(" ")
    lines = []
    for at in range(0, len(content), _HEX_WIDTH):
        part = content[at : at + _HEX_WIDTH]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:06x}  {part.hex(' '):<{_HEX_WIDTH * 3 - 1}}  {shown}")
    return "\n".join(lines)


def _text(content: bytes, is_whole: bool) -> str | None:
    """The content as text; None if it isn't. What is cut off may end within a character."""
    try:
        text = content.decode()
    except UnicodeDecodeError as wrong:
        if is_whole or wrong.start < len(content) - 3:
            return None
        text = content[: wrong.start].decode()
    # binary data is often valid UTF-8, but has control characters
    return None if any(each < " " and each not in "\n\r\t" for each in text) else text


def _json(content: bytes) -> tuple[str, Any] | None:
    if content.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        return "json", json.loads(content.decode(), parse_float=_Number, parse_constant=_Number)
    except (ValueError, RecursionError):
        return None


class _Number(str):
    """A number of a JSON text, as it is written there: 1.0 and 1e400 stay what they are."""

    __slots__ = ()


def _msgpack(content: bytes) -> tuple[str, Any] | None:
    """Only maps and arrays: any single byte is a number in MessagePack."""
    import msgpack  # noqa: PLC0415 - only where records are shown

    first = content[0]
    if not (0x80 <= first <= 0x9F or 0xDC <= first <= 0xDF):
        return None
    try:
        return "msgpack", msgpack.unpackb(content, raw=False, strict_map_key=False, timestamp=0)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        return None


def _framed(content: bytes, header: bytes | None) -> tuple[int | str, bytes] | None:
    """A schema's id or GUID and the data, for what a registry's serializers wrote: see `registry.framing`."""
    if header is not None and len(header) >= _GUID_BYTES and header[0] == _GUID_MAGIC:
        # the indexes of a Protobuf message are in the header, too
        return str(uuid.UUID(bytes=bytes(header[1:_GUID_BYTES]))), bytes(header[_GUID_BYTES:]) + content
    if len(content) < _PREFIX.size or content[0] != _MAGIC:
        return None
    return _PREFIX.unpack_from(content)[1], content[_PREFIX.size :]


def _by_schema(schema: int | str, data: bytes, content: bytes, decode: Decode | None, pretty: bool) -> Readable | None:
    name = f"schema {schema}"
    why = "not decoded, as the console has no schema registry"
    if decode is not None:
        try:
            kind, value = decode(schema, data)
            return Readable(kind, json_text(value, pretty), name)
        except (Undecodable, RecursionError) as failed:
            why = str(failed) or "it is nested too deeply"
    if isinstance(schema, str) and decode is None:
        return None
    parsed = _json(data)
    if parsed is not None:
        # JSON Schema is readable without its schema
        return Readable("json", json_text(parsed[1], pretty), name)
    return Readable("hex", _hex(content, pretty), f"{name}: {why}")


def json_text(value: Any, pretty: bool) -> str:
    """Any value as JSON, with other values as text. Raises RecursionError for more than 100 levels."""
    parts: list[str] = []
    _write(value, parts, "\n" if pretty else None, 0)
    return printable("".join(parts), keep_lines=pretty)


def _write(value: Any, parts: list[str], newline: str | None, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise RecursionError(f"more than {_MAX_DEPTH} levels")
    if isinstance(value, dict):
        items = [(f"{_scalar(name if isinstance(name, str) else str(name))}: ", each) for name, each in value.items()]
        _write_items("{}", items, parts, newline, depth)
    elif isinstance(value, (list, tuple)):
        _write_items("[]", [("", each) for each in value], parts, newline, depth)
    else:
        parts.append(_scalar(value))


def _write_items(
    brackets: str, items: list[tuple[str, Any]], parts: list[str], newline: str | None, depth: int
) -> None:
    inner = "" if newline is None else newline + "  " * (depth + 1)
    parts.append(brackets[0])
    for at, (label, each) in enumerate(items):
        parts.append(("," if newline is not None else ", ") if at else "")
        parts.append(inner + label)
        _write(each, parts, newline, depth + 1)
    if items and newline is not None:
        parts.append(newline + "  " * depth)
    parts.append(brackets[1])


def _scalar(value: Any) -> str:
    if isinstance(value, _Number):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (bytes, bytearray)):
        return json.dumps({"base64": base64.b64encode(value).decode()})
    return json.dumps(str(value), ensure_ascii=False)
