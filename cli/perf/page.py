"""The page of `headrace perf --html`: one file with plots as SVG, without scripts and without anything to download."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .results import Summary

_WIDTH, _HEIGHT = 860, 240
_LEFT, _BOTTOM, _TOP, _RIGHT = 70, 30, 14, 14
_COLORS = ("#0b6e99", "#d9730d", "#ad1a72")
_DISTRIBUTION = (0, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.99, 100)
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2226; background: #fff; max-width: 900px; margin: 2em auto;
  padding: 0 1em }
h1 { font-size: 1.4em } h2 { font-size: 1.1em; margin-top: 2em }
table { border-collapse: collapse } th, td { text-align: left; padding: .2em 1.2em .2em 0; vertical-align: top }
th { font-weight: 600 } td.number { text-align: right; font-variant-numeric: tabular-nums }
svg { width: 100%; height: auto } text { font-size: 12px; fill: #555 } .scroll { overflow-x: auto }
@media (prefers-color-scheme: dark) { body { color: #e6e6e6; background: #17191b } text { fill: #aaa } }
"""

Series = Sequence[tuple[float, float]]


def page_of(summary: Summary, topic: str, settings: Mapping[str, str]) -> str:
    """The page as HTML. `settings` are the keys given to the producer, with secrets masked."""
    windows = summary.windows
    rate = [(each.at_s, each.records / max(each.seconds, 1e-9)) for each in windows]
    latency = {
        name: [(each.at_s, each.latency_ms[name]) for each in windows if each.records] for name in ("p50", "p95", "p99")
    }
    distribution = [(float(index), summary.latency_ms(each)) for index, each in enumerate(_DISTRIBUTION)]
    seconds = max(summary.elapsed_s, 1e-9)
    facts = [
        ("records acknowledged", f"{summary.acknowledged:,}"),
        ("records failed", f"{summary.failed:,}"),
        ("records per second", f"{summary.acknowledged / seconds:,.0f}"),
        ("MB per second", f"{summary.size_bytes / seconds / 2**20:,.2f}"),
        ("seconds", f"{summary.elapsed_s:,.2f}"),
        ("CPU per record", f"{summary.cpu_s * 1e6 / max(summary.sent, 1):,.2f} µs"),
        *((f"latency p{each:g}", f"{summary.latency_ms(each):,.2f} ms") for each in (50, 95, 99, 99.9, 100)),
    ]
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>headrace perf: {escape(topic)}</title><style>{_STYLE}</style></head><body>
<h1>headrace perf: {escape(topic)}</h1>
{_table(facts)}
<h2>Records per second</h2>
{_plot({"records/s": rate}, "seconds")}
<h2>Latency over time, in milliseconds</h2>
{_plot(latency, "seconds")}
<h2>Latency distribution, in milliseconds</h2>
{_plot({"latency": distribution}, "percentile", names=[f"{each:g}" for each in _DISTRIBUTION])}
<h2>Settings</h2>
{_table(list(settings.items()))}
</body></html>
"""


def _table(rows: Sequence[tuple[str, str]]) -> str:
    cells = "".join(f'<tr><th>{escape(name)}</th><td class="number">{escape(text)}</td></tr>' for name, text in rows)
    return f'<div class="scroll"><table>{cells}</table></div>'


def _plot(lines: Mapping[str, Series], unit: str, names: Sequence[str] | None = None) -> str:
    """Lines over a common x axis. `names` labels whole numbers of the axis instead of the numbers themselves."""
    points = [point for line in lines.values() for point in line]
    if not points:
        return "<p>Nothing was measured.</p>"
    first_x, last_x = min(x for x, _ in points), max(x for x, _ in points)
    top = max(y for _, y in points) or 1.0

    def at(x: float, y: float) -> tuple[float, float]:
        across = (x - first_x) / (last_x - first_x) if last_x > first_x else 0.5
        return _LEFT + across * (_WIDTH - _LEFT - _RIGHT), _HEIGHT - _BOTTOM - y / top * (_HEIGHT - _BOTTOM - _TOP)

    drawn = []
    for part in range(5):
        _, y = at(first_x, top * part / 4)
        drawn.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#8884"/>')
        drawn.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(top * part / 4)}</text>')
    labels = (
        [(first_x + (last_x - first_x) * part / 4, "") for part in range(5)]
        if names is None
        else [(float(index), name) for index, name in enumerate(names)]
    )
    for x, name in labels:
        across, _ = at(x, 0.0)
        drawn.append(f'<text x="{across:.1f}" y="{_HEIGHT - 10}" text-anchor="middle">{name or f"{x:.4g}"}</text>')
    for (name, line), color in zip(lines.items(), _COLORS, strict=False):
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in line))
        drawn.append(f'<polyline points="{places}" fill="none" stroke="{color}" stroke-width="1.6"/>')
        for x, y in line if len(line) <= 400 else ():
            across, up = at(x, y)
            where = names[int(x)] if names is not None else f"{x:.1f}"
            drawn.append(
                f'<circle cx="{across:.1f}" cy="{up:.1f}" r="3" fill="{color}">'
                f"<title>{escape(name)}: {y:,.2f} at {unit} {where}</title></circle>"
            )
    for index, (name, color) in enumerate(zip(lines, _COLORS, strict=False)):
        drawn.append(f'<text x="{_LEFT + 10 + 90 * index}" y="{_TOP + 10}" style="fill: {color}">{escape(name)}</text>')
    drawn.append(f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 10}" text-anchor="end">{escape(unit)}</text>')
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(drawn)}</svg>'


def _short(number: float) -> str:
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.3g}{unit}"
    return f"{number:.3g}"
