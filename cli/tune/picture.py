"""The picture of `headrace tune`: throughput against latency, in the terminal and as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from .search import Outcome, Trial

_COLUMNS, _LINES = 60, 14
_WIDTH, _HEIGHT, _MARGIN = 760, 420, 70


def frontier(trials: Sequence[Trial]) -> list[Trial]:
    """The measured trials that no other beats in both throughput and p99, by latency."""
    measured = sorted((each for each in trials if each.points), key=lambda each: each.middle().p99_ms)
    best, kept = -1.0, []
    for trial in measured:
        if trial.middle().rate > best:
            best = trial.middle().rate
            kept.append(trial)
    return kept


class _Scale:
    """Maps values to positions from 0 to 1, logarithmically."""

    def __init__(self, values: Sequence[float]) -> None:
        self.least = max(min(values) * 0.9, 1e-3)
        self.most = max(max(values) * 1.1, self.least * 1.01)

    def __call__(self, value: float) -> float:
        return math.log(max(value, self.least) / self.least) / math.log(self.most / self.least)


def terminal_picture(outcome: Outcome) -> str:
    """A scatter plot of text: `.` a candidate, `o` one on the frontier, `B` the given configuration, `*` the best."""
    marks = _marks(outcome, {"candidate": ".", "frontier": "o", "base": "B", "best": "*"})
    if not marks:
        return ""
    across, up = _scales(outcome)
    cells = [[" "] * _COLUMNS for _ in range(_LINES)]
    for trial, mark in marks:
        point = trial.middle()
        cells[_LINES - 1 - int(up(point.rate) * (_LINES - 1))][int(across(point.p99_ms) * (_COLUMNS - 1))] = mark
    lines = ["records/s", *("|" + "".join(line).rstrip() for line in cells), "+" + "-" * _COLUMNS]
    least, most = f"{across.least:,.2g} ms", f"{across.most:,.3g} ms p99"
    lines.append(f" {least}{most.rjust(_COLUMNS - len(least))}")
    lines.append(f" {up.least:,.0f} to {up.most:,.0f} records/s   B given   o frontier   * best")
    return "\n".join(lines)


def svg_picture(outcome: Outcome) -> str:
    """The same as SVG, with the settings of each point as its title."""
    marks = _marks(outcome, {"candidate": "#999", "frontier": "#0b6e99", "base": "#d9730d", "best": "#0a8a3c"})
    drawn = []
    if marks:
        across, up = _scales(outcome)
        for trial, color in marks:
            point = trial.middle()
            x = _MARGIN + across(point.p99_ms) * (_WIDTH - 2 * _MARGIN)
            y = _HEIGHT - _MARGIN - up(point.rate) * (_HEIGHT - 2 * _MARGIN)
            settings = ", ".join(f"{key}={value}" for key, value in trial.settings.items()) or "the given configuration"
            title = escape(f"{point.rate:,.0f} records/s, p99 {point.p99_ms:,.1f} ms: {settings}")
            drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{color}"><title>{title}</title></circle>')
        drawn += [
            f'<text x="{_MARGIN}" y="{_HEIGHT - 30}">{across.least:,.2g} ms</text>',
            f'<text x="{_WIDTH - _MARGIN}" y="{_HEIGHT - 30}" text-anchor="end">{across.most:,.3g} ms p99</text>',
            f'<text x="10" y="{_HEIGHT - _MARGIN}">{up.least:,.0f}</text>',
            f'<text x="10" y="{_MARGIN - 12}">{up.most:,.0f} records/s</text>',
        ]
    colors = (("#d9730d", "given"), ("#0b6e99", "frontier"), ("#0a8a3c", "best"))
    for index, (color, name) in enumerate(colors):
        drawn.append(f'<text x="{_WIDTH / 2 + 80 * index}" y="30" style="fill: {color}">{name}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="13"><rect width="100%" height="100%" fill="#fff"/>'
        f'<path d="M{_MARGIN} {_MARGIN}V{_HEIGHT - _MARGIN}H{_WIDTH - _MARGIN}" fill="none" stroke="#555"/>'
        f"{''.join(drawn)}</svg>\n"
    )


def _scales(outcome: Outcome) -> tuple[_Scale, _Scale]:
    points = [each.middle() for each in (outcome.base, *outcome.trials) if each.points]
    return _Scale([point.p99_ms for point in points]), _Scale([point.rate for point in points])


def _marks(outcome: Outcome, marks: dict[str, str]) -> list[tuple[Trial, str]]:
    """Each measured trial with its mark, the most important last, so that it is drawn over the others."""
    on_frontier = {id(each) for each in frontier((outcome.base, *outcome.trials))}
    found = [
        (each, marks["frontier" if id(each) in on_frontier else "candidate"]) for each in outcome.trials if each.points
    ]
    found.sort(key=lambda pair: pair[1] == marks["frontier"])
    if outcome.base.points:
        found.append((outcome.base, marks["base"]))
    if outcome.best is not outcome.base and outcome.best.points:
        found.append((outcome.best, marks["best"]))
    return found
