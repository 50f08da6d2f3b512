"""A producer's metrics under Kafka's names, from scripted events and from a sender that is stepped by hand."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

import pytest
from support.sender_harness import SenderHarness

from headrace.network.clock import MockClock
from headrace.network.protocol.errors import BufferExhaustedError
from headrace.network.records.batch import RECORD_BATCH_OVERHEAD
from headrace.network.records.compression import Compression
from headrace.producer.accumulator.batch_cy import ProducerBatch
from headrace.producer.accumulator.buffer_pool_cy import BufferPool
from headrace.producer.metrics import ProducerMetrics

#: Kafka's names (SenderMetricsRegistry, KafkaProducerMetrics, BufferPool, RecordAccumulator) without those of
#: transactions, and the byte rate that kafka-python has for the producer too.
OF_THE_PRODUCER = {
    "batch-size-avg",
    "batch-size-max",
    "batch-split-rate",
    "batch-split-total",
    "buffer-available-bytes",
    "buffer-exhausted-rate",
    "buffer-exhausted-total",
    "buffer-total-bytes",
    "bufferpool-wait-ratio",
    "bufferpool-wait-time-ns-total",
    "byte-rate",
    "byte-total",
    "compression-rate-avg",
    "flush-time-ns-total",
    "txn-init-time-ns-total",
    "txn-begin-time-ns-total",
    "txn-send-offsets-time-ns-total",
    "txn-commit-time-ns-total",
    "txn-abort-time-ns-total",
    "metadata-age",
    "metadata-wait-time-ns-total",
    "produce-throttle-time-avg",
    "produce-throttle-time-max",
    "record-error-rate",
    "record-error-total",
    "record-queue-time-avg",
    "record-queue-time-max",
    "record-retry-rate",
    "record-retry-total",
    "record-send-rate",
    "record-send-total",
    "record-size-avg",
    "record-size-max",
    "records-per-request-avg",
    "request-latency-avg",
    "request-latency-max",
    "requests-in-flight",
    "waiting-threads",
}
OF_A_TOPIC = {
    "byte-rate",
    "byte-total",
    "compression-rate",
    "record-error-rate",
    "record-error-total",
    "record-retry-rate",
    "record-retry-total",
    "record-send-rate",
    "record-send-total",
}
MESSAGE_TOO_LARGE = 10
NOT_LEADER_OR_FOLLOWER = 6
INVALID_RECORD = 87


class Measured:
    def __init__(self, total_bytes: int = 1000) -> None:
        self.clock = MockClock(now_ms=77_000)
        self.pool = BufferPool(total_bytes, 100, self.clock)
        self.in_flight = 0
        self.metrics = ProducerMetrics(
            self.clock,
            "c",
            self.pool,
            window_ms=1000,
            samples=2,
            requests_in_flight=lambda: self.in_flight,
            metadata_age_seconds=lambda: self.clock.now_ms() / 1000,
        )

    def value(self, name: str, group: str = "producer-metrics") -> float:
        return value_of(self.metrics, name, group)


def value_of(metrics: ProducerMetrics, name: str, group: str = "producer-metrics") -> float:
    value = metrics.registry.by_group()[group][name]
    assert isinstance(value, float)
    return value


def batch(topic: str, value_sizes: Sequence[int], *, raw: int = 0, waited_ms: float = 0) -> ProducerBatch:
    """A drained batch with values of these sizes, whose records had `raw` bytes before they were compressed."""
    made = ProducerBatch(topic, 0, bytearray(10_000), 0)
    for size in value_sizes:
        made.append_record(0, None, bytes(size), None, None)
    made.raw_bytes = raw + RECORD_BATCH_OVERHEAD
    made.drained_ms = waited_ms
    return made


class TestNames:
    def test_they_are_kafkas(self) -> None:
        measured = Measured()
        measured.metrics.retried(batch("t", [1]), 0)
        groups = measured.metrics.registry.by_group()
        assert set(groups) == {"producer-metrics", "app-info", "producer-topic-metrics.t"}
        assert set(groups["producer-metrics"]) == OF_THE_PRODUCER
        assert set(groups["producer-topic-metrics.t"]) == OF_A_TOPIC
        assert set(groups["app-info"]) == {"version", "start-time-ms"}

    def test_each_has_a_description_and_the_clients_id(self) -> None:
        measured = Measured()
        measured.metrics.retried(batch("t", [1]), 0)
        for metric in measured.metrics.registry:
            assert len(metric.metric_name.description) > 5
            assert metric.metric_name.tags[0] == ("client-id", "c")

    def test_topics_go_with_the_metadata(self) -> None:
        measured = Measured()
        for topic in ("a", "b"):
            measured.metrics.failed(batch(topic, [1, 1, 1]), 0)
        measured.metrics.keep_topics({"b", "c"}, {"a", "c"})
        groups = measured.metrics.registry.by_group()
        assert [group for group in groups if "topic" in group] == ["producer-topic-metrics.b"]
        assert measured.value("record-error-total") == 6
        measured.metrics.failed(batch("a", [1, 1]), 0)
        assert measured.value("record-error-total", "producer-topic-metrics.a") == 2
        measured.metrics.keep_topics({"b", "c"}, ())
        assert "producer-topic-metrics.a" not in measured.metrics.registry.by_group()


class TestEvents:
    def test_a_request_with_two_batches(self) -> None:
        measured = Measured()
        now_ms = measured.clock.now_ms()
        first = batch("a", [20, 20, 20, 33], raw=500, waited_ms=5)
        second = batch("b", [50], raw=750, waited_ms=15)
        measured.metrics.sent([first, second], now_ms)
        # a record takes 7 bytes beside a value of less than 56 bytes
        sizes = [RECORD_BATCH_OVERHEAD + 4 * 7 + 93, RECORD_BATCH_OVERHEAD + 7 + 50]
        assert measured.value("batch-size-avg") == sum(sizes) / 2
        assert measured.value("batch-size-max") == sizes[0]
        assert measured.value("record-queue-time-avg") == 10
        assert measured.value("record-queue-time-max") == 15
        assert measured.value("record-send-total") == 5
        assert measured.value("record-send-rate") == 5
        assert measured.value("records-per-request-avg") == 5
        assert measured.value("byte-total") == sum(sizes)
        assert measured.value("byte-rate") == sum(sizes)
        # sizes of records before they are compressed, not of batches, and without the headers of batches
        assert measured.value("record-size-avg") == 250
        assert measured.value("record-size-max") == 57
        ratios = [sizes[0] / (500 + RECORD_BATCH_OVERHEAD), sizes[1] / (750 + RECORD_BATCH_OVERHEAD)]
        assert measured.value("compression-rate-avg") == pytest.approx(sum(ratios) / 2)
        assert measured.value("compression-rate", "producer-topic-metrics.a") == ratios[0]
        assert measured.value("record-send-total", "producer-topic-metrics.a") == 4
        assert measured.value("byte-total", "producer-topic-metrics.b") == sizes[1]

    def test_answers_retries_splits_and_failures(self) -> None:
        measured = Measured()
        metrics, now_ms = measured.metrics, measured.clock.now_ms()
        metrics.answered(10, 0, now_ms)
        metrics.answered(30, 4, now_ms)
        metrics.retried(batch("a", [1] * 4), now_ms)
        metrics.failed(batch("b", [1, 1]), now_ms)
        metrics.split(now_ms)
        metrics.split(now_ms)
        assert measured.value("request-latency-avg") == 20
        assert measured.value("request-latency-max") == 30
        assert measured.value("produce-throttle-time-avg") == 2
        assert measured.value("produce-throttle-time-max") == 4
        assert measured.value("record-retry-total") == measured.value("record-retry-rate") == 4
        assert measured.value("record-error-total") == measured.value("record-error-rate") == 2
        assert measured.value("batch-split-total") == measured.value("batch-split-rate") == 2
        assert measured.value("record-retry-total", "producer-topic-metrics.a") == 4
        assert measured.value("record-error-total", "producer-topic-metrics.a") == 0
        assert measured.value("record-error-total", "producer-topic-metrics.b") == 2

    def test_callers_waits(self) -> None:
        measured = Measured()
        measured.metrics.flushed(2.5)
        measured.metrics.flushed(1)
        measured.metrics.waited_for_metadata(0.25)
        assert measured.value("flush-time-ns-total") == 3.5e6
        assert measured.value("metadata-wait-time-ns-total") == 0.25e6

    def test_what_is_asked_when_it_is_read(self) -> None:
        measured = Measured()
        measured.in_flight = 3
        lease = measured.pool.allocate(300, 0)
        assert measured.value("requests-in-flight") == 3
        assert measured.value("metadata-age") == 77
        assert measured.value("buffer-total-bytes") == 1000
        assert measured.value("buffer-available-bytes") == 700
        measured.pool.deallocate(lease)
        assert measured.value("buffer-available-bytes") == 1000
        assert measured.value("start-time-ms", "app-info") == 1_600_000_000_000
        assert measured.metrics.registry.by_group()["app-info"]["version"]


class TestPool:
    def wait_in_vain(self, measured: Measured, wait_ms: float) -> None:
        errors: list[BaseException] = []

        def ask() -> None:
            try:
                measured.pool.allocate(100, wait_ms)
            except BufferExhaustedError as error:
                errors.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        while not measured.pool.waiting:
            pass
        assert measured.value("waiting-threads") == 1
        measured.clock.advance(wait_ms)
        thread.join(30)
        assert len(errors) == 1

    def test_waits_for_memory(self) -> None:
        measured = Measured(total_bytes=100)
        held = measured.pool.allocate(100, 0)
        self.wait_in_vain(measured, 500)
        assert (measured.pool.wait_time_ms, held.size_bytes) == (500, 100)
        assert measured.value("bufferpool-wait-time-ns-total") == 500 * 1e6
        assert measured.value("bufferpool-wait-ratio") == 0.5
        assert measured.value("buffer-exhausted-total") == measured.value("buffer-exhausted-rate") == 1

    def test_a_late_reader_does_not_see_old_waits_as_new_ones(self) -> None:
        measured = Measured(total_bytes=100)
        held = measured.pool.allocate(100, 0)
        self.wait_in_vain(measured, 500)
        measured.clock.advance(3_600_000)
        assert (measured.value("bufferpool-wait-ratio"), held.size_bytes) == (0, 100)
        assert measured.value("buffer-exhausted-rate") == 0
        assert measured.value("buffer-exhausted-total") == 1


class TestInTheSender:
    def test_records_that_are_delivered(self) -> None:
        harness = SenderHarness()
        _, request = harness.request(b"x" * 10, b"y" * 30)
        harness.clock.advance(40)
        harness.answer(request)
        assert value_of(harness.metrics, "record-send-total") == 2
        assert value_of(harness.metrics, "records-per-request-avg") == 2
        assert value_of(harness.metrics, "record-queue-time-max") == 5
        assert value_of(harness.metrics, "request-latency-max") == 40
        assert value_of(harness.metrics, "record-error-total") == 0
        assert value_of(harness.metrics, "compression-rate-avg") == 1
        records = b"".join(request.message.topic_data[0].partition_data[0].records)
        assert value_of(harness.metrics, "byte-total") == len(records)
        assert value_of(harness.metrics, "record-size-avg") == (len(records) - RECORD_BATCH_OVERHEAD) / 2
        assert 30 < value_of(harness.metrics, "record-size-max") < 45
        assert value_of(harness.metrics, "byte-total", "producer-topic-metrics.t") == len(records)

    def test_compression(self) -> None:
        harness = SenderHarness(compression=Compression.GZIP)
        harness.request(b"x" * 300)
        rate = value_of(harness.metrics, "compression-rate", "producer-topic-metrics.t")
        assert 0.1 < rate < 0.6
        assert value_of(harness.metrics, "record-size-avg") > 300

    def test_a_retry_and_a_failure(self) -> None:
        harness = SenderHarness()
        _, request = harness.request(b"one", b"two")
        harness.answer(request, NOT_LEADER_OR_FOLLOWER)
        assert value_of(harness.metrics, "record-retry-total") == 2
        assert value_of(harness.metrics, "record-error-total") == 0
        (again,) = harness.retry()
        harness.answer(again, INVALID_RECORD)
        assert value_of(harness.metrics, "record-error-total", "producer-topic-metrics.t") == 2
        assert value_of(harness.metrics, "record-retry-total") == 2
        assert value_of(harness.metrics, "record-send-total") == 4

    def test_a_split(self) -> None:
        harness = SenderHarness()
        _, request = harness.request(b"one", b"two")
        harness.answer(request, MESSAGE_TOO_LARGE)
        assert value_of(harness.metrics, "batch-split-total") == 1
        assert value_of(harness.metrics, "record-error-total") == 0

    def test_throttling(self) -> None:
        harness = SenderHarness()
        _, request = harness.request(b"one")
        response = harness.response(request)
        response.throttle_time_ms = 70
        harness.client.respond(response, request=request)
        harness.step()
        assert value_of(harness.metrics, "produce-throttle-time-max") == 70

    def test_without_answers_there_is_no_latency(self) -> None:
        harness = SenderHarness(acks=0, idempotent=False)
        harness.append(b"one")
        harness.send()
        assert value_of(harness.metrics, "record-send-total") == 1
        assert math.isnan(value_of(harness.metrics, "request-latency-avg"))
