"""What a client pushed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...network.protocol.errors import IllegalStateError


class MetricPoint(NamedTuple):
    """One value of a metric. `labels`: the attributes of the metric. `is_delta` is None for a gauge; a sum is the
    increase between `start_ns` and `time_ns` if it is true, else the total since `start_ns`."""

    name: str
    labels: Mapping[str, str]
    value: float
    is_delta: bool | None
    start_ns: int
    time_ns: int


class TelemetryPush(NamedTuple):
    """A PushTelemetry request that a broker accepted. `data` is OTLP's MetricsData, decompressed."""

    node_id: int
    client_instance_id: uuid.UUID
    client_id: str | None
    software_name: str
    software_version: str
    subscription_id: int
    terminating: bool
    compression: str
    data: bytes
    received_ms: float

    def metrics(self) -> list[MetricPoint]:
        """The metrics, decoded. Raises IllegalStateError without opentelemetry-proto."""
        delta = _library().AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
        points = []
        for within in self._decoded().resource_metrics:
            for metric in (metric for scope in within.scope_metrics for metric in scope.metrics):
                is_sum = metric.HasField("sum")
                is_delta = metric.sum.aggregation_temporality == delta if is_sum else None
                for point in (metric.sum if is_sum else metric.gauge).data_points:
                    value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
                    times = point.start_time_unix_nano, point.time_unix_nano
                    points.append(MetricPoint(metric.name, _texts(point.attributes), float(value), is_delta, *times))
        return points

    def resource(self) -> dict[str, str]:
        """The attributes of the client, such as `client_rack`. Raises IllegalStateError without opentelemetry-proto."""
        found: dict[str, str] = {}
        for within in self._decoded().resource_metrics:
            found.update(_texts(within.resource.attributes))
        return found

    def _decoded(self) -> Any:
        return _library().MetricsData.FromString(self.data)


def _library() -> Any:
    try:
        from opentelemetry.proto.metrics.v1 import metrics_pb2  # noqa: PLC0415 - an extra, for tests that decode
    except ImportError as missing:
        raise IllegalStateError(
            f"opentelemetry-proto is needed to decode metrics ({missing}): pip install 'headrace[telemetry]'"
        ) from missing
    return metrics_pb2


def _texts(attributes: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in attributes}
