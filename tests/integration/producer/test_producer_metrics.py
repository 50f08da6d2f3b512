"""A producer's metrics against a broker on real sockets, and the reporters that receive them."""

from __future__ import annotations

import gc
import os
import socket
import types
from collections.abc import Iterator
from typing import Any

import pytest
from support.waiting import memory_comes_back, wait_until

from headrace.broker import EmbeddedCluster
from headrace.network.clock import SYSTEM_CLOCK
from headrace.network.metrics import Metric, Metrics, MetricsReporter
from headrace.network.sockets.selector_cy import Selector
from headrace.producer import KafkaProducer, errors
from headrace.producer.reporters import prometheus_text


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(num_partitions=2) as cluster:
        yield cluster


class Own(MetricsReporter):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def init(self, metrics: Metrics) -> None:
        self.calls.append("init")
        self.metrics = metrics

    def metric_change(self, metric: Metric) -> None:
        self.calls.append(".".join(text for tag, text in metric.metric_name.tags if tag != "client-id"))

    def close(self) -> None:
        self.calls.append("close")


def numbers(values: Any) -> dict[str, float]:
    return {name: value for name, value in values.items() if isinstance(value, float)}


def test_metrics_agree_with_each_other(cluster: EmbeddedCluster) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
        for number in range(50):
            producer.send("agree", b"x" * 100, key=str(number).encode()).get(timeout=30)
        memory_comes_back(producer)
        groups = producer.metrics()
        closed = producer
    overall, topic = numbers(groups["producer-metrics"]), numbers(groups["producer-topic-metrics.agree"])
    nodes = [numbers(values) for group, values in groups.items() if group.startswith("producer-node-metrics.")]
    assert len(nodes) == 1
    assert overall["record-send-total"] == topic["record-send-total"] == 50
    assert overall["byte-total"] == topic["byte-total"] > 50 * 100
    assert overall["record-error-total"] == overall["record-retry-total"] == 0
    assert overall["requests-in-flight"] == 0
    assert overall["request-total"] == overall["response-total"] > 50
    assert overall["outgoing-byte-total"] > overall["byte-total"]
    assert overall["incoming-byte-total"] > nodes[0]["incoming-byte-total"] > 0
    assert 0 < nodes[0]["request-latency-avg"] <= nodes[0]["request-latency-max"]
    assert overall["network-io-total"] >= overall["request-total"] + 50
    assert overall["select-total"] > 50
    assert overall["io-wait-time-ns-total"] > 0
    assert overall["connection-count"] == overall["connection-creation-total"] >= 1
    assert overall["connection-close-total"] == 0
    assert overall["buffer-available-bytes"] == overall["buffer-total-bytes"]
    assert overall["metadata-age"] < 60
    after = numbers(closed.metrics()["producer-metrics"])
    assert after["record-send-total"] == 50
    assert after["connection-count"] == 0


def test_a_selector_counts_what_it_does() -> None:
    selector = Selector(clock=SYSTEM_CLOCK, max_receive_bytes=1000)
    counters = selector.counters
    pairs = [socket.socketpair() for _ in range(3)]
    for number, (ours, _) in enumerate(pairs):
        selector.register(str(number), ours)
    assert (counters.connections, counters.connections_created) == (3, 3)
    assert counters.operations == 0
    selector.poll(20)
    assert counters.waited_ms >= 15
    waited_ms = counters.waited_ms
    selector.poll(0)
    assert counters.waited_ms == waited_ms
    selector.send("0", [b"abc"])
    assert counters.operations == 1
    pairs[0][1].sendall(b"\0\0\0\1x")
    selector.poll(1000)
    assert counters.operations == 2
    pairs[0][1].close()
    while not selector.disconnected:
        selector.poll(1000)
    assert (counters.connections, counters.connections_closed) == (2, 1)
    selector.close_channel("1")
    assert (counters.connections, counters.connections_closed) == (1, 2)
    selector.close()
    assert (counters.connections, counters.connections_closed) == (0, 3)
    for _, theirs in pairs:
        theirs.close()


def test_a_broker_that_is_not_there_is_no_connection() -> None:
    producer = KafkaProducer(bootstrap_servers="127.0.0.1:1", max_block_ms=100)
    with producer:
        wait_until(lambda: producer._engine.metadata.last_error)
        with pytest.raises(errors.KafkaTimeoutError, match=r"127\.0\.0\.1:1"):
            producer.send("t", b"x")
    overall = numbers(producer.metrics()["producer-metrics"])
    assert overall["connection-creation-total"] == overall["connection-close-total"] == 0
    assert overall["metadata-wait-time-ns-total"] > 0


def test_reporters_are_told(cluster: EmbeddedCluster) -> None:
    own = Own()
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, metric_reporters=[own]) as producer:
        assert own.calls[0] == "init"
        producer.send("told", b"x").get(timeout=30)
        assert own.metrics.by_group().keys() == producer.metrics().keys()
        assert {"told", "node--1", "node-1"} <= set(own.calls)
    assert own.calls[-1] == "close"
    assert own.metrics.is_closed


def test_what_init_raises_comes_out_of_the_constructor() -> None:
    def refuse(metrics: Metrics) -> None:
        raise OSError("the port is in use")

    before = Own()
    reporters = [before, types.SimpleNamespace(init=refuse)]
    with pytest.raises(OSError, match="the port is in use"):
        KafkaProducer(bootstrap_servers="localhost:1", metric_reporters=reporters)
    assert (before.calls[0], before.calls[-1]) == ("init", "close")
    gc.collect()  # an open socket would warn now, and warnings are errors


def test_prometheus_gets_every_metric(cluster: EmbeddedCluster) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="c") as producer:
        producer.send("text", b"x").get(timeout=30)
        text, metrics = prometheus_text(producer), producer.metrics(raw=True)
    lines = text.splitlines()
    assert len([line for line in lines if not line.startswith("#")]) == len(metrics)
    assert 'kafka_producer_topic_record_send_total{client_id="c",topic="text"} 1.0' in lines
    assert 'kafka_producer_buffer_total_bytes{client_id="c"} 33554432.0' in lines


def test_prometheus_client_by_its_name(cluster: EmbeddedCluster) -> None:
    client = pytest.importorskip("prometheus_client")
    with KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, client_id="by-name", metric_reporters="prometheus"
    ) as producer:
        producer.send("served", b"x").get(timeout=30)
        text = client.generate_latest().decode()
        assert 'kafka_producer_topic_record_send_total{client_id="by-name",topic="served"} 1.0' in text
    assert "by-name" not in client.generate_latest().decode()


def test_opentelemetry_without_its_sdk_does_no_harm(cluster: EmbeddedCluster) -> None:
    pytest.importorskip("opentelemetry.metrics")
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, metric_reporters=["opentelemetry"]) as producer:
        assert producer.send("t", b"x").get(timeout=30).offset >= 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_measures_for_itself(cluster: EmbeddedCluster) -> None:
    own = Own()
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, metric_reporters=[own]) as producer:
        for _ in range(3):
            producer.send("forked", b"parent").get(timeout=30)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                before = producer.metrics()
                producer.send("forked", b"child").get(timeout=30)
                sent = producer.metrics()["producer-metrics"]["record-send-total"]
                told = own.metrics.by_group()["producer-metrics"]["record-send-total"]
                status = 0 if (before, sent, told) == ({}, 1.0, 1.0) else 2
            finally:
                os._exit(status)
        _, result = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(result) == 0
        assert producer.metrics()["producer-metrics"]["record-send-total"] == 3.0
