"""Metrics: sensors that cost one call per batch or request, and the metrics that are read from them.

A `Sensor` (`sensor_cy`) records values. It keeps their count, sum and maximum over a sliding window of samples, and
their totals since the start. Its metrics (average, maximum, rate, total) are computed when read. The cost of recording
does not grow with the number of metrics, and reporters cost next to nothing.

Source: Kafka's common.metrics (Metrics, MetricsReporter), with its names.
"""

import logging
import os
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

from .clock import Clock
from .sections import here
from .sensor_cy import Sensor

_log = logging.getLogger(__name__)

Tags = tuple[tuple[str, str], ...]


class MetricName(NamedTuple):
    """The name of a metric: Kafka's name and group, and tags such as the client id, a topic or a node."""

    name: str
    group: str
    description: str
    tags: Tags = ()


def is_counter(name: MetricName) -> bool:
    """Whether a metric only grows: Kafka names those ``-total``."""
    return name.name.endswith("-total")


class Metric:
    """One metric of a registry, with its `metric_name` and current `value()` (Kafka's KafkaMetric)."""

    __slots__ = ("_measure", "metric_name")

    def __init__(self, metric_name: MetricName, measure: Callable[[], float | str]) -> None:
        self.metric_name = metric_name
        self._measure = measure

    def value(self) -> float | str:
        """The current value; NaN for an average or maximum without observations. Any thread."""
        return self._measure()


class SharedSensor(Sensor):
    """A sensor into which any thread records. Its lock is a leaf."""

    def __init__(self, clock: Clock, window_ms: float, samples: int) -> None:
        super().__init__(clock, window_ms, samples)
        self._recording = threading.RLock()

    def record(self, value: float, now_ms: float) -> None:
        """Record one observation. Any thread."""
        with here.section, self._recording:
            super().record(value, now_ms)


class Reading:
    """A metric that is read from a sensor: Kafka's name, the method to call and the description."""

    __slots__ = ("description", "measure", "name")

    def __init__(self, name: str, measure: Callable[[Sensor], float], description: str) -> None:
        self.name = name
        self.measure = measure
        self.description = description


class MetricsReporter:
    """Base class of metrics reporters (Kafka's MetricsReporter). A class with these methods need not derive from it.

    `init` runs on the thread that creates the producer, before anything is sent. It runs again, with other metrics, if
    the object is passed to another producer or if a producer restarts in a forked child. `metric_change` and
    `metric_removal` mostly run on the sender thread and must be quick. Their exceptions are logged and otherwise
    ignored.
    """

    def init(self, metrics: "Metrics") -> None:
        """Receive the registry. Iterating over `metrics` gives the current metrics at any time.

        An exception raised here propagates from the producer's constructor.
        """

    def metric_change(self, metric: Metric) -> None:
        """Called after a metric of a topic or a node was added."""

    def metric_removal(self, metric: Metric) -> None:
        """Called after a metric was removed."""

    def close(self) -> None:
        """Called after a producer that reports here was closed. Its metrics stay readable, with `is_closed` True."""


class MetricGroups(dict[str, dict[str, Any]]):
    """Values of metrics by group and name, as `metrics()` returns them: a dict, which a notebook shows as a table."""

    if TYPE_CHECKING:
        # the client's version is text, and every other value a number
        @overload
        def __getitem__(self, group: Literal["app-info"], /) -> dict[str, Any]: ...
        @overload
        def __getitem__(self, group: str, /) -> dict[str, float]: ...
        def __getitem__(self, group: str, /) -> dict[str, Any]: ...

    def _repr_html_(self) -> str:
        from .notebook import table  # noqa: PLC0415 - for notebooks

        return "".join(table(group, sorted(values.items())) for group, values in self.items())


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

    def sensor(self, *, shared: bool = False) -> Sensor:
        """A new sensor with this registry's windows, without metrics. `shared`: several threads record into it."""
        return (SharedSensor if shared else Sensor)(self.clock, self._window_ms, self._samples)

    def add_sensors(
        self, group: str, tags: Tags, table: Mapping[str, tuple[Reading, ...]], *, shared: Container[str] = ()
    ) -> dict[str, Sensor]:
        """Add a sensor for each entry of `table`, with its metrics. Returns the sensors by the keys of `table`.

        `shared`: the keys of those into which several threads record.
        """
        sensors = {kind: self.sensor(shared=kind in shared) for kind in table}
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

    def by_group(self) -> MetricGroups:
        """Values by group and name. Tags other than the client id follow the group name: ``group.topic``."""
        groups = MetricGroups()
        for name, value in self.values().items():
            tags = [text for tag, text in name.tags if tag != "client-id"]
            dict.setdefault(groups, ".".join([name.group, *tags]), {})[name.name] = value
        return groups
