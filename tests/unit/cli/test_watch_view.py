"""The tables of `headrace watch`, from pages that the producer's own metrics make."""

from __future__ import annotations

import math

import pytest
from support.sender_harness import SenderHarness

from headrace.cli.watch.page import page_address, samples_of
from headrace.cli.watch.view import sections_of
from headrace.network.protocol.errors import KafkaConfigurationError
from headrace.producer.plugins.reporters import prometheus_text

URL = "http://localhost:9400/metrics"


class Program:
    """A producer that is stepped by hand, and the page that its program serves."""

    def __init__(self) -> None:
        self.harness = SenderHarness(partitions=2)

    def page(self):
        return samples_of(prometheus_text(self), URL, self.harness.clock.now_ms())

    def metrics(self, raw: bool = False):
        registry = self.harness.metrics.registry
        return registry.values() if raw else registry.by_group()

    def deliver(self, *values: bytes) -> None:
        for value in values:
            _, request = self.harness.request(value)
            self.harness.answer(request)


def rows(sections, title):
    (section,) = [each for each in sections if each.title.startswith(title)]
    return [dict(zip(section.head, row, strict=True)) for row in section.rows]


def test_a_page_has_the_producers_topics_and_times():
    program = Program()
    program.deliver(b"a", b"b")
    (sample,) = program.page()
    assert (sample.client_id, sample.url) == ("harness", URL)
    assert sample.values["record_send_total"] == 2
    assert sample.topics["t"]["record_send_total"] == 2
    assert sample.version
    assert sample.start_ms > 0


def test_rates_are_those_since_the_reading_before():
    program = Program()
    program.deliver(b"a")
    before = program.page()
    program.deliver(b"b", b"c", b"d")
    program.harness.clock.advance(2000 - (program.harness.clock.now_ms() - before[0].at_ms))
    after = program.page()
    wall_ms = after[0].start_ms + 90_000
    (producer,) = rows(sections_of(after, before, wall_ms, 10), "producers")
    assert (producer["producer"], producer["up"], producer["records/s"]) == ("harness", "90 s", "1.5")
    (topic,) = rows(sections_of(after, before, wall_ms, 10), "topics")
    assert (topic["topic"], topic["records/s"]) == ("t", "1.5")
    (sending,) = rows(sections_of(after, before, wall_ms, 10), "sending")
    assert sending["buffer"] == "0 %"


def test_without_a_reading_before_there_are_no_rates():
    program = Program()
    program.deliver(b"a")
    (producer,) = rows(sections_of(program.page(), [], 0.0, 10), "producers")
    assert (producer["records/s"], producer["bytes/s"], producer["failed"]) == ("-", "-", "0")


def test_a_program_that_was_restarted_is_another_one():
    first, second = Program(), Program()
    first.deliver(b"a", b"b")
    second.harness.clock.advance(1000)
    before = first.page()
    after = second.page()
    before[0].start_ms -= 1
    (producer,) = rows(sections_of(after, before, 0.0, 10), "producers")
    assert producer["records/s"] == "-"


def test_the_busiest_rows_are_shown():
    program = Program()
    before, after = program.page(), program.page()
    after[0].at_ms = before[0].at_ms + 1000
    for number in range(20):
        before[0].topics[f"t{number}"] = {"byte_total": 0.0}
        after[0].topics[f"t{number}"] = {"byte_total": float(number)}
    shown = [row["topic"] for row in rows(sections_of(after, before, 0.0, 3), "topics")]
    assert shown == ["t19", "t18", "t17"]


def test_nodes_are_brokers_and_bootstrap_servers():
    (sample,) = Program().page()
    sample.nodes = {"node-1": {"request_latency_avg": 1.5}, "node--1": {"request_latency_avg": math.nan}}
    found = {row["broker"]: row["avg ms"] for row in rows(sections_of([sample], [], 0.0, 10), "brokers")}
    assert found == {"1": "1.5", "bootstrap -1": "-"}


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("localhost:9400", "http://localhost:9400/metrics"),
        ("http://app:9400", "http://app:9400/metrics"),
        ("https://app/kafka", "https://app/kafka"),
        ("[::1]:9400", "http://[::1]:9400/metrics"),
    ],
)
def test_addresses(given, address):
    assert page_address(given) == address


@pytest.mark.parametrize("given", ["", "ftp://app", "file:///etc/passwd", "http://", "app:port"])
def test_what_is_no_address(given):
    with pytest.raises(KafkaConfigurationError, match="is not the address of a page"):
        page_address(given)


def test_what_is_no_page_for_prometheus():
    with pytest.raises(KafkaConfigurationError, match="is not a page for Prometheus"):
        samples_of("<html><body class='x'>{</body></html>", URL, 0.0)


def test_metrics_of_others_are_left_out():
    text = '# TYPE other gauge\nother{client_id="x"} 1\n# TYPE kafka_consumer_lag gauge\nkafka_consumer_lag 3\n'
    assert samples_of(text, URL, 0.0) == []
