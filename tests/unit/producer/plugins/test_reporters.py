"""Metrics in Prometheus's text format, in prometheus_client and in OpenTelemetry."""

from __future__ import annotations

import gc
import importlib
import math
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.network.clock import MockClock
from headrace.network.metrics import MetricName, Metrics, MetricsReporter
from headrace.network.protocol.errors import KafkaConfigurationError
from headrace.producer.plugins.reporters import (
    OpenTelemetryReporter,
    PrometheusReporter,
    prometheus_text,
    resolve_reporters,
)


class Client:
    """The part of a producer that `prometheus_text` reads."""

    def __init__(self, client_id: str = "c") -> None:
        self.registry = Metrics(MockClock())
        self.client_id = client_id

    def add(self, name: str, value: float | str, group: str = "producer-metrics", **tags: str) -> None:
        named = tuple((tag.replace("_", "-"), text) for tag, text in tags.items())
        description = f"What {name} tells"
        self.registry.add(MetricName(name, group, description, (("client-id", self.client_id), *named)), lambda: value)

    def metrics(self, raw: bool) -> dict[MetricName, float | str]:
        assert raw
        return self.registry.values()


def text_of(*clients: Client) -> str:
    return prometheus_text(*clients)  # pyright: ignore[reportArgumentType]


# The rules of the text format, version 0.0.4.
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
SAMPLE = re.compile(rf"({NAME})\{{((?:{LABEL})(?:,{LABEL})*)\}} (\S+)\Z")
DESCRIPTION = re.compile(rf"# (HELP|TYPE) ({NAME}) (.*)\Z")
NUMBER = re.compile(r"[-+]?(\d+(\.\d+)?(e[-+]?\d+)?|Inf)\Z|NaN\Z")


def parsed(text: str) -> dict[str, tuple[str, str, dict[str, float]]]:
    """Kind, description and samples by family; fails if the text breaks a rule of the format."""
    families: dict[str, tuple[str, str, dict[str, float]]] = {}
    assert text == "" or text.endswith("\n")
    pending: dict[str, str] = {}
    current = ""
    for line in text.splitlines():
        described = DESCRIPTION.match(line)
        if described is not None:
            what, name, rest = described.groups()
            assert name not in families, "the lines of a family are together"
            pending[what] = rest
            if what == "TYPE":
                assert rest in ("counter", "gauge")
                families[name] = (rest, pending.pop("HELP"), {})
                pending.clear()
                current = name
            continue
        sample = SAMPLE.match(line)
        assert sample is not None, line
        name, labels, number = sample.groups()
        assert name == current
        assert NUMBER.match(number), number
        assert labels not in families[name][2], "no sample twice"
        families[name][2][labels] = float(number)
    return families


class TestText:
    def test_tags_are_labels_and_totals_counters(self) -> None:
        client = Client()
        client.add("batch-size-avg", 12.5)
        client.add("byte-total", 7.0, "producer-topic-metrics", topic="a.b")
        client.add("byte-total", 1e300, "producer-topic-metrics", topic="c")
        client.add("request-rate", 0.25, "producer-node-metrics", node_id="node--1")
        assert text_of(client) == (
            "# HELP kafka_producer_batch_size_avg What batch-size-avg tells\n"
            "# TYPE kafka_producer_batch_size_avg gauge\n"
            'kafka_producer_batch_size_avg{client_id="c"} 12.5\n'
            "# HELP kafka_producer_topic_byte_total What byte-total tells\n"
            "# TYPE kafka_producer_topic_byte_total counter\n"
            'kafka_producer_topic_byte_total{client_id="c",topic="a.b"} 7.0\n'
            'kafka_producer_topic_byte_total{client_id="c",topic="c"} 1e+300\n'
            "# HELP kafka_producer_node_request_rate What request-rate tells\n"
            "# TYPE kafka_producer_node_request_rate gauge\n"
            'kafka_producer_node_request_rate{client_id="c",node_id="node--1"} 0.25\n'
        )

    def test_what_is_no_finite_number(self) -> None:
        client = Client()
        for name, value in (("nothing", math.nan), ("most", math.inf), ("least", -math.inf), ("small", 1e-9)):
            client.add(name, value)
        numbers = [line.rpartition(" ")[2] for line in text_of(client).splitlines() if not line.startswith("#")]
        assert numbers == ["NaN", "+Inf", "-Inf", "1e-09"]

    def test_a_text_is_a_label(self) -> None:
        client = Client()
        client.add("version", "1.2", "app-info")
        assert 'kafka_app_info_version{client_id="c",version="1.2"} 1.0\n' in text_of(client)

    def test_families_of_several_producers_stand_together(self) -> None:
        first, second = Client("one"), Client("two")
        for client in (first, second):
            client.add("a", 1.0)
            client.add("b", 2.0)
        families = parsed(text_of(first, second))
        assert {name: set(samples) for name, (_, _, samples) in families.items()} == {
            "kafka_producer_a": {'client_id="one"', 'client_id="two"'},
            "kafka_producer_b": {'client_id="one"', 'client_id="two"'},
        }

    def test_of_producers_with_the_same_client_id_the_first_is_shown(self) -> None:
        first, second = Client("same"), Client("same")
        first.add("a", 1.0)
        second.add("a", 2.0)
        second.add("b", 3.0)
        families = parsed(text_of(first, second))
        assert families["kafka_producer_a"][2] == {'client_id="same"': 1.0}
        assert families["kafka_producer_b"][2] == {'client_id="same"': 3.0}

    def test_whatever_a_client_id_holds(self) -> None:
        client = Client('a"b\\c\nd é{}, =')
        client.add("a", 1.0)
        ((labels, value),) = parsed(text_of(client))["kafka_producer_a"][2].items()
        assert labels == 'client_id="a\\"b\\\\c\\nd é{}, ="'
        assert value == 1.0

    def test_nothing_of_nobody(self) -> None:
        assert prometheus_text() == ""


class TestPrometheusClient:
    @pytest.fixture
    def client(self) -> Any:
        return pytest.importorskip("prometheus_client")

    @pytest.fixture
    def registry(self, client: Any) -> Any:
        return client.CollectorRegistry(auto_describe=True)

    @staticmethod
    def text(client: Any, registry: Any) -> str:
        return client.generate_latest(registry).decode()

    def test_it_shows_what_the_text_shows(self, client: Any, registry: Any) -> None:
        reporter = PrometheusReporter(registry)
        measured = Client('a"b')
        measured.add("batch-size-avg", 12.5)
        measured.add("nothing", math.nan)
        measured.registry.add_reporter(reporter)
        measured.add("byte-total", 7.0, "producer-topic-metrics", topic="t")
        measured.add("version", "1.2", "app-info")
        shown, told = parsed(self.text(client, registry)), parsed(text_of(measured))
        assert repr(shown) == repr(told)  # equal, including NaN
        measured.registry.remove([(("client-id", measured.client_id), ("topic", "t"))])
        assert "topic" not in self.text(client, registry)

    def test_producers_and_reporters_share_a_registry(self, client: Any, registry: Any) -> None:
        first, second, third = Client("one"), Client("two"), Client("three")
        shared = PrometheusReporter(registry)
        for measured, reporter in ((first, shared), (second, shared), (third, PrometheusReporter(registry))):
            measured.add("a", 1.0)
            measured.registry.add_reporter(reporter)
        assert len(parsed(self.text(client, registry))["kafka_producer_a"][2]) == 3
        second.registry.close()
        assert set(parsed(self.text(client, registry))["kafka_producer_a"][2]) == {
            'client_id="one"',
            'client_id="three"',
        }

    def test_of_producers_with_the_same_client_id_the_first_is_shown(self, client: Any, registry: Any) -> None:
        first, second = Client("same"), Client("same")
        for measured, value in ((first, 1.0), (second, 2.0)):
            measured.add("a", value)
            measured.registry.add_reporter(PrometheusReporter(registry))
        assert parsed(self.text(client, registry))["kafka_producer_a"][2] == {'client_id="same"': 1.0}

    def test_a_producer_is_shown_once_however_many_reporters_it_has(self, client: Any, registry: Any) -> None:
        measured = Client()
        measured.add("a", 1.0)
        reporter = PrometheusReporter(registry)
        for each in (reporter, reporter, PrometheusReporter(registry)):
            measured.registry.add_reporter(each)
        assert parsed(self.text(client, registry))["kafka_producer_a"][2] == {'client_id="c"': 1.0}

    def test_a_producer_that_was_dropped_is_seen_no_more(self, client: Any, registry: Any) -> None:
        measured = Client()
        measured.add("a", 1.0)
        measured.registry.add_reporter(PrometheusReporter(registry))
        assert "kafka_producer_a" in self.text(client, registry)
        del measured
        gc.collect()
        assert self.text(client, registry) == ""


class TestOpenTelemetry:
    @pytest.fixture
    def reader(self) -> Any:
        return pytest.importorskip("opentelemetry.sdk.metrics.export").InMemoryMetricReader()

    @pytest.fixture
    def provider(self, reader: Any) -> Iterator[Any]:
        provider = importlib.import_module("opentelemetry.sdk.metrics").MeterProvider([reader])
        yield provider
        provider.shutdown()

    @staticmethod
    def observed(reader: Any) -> dict[str, list[tuple[dict[str, str], float]]]:
        data = reader.get_metrics_data()
        if data is None:
            return {}
        (resource,) = data.resource_metrics
        (scope,) = resource.scope_metrics
        assert scope.scope.name == "headrace"
        return {
            metric.name: [(dict(point.attributes), point.value) for point in metric.data.data_points]
            for metric in scope.metrics
        }

    def test_totals_are_counters_and_the_rest_gauges(
        self, reader: Any, provider: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        measured = Client()
        measured.add("batch-size-avg", 12.5)
        measured.add("nothing", math.nan)
        measured.add("version", "1.2", "app-info")
        measured.registry.add_reporter(OpenTelemetryReporter(provider))
        measured.add("byte-total", 7.0, "producer-topic-metrics", topic="t")
        measured.add("byte-total", 9.0, "producer-topic-metrics", topic="u")
        data = reader.get_metrics_data()
        kinds = {
            metric.name: (type(metric.data).__name__, metric.description)
            for metric in data.resource_metrics[0].scope_metrics[0].metrics
        }
        assert kinds == {
            "kafka.producer.batch_size_avg": ("Gauge", "What batch-size-avg tells"),
            "kafka.app.info.version": ("Gauge", "What version tells"),
            "kafka.producer.topic.byte_total": ("Sum", "What byte-total tells"),
        }
        assert not caplog.records  # the SDK warns about values that are not numbers
        assert self.observed(reader) == {
            "kafka.producer.batch_size_avg": [({"client-id": "c"}, 12.5)],
            "kafka.app.info.version": [({"client-id": "c", "version": "1.2"}, 1.0)],
            "kafka.producer.topic.byte_total": [
                ({"client-id": "c", "topic": "t"}, 7.0),
                ({"client-id": "c", "topic": "u"}, 9.0),
            ],
        }

    def test_producers_and_reporters_share_a_provider(self, reader: Any, provider: Any) -> None:
        first, second = Client("one"), Client("two")
        for measured in (first, second):
            measured.add("a", 1.0)
            measured.registry.add_reporter(OpenTelemetryReporter(provider))
        assert len(self.observed(reader)["kafka.producer.a"]) == 2
        first.registry.close()
        assert self.observed(reader) == {"kafka.producer.a": [({"client-id": "two"}, 1.0)]}


class TestForkedChild:
    def test_it_shows_its_own_producers_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        client = pytest.importorskip("prometheus_client")
        registry = client.CollectorRegistry()
        reporter = PrometheusReporter(registry)
        parents, childs = Client("parents"), Client("childs")
        parents.add("a", 1.0)
        parents.registry.add_reporter(reporter)
        monkeypatch.setattr(os, "getpid", lambda: -1)
        childs = Client("childs")
        childs.add("a", 1.0)
        childs.registry.add_reporter(reporter)
        text = client.generate_latest(registry).decode()
        assert "childs" in text
        assert "parents" not in text


class Own(MetricsReporter):
    pass


class TestConfiguration:
    def test_names_instances_classes_and_paths(self) -> None:
        own = Own()
        resolved = resolve_reporters([own, Own, f"{OpenTelemetryReporter.__module__}:MetricsReporter"])
        assert resolved[0] is own
        assert [type(reporter) for reporter in resolved] == [Own, Own, MetricsReporter]

    def test_one_that_is_none(self) -> None:
        with pytest.raises(KafkaConfigurationError, match=r"metric\.reporters contains an object of type list"):
            resolve_reporters([[]])
        with pytest.raises(KafkaConfigurationError, match=r"metric\.reporters='no\.such' can't be imported"):
            resolve_reporters(["no.such"])

    @pytest.mark.parametrize(
        ("name", "module", "extra"),
        [("prometheus", "prometheus_client", "prometheus"), ("opentelemetry", "opentelemetry.metrics", "otel")],
    )
    def test_what_is_not_installed_is_named_with_its_extra(
        self, name: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(KafkaConfigurationError, match=rf"pip install 'headrace\[{extra}\]'"):
            resolve_reporters([name])
