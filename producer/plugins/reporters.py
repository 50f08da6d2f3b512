"""Export of metrics: in Prometheus' text format, to prometheus_client, and to OpenTelemetry.

    prometheus_text(producer)                               # a page for the program's own web server
    KafkaProducer(..., metric_reporters="prometheus")       # pip install 'headrace[prometheus]'
    KafkaProducer(..., metric_reporters="opentelemetry")    # pip install 'headrace[otel]'

All of them pull: values are computed only when they are read. Custom reporters derive from `MetricsReporter`.
"""

from __future__ import annotations

import math
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, Protocol

from ...network._build import VERSION
from ...network.extras import optional_module
from ...network.metrics import Metric, MetricName, Metrics, MetricsReporter, Tags, is_counter
from ...network.protocol.errors import KafkaConfigurationError
from ...network.sections import here
from .loading import resolve_plugin

__all__ = [
    "Metric",
    "MetricName",
    "Metrics",
    "MetricsReporter",
    "OpenTelemetryReporter",
    "PrometheusReporter",
    "prometheus_name",
    "prometheus_text",
    "resolve_reporters",
]

Family = tuple[str, str]


class Measured(Protocol):
    """An object with metrics: a `KafkaProducer`."""

    def metrics(self, raw: Literal[True]) -> Mapping[MetricName, float | str]: ...


def prometheus_text(*producers: Measured) -> str:
    """Return the metrics of the producers in Prometheus' text format 0.0.4 (``text/plain; version=0.0.4``). Any thread.

    ``batch-size-avg`` of the group ``producer-metrics`` is ``kafka_producer_batch_size_avg``, of a topic
    ``kafka_producer_topic_...``, of a node ``kafka_producer_node_...``; tags are labels, totals are counters. Of
    producers with the same ``client.id`` only the first is shown: Prometheus rejects a page that repeats a sample.
    """
    families: dict[str, tuple[MetricName, dict[str, str]]] = {}
    for producer in producers:
        for name, value in producer.metrics(raw=True).items():
            shown = prometheus_name(name)
            labels, number = _sample(name, value)
            text = ",".join(f'{label}="{_escaped(content)}"' for label, content in labels.items())
            families.setdefault(shown, (name, {}))[1].setdefault(text, f"{shown}{{{text}}} {_number(number)}\n")
    parts: list[str] = []
    for shown, (name, samples) in families.items():
        # all lines of a family are consecutive, after the two that describe it
        description = name.description.replace("\\", "\\\\").replace("\n", "\\n")
        kind = "counter" if is_counter(name) else "gauge"
        parts += [f"# HELP {shown} {description}\n# TYPE {shown} {kind}\n", *samples.values()]
    return "".join(parts)


def _identifier(text: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", text)


def prometheus_name(name: MetricName) -> str:
    """The metric's name in Prometheus."""
    return _identifier(f"kafka_{name.group.removesuffix('-metrics')}_{name.name}")


def _sample(name: MetricName, value: float | str) -> tuple[dict[str, str], float]:
    """The labels and the value of a metric. A text, such as a version, becomes a label with the value 1."""
    labels = {_identifier(tag): content for tag, content in name.tags}
    if isinstance(value, str):
        return {**labels, _identifier(name.name): value}, 1.0
    return labels, value


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))


# Guards what the producers of a process share: which of them show their metrics in which place.
_places = threading.RLock()


def _reset_after_fork() -> None:
    """After a fork: another thread of the parent may hold the lock."""
    global _places  # noqa: PLW0603  (a lock that is never released can only be replaced)
    _places = threading.RLock()


os.register_at_fork(after_in_child=_reset_after_fork)


class _Place:
    """A destination that shows the metrics of several producers together, because each name can exist only once.

    Written under `_places` and read without it: the tuple is replaced as a whole. Producers that are closed or dropped
    are no longer shown, nor are the parent's in a forked child.
    """

    def __init__(self) -> None:
        self._shown: tuple[weakref.ref[Metrics], ...] = ()

    def show(self, metrics: Metrics) -> None:
        with here.section, _places:
            # once, even if several reporters of a producer show it here: a sample must not be repeated
            others = (shown for shown in self._shown if shown() not in (None, metrics))
            self._shown = (*others, weakref.ref(metrics))

    def registries(self) -> list[Metrics]:
        alive = (shown() for shown in self._shown)
        return [metrics for metrics in alive if metrics is not None and not metrics.is_closed]

    def family(self, key: Family) -> Iterator[Metric]:
        """The metrics with that group and name, of all producers."""
        for metrics in self.registries():
            yield from metrics.family(key)


class _PrometheusCollector(_Place):
    """The collector that a prometheus_client registry reads metrics from."""

    def __init__(self, new_family: Callable[[str, str, str], Any]) -> None:
        super().__init__()
        self._new_family = new_family

    def describe(self) -> Iterable[Any]:
        """Nothing: the names aren't known before there are producers."""
        return ()

    def collect(self) -> Iterator[Any]:
        """Every family with its samples."""
        keys = dict.fromkeys(key for metrics in self.registries() for key in metrics.families())
        for key in keys:
            family = None
            told: set[Tags] = set()
            for metric in self.family(key):
                name = metric.metric_name
                if name.tags in told:
                    # another producer with the same client.id
                    continue
                told.add(name.tags)
                shown = prometheus_name(name)
                if family is None:
                    kind = "counter" if is_counter(name) else "gauge"
                    family = self._new_family(shown.removesuffix("_total"), name.description, kind)
                family.add_sample(shown, *_sample(name, metric.value()))
            if family is not None:
                yield family


class PrometheusReporter(MetricsReporter):
    """Exports a producer's metrics to a prometheus_client registry, under the names of `prometheus_text`.

    ``prometheus_client.start_http_server(port)`` serves them with the program's other metrics. Any number of
    producers and reporters may share a registry; of producers with the same ``client.id`` only the first is shown. In a
    forked child the registry shows the child's producers.
    """

    def __init__(self, registry: Any = None) -> None:
        """Create a reporter for `registry`, a ``prometheus_client.CollectorRegistry``; None is the default registry.

        Raises KafkaConfigurationError if prometheus_client isn't installed.
        """
        client = optional_module("prometheus_client", "prometheus", type(self).__name__)
        registry = client.REGISTRY if registry is None else registry
        with here.section, _places:
            place = _prometheus_places.get(registry)
            if place is None:
                place = _PrometheusCollector(client.Metric)
                registry.register(place)
                _prometheus_places[registry] = place
        self._place = place

    def init(self, metrics: Metrics) -> None:
        self._place.show(metrics)


_prometheus_places: weakref.WeakKeyDictionary[Any, _PrometheusCollector] = weakref.WeakKeyDictionary()


class _OpenTelemetryInstruments(_Place):
    """One observable instrument per family, whose callback observes all producers."""

    def __init__(self, api: Any, provider: Any) -> None:
        super().__init__()
        self._new_observation = api.Observation
        self._meter = (provider or api).get_meter("headrace", VERSION)
        self._instruments: dict[Family, Any] = {}

    def cover(self, name: MetricName) -> None:
        """Create an instrument for the metric unless there is one."""
        key = (name.group, name.name)
        if key in self._instruments:
            return
        with here.section, _places:
            if key not in self._instruments:
                group = name.group.removesuffix("-metrics").replace("-", ".")
                meter = self._meter
                create = meter.create_observable_counter if is_counter(name) else meter.create_observable_gauge
                self._instruments[key] = create(
                    f"kafka.{group}.{name.name.replace('-', '_')}",
                    callbacks=[lambda options: self._observe(key)],
                    description=name.description,
                )

    def _observe(self, key: Family) -> Iterator[Any]:
        for metric in self.family(key):
            value = metric.value()
            attributes = dict(metric.metric_name.tags)
            if isinstance(value, str):
                attributes[key[1]] = value
                value = 1.0
            # OpenTelemetry omits a metric without a value
            if math.isfinite(value):
                yield self._new_observation(value, attributes)


class OpenTelemetryReporter(MetricsReporter):
    """Exports a producer's metrics to OpenTelemetry, as observable counters (totals) and gauges.

    ``batch-size-avg`` of the group ``producer-metrics`` is ``kafka.producer.batch_size_avg``, of a topic
    ``kafka.producer.topic....``, of a node ``kafka.producer.node....``; tags are attributes. Any number of producers
    and reporters may share a meter provider. In a forked child the provider shows the child's producers.
    """

    def __init__(self, meter_provider: Any = None) -> None:
        """Create a reporter for `meter_provider`, a MeterProvider; None is the global one, which may be set later.

        Raises KafkaConfigurationError if opentelemetry-api isn't installed.
        """
        api = optional_module("opentelemetry.metrics", "otel", type(self).__name__)
        with here.section, _places:
            # the API stands for the global provider, which is a different object before and after it is set
            key = api if meter_provider is None else meter_provider
            place = _open_telemetry_places.get(key)
            if place is None:
                place = _open_telemetry_places[key] = _OpenTelemetryInstruments(api, meter_provider)
        self._place = place

    def init(self, metrics: Metrics) -> None:
        self._place.show(metrics)
        for metric in metrics:
            self._place.cover(metric.metric_name)

    def metric_change(self, metric: Metric) -> None:
        self._place.cover(metric.metric_name)


_open_telemetry_places: weakref.WeakKeyDictionary[Any, _OpenTelemetryInstruments] = weakref.WeakKeyDictionary()


_BUILT_IN = {"prometheus": PrometheusReporter, "opentelemetry": OpenTelemetryReporter}


def resolve_reporters(values: Iterable[Any], key: str = "metric.reporters") -> tuple[Any, ...]:
    """Return the reporters for the configured values: names of built-in ones, instances, classes or import paths.

    Raises KafkaConfigurationError for a reporter that can't be imported or created, or has no `init`.
    """
    reporters = tuple(resolve_plugin(value, key, _BUILT_IN, ("init",)) for value in values)
    for reporter in reporters:
        if not callable(getattr(reporter, "init", None)):
            raise KafkaConfigurationError(
                f"{key} contains an object of type {type(reporter).__name__}, which has no init; derive its class from "
                "headrace.producer.reporters.MetricsReporter"
            )
    return reporters
