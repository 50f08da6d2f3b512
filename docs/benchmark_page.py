"""The page of benchmarks and its chart, from what `benchmarks/bench.py --store` wrote into expected.json."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks"))

from comparison.shapes import SHAPES, Shape  # noqa: E402  # pyright: ignore[reportMissingImports]

#: A ratio of 1 is in the middle of the chart, and the axis is logarithmic: twice and half are as far from it.
_LEFT, _RIGHT, _BAR, _STEP, _TOP = 250, 640, 16, 26, 46
_LEAST, _MOST = 0.5, 8.0
_TICKS = (0.5, 1, 2, 4, 8)
_STYLE = """\
<style>text { font: 12px system-ui, sans-serif; fill: #1d2733 } .name { text-anchor: end }
.tick { text-anchor: middle; fill: #44546a } .more { fill: #2f8574 } .less { fill: #a9762b }
.grid { stroke: #d5dce4 } .one { stroke: #44546a } .range { stroke: #1d2733; stroke-width: 1.5 }</style>
"""


class Row(NamedTuple):
    """A shape and what was stored for it."""

    shape: Shape
    stored: Mapping[str, Any]


def medians(shape: Shape, stored: Mapping[str, Any]) -> str:
    """Ours and theirs, in the unit of the shape."""
    ours, theirs = stored["medians"]
    if shape.is_latency:
        return f"{ours:.2f} / {theirs:.2f} ms"
    if ours < 1e5:
        return f"{ours / 1e3:.1f} / {theirs / 1e3:.1f} k/s"
    return f"{ours / 1e6:.2f} / {theirs / 1e6:.2f} M/s"


def rows() -> list[Row]:
    """The shapes with stored medians, in the order of the benchmark."""
    expected = json.loads((ROOT / "benchmarks" / "expected.json").read_text(encoding="utf-8"))
    stored = expected["embedded"]["headrace / confluent-kafka"]
    return [Row(shape, stored[shape.name]) for shape in SHAPES if "medians" in stored.get(shape.name, {})]


def page(notice: str) -> str:
    """The page."""
    table = "".join(
        f"| {shape.title} | {medians(shape, stored)} | {stored['ratio']:.2f} | {stored['low']:.2f} to "
        f"{stored['high']:.2f} | {stored['cpu_us'][0]:g} / {stored['cpu_us'][1]:g} | {stored['date']} |\n"
        for shape, stored in rows()
    )
    return f"""\
{notice.format(source="benchmarks/expected.json, which `benchmarks/bench.py --store` writes")}
# Benchmarks

Headrace beside confluent-kafka, shape of work by shape of work. Both have their defaults, unless the row says
otherwise, send idempotently, and take turns in one run on two cores of a shared virtual machine, which also run the
embedded broker. The rows are medians of five to nine rounds. Right of 1, Headrace is faster; the thin lines span the
rounds.

![How many times as fast as confluent-kafka Headrace is](drawings/benchmarks.svg)

| shape | Headrace / confluent-kafka | ratio | of the rounds | CPU, µs per record | measured |
|---|---|---|---|---|---|
{table}
M/s and k/s are million and thousand records per second, acknowledged. A ratio divides ours by theirs; where a row is
about milliseconds, it divides theirs by ours, so more is better everywhere. CPU is that of the client's process, all
threads included. The time begins after one acknowledged record and ends when all are acknowledged.

The ratio says more than the rates, which vary by a third on a shared machine. Where the broker is the limit, as with
records of 10 KB, the CPU says more than either.

Measure it where you will use it: in a clone, `make bench` runs all shapes, `make bench SHAPES=1kb,headers ROUNDS=5`
some of them, and `make bench BROKER=apache-kafka` runs them on Apache Kafka. `headrace perf` measures one producer on
your own cluster, and `headrace tune` looks for better settings: see [Use the command line](command-line.md).
"""


def chart() -> str:
    """The chart, as SVG."""
    measured = rows()
    height = _TOP + len(measured) * _STEP + 14
    title = "How many times as fast as confluent-kafka Headrace is"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 {height}" width="700" role="img" '
        f'aria-label="{title}">\n<title>{title}</title>\n{_STYLE}',
        f'<rect width="700" height="{height}" rx="8" fill="#fbfcfd"/>\n',
    ]
    for tick in _TICKS:
        x = _x(tick)
        kind = "one" if tick == 1 else "grid"
        parts.append(f'<path class="{kind}" d="M{x} {_TOP - 12}V{height - 14}"/>\n')
        parts.append(f'<text class="tick" x="{x}" y="{_TOP - 18}">{tick:g}x</text>\n')
    for number, (shape, stored) in enumerate(measured):
        top = _TOP + number * _STEP
        middle = top + _BAR / 2
        one, end = _x(1), _x(stored["ratio"])
        kind = "more" if end >= one else "less"
        parts.append(f'<text class="name" x="{_LEFT - 10}" y="{middle + 4:g}">{escape(shape.title)}</text>\n')
        parts.append(
            f'<rect class="{kind}" x="{min(one, end)}" y="{top}" width="{abs(end - one):.1f}" height="{_BAR}"/>\n'
            f'<path class="range" d="M{_x(stored["low"])} {middle:g}H{_x(stored["high"])}"/>\n'
            f'<text x="{max(one, _x(stored["high"])) + 6:.1f}" y="{middle + 4:g}">{stored["ratio"]:.2f}</text>\n'
        )
    return "".join(parts) + "</svg>\n"


def _x(ratio: float) -> float:
    """Where a ratio is on the axis; outside of it, its end."""
    share = math.log(min(max(ratio, _LEAST), _MOST) / _LEAST) / math.log(_MOST / _LEAST)
    return round(_LEFT + share * (_RIGHT - _LEFT), 1)
