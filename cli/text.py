"""Human-readable output of the commands: times and bytes. `network.text` has sizes and tables."""

from __future__ import annotations

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


def timestamp_of(text: str) -> int:
    """Milliseconds since 1970 from that number or from ISO 8601, in UTC unless it says otherwise. Raises ValueError."""
    if text.lstrip("-").isdecimal():
        return int(text)
    return milliseconds_of(datetime.fromisoformat(text.replace("Z", "+00:00")))


def milliseconds_of(at: datetime) -> int:
    """Milliseconds since 1970; a time without a zone is UTC."""
    aware = at if at.tzinfo is not None else at.replace(tzinfo=timezone.utc)
    return int(aware.timestamp() * 1000)
