"""Text for people: sizes, durations and tables."""

from __future__ import annotations

from collections.abc import Sequence


def size_text(size_bytes: int) -> str:
    """`512 B`, `1.5 KiB`, `20.0 MiB`."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def duration_text(milliseconds: float) -> str:
    """`4 ms`, `1.5 s`, `3 min`, `2.5 h`, `12 days`."""
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000.0
    for limit, divisor, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{round(seconds / divisor, 1):g} {unit}"
    return f"{round(seconds / 86_400, 1):g} days"


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 broker`, `3 brokers`, `2,000 batches`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


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
