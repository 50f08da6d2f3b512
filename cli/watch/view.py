"""The tables that `headrace watch` shows: a pure function of two readings of the metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ...network.text import duration_text, size_text
from .page import ProducerSample, Values


class Section(NamedTuple):
    """A titled table."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]


def sections_of(
    samples: Sequence[ProducerSample], before: Sequence[ProducerSample], wall_ms: float, most_rows: int
) -> list[Section]:
    """The tables of producers, topics and brokers, each with at most `most_rows`, the busiest first.

    Rates are those since the reading `before`; a producer that it does not have has none yet.
    """
    known = {(each.url, each.client_id, each.start_ms): each for each in before}
    producers, sending, topics, nodes = [], [], [], []
    for sample in samples:
        earlier = known.get((sample.url, sample.client_id, sample.start_ms))
        seconds = 0.0 if earlier is None else (sample.at_ms - earlier.at_ms) / 1000.0
        rates = Rates(sample.values, {} if earlier is None else earlier.values, seconds)
        producers.append(_producer_row(sample, rates, wall_ms))
        sending.append(_sending_row(sample.client_id, rates))
        for name, values in sample.topics.items():
            rates = Rates(values, {} if earlier is None else earlier.topics.get(name, {}), seconds)
            topics.append((rates.of("byte"), _topic_row(sample.client_id, name, rates)))
        for name, values in sample.nodes.items():
            rates = Rates(values, {} if earlier is None else earlier.nodes.get(name, {}), seconds)
            nodes.append((rates.of("request"), _node_row(sample.client_id, name, rates)))
    return [
        Section(
            "producers",
            ("producer", "version", "up", "records/s", "bytes/s", "retries/s", "errors/s", "failed"),
            producers[:most_rows],
        ),
        Section(
            "sending: average (maximum) of half a minute",
            ("producer", "request ms", "queue ms", "batch", "packed to", "buffer", "in flight", "blocked"),
            sending[:most_rows],
        ),
        Section(
            "topics",
            ("producer", "topic", "records/s", "bytes/s", "packed to", "retries/s", "errors/s", "failed"),
            _busiest(topics, most_rows),
        ),
        Section(
            "brokers",
            ("producer", "broker", "requests/s", "sent/s", "received/s", "avg ms", "max ms"),
            _busiest(nodes, most_rows),
        ),
    ]


def _busiest(rows: list[tuple[float, tuple[str, ...]]], most: int) -> list[tuple[str, ...]]:
    rows.sort(key=lambda row: (-row[0] if math.isfinite(row[0]) else 0.0, row[1]))
    return [row for _, row in rows[:most]]


class Rates:
    """Values of one producer, topic or broker, and their changes per second."""

    def __init__(self, values: Values, before: Values, seconds: float) -> None:
        self.values = values
        self._before = before
        self._seconds = seconds

    def get(self, name: str) -> float:
        return self.values.get(name, math.nan)

    def of(self, name: str) -> float:
        """The change per second of the counter `name`_total."""
        total, before = self.get(f"{name}_total"), self._before.get(f"{name}_total", math.nan)
        return (total - before) / self._seconds if self._seconds > 0 and total >= before else math.nan


def _producer_row(sample: ProducerSample, rates: Rates, wall_ms: float) -> tuple[str, ...]:
    return (
        sample.client_id,
        sample.version or "-",
        duration_text(max(wall_ms - sample.start_ms, 0.0)) if sample.start_ms else "-",
        _count(rates.of("record_send")),
        _size(rates.of("byte")),
        _count(rates.of("record_retry")),
        _count(rates.of("record_error")),
        _count(rates.get("record_error_total")),
    )


def _sending_row(client_id: str, rates: Rates) -> tuple[str, ...]:
    total = rates.get("buffer_total_bytes")
    used = (total - rates.get("buffer_available_bytes")) / total if total else math.nan
    return (
        client_id,
        _two(rates.get("request_latency_avg"), rates.get("request_latency_max")),
        _two(rates.get("record_queue_time_avg"), rates.get("record_queue_time_max")),
        _size(rates.get("batch_size_avg")),
        _share(rates.get("compression_rate_avg")),
        _share(used),
        _count(rates.get("requests_in_flight")),
        _count(rates.get("waiting_threads")),
    )


def _topic_row(client_id: str, topic: str, rates: Rates) -> tuple[str, ...]:
    return (
        client_id,
        topic,
        _count(rates.of("record_send")),
        _size(rates.of("byte")),
        _share(rates.get("compression_rate")),
        _count(rates.of("record_retry")),
        _count(rates.of("record_error")),
        _count(rates.get("record_error_total")),
    )


def _node_row(client_id: str, node: str, rates: Rates) -> tuple[str, ...]:
    name = node.removeprefix("node-")
    return (
        client_id,
        f"bootstrap {name}" if name.startswith("-") else name,
        _count(rates.of("request")),
        _size(rates.of("outgoing_byte")),
        _size(rates.of("incoming_byte")),
        _milliseconds(rates.get("request_latency_avg")),
        _milliseconds(rates.get("request_latency_max")),
    )


# --- Numbers ---


def _count(value: float) -> str:
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def _size(value: float) -> str:
    return size_text(int(value)) if math.isfinite(value) else "-"


def _share(value: float) -> str:
    return f"{100 * value:.0f} %" if math.isfinite(value) else "-"


def _milliseconds(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "-"


def _two(average: float, maximum: float) -> str:
    """The average and the maximum."""
    return f"{_milliseconds(average)} ({_milliseconds(maximum)})" if math.isfinite(average) else "-"
