"""The metrics of running producers, from the page that their program serves for Prometheus."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ...network.clock import SYSTEM_CLOCK
from ...network.protocol.errors import KafkaConfigurationError, KafkaConnectionError

_MAX_PAGE_BYTES = 64 * 2**20
_PRODUCER, _TOPIC, _NODE = "kafka_producer_", "kafka_producer_topic_", "kafka_producer_node_"
_START = "kafka_app_info_start_time_ms"
_VERSION = "kafka_app_info_version"

Values = dict[str, float]


@dataclass
class ProducerSample:
    """The metrics of one producer at `at_ms` of the monotonic clock, by Kafka's names with underscores."""

    url: str
    client_id: str
    at_ms: float
    version: str = ""
    #: When the producer started, in milliseconds since 1970: another start is another producer.
    start_ms: float = 0.0
    values: Values = field(default_factory=dict)
    topics: dict[str, Values] = field(default_factory=dict)
    nodes: dict[str, Values] = field(default_factory=dict)


def page_address(text: str) -> str:
    """The address of a page, from a URL or from HOST:PORT. Raises KafkaConfigurationError."""
    address = text if "://" in text else f"http://{text}"
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise KafkaConfigurationError(f"{text!r} is not the address of a page; write http://localhost:9400/metrics")
    try:
        _ = parts.port
    except ValueError as wrong:
        raise KafkaConfigurationError(f"{text!r} is not the address of a page: {wrong}") from None
    return address if parts.path else f"{address}/metrics"


def read_page(url: str, timeout_s: float) -> list[ProducerSample]:
    """The producers of a page, sorted by client id.

    Raises KafkaConnectionError if it can't be read, and KafkaConfigurationError if it isn't a page for Prometheus.
    """
    request = urllib.request.Request(url, headers={"Accept": "text/plain; version=0.0.4"})
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            content = answer.read(_MAX_PAGE_BYTES)
    except urllib.error.HTTPError as failed:
        failed.close()
        raise KafkaConnectionError(
            f"{url} answers {failed.code} {failed.reason}; check the path and the port"
        ) from None
    except TimeoutError:
        raise KafkaConnectionError(f"{url} did not answer within {timeout_s:g} s") from None
    except (OSError, ValueError) as failed:
        reason = getattr(failed, "reason", failed)
        raise KafkaConnectionError(
            f"{url} can't be read: {reason}; check that the program runs and serves its metrics there"
        ) from None
    except http.client.HTTPException as failed:
        raise KafkaConnectionError(f"{url} does not answer in HTTP: {type(failed).__name__}") from None
    return samples_of(content.decode("utf-8", "replace"), url, SYSTEM_CLOCK.now_ms())


def samples_of(text: str, url: str, at_ms: float) -> list[ProducerSample]:
    """The producers in a page's text. Raises KafkaConfigurationError if it can't be parsed."""
    found: dict[str, ProducerSample] = {}
    for name, labels, value in _parsed(text, url):
        client_id = labels.get("client_id")
        if client_id is None or not name.startswith((_PRODUCER, _START, _VERSION)):
            continue
        sample = found.get(client_id)
        if sample is None:
            sample = found[client_id] = ProducerSample(url, client_id, at_ms)
        if name == _START:
            sample.start_ms = value
        elif name == _VERSION:
            sample.version = labels.get("version", "")
        elif "topic" in labels and name.startswith(_TOPIC):
            sample.topics.setdefault(labels["topic"], {})[name.removeprefix(_TOPIC)] = value
        elif "node_id" in labels and name.startswith(_NODE):
            sample.nodes.setdefault(labels["node_id"], {})[name.removeprefix(_NODE)] = value
        else:
            sample.values[name.removeprefix(_PRODUCER)] = value
    return [found[client_id] for client_id in sorted(found)]


def _parsed(text: str, url: str) -> Iterable[tuple[str, dict[str, str], float]]:
    try:
        from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - of the extra cli
    except ImportError:
        raise KafkaConfigurationError(
            "the package prometheus-client is missing; install it with: pip install 'headrace[cli]'"
        ) from None
    try:
        samples: list[Any] = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except Exception as wrong:  # the parser raises whatever the text makes it stumble over
        raise KafkaConfigurationError(f"{url} is not a page for Prometheus: {wrong}") from None
    return [(sample.name, sample.labels, sample.value) for sample in samples]
