"""Metrics: sensors that cost one call per batch or request, and the metrics that are read from them.

A `Sensor` records values. It keeps their count, sum and maximum over a sliding window of samples, and their totals
since the start. Its metrics (average, maximum, rate, total) are computed when read. The cost of recording does not
grow with the number of metrics, and reporters cost next to nothing.

Source: Kafka's common.metrics (Metrics, Sensor, SampledStat, Rate, MetricsReporter), with its names and windows.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from .clock import Clock
from .sections import here

_log = logging.getLogger(__name__)

NAN = float("nan")

Tags = tuple[tuple[str, str], ...]


class MetricName(NamedTuple):
    """The name of a metric: Kafka's name and group, and tags such as the client id, a topic or a node."""

    name: str
    group: str
    description: str
    tags: Tags = ()


class Metric:
    """One metric of a registry, with its `metric_name` and current `value()` (Kafka's KafkaMetric)."""

    __slots__ = ("_measure", "metric_name")

    def __init__(self, metric_name: MetricName, measure: Callable[[], float | str]) -> None:
        self.metric_name = metric_name
        self._measure = measure

    def value(self) -> float | str:
        """The current value; NaN for an average or maximum without observations. Any thread."""
        return self._measure()


class _Sample:
    __slots__ = ("count", "greatest", "last_ms", "start_ms", "total")

    def __init__(self, start_ms: float) -> None:
        self.start_ms = start_ms
        self.last_ms = start_ms
        self.count = 0
        self.total = 0.0
        self.greatest = float("-inf")


#: The initial sample of a sensor. Nothing is ever recorded in it, because it is older than any window.
_BEFORE_ALL = _Sample(float("-inf"))


class Sensor:
    """Observations of one quantity. Any thread may record and read. The sensor's lock is a leaf.

    An observation starts a new sample if the current one is at least `window_ms` old. A sample counts if its last
    observation is younger than `samples` windows. One more than `samples` is kept, because the oldest may overlap the
    start of the window.
    """

    __slots__ = ("_clock", "_current", "_earlier_count", "_earlier_total", "_kept", "_lock", "_samples", "_window_ms")

    def __init__(self, clock: Clock, window_ms: float, samples: int) -> None:
        self._clock = clock
        self._window_ms = window_ms
        self._samples = samples
        self._current = _BEFORE_ALL
        self._kept: list[_Sample] = []
        # totals of the samples that were dropped
        self._earlier_count = 0
        self._earlier_total = 0.0
        self._lock = threading.RLock()

    def record(self, value: float, now_ms: float) -> None:
        """Record one observation."""
        with here.section, self._lock:
            sample = self._current
            if now_ms - sample.start_ms >= self._window_ms:
                sample = self._begin_sample(now_ms)
            sample.count += 1
            sample.total += value
            sample.last_ms = now_ms
            if value > sample.greatest:  # noqa: PLR1730  (a call of max takes as long as everything else)
                sample.greatest = value

    def record_all(self, count: int, total: float, greatest: float, now_ms: float) -> None:
        """Record `count` observations with the sum `total` and the maximum `greatest`."""
        with here.section, self._lock:
            sample = self._current
            if now_ms - sample.start_ms >= self._window_ms:
                sample = self._begin_sample(now_ms)
            sample.count += count
            sample.total += total
            sample.last_ms = now_ms
            sample.greatest = max(sample.greatest, greatest)

    def _begin_sample(self, now_ms: float) -> _Sample:
        sample = self._current = _Sample(now_ms)
        self._kept.append(sample)
        if len(self._kept) > self._samples + 1:
            oldest = self._kept.pop(0)
            self._earlier_count += oldest.count
            self._earlier_total += oldest.total
        return sample

    def _live(self, now_ms: float) -> list[_Sample]:
        """The samples within the window. The caller holds the lock."""
        return [sample for sample in self._kept if now_ms - sample.last_ms < self._window_ms * self._samples]

    def average(self) -> float:
        """The average of the observations in the window; NaN if there are none."""
        with here.section, self._lock:
            live = self._live(self._clock.now_ms())
            count = sum(sample.count for sample in live)
            return sum(sample.total for sample in live) / count if count else NAN

    def maximum(self) -> float:
        """The maximum of the observations in the window; NaN if there are none."""
        with here.section, self._lock:
            return float(max((sample.greatest for sample in self._live(self._clock.now_ms())), default=NAN))

    def rate(self) -> float:
        """The sum of the observations in the window, per second."""
        with here.section, self._lock:
            now_ms = self._clock.now_ms()
            live = self._live(now_ms)
            return sum(sample.total for sample in live) / self._elapsed_seconds(live, now_ms)

    def occurrence_rate(self) -> float:
        """The number of observations in the window, per second."""
        with here.section, self._lock:
            now_ms = self._clock.now_ms()
            live = self._live(now_ms)
            return sum(sample.count for sample in live) / self._elapsed_seconds(live, now_ms)

    def _elapsed_seconds(self, live: list[_Sample], now_ms: float) -> float:
        # As in Kafka's Rate, all windows but the last count as elapsed, so that the first value is not inflated. A
        # single window counts as a whole one; Kafka takes the part that has elapsed, even if it is a millisecond.
        elapsed_ms = now_ms - live[0].start_ms if live else 0.0
        whole = int(elapsed_ms // self._window_ms)
        elapsed_ms += max(self._samples - 1 - whole, 0) * self._window_ms
        return max(elapsed_ms, self._window_ms) / 1000.0

    def total(self) -> float:
        """The sum of all observations since the start."""
        with here.section, self._lock:
            return self._earlier_total + sum(sample.total for sample in self._kept)

    def count(self) -> float:
        """The number of all observations since the start."""
        with here.section, self._lock:
            return float(self._earlier_count + sum(sample.count for sample in self._kept))


class Reading(NamedTuple):
    """A metric that is read from a sensor: Kafka's name, the method to call and the description."""

    name: str
    measure: Callable[[Sensor], float]
    description: str


class MetricsReporter:
    """Base class of metrics reporters (Kafka's MetricsReporter). A class with these methods need not derive from it.

    `init` runs on the thread that creates the producer, before anything is sent. It runs again, with other metrics, if
    the object is passed to another producer or if a producer restarts in a forked child. `metric_change` and
    `metric_removal` mostly run on the sender thread and must be quick. Their exceptions are logged and otherwise
    ignored.
    """

    def init(self, metrics: Metrics) -> None:
        """Receive the registry. Iterating over `metrics` gives the current metrics at any time.

        An exception raised here propagates from the producer's constructor.
        """

    def metric_change(self, metric: Metric) -> None:
        """Called after a metric of a topic or a node was added."""

    def metric_removal(self, metric: Metric) -> None:
        """Called after a metric was removed."""

    def close(self) -> None:
        """Called after a producer that reports here was closed. Its metrics stay readable, with `is_closed` True."""


class Metrics:
    """The registry of one client's metrics. Thread-safe.

    Its size depends on its callers: code that adds metrics per topic or node removes them with the topic or node. It
    belongs to the process that created it. In a forked child it is empty, because its metrics continue in the parent
    and because locks may have been held at the fork.
    """

    def __init__(self, clock: Clock, *, window_ms: float = 30_000.0, samples: int = 2) -> None:
        """`window_ms` and `samples` are metrics.sample.window.ms and metrics.num.samples."""
        self.clock = clock
        self._window_ms = window_ms
        self._samples = samples
        self._lock = threading.RLock()
        # by tags first, because a topic or a node is added and removed with all its metrics; then by group and name
        self._tagged: dict[Tags, dict[tuple[str, str], Metric]] = {}
        self._reporters: list[MetricsReporter] = []
        self._complained_of: set[int] = set()
        self._process_id = os.getpid()
        #: Whether the client is closed.
        self.is_closed = False

    def sensor(self) -> Sensor:
        """A new sensor with this registry's windows, without metrics."""
        return Sensor(self.clock, self._window_ms, self._samples)

    def add_sensors(self, group: str, tags: Tags, table: Mapping[str, tuple[Reading, ...]]) -> dict[str, Sensor]:
        """Add a sensor for each entry of `table`, with its metrics. Returns the sensors by the keys of `table`."""
        sensors = {kind: self.sensor() for kind in table}
        self._add(
            tags,
            [
                Metric(MetricName(reading.name, group, reading.description, tags), partial(reading.measure, sensor))
                for sensor, readings in zip(sensors.values(), table.values(), strict=True)
                for reading in readings
            ],
        )
        return sensors

    def add(self, name: MetricName, measure: Callable[[], float | str]) -> None:
        """Add a metric. `measure` computes its value on the reader's thread."""
        self._add(name.tags, [Metric(name, measure)])

    def _add(self, tags: Tags, metrics: list[Metric]) -> None:
        with here.section, self._lock:
            present = self._tagged.setdefault(tags, {})
            present.update(((metric.metric_name.group, metric.metric_name.name), metric) for metric in metrics)
            reporters = tuple(self._reporters)
        for reporter in reporters:
            for metric in metrics:
                self._tell(reporter, "metric_change", metric)

    def remove(self, tags: Iterable[Tags]) -> None:
        """Remove every metric whose tags equal one of `tags`: the metrics of removed topics or nodes."""
        gone: list[Metric] = []
        with here.section, self._lock:
            for each in tags:
                gone.extend(self._tagged.pop(each, {}).values())
            reporters = tuple(self._reporters)
        for reporter in reporters:
            for metric in gone:
                self._tell(reporter, "metric_removal", metric)

    def add_reporter(self, reporter: MetricsReporter) -> None:
        """Pass the metrics and later changes to `reporter`. Raises what its `init` raises."""
        reporter.init(self)
        with here.section, self._lock:
            self._reporters.append(reporter)

    def close(self) -> None:
        """Mark the registry as closed and close the reporters."""
        self.is_closed = True
        with here.section, self._lock:
            reporters, self._reporters = self._reporters, []
        for reporter in reporters:
            self._tell(reporter, "close")

    def _tell(self, reporter: MetricsReporter, event: str, *arguments: Metric) -> None:
        # The methods are optional in a user's class, and must not disturb the calling thread.
        try:
            method = getattr(reporter, event, None)
            if method is not None:
                method(*arguments)
        except KeyboardInterrupt:
            raise
        except BaseException:
            # includes SystemExit, which would end the sender thread
            first = id(reporter) not in self._complained_of
            self._complained_of.add(id(reporter))
            level = logging.WARNING if first else logging.DEBUG
            _log.log(level, "%s of metric reporter %s failed", event, type(reporter).__qualname__, exc_info=True)

    def __iter__(self) -> Iterator[Metric]:
        """The current metrics."""
        for metrics in self._snapshot():
            yield from metrics

    def families(self) -> list[tuple[str, str]]:
        """The distinct (group, name) pairs of the metrics, regardless of tags."""
        if self._process_id != os.getpid():
            return []
        with here.section, self._lock:
            return list(dict.fromkeys(key for metrics in self._tagged.values() for key in metrics))

    def family(self, key: tuple[str, str]) -> list[Metric]:
        """The metrics with that group and name; they differ in their tags."""
        if self._process_id != os.getpid():
            return []
        with here.section, self._lock:
            return [metrics[key] for metrics in self._tagged.values() if key in metrics]

    def _snapshot(self) -> list[list[Metric]]:
        """The current metrics, grouped by tags."""
        if self._process_id != os.getpid():
            return []
        with here.section, self._lock:
            return [list(metrics.values()) for metrics in self._tagged.values()]

    def values(self) -> dict[MetricName, float | str]:
        """The current value of every metric."""
        return {metric.metric_name: metric.value() for metric in self}

    def by_group(self) -> Mapping[str, Mapping[str, float | str]]:
        """Values by group and name. Tags other than the client id follow the group name: ``group.topic``."""
        groups: dict[str, dict[str, float | str]] = {}
        for name, value in self.values().items():
            tags = [text for tag, text in name.tags if tag != "client-id"]
            groups.setdefault(".".join([name.group, *tags]), {})[name.name] = value
        return groups
