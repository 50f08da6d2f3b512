"""Human-readable output of the commands: times, bytes, sizes, tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def time_text(timestamp_ms: int) -> str:
    """`2026-11-20 12:00:00.123` (UTC); `-` for no timestamp, the number itself if `datetime` can't represent it."""
    if timestamp_ms == -1:
        return "-"
    try:
        at = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return at.strftime("%Y-%m-%d %H:%M:%S.") + f"{at.microsecond // 1000:03d}"


def bytes_text(content: bytes | None, limit: int | None = None) -> str:
    """Bytes on one line: text if they are UTF-8, otherwise with `\\xNN`; None is `null` without quotes.

    Text with control characters, or that could be mistaken for something else, is quoted. It is cut after `limit`
    characters, followed by the full size.
    """
    if content is None:
        return "null"
    try:
        text = content.decode()
        is_plain = text.isprintable() and text.strip() == text and text not in {"", "null"}
        shown = text if is_plain else _quoted(text)
    except UnicodeDecodeError:
        shown = '"' + "".join(map(_byte, content)) + '"'
    if limit is not None and len(shown) > limit:
        return f"{shown[:limit]}… ({len(content)} bytes)"
    return shown


def _byte(byte: int) -> str:
    return chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}"


def _quoted(text: str) -> str:
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(each) or (each if each.isprintable() else _escape(each)) for each in text) + '"'


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def size_text(size_bytes: int) -> str:
    """`512 B`, `1.5 KiB`, `20.0 MiB`."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table with columns as wide as needed, numbers aligned right, two spaces in between."""
    texts = [list(map(str, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *texts, strict=True)]
    right = [bool(rows) and all(isinstance(row[at], int) for row in rows) for at in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(cells, widths, right, strict=True)
        ).rstrip()

    return "\n".join(map(line, [list(head), *texts]))
