"""Small HTML tables, as which notebooks show producers, clusters, reports and metrics.

Jupyter calls an object's `_repr_html_`. This module is imported then, and not before. Every text is escaped here, so
callers pass plain values. Secrets are masked by the callers, which know the configuration tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice

MAX_ROWS = 50

_TABLE = '<table style="text-align:left;border-collapse:collapse;margin:0.3em 0">'
_CELL = "text-align:left;padding:0.15em 0.9em 0.15em 0"
_NUMBER = "text-align:right;padding:0.15em 0.9em 0.15em 0;font-variant-numeric:tabular-nums"
_BAR_WIDTH = 5
_HEIGHT = 20
_MAX_BARS = 60


class Bars:
    """A cell with one bar per value of a series, from 0 to its maximum."""

    def __init__(self, values: Iterable[float]) -> None:
        self._values = [0.0 if math.isnan(value) else float(value) for value in values]

    def html(self) -> str:
        """An inline SVG; neighbors are averaged if there are many values."""
        step = max(1, math.ceil(len(self._values) / _MAX_BARS))
        parts = [self._values[at : at + step] for at in range(0, len(self._values), step)]
        series = [sum(part) / len(part) for part in parts]
        highest = max(series, default=0.0) or 1.0
        bars = "".join(
            f'<rect x="{at * _BAR_WIDTH}" y="{_HEIGHT - height:.1f}" width="{_BAR_WIDTH - 1}" height="{height:.1f}"/>'
            for at, height in enumerate(max(value, 0.0) * _HEIGHT / highest for value in series)
        )
        label = escape(f"{len(self._values)} values, at most {_text(max(self._values, default=0.0))}")
        return (
            f'<svg role="img" aria-label="{label}" width="{len(series) * _BAR_WIDTH}" height="{_HEIGHT}" '
            f'fill="currentColor" opacity="0.6"><title>{label}</title>{bars}</svg>'
        )


def table(title: str, rows: Iterable[Sequence[object]], header: Sequence[str] = ()) -> str:
    """A table with a title. Numbers are aligned to the right; rows after the first `MAX_ROWS` are counted only."""
    remaining = iter(rows)
    shown = [_row(row) for row in islice(remaining, MAX_ROWS)]
    more = sum(1 for _ in remaining)
    if more:
        shown.append(f'<tr><td colspan="9" style="{_CELL}">and {more} more</td></tr>')
    head = "".join(f'<th style="{_CELL}">{escape(name)}</th>' for name in header)
    caption = f'<caption style="text-align:left;font-weight:bold">{escape(title)}</caption>'
    return f"{_TABLE}{caption}{f'<tr>{head}</tr>' if head else ''}{''.join(shown)}</table>"


def _row(cells: Sequence[object]) -> str:
    return f"<tr>{''.join(map(_cell, cells))}</tr>"


def _cell(value: object) -> str:
    if isinstance(value, Bars):
        return f'<td style="{_CELL}">{value.html()}</td>'
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f'<td style="{_NUMBER if is_number else _CELL}">{escape(_text(value))}</td>'


def _text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int) or value.is_integer():
        return f"{int(value):,}"
    return "" if math.isnan(value) else f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
