"""Measurements: sensors that cost one call per batch or request, and the metrics that are read from them.

A `Sensor` is told values and remembers, over a sliding window of samples, their number, sum and greatest, and their
totals since the start; every metric of it (average, maximum, rate, total) is worked out when somebody reads it. So what
is paid while records flow doesn't grow with the number of metrics, and next to nothing is paid for reporters.

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
    """What a metric is called: Kafka's name and group, and tags such as the client's id, a topic or a node."""

    name: str
    group: str
    description: str
    tags: Tags = ()


class Metric:
    """One metric of a registry: `metric_name`, and `value()` whenever somebody wants to know (Kafka's KafkaMetric)."""

    __slots__ = ("_measure", "metric_name")

    def __init__(self, metric_name: MetricName, measure: Callable[[], float | str]) -> None:
        self.metric_name = metric_name
        self._measure = measure

    def value(self) -> float | str:
        """The value now; an average or a maximum of nothing is not a number. Any thread."""
        return self._measure()


class _Sample:
    __slots__ = ("count", "greatest", "last_ms", "start_ms", "total")

    def __init__(self, start_ms: float) -> None:
        self.start_ms = start_ms
        self.last_ms = start_ms
        self.count = 0
        self.total = 0.0
        self.greatest = float("-inf")


#: What a sensor begins with: nothing is ever recorded in it, because it's older than any window.
_BEFORE_ALL = _Sample(float("-inf"))


class Sensor:
    """What was observed of one thing. Told and read by any thread, under a lock of its own that is a leaf.

    A sample begins with the first observation after the one before it is `window_ms` old. Those whose last observation
    is younger than `samples` windows count; one more than `samples` is kept, because the oldest may overlap with the
    window's begin.
    """

    __slots__ = ("_clock", "_current", "_earlier_count", "_earlier_total", "_kept", "_lock", "_samples", "_window_ms")

    def __init__(self, clock: Clock, window_ms: float, samples: int) -> None:
        self._clock = clock
        self._window_ms = window_ms
        self._samples = samples
        self._current = _BEFORE_ALL
        self._kept: list[_Sample] = []
        # of the samples that are kept no more
        self._earlier_count = 0
        self._earlier_total = 0.0
        self._lock = threading.RLock()

    def record(self, value: float, now_ms: float) -> None:
        """Remember one observation."""
        with here.section, self._lock:
            sample = self._current
            if now_ms - sample.start_ms >= self._window_ms:
                sample = self._begin_sample(now_ms)
            sample.count += 1
            sample.total += value
            sample.last_ms = now_ms
            if value > sample.greatest:  # noqa: PLR1730  (a call of max takes as long as all the rest)
                sample.greatest = value

    def record_all(self, count: int, total: float, greatest: float, now_ms: float) -> None:
        """Remember `count` observations at once, which sum up to `total`."""
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
        """The samples that aren't too old. Locked."""
        return [sample for sample in self._kept if now_ms - sample.last_ms < self._window_ms * self._samples]

    def average(self) -> float:
        """Of the observations in the window; not a number where there are none."""
        with here.section, self._lock:
            live = self._live(self._clock.now_ms())
            count = sum(sample.count for sample in live)
            return sum(sample.total for sample in live) / count if count else NAN

    def maximum(self) -> float:
        """The greatest in the window; not a number where there are none."""
        with here.section, self._lock:
            return float(max((sample.greatest for sample in self._live(self._clock.now_ms())), default=NAN))

    def rate(self) -> float:
        """The sum of the observations per second."""
        with here.section, self._lock:
            now_ms = self._clock.now_ms()
            live = self._live(now_ms)
            return sum(sample.total for sample in live) / self._elapsed_seconds(live, now_ms)

    def occurrence_rate(self) -> float:
        """The number of observations per second."""
        with here.section, self._lock:
            now_ms = self._clock.now_ms()
            live = self._live(now_ms)
            return sum(sample.count for sample in live) / self._elapsed_seconds(live, now_ms)

    def _elapsed_seconds(self, live: list[_Sample], now_ms: float) -> float:
        # As Kafka's Rate: as if all windows but the last had passed, so that a first value isn't blown up. Where there
        # is but one window, it counts as a whole one (Kafka takes what has passed of it, be it a millisecond).
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
    """A metric that is read from a sensor: Kafka's name for it, how, and what it tells."""

    name: str
    measure: Callable[[Sensor], float]
    description: str


class MetricsReporter:
    """Base of those who carry metrics elsewhere (Kafka's MetricsReporter). A class that has these methods need not
    derive from it.

    `init` runs on the thread that makes the producer, before anything is sent; again, with other metrics, when the same
    object is given to another producer, or when a producer begins anew in a forked child. `metric_change` and
    `metric_removal` mostly run on the sender thread: be quick. What they raise is logged and changes nothing.
    """

    def init(self, metrics: Metrics) -> None:
        """Take note of the metrics there are: `metrics` iterates over them, now and whenever it is asked again. An
        exception from here comes out of the producer's constructor."""

    def metric_change(self, metric: Metric) -> None:
        """A metric came into being: a topic's or a node's."""

    def metric_removal(self, metric: Metric) -> None:
        """A metric is no more."""

    def close(self) -> None:
        """A producer that reports here was closed. Its metrics, `is_closed` now, stay readable."""


class Metrics:
    """The metrics of one client: names and how to work each out. Thread-safe.

    Bounded by what it is given: who makes metrics per topic or per node removes them with the topic or node. Belongs to
    the process that made it: in a forked child it is empty, because what it tells goes on in the parent, and because
    locks may have been held when the child was made.
    """

    def __init__(self, clock: Clock, *, window_ms: float = 30_000.0, samples: int = 2) -> None:
        """`window_ms` and `samples` are metrics.sample.window.ms and metrics.num.samples."""
        self.clock = clock
        self._window_ms = window_ms
        self._samples = samples
        self._lock = threading.RLock()
        # by tags first, because a topic or a node comes and goes with all of its metrics; then by group and name
        self._tagged: dict[Tags, dict[tuple[str, str], Metric]] = {}
        self._reporters: list[MetricsReporter] = []
        self._complained_of: set[int] = set()
        self._process_id = os.getpid()
        #: Whether the client was closed.
        self.is_closed = False

    def sensor(self) -> Sensor:
        """A new sensor with this registry's windows. No metric reads it yet."""
        return Sensor(self.clock, self._window_ms, self._samples)

    def add_sensors(self, group: str, tags: Tags, table: Mapping[str, tuple[Reading, ...]]) -> dict[str, Sensor]:
        """A sensor for each entry of `table`, by its key, with the metrics that are read from it."""
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
        """Have a metric worked out by `measure` when it is read, on the reader's thread."""
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
        """Forget every metric with just one of these tags: topics or nodes that are no more."""
        gone: list[Metric] = []
        with here.section, self._lock:
            for each in tags:
                gone.extend(self._tagged.pop(each, {}).values())
            reporters = tuple(self._reporters)
        for reporter in reporters:
            for metric in gone:
                self._tell(reporter, "metric_removal", metric)

    def add_reporter(self, reporter: MetricsReporter) -> None:
        """Have `reporter` told of the metrics there are, and of changes. What its `init` raises comes out of here."""
        reporter.init(self)
        with here.section, self._lock:
            self._reporters.append(reporter)

    def close(self) -> None:
        """Tell the reporters that no more will happen here."""
        self.is_closed = True
        with here.section, self._lock:
            reporters, self._reporters = self._reporters, []
        for reporter in reporters:
            self._tell(reporter, "close")

    def _tell(self, reporter: MetricsReporter, event: str, *arguments: Metric) -> None:
        # optional in a class of the user's; and it must not disturb the thread it is called on
        try:
            method = getattr(reporter, event, None)
            if method is not None:
                method(*arguments)
        except KeyboardInterrupt:
            raise
        except BaseException:
            # also a SystemExit, which would end the sender thread
            first = id(reporter) not in self._complained_of
            self._complained_of.add(id(reporter))
            level = logging.WARNING if first else logging.DEBUG
            _log.log(level, "%s of metric reporter %s failed", event, type(reporter).__qualname__, exc_info=True)

    def __iter__(self) -> Iterator[Metric]:
        """Every metric that there is now."""
        for metrics in self._snapshot():
            yield from metrics

    def families(self) -> list[tuple[str, str]]:
        """Group and name of every metric: once, whatever tags there are."""
        if self._process_id != os.getpid():
            return []
        with here.section, self._lock:
            return list(dict.fromkeys(key for metrics in self._tagged.values() for key in metrics))

    def family(self, key: tuple[str, str]) -> list[Metric]:
        """The metrics of that group and name, which differ in their tags."""
        if self._process_id != os.getpid():
            return []
        with here.section, self._lock:
            return [metrics[key] for metrics in self._tagged.values() if key in metrics]

    def _snapshot(self) -> list[list[Metric]]:
        """What there is now; those with the same tags together."""
        if self._process_id != os.getpid():
            return []
        with here.section, self._lock:
            return [list(metrics.values()) for metrics in self._tagged.values()]

    def values(self) -> dict[MetricName, float | str]:
        """Every metric with its value now."""
        return {metric.metric_name: metric.value() for metric in self}

    def by_group(self) -> Mapping[str, Mapping[str, float | str]]:
        """Values by group and name. Tags other than the client's id follow the group's name: ``group.topic``."""
        groups: dict[str, dict[str, float | str]] = {}
        for name, value in self.values().items():
            tags = [text for tag, text in name.tags if tag != "client-id"]
            groups.setdefault(".".join([name.group, *tags]), {})[name.name] = value
        return groups
