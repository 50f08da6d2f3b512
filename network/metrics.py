"""Measurements: sensors that cost one call per batch or request, and the metrics that are read from them.

A `Sensor` is told values and remembers, over a sliding window of samples, their number, sum and greatest, and their
totals since the start; every metric of it (average, maximum, rate, total) is worked out when somebody reads it. So what
is paid while records flow doesn't grow with the number of metrics.

Source: Kafka's common.metrics (Metrics, Sensor, SampledStat, Rate), with its names and windows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .clock import Clock

NAN = float("nan")


class MetricName(NamedTuple):
    """What a metric is called: Kafka's name and group, and tags such as the client's id, a topic or a node."""

    name: str
    group: str
    description: str
    tags: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class _Sample:
    start_ms: float
    count: int = 0
    total: float = 0.0
    greatest: float = float("-inf")


@dataclass(slots=True, eq=False)
class Sensor:
    """What was observed of one thing. Told by any thread that holds no lock of ours; a lock of its own guards it."""

    clock: Clock
    window_ms: float
    samples: int
    total_count: int = 0
    total_sum: float = 0.0
    _kept: list[_Sample] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def record(self, value: float, now_ms: float) -> None:
        """Remember one observation."""
        with self._lock:
            kept = self._kept
            if not kept or now_ms - kept[-1].start_ms >= self.window_ms:
                kept.append(_Sample(now_ms))
                if len(kept) > self.samples:
                    del kept[0]
            sample = kept[-1]
            sample.count += 1
            sample.total += value
            sample.greatest = max(sample.greatest, value)
            self.total_count += 1
            self.total_sum += value

    def _live(self, now_ms: float) -> list[_Sample]:
        """The samples that aren't too old. Locked."""
        oldest_ms = now_ms - self.window_ms * self.samples
        return [sample for sample in self._kept if sample.start_ms + self.window_ms > oldest_ms]

    def average(self) -> float:
        """Of the observations in the window; not a number where there are none."""
        with self._lock:
            live = self._live(self.clock.now_ms())
            count = sum(sample.count for sample in live)
            return sum(sample.total for sample in live) / count if count else NAN

    def maximum(self) -> float:
        """The greatest in the window; not a number where there are none."""
        with self._lock:
            live = [sample.greatest for sample in self._live(self.clock.now_ms()) if sample.count]
            return max(live) if live else NAN

    def rate(self) -> float:
        """The sum of the observations per second."""
        with self._lock:
            now_ms = self.clock.now_ms()
            live = self._live(now_ms)
            return sum(sample.total for sample in live) / self._elapsed_seconds(live, now_ms)

    def occurrence_rate(self) -> float:
        """The number of observations per second."""
        with self._lock:
            now_ms = self.clock.now_ms()
            live = self._live(now_ms)
            return sum(sample.count for sample in live) / self._elapsed_seconds(live, now_ms)

    def _elapsed_seconds(self, live: list[_Sample], now_ms: float) -> float:
        # as Kafka's Rate: a window that has only begun counts as all samples but one, so that a first value isn't
        # blown up
        elapsed_ms = now_ms - live[0].start_ms if live else 0.0
        whole = int(elapsed_ms // self.window_ms)
        least = self.samples - 1
        if whole < least:
            elapsed_ms += (least - whole) * self.window_ms
        return max(elapsed_ms, self.window_ms) / 1000.0

    def total(self) -> float:
        """The sum of all observations since the start."""
        return self.total_sum

    def count(self) -> float:
        """The number of all observations since the start."""
        return float(self.total_count)


class Metrics:
    """The metrics of one client: names and how to work each out. Thread-safe.

    Bounded by what it is given: who makes metrics per topic or per node removes them with the topic or node.
    """

    def __init__(self, clock: Clock, *, window_ms: float = 30_000.0, samples: int = 2) -> None:
        """`window_ms` and `samples` are metrics.sample.window.ms and metrics.num.samples."""
        self.clock = clock
        self._window_ms = window_ms
        self._samples = samples
        self._lock = threading.Lock()
        self._metrics: dict[MetricName, Callable[[], float | str]] = {}

    def sensor(self) -> Sensor:
        """A new sensor with this registry's windows. No metric reads it yet."""
        return Sensor(self.clock, self._window_ms, self._samples)

    def add(self, name: MetricName, measure: Callable[[], float | str]) -> None:
        """Have a metric worked out by `measure` when it is read, on the reader's thread."""
        with self._lock:
            self._metrics[name] = measure

    def remove_tagged(self, tag: str, value: str) -> None:
        """Forget every metric with this tag: a topic or a node that is no more."""
        with self._lock:
            for name in [name for name in self._metrics if (tag, value) in name.tags]:
                del self._metrics[name]

    def __iter__(self) -> Iterator[tuple[MetricName, float | str]]:
        """Every metric with its value now."""
        with self._lock:
            present = list(self._metrics.items())
        for name, measure in present:
            yield name, measure()

    def by_group(self) -> Mapping[str, Mapping[str, float | str]]:
        """Values by group and name. Tags other than the client's id follow the group's name: ``group.topic``."""
        groups: dict[str, dict[str, float | str]] = {}
        for name, value in self:
            tags = [text for tag, text in name.tags if tag != "client-id"]
            groups.setdefault(".".join([name.group, *tags]), {})[name.name] = value
        return groups
