"""The search of `headrace tune` against models of a cluster instead of a cluster."""

from __future__ import annotations

import random

import pytest

from headrace.cli.tune.picture import frontier, svg_picture, terminal_picture
from headrace.cli.tune.search import (
    GRID,
    Point,
    Search,
    Settings,
    Stopped,
    balanced_goal,
    latency_goal,
    throughput_goal,
)

GIVEN = {
    "batch.size": "16384",
    "batch.max.size": "524288",
    "linger.ms": "5",
    "compression.type": "none",
    "max.in.flight.requests.per.connection": "1",
    "buffer.memory": "33554432",
}


def far_away(settings: Settings) -> Point:
    """Records of 100 bytes over a round trip of 50 ms: what is in flight limits the rate."""
    value = {**GIVEN, **settings}
    in_flight = int(value["max.in.flight.requests.per.connection"]) * int(value["batch.size"])
    rate = min(in_flight / 100 / 0.05, 500_000.0)
    latency_ms = 50 + float(value["linger.ms"])
    return Point(rate, latency_ms, latency_ms + 10, 1.0, 0)


def close_by(_: Settings) -> Point:
    """Whatever the settings, the broker's core is the limit."""
    return Point(800_000.0, 5.0, 9.0, 1.0, 0)


class Measured:
    """A model with noise, and what was asked of it."""

    def __init__(self, model, noise=0.0, stop_after=None):
        self.model = model
        self.asked: list[tuple[Settings, float]] = []
        self._noise = noise
        self._stop_after = stop_after
        self._random = random.Random(1)

    def __call__(self, settings: Settings, seconds: float) -> Point:
        if len(self.asked) == self._stop_after:
            raise Stopped
        self.asked.append((settings, seconds))
        point = self.model(settings)
        factor = 1 + self._random.uniform(-self._noise, self._noise)
        return point._replace(rate=point.rate * factor, p50_ms=point.p50_ms / factor, p99_ms=point.p99_ms / factor)


def search(measure, goal=None, fixed=()):
    return Search(goal or throughput_goal(None), measure, fixed=fixed, given=GIVEN, unit_s=1.0)


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_far_away_it_recommends_more_in_flight_and_larger_batches(noise):
    outcome = search(Measured(far_away, noise)).run()
    assert int(outcome.settings["batch.size"]) > 16384
    assert int(outcome.settings["max.in.flight.requests.per.connection"]) > 1
    assert set(outcome.settings) == {"batch.size", "max.in.flight.requests.per.connection"}
    assert "records/s with p99" in outcome.reasons["batch.size"]


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.2])
def test_close_by_it_recommends_nothing(noise):
    outcome = search(Measured(close_by, noise)).run()
    assert outcome.settings == {}


def test_for_latency_it_does_not_linger():
    outcome = search(Measured(far_away), latency_goal()).run()
    assert outcome.settings == {"linger.ms": "0"}


def test_a_balanced_goal_weighs_the_latency_in():
    outcome = search(Measured(far_away), balanced_goal(None)).run()
    assert outcome.settings["linger.ms"] == "0"
    assert int(outcome.settings["max.in.flight.requests.per.connection"]) > 1


def test_a_limit_of_the_p99_rules_out_what_is_above_it():
    assert throughput_goal(20.0).score(Point(100.0, 1.0, 40.0, 1.0, 0)) == 50.0
    assert throughput_goal(20.0).score(Point(100.0, 1.0, 20.0, 1.0, 0)) == 100.0


def test_a_fixed_key_is_never_changed():
    measured = Measured(far_away)
    search(measured, fixed=("batch.size", "linger.ms")).run()
    assert not any({"batch.size", "linger.ms"} & set(settings) for settings, _ in measured.asked)


def test_the_time_it_plans_is_an_upper_bound_of_the_time_it_takes():
    measured = Measured(far_away)
    looked = search(measured)
    looked.run()
    assert sum(seconds for _, seconds in measured.asked) == looked.spent_s <= looked.planned_s


def test_only_values_of_the_grid_are_tried():
    measured = Measured(far_away)
    search(measured).run()
    assert all(value in GRID[key] for settings, _ in measured.asked for key, value in settings.items())


@pytest.mark.parametrize("stop_after", [0, 1, 10, 40])
def test_stopped_it_says_what_it_knows(stop_after):
    outcome = search(Measured(far_away, stop_after=stop_after)).run()
    assert outcome.stopped
    assert bool(outcome.settings) == (stop_after >= 10)
    assert isinstance(terminal_picture(outcome), str)
    assert svg_picture(outcome).startswith("<svg")


def test_the_frontier_has_what_nothing_beats():
    outcome = search(Measured(far_away)).run()
    kept = frontier([outcome.base, *outcome.trials])
    rates = [trial.middle().rate for trial in kept]
    assert rates == sorted(rates)
    assert max(rates) == max(trial.middle().rate for trial in outcome.trials if trial.points)
    picture = terminal_picture(outcome)
    assert picture.count("\n") == 17
