"""Collects a producer's metrics and encodes them for a telemetry subscription (KIP-714), as OTLP's MetricsData.

A metric's name is `org.apache.kafka.`, its group without `-metrics`, and its own name, with dots for hyphens:
`org.apache.kafka.producer.record.queue.time.avg`. Tags other than the client id, which the broker knows, become
attributes with underscores. Totals are monotonic sums, everything else is a gauge; what has no number is left out.

Source: Kafka's KafkaMetricsCollector and TelemetryMetricNamingConvention.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ...network.clock import Clock
from ...network.metrics import Metric, MetricName, Tags, is_counter
from ...network.records.compression import Compression, compress

_PREFIX = "org.apache.kafka."
_CLIENT_ID = "client-id"
_NS_PER_MS = 1_000_000


class Subscription(NamedTuple):
    """What a broker asks for. `prefixes`: of metric names; `*` and the empty prefix stand for all. `max_bytes`: of a
    compressed payload; 0 or less for no limit."""

    id: int
    prefixes: tuple[str, ...]
    interval_ms: int
    compression: Compression
    is_delta: bool
    max_bytes: int


class Payload(NamedTuple):
    """The metrics of one push. `left_out`: the number of metrics for which there was no room. `before`: the counters'
    values in the pushes before this one."""

    data: bytes
    compression: Compression
    left_out: int
    before: Mapping[Any, _Pushed | None]


class _Pushed(NamedTuple):
    """A counter's value at a time, in nanoseconds since 1970."""

    value: float
    at_ns: int


class _Point(NamedTuple):
    """One value of a metric. `start_ns` is None for a gauge."""

    name: str
    tags: Tags
    value: float
    start_ns: int | None


def telemetry_name(name: MetricName) -> str:
    """The name of a metric in telemetry."""
    group = name.group.lower().replace("-", ".").replace(".metrics", "")
    return f"{_PREFIX}{group}.{name.name.lower().replace('-', '.')}"


class TelemetryMetrics:
    """Makes the payloads of one producer's pushes. One thread at a time."""

    def __init__(self, metrics: Iterable[Metric], clock: Clock, resource: Mapping[str, str]) -> None:
        """`metrics`: those of the producer, whose counters start now. `resource`: attributes of the producer."""
        self._metrics = metrics
        self._clock = clock
        self._resource = dict(resource)
        self._started_ns = clock.wall_ms() * _NS_PER_MS
        self._pushed: dict[tuple[str, Tags], _Pushed] = {}
        self._was_delta = False

    def payload(self, subscription: Subscription) -> Payload:
        """Collect the metrics of a subscription and encode as many of them as the broker accepts.

        Counters count as pushed; `rejected` takes that back. Raises ImportError without opentelemetry-proto.
        """
        if self._was_delta != subscription.is_delta:
            self._pushed.clear()
            self._was_delta = subscription.is_delta
        now_ns = self._clock.wall_ms() * _NS_PER_MS
        current: dict[tuple[str, Tags], _Pushed] = {}
        points = self._points(subscription, now_ns, current)
        total = len(points)
        while True:
            data = compress(subscription.compression, _encode(points, self._resource, subscription.is_delta, now_ns))
            if not points or len(data) <= subscription.max_bytes or subscription.max_bytes <= 0:
                break
            # those of single topics and nodes come last
            points = points[: len(points) * subscription.max_bytes * 9 // (len(data) * 10)]
        before: dict[tuple[str, Tags], _Pushed | None] = {}
        if subscription.is_delta:
            for point in points:
                key = (point.name, point.tags)
                if point.start_ns is not None:
                    before[key] = self._pushed.get(key)
                    self._pushed[key] = current[key]
            for gone in self._pushed.keys() - current.keys():
                del self._pushed[gone]
        return Payload(data, subscription.compression, total - len(points), before)

    def rejected(self, payload: Payload) -> None:
        """The broker did not take a payload: the next one carries the increase of its counters, too."""
        for key, before in payload.before.items():
            if before is not None:
                self._pushed[key] = before
            else:
                self._pushed.pop(key, None)

    def _points(
        self, subscription: Subscription, now_ns: int, current: dict[tuple[str, Tags], _Pushed]
    ) -> list[_Point]:
        """The values of the metrics that are asked for, those of the whole producer first. Adds the counters to
        `current`."""
        wanted = tuple("" if prefix == "*" else prefix for prefix in subscription.prefixes)
        points = []
        for metric in self._metrics:
            name = telemetry_name(metric.metric_name)
            value = metric.value() if name.startswith(wanted) else math.nan
            if isinstance(value, str) or not math.isfinite(value):
                continue
            tags = tuple((tag.replace("-", "_"), text) for tag, text in metric.metric_name.tags if tag != _CLIENT_ID)
            start_ns = None
            if is_counter(metric.metric_name):
                start_ns = self._started_ns
                current[name, tags] = _Pushed(value, now_ns)
                before = self._pushed.get((name, tags))
                if before is not None:
                    # a smaller value is that of a topic or node that was gone in between
                    value, start_ns = value - (before.value if value >= before.value else 0.0), before.at_ns
            points.append(_Point(name, tags, value, start_ns))
        points.sort(key=lambda point: (len(point.tags), point.tags, point.name))
        return points


def _encode(points: Iterable[_Point], resource: Mapping[str, str], is_delta: bool, now_ns: int) -> bytes:
    """Encode points as one ResourceMetrics, with one Metric per name."""
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue  # noqa: PLC0415 - an extra
    from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData  # noqa: PLC0415

    def attributes(tags: Iterable[tuple[str, str]]) -> list[Any]:
        return [KeyValue(key=key, value=AnyValue(string_value=text)) for key, text in tags]

    data = MetricsData()
    within = data.resource_metrics.add()
    within.resource.attributes.extend(attributes(resource.items()))
    scope = within.scope_metrics.add()
    temporality = (
        AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
        if is_delta
        else AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    )
    by_name: dict[str, Any] = {}
    for point in points:
        metric = by_name.get(point.name)
        if metric is None:
            metric = by_name[point.name] = scope.metrics.add(name=point.name)
            if point.start_ns is not None:
                metric.sum.is_monotonic = True
                metric.sum.aggregation_temporality = temporality
        values = metric.gauge if point.start_ns is None else metric.sum
        values.data_points.add(
            time_unix_nano=now_ns,
            start_time_unix_nano=point.start_ns or 0,
            as_double=point.value,
            attributes=attributes(point.tags),
        )
    return data.SerializeToString()
