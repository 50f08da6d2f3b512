"""Medians, ratios and their spread; the table and the JSON; the check against stored ratios."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .measurement import QUANTILES, Measurement
from .shapes import Shape

#: A ratio that fell by less than this part of the stored one is not reported, however small the spread was.
LEAST_FALL = 0.05
#: The client that the goals are about.
GOALS_PEER = "confluent-kafka"


@dataclass(frozen=True)
class Ratio:
    """How much better the base is than its peer: the ratio of the medians, and the range of the rounds' ratios.

    Rates divide ours by theirs, latencies theirs by ours, so more is better.
    """

    value: float
    low: float
    high: float

    def to_json(self) -> dict[str, float]:
        return {"ratio": round(self.value, 3), "low": round(self.low, 3), "high": round(self.high, 3)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Ratio:
        return cls(stored["ratio"], stored["low"], stored["high"])

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f}-{self.high:.2f})"


@dataclass
class ClientResult:
    """The rounds of one client for one shape; `missing` says why there are none."""

    rounds: list[Measurement] = field(default_factory=list)
    missing: str = ""

    def measured(self, shape: Shape) -> list[float]:
        """What the shape compares, per round: p50 in milliseconds, or records per second."""
        if shape.is_latency:
            return [each.latency_ms["p50"] for each in self.rounds if each.latency_ms is not None]
        return [each.rate for each in self.rounds]

    def median_cpu_us(self) -> float:
        return statistics.median(each.cpu_us for each in self.rounds)

    def median_peak_mib(self) -> float:
        return statistics.median(each.peak_kib / 1024 for each in self.rounds)

    def median_latency_ms(self) -> dict[str, float]:
        """The median over the rounds of each quantile; empty for shapes that are not about latency."""
        taken = [each.latency_ms for each in self.rounds if each.latency_ms is not None]
        return {name: statistics.median(each[name] for each in taken) for name in QUANTILES} if taken else {}

    def to_json(self, shape: Shape) -> dict[str, Any]:
        if self.missing:
            return {"missing": self.missing}
        values = self.measured(shape)
        return {
            "unit": "ms" if shape.is_latency else "records/s",
            "median": statistics.median(values),
            "min": min(values),
            "max": max(values),
            "cpu_us_per_record": self.median_cpu_us(),
            "peak_mib": self.median_peak_mib(),
            "latency_ms": self.median_latency_ms(),
            "rounds": [each.to_json() for each in self.rounds],
        }


@dataclass
class ShapeResult:
    """All clients' results for one shape. The first client is the base of the ratios."""

    shape: Shape
    clients: dict[str, ClientResult]

    @property
    def base(self) -> str:
        return next(iter(self.clients))

    def ratios(self) -> dict[str, Ratio]:
        """Of the base to each other client that was measured."""
        ours = self.clients[self.base]
        return {
            name: ratio(self.shape, ours, theirs)
            for name, theirs in self.clients.items()
            if name != self.base and ours.rounds and theirs.rounds
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.shape.title,
            "goal": self.shape.goal,
            "clients": {name: result.to_json(self.shape) for name, result in self.clients.items()},
            "ratios": {name: each.to_json() for name, each in self.ratios().items()},
        }


def ratio(shape: Shape, ours: ClientResult, theirs: ClientResult) -> Ratio:
    """The ratio of two clients that were measured in the same rounds."""
    better, other = ours.measured(shape), theirs.measured(shape)
    if shape.is_latency:
        better, other = other, better
    by_round = [one / two for one, two in zip(better, other, strict=True)]
    return Ratio(statistics.median(better) / statistics.median(other), min(by_round), max(by_round))


# --- The table ---

COLUMNS = f"{'shape':32} {'goal':>4}  {'ratio (min-max)':>18}  {'ours / theirs':>17}  {'CPU µs':>13}  {'MiB':>9}"


def header(base: str, peers: Sequence[str]) -> str:
    """The heading of the table: what is compared, and the columns."""
    return f"ours: {base}; theirs: {', '.join(peers) or 'nothing'}\n\n{COLUMNS}"


def lines(result: ShapeResult) -> list[str]:
    """The lines of a shape: one per peer, or one with the base alone."""
    peers = [name for name in result.clients if name != result.base]
    return [_line(result, peer, len(peers) > 1) for peer in peers or [""]]


def _line(result: ShapeResult, peer: str, named: bool) -> str:
    shape, ours = result.shape, result.clients[result.base]
    theirs = result.clients.get(peer, ClientResult())
    goal = f"{shape.goal:.1f}" if shape.goal is not None and peer == GOALS_PEER else ""
    unit = "ms" if shape.is_latency else "M/s"
    both = (ours, theirs) if peer else (ours,)
    pairs = [
        " / ".join(_median(each, shape) for each in both) + f" {unit}",
        " / ".join(f"{each.median_cpu_us():.1f}" if each.rounds else "-" for each in both),
        " / ".join(f"{each.median_peak_mib():.0f}" if each.rounds else "-" for each in both),
    ]
    compared = str(result.ratios().get(peer, "-"))
    line = f"{shape.title:32} {goal:>4}  {compared:>18}  {pairs[0]:>17}  {pairs[1]:>13}  {pairs[2]:>9}"
    return "  ".join([line, *([peer] if named else [])]).rstrip()


def _median(result: ClientResult, shape: Shape) -> str:
    if not result.rounds:
        return "-"
    median = statistics.median(result.measured(shape))
    if shape.is_latency:
        return f"{median:.2f}"
    return f"{median / 1e6:.3f}" if median < 1e5 else f"{median / 1e6:.2f}"


def missing_lines(results: Sequence[ShapeResult]) -> list[str]:
    """Why shapes were not measured: a line per client and reason, with its shapes. Empty if all of them were."""
    shapes: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for name, client in result.clients.items():
            if client.missing:
                shapes.setdefault((name, client.missing), []).append(result.shape.name)
    return [f"{name} without {', '.join(missed)}: {reason}" for (name, reason), missed in shapes.items()]


def latency_lines(results: Sequence[ShapeResult]) -> list[str]:
    """A table of the quantiles of the shapes about latency; empty without any."""
    rows = [
        f"{result.shape.title:32} {name:22} " + " ".join(f"{latency[each]:8.2f}" for each in QUANTILES)
        for result in results
        for name, client in result.clients.items()
        if (latency := client.median_latency_ms())
    ]
    return [f"{'latency, ms':32} {'client':22} " + " ".join(f"{each:>8}" for each in QUANTILES), *rows] if rows else []


# --- The check ---


def to_store(results: Sequence[ShapeResult], date: str) -> dict[str, dict[str, dict[str, Any]]]:
    """What the check compares with later, and the page of benchmarks shows: peer -> shape -> ratio, range, medians."""
    stored: dict[str, dict[str, dict[str, Any]]] = {}
    for result in results:
        for peer, each in result.ratios().items():
            pair = (result.clients[result.base], result.clients[peer])
            stored.setdefault(f"{result.base} / {peer}", {})[result.shape.name] = {
                **each.to_json(),
                "medians": [_rounded(statistics.median(client.measured(result.shape))) for client in pair],
                "cpu_us": [_rounded(client.median_cpu_us()) for client in pair],
                "date": date,
            }
    return stored


def _rounded(value: float) -> float:
    """To three digits."""
    return float(f"{value:.3g}")


def has_fallen(stored: Ratio, fresh: Ratio) -> bool:
    """Whether `fresh` is below `stored` by more than the noise of both.

    That is: the ranges of their rounds don't overlap, and the fall is at least LEAST_FALL of the stored ratio.
    """
    return fresh.high < stored.low and fresh.value < stored.value * (1 - LEAST_FALL)


def fallen(stored: Mapping[str, Mapping[str, Mapping[str, Any]]], results: Sequence[ShapeResult]) -> list[str]:
    """A sentence for each ratio that has fallen. A shape or client that was stored and can't be measured has, too."""
    found = []
    for result in results:
        ratios = result.ratios()
        for peer in result.clients:
            expected = stored.get(f"{result.base} / {peer}", {}).get(result.shape.name)
            if expected is None:
                continue
            before, now = Ratio.from_json(expected), ratios.get(peer)
            if now is None:
                reasons = [f"{name}: {each.missing}" for name, each in result.clients.items() if each.missing]
                found.append(f"{result.shape.name}: not measured against {peer}, was {before} ({'; '.join(reasons)})")
            elif has_fallen(before, now):
                found.append(f"{result.shape.name}: {now} of {peer}, was {before}")
    return found
