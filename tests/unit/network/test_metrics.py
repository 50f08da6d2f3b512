"""Sensors over their windows, and the registry that names their values."""

from __future__ import annotations

import logging
import math
import os
import threading

import pytest

from headrace.network.clock import MockClock
from headrace.network.metrics import Metric, MetricName, Metrics, MetricsReporter, Reading, Sensor, Tags

WINDOW_MS = 1000.0


@pytest.fixture
def clock() -> MockClock:
    return MockClock(now_ms=5_000_000.0)


@pytest.fixture
def registry(clock: MockClock) -> Metrics:
    return Metrics(clock, window_ms=WINDOW_MS, samples=2)


def record(sensor: Sensor, clock: MockClock, *values: float) -> None:
    for value in values:
        sensor.record(value, clock.now_ms())


class TestSensor:
    def test_of_nothing(self, registry: Metrics) -> None:
        sensor = registry.sensor()
        assert math.isnan(sensor.average())
        assert math.isnan(sensor.maximum())
        assert sensor.rate() == 0.0
        assert sensor.occurrence_rate() == 0.0
        assert sensor.total() == 0.0
        assert sensor.count() == 0.0

    def test_average_maximum_and_totals(self, registry: Metrics, clock: MockClock) -> None:
        sensor = registry.sensor()
        record(sensor, clock, 3, 8, 1)
        assert sensor.average() == 4.0
        assert sensor.maximum() == 8.0
        assert sensor.total() == 12.0
        assert sensor.count() == 3.0

    def test_a_maximum_may_be_negative(self, registry: Metrics, clock: MockClock) -> None:
        sensor = registry.sensor()
        record(sensor, clock, -3, -8)
        assert sensor.maximum() == -3.0

    def test_what_is_older_than_the_windows_counts_in_totals_only(self, registry: Metrics, clock: MockClock) -> None:
        sensor = registry.sensor()
        record(sensor, clock, 100)
        clock.advance(2 * WINDOW_MS - 1)
        assert sensor.maximum() == 100.0
        clock.advance(1)
        assert math.isnan(sensor.average())
        assert math.isnan(sensor.maximum())
        assert sensor.rate() == 0.0
        record(sensor, clock, 2)
        assert sensor.average() == 2.0
        assert sensor.maximum() == 2.0
        assert (sensor.total(), sensor.count()) == (102.0, 2.0)

    def test_a_sample_stays_as_long_as_its_last_observation_is_young(self, registry: Metrics, clock: MockClock) -> None:
        sensor = registry.sensor()
        record(sensor, clock, 7)
        clock.advance(WINDOW_MS - 1)
        record(sensor, clock, 5)
        clock.advance(2 * WINDOW_MS - 1)
        assert sensor.average() == 6.0
        clock.advance(1)
        assert math.isnan(sensor.average())

    def test_a_sample_that_overlaps_with_the_window_counts_beside_a_new_one(self, clock: MockClock) -> None:
        sensor = Metrics(clock, window_ms=WINDOW_MS, samples=1).sensor()
        record(sensor, clock, 1)
        clock.advance(WINDOW_MS - 1)
        record(sensor, clock, 3)
        clock.advance(1)
        record(sensor, clock, 5)
        assert sensor.average() == 3.0
        clock.advance(WINDOW_MS - 1)
        assert sensor.average() == 5.0

    def test_totals_stay_right_when_samples_are_dropped(self, registry: Metrics, clock: MockClock) -> None:
        sensor = registry.sensor()
        for value in range(100):
            record(sensor, clock, value)
            clock.advance(WINDOW_MS)
        assert sensor.total() == sum(range(100))
        assert sensor.count() == 100.0

    def test_a_rate_is_that_of_the_time_that_its_samples_cover(self, registry: Metrics, clock: MockClock) -> None:
        sensor = registry.sensor()
        record(sensor, clock, 30)
        clock.advance(WINDOW_MS)
        record(sensor, clock, 10)
        clock.advance(WINDOW_MS / 2)
        assert sensor.rate() == 40 / 1.5
        assert sensor.occurrence_rate() == 2 / 1.5

    def test_the_first_value_is_not_blown_up(self, registry: Metrics, clock: MockClock) -> None:
        sensor = registry.sensor()
        record(sensor, clock, 50)
        assert sensor.rate() == 50.0  # as if the window's whole second had passed
        clock.advance(500)
        assert sensor.rate() == 50 / 1.5

    def test_with_one_sample_the_window_counts_whole(self, clock: MockClock) -> None:
        sensor = Metrics(clock, window_ms=2000, samples=1).sensor()
        record(sensor, clock, 50)
        assert sensor.rate() == 25.0

    def test_many_observations_at_once(self, registry: Metrics, clock: MockClock) -> None:
        sensor = registry.sensor()
        sensor.record_all(4, 100, 60, clock.now_ms())
        record(sensor, clock, 50)
        assert sensor.average() == 30.0
        assert sensor.maximum() == 60.0
        assert sensor.count() == 5.0
        clock.advance(2 * WINDOW_MS)
        sensor.record_all(1, 9, 9, clock.now_ms())
        assert sensor.average() == 9.0

    def test_nothing_is_lost_between_threads(self, registry: Metrics, clock: MockClock) -> None:
        sensor = registry.sensor()
        barrier = threading.Barrier(4)

        def tell() -> None:
            barrier.wait()
            for step in range(2000):
                sensor.record(1, clock.now_ms() + step * 10)

        threads = [threading.Thread(target=tell) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (sensor.count(), sensor.total()) == (8000.0, 8000.0)


def named(name: str, group: str = "g", **tags: str) -> MetricName:
    return MetricName(name, group, f"what {name} tells", tagged(**tags))


def tagged(**tags: str) -> Tags:
    return (("client-id", "c"), *tags.items())


class TestRegistry:
    def test_a_table_makes_a_sensor_a_row_and_a_metric_a_reading(self, registry: Metrics, clock: MockClock) -> None:
        table = {
            "size": (
                Reading("size-avg", Sensor.average, "on average"),
                Reading("size-max", Sensor.maximum, "at most"),
            ),
            "errors": (Reading("error-total", Sensor.total, "in all"),),
        }
        sensors = registry.add_sensors("g", (("client-id", "c"),), table)
        record(sensors["size"], clock, 2, 4)
        assert registry.values() == {
            MetricName("size-avg", "g", "on average", (("client-id", "c"),)): 3.0,
            MetricName("size-max", "g", "at most", (("client-id", "c"),)): 4.0,
            MetricName("error-total", "g", "in all", (("client-id", "c"),)): 0.0,
        }

    def test_tags_other_than_the_clients_id_make_groups_of_their_own(self, registry: Metrics) -> None:
        registry.add(named("rate"), lambda: 1.0)
        registry.add(named("rate", topic="a"), lambda: 2.0)
        registry.add(named("size", topic="a"), lambda: 3.0)
        registry.add(named("rate", topic="b"), lambda: 4.0)
        registry.add(named("version", "info"), lambda: "1.2")
        assert registry.by_group() == {
            "g": {"rate": 1.0},
            "g.a": {"rate": 2.0, "size": 3.0},
            "g.b": {"rate": 4.0},
            "info": {"version": "1.2"},
        }

    def test_a_value_is_worked_out_when_it_is_read(self, registry: Metrics) -> None:
        asked: list[int] = []

        def measure() -> float:
            asked.append(1)
            return float(len(asked))

        registry.add(named("rate"), measure)
        assert not asked
        (metric,) = registry
        assert metric.value() == 1.0
        assert metric.value() == 2.0

    def test_what_has_those_tags_goes(self, registry: Metrics) -> None:
        for topic in ("a", "b", "c"):
            registry.add(named("rate", topic=topic), lambda: 1.0)
        registry.add(named("only-a", topic="a"), lambda: 1.0)
        registry.add(named("rate", node="a"), lambda: 1.0)
        registry.add(named("rate"), lambda: 1.0)
        registry.remove(tagged(topic=topic) for topic in ("a", "c", "never was"))
        assert [(metric.metric_name.name, metric.metric_name.tags[1:]) for metric in registry] == [
            ("rate", (("topic", "b"),)),
            ("rate", (("node", "a"),)),
            ("rate", ()),
        ]
        assert registry.families() == [("g", "rate")]
        assert registry.family(("g", "only-a")) == []

    def test_metrics_may_come_and_go_while_they_are_read(self, registry: Metrics) -> None:
        for topic in ("a", "b", "c"):
            registry.add(named("rate", topic=topic), lambda: registry.remove([tagged(topic="c")]) or 1.0)
            registry.add(named(topic, topic=topic), lambda: 2.0)
        assert len(registry.by_group()) == 3
        assert len(registry.by_group()) == 2

    def test_a_forked_child_finds_nothing_and_takes_no_lock(
        self, registry: Metrics, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        registry.add(named("rate"), lambda: 1.0)
        monkeypatch.setattr(os, "getpid", lambda: -1)
        with registry._lock:
            assert registry.by_group() == {}
            assert list(registry) == []
            assert registry.family(("g", "rate")) == []


class Listening(MetricsReporter):
    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []

    def init(self, metrics: Metrics) -> None:
        self.heard += [("init", metric.metric_name.name) for metric in metrics]

    def metric_change(self, metric: Metric) -> None:
        self.heard.append(("change", metric.metric_name.name))

    def metric_removal(self, metric: Metric) -> None:
        self.heard.append(("removal", metric.metric_name.name))

    def close(self) -> None:
        self.heard.append(("close", ""))


class Failing:
    """Has only the one method, which fails."""

    def init(self, metrics: Metrics) -> None:
        pass

    def metric_change(self, metric: Metric) -> None:
        raise ZeroDivisionError(metric.metric_name.name)


class TestReporters:
    def test_they_hear_of_what_there_is_and_what_comes_and_goes(self, registry: Metrics) -> None:
        reporter = Listening()
        registry.add(named("before"), lambda: 1.0)
        registry.add_reporter(reporter)
        registry.add(named("topics", topic="a"), lambda: 1.0)
        registry.remove([tagged(topic="b")])
        registry.remove([tagged(topic="a")])
        assert not registry.is_closed
        registry.close()
        assert registry.is_closed
        registry.close()
        assert reporter.heard == [
            ("init", "before"),
            ("change", "topics"),
            ("removal", "topics"),
            ("close", ""),
        ]

    def test_one_that_fails_disturbs_nobody_and_is_complained_of_once(
        self, registry: Metrics, caplog: pytest.LogCaptureFixture
    ) -> None:
        reporter = Listening()
        registry.add_reporter(Failing())  # pyright: ignore[reportArgumentType]  (it need not derive from the base)
        registry.add_reporter(reporter)
        caplog.set_level(logging.DEBUG, "headrace")
        registry.add(named("first"), lambda: 1.0)
        registry.add(named("second"), lambda: 1.0)
        registry.close()
        assert reporter.heard == [("change", "first"), ("change", "second"), ("close", "")]
        assert [entry.levelno for entry in caplog.records] == [logging.WARNING, logging.DEBUG]
        assert "metric_change of metric reporter Failing failed" in caplog.text
        assert len(registry.values()) == 2

    def test_one_that_would_end_the_thread_is_only_complained_of(
        self, registry: Metrics, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Ending(MetricsReporter):
            def metric_change(self, metric: Metric) -> None:
                raise SystemExit(1)

        reporter = Listening()
        for each in (Ending(), reporter):
            registry.add_reporter(each)
        registry.add(named("first"), lambda: 1.0)
        assert reporter.heard == [("change", "first")]
        assert "metric_change of metric reporter" in caplog.text

    def test_what_init_raises_comes_out(self, registry: Metrics) -> None:
        class Refusing(MetricsReporter):
            def init(self, metrics: Metrics) -> None:
                raise OSError("no port")

        with pytest.raises(OSError, match="no port"):
            registry.add_reporter(Refusing())
        registry.add(named("later"), lambda: 1.0)
