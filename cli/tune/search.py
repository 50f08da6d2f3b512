"""The search of `headrace tune`: successive halving over a sample of settings, then repeats, then one key at a time.

1. The given configuration is measured, and then each candidate once, briefly.
2. The best third is measured for longer, and the best third of those repeatedly, in turns with the given configuration.
   The spread of the repeats says how uncertain the difference of two medians is: that is the noise.
3. The winner must beat the given configuration by more than the noise; otherwise nothing is recommended.
4. Each key of the winner is set back alone. If that makes no difference beyond the noise, the key is left out;
   otherwise the difference is the reason for the key.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

#: The values that are tried. Keys that the user has fixed are left alone.
GRID: Mapping[str, Sequence[str]] = {
    "batch.size": ("16384", "65536", "262144"),
    "batch.max.size": ("524288", "983040"),
    "linger.ms": ("0", "5", "20", "50"),
    "compression.type": ("none", "lz4", "zstd"),
    "max.in.flight.requests.per.connection": ("1", "2", "5"),
    "buffer.memory": ("33554432", "134217728"),
}
_SAMPLES = 14
_REPEATS = 3
_ABLATION_REPEATS = 2
#: Differences below this count as none, however small the spread was.
_LEAST_NOISE = 0.03
#: The spread of three is 1.7 standard deviations; twice the standard error of a difference of two means is 1.6 of them.
_SPREAD_TO_NOISE = 0.95

Settings = Mapping[str, str]


class Point(NamedTuple):
    """One measurement: acknowledged records per second, and latencies in milliseconds."""

    rate: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    failed: int


class Goal(NamedTuple):
    """What is to be improved: the score of a measurement, the higher the better, and its name."""

    name: str
    score: Callable[[Point], float]


def throughput_goal(limit_p99_ms: float | None) -> Goal:
    """Records per second; a p99 above the limit divides them by how far it is above."""
    return Goal("records/s", lambda point: _limited(point.rate, point, limit_p99_ms))


def latency_goal() -> Goal:
    """The inverse of the p99."""
    return Goal("1/p99", lambda point: 1000.0 / max(point.p99_ms, 0.01))


def balanced_goal(limit_p99_ms: float | None) -> Goal:
    """Records per second by the square root of the p50: half the latency is worth 1.4 times the rate."""
    return Goal(
        "records/s by latency", lambda point: _limited(point.rate / max(point.p50_ms, 0.01) ** 0.5, point, limit_p99_ms)
    )


def _limited(score: float, point: Point, limit_ms: float | None) -> float:
    return score if limit_ms is None or point.p99_ms <= limit_ms else score * limit_ms / point.p99_ms


class Stopped(Exception):
    """The user has stopped the search."""


@dataclass
class Trial:
    """A candidate and its measurements."""

    settings: Settings
    points: list[Point] = field(default_factory=list)

    def score(self, goal: Goal) -> float:
        """The median score; 0 without a measurement."""
        return median(map(goal.score, self.points)) if self.points else 0.0

    def spread(self, goal: Goal) -> float:
        """The distance of the extreme scores relative to the median."""
        scores = [goal.score(point) for point in self.points]
        return (max(scores) - min(scores)) / median(scores) if len(scores) > 1 and median(scores) else 0.0

    def middle(self) -> Point:
        """The median of each number."""
        rate, p50, p99, cpu, failed = (median(column) for column in zip(*self.points, strict=True))
        return Point(rate, p50, p99, cpu, int(failed))


@dataclass
class Outcome:
    """The result. `reasons` has the recommended keys with the reason for each. `stopped` says that it ended early."""

    base: Trial
    trials: list[Trial]
    best: Trial
    noise: float
    reasons: dict[str, str] = field(default_factory=dict)
    stopped: bool = False

    @property
    def settings(self) -> Settings:
        """The recommended keys; none if the given configuration is as good."""
        return {key: self.best.settings[key] for key in self.reasons}


class Search:
    """One search. `measure` runs settings for a number of seconds; it raises Stopped when the user stops it."""

    def __init__(
        self,
        goal: Goal,
        measure: Callable[[Settings, float], Point],
        *,
        fixed: Collection[str],
        given: Settings,
        unit_s: float,
        seed: int = 0,
    ) -> None:
        """`fixed` are the keys that stay as they are, `given` the values of the grid's keys to start from.

        `unit_s` is the length of the shortest measurement in seconds.
        """
        self._goal = goal
        self._measure = measure
        self._unit_s = unit_s
        self._grid = {key: values for key, values in GRID.items() if key not in fixed}
        self._given = {key: given[key] for key in self._grid}
        self._random = random.Random(seed)
        self.planned_s = 0.0
        self.spent_s = 0.0

    def run(self) -> Outcome:
        """Search, and return what is known when it is finished or stopped."""
        base = Trial({})
        trials = [Trial(each) for each in self._candidates()]
        first = max(1, len(trials) // 3)
        last = max(1, first // 3)
        self.planned_s = self._unit_s * (
            2 + len(trials) + 2 * first + 2 * _REPEATS * (last + 1) + 2 * _ABLATION_REPEATS * (len(self._grid) + 1)
        )
        outcome = Outcome(base, trials, base, _LEAST_NOISE)
        try:
            self._try(base, 2)
            self._narrow(outcome, trials, first, last)
            self._explain(outcome)
        except Stopped:
            outcome.stopped = True
            measured = [each for each in trials if each.points]
            if not outcome.reasons and measured and base.points:
                outcome.best = max(measured, key=lambda each: each.score(self._goal))
                if outcome.best.score(self._goal) > base.score(self._goal) * (1 + outcome.noise):
                    outcome.reasons = dict.fromkeys(outcome.best.settings, "measured once only")
        return outcome

    def _candidates(self) -> Iterator[Settings]:
        """Each other value of each key alone, and a sample of combinations."""
        seen: set[tuple[tuple[str, str], ...]] = {()}
        alone = [{key: value} for key, values in self._grid.items() for value in values]
        combined = [dict(zip(self._grid, each, strict=True)) for each in itertools.product(*self._grid.values())]
        for settings in [*alone, *self._random.sample(combined, min(_SAMPLES, len(combined)))]:
            changed = {key: value for key, value in settings.items() if value != self._given[key]}
            identity = tuple(sorted(changed.items()))
            if identity not in seen:
                seen.add(identity)
                yield changed

    def _try(self, trial: Trial, units: float) -> None:
        seconds = units * self._unit_s
        trial.points.append(self._measure(trial.settings, seconds))
        self.spent_s += seconds

    def _narrow(self, outcome: Outcome, trials: Sequence[Trial], first: int, last: int) -> None:
        for trial in trials:
            self._try(trial, 1)
        better = self._best(trials, first)
        for trial in better:
            trial.points.clear()
            self._try(trial, 2)
        finalists = [outcome.base, *self._best(better, last)]
        for trial in finalists:
            trial.points.clear()
        for _ in range(_REPEATS):
            for trial in finalists:
                self._try(trial, 2)
        outcome.noise = max(_LEAST_NOISE, _SPREAD_TO_NOISE * median(trial.spread(self._goal) for trial in finalists))
        outcome.best = self._best(finalists, 1)[0]

    def _best(self, trials: Sequence[Trial], count: int) -> list[Trial]:
        return sorted(trials, key=lambda trial: trial.score(self._goal), reverse=True)[:count]

    def _explain(self, outcome: Outcome) -> None:
        """Keep the keys of the winner that matter, with the reason."""
        best = outcome.best
        if best.score(self._goal) <= outcome.base.score(self._goal) * (1 + outcome.noise):
            return
        without = {
            key: Trial({name: value for name, value in best.settings.items() if name != key}) for key in best.settings
        }
        for _ in range(_ABLATION_REPEATS):
            for trial in (best, *without.values()):
                self._try(trial, 2)
        for key, trial in without.items():
            ratio = best.score(self._goal) / max(trial.score(self._goal), 1e-12)
            if len(without) == 1 or ratio > 1 + outcome.noise:
                one, other = best.middle(), trial.middle()
                outcome.reasons[key] = (
                    f"{one.rate:,.0f} records/s with p99 {one.p99_ms:,.1f} ms; with {self._given[key]} "
                    f"{other.rate:,.0f} records/s with p99 {other.p99_ms:,.1f} ms"
                )
        if not outcome.reasons:
            # together they help, and none alone explains it
            outcome.reasons = dict.fromkeys(best.settings, "part of the best combination; alone it makes no difference")
