"""A client's metrics of its connections, and what it logs of them."""

from __future__ import annotations

import logging

import pytest
from support.client_harness import ClientHarness
from support.mock_client import metadata_response

from headrace.network.client.client_metrics_cy import ClientMetrics
from headrace.network.clock import MockClock
from headrace.network.metrics import Metrics
from headrace.network.protocol.errors import KafkaConnectionError
from headrace.network.protocol.frames import encode_response
from headrace.network.protocol.messages.records.produce import ProduceRequest, ProduceResponse
from headrace.network.repeats import MAX_REMEMBERED, QUIET_MS, Repeats
from headrace.network.sockets.selector_base_cy import SelectorCounters

#: Kafka's names (SelectorMetrics), except for those of authentication and two deprecated ones.
OF_ALL = {
    "connection-close-rate",
    "connection-close-total",
    "connection-count",
    "connection-creation-rate",
    "connection-creation-total",
    "incoming-byte-rate",
    "incoming-byte-total",
    "io-ratio",
    "io-time-ns-avg",
    "io-time-ns-total",
    "io-wait-ratio",
    "io-wait-time-ns-avg",
    "io-wait-time-ns-total",
    "network-io-rate",
    "network-io-total",
    "outgoing-byte-rate",
    "outgoing-byte-total",
    "request-rate",
    "request-size-avg",
    "request-size-max",
    "request-total",
    "response-rate",
    "response-total",
    "select-rate",
    "select-total",
}
OF_A_NODE = {
    "incoming-byte-rate",
    "incoming-byte-total",
    "outgoing-byte-rate",
    "outgoing-byte-total",
    "request-latency-avg",
    "request-latency-max",
    "request-rate",
    "request-size-avg",
    "request-size-max",
    "request-total",
    "response-rate",
    "response-total",
}


class Measured:
    """Client metrics, and their values."""

    def __init__(self) -> None:
        self.registry = Metrics(MockClock(), window_ms=1000, samples=2)
        self.counters = SelectorCounters()
        self.metrics = ClientMetrics(self.registry, self.counters, prefix="producer", tags=(("client-id", "c"),))

    def of_all(self, name: str) -> float:
        value = self.registry.by_group()["producer-metrics"][name]
        assert isinstance(value, float)
        return value

    def of_node(self, node_id: int, name: str) -> float:
        value = self.registry.by_group()[f"producer-node-metrics.node-{node_id}"][name]
        assert isinstance(value, float)
        return value


def test_the_names_are_kafkas() -> None:
    measured = Measured()
    measured.metrics.sent(-1, 1, 0)
    groups = measured.registry.by_group()
    assert set(groups) == {"producer-metrics", "producer-node-metrics.node--1"}
    assert set(groups["producer-metrics"]) == OF_ALL
    assert set(groups["producer-node-metrics.node--1"]) == OF_A_NODE
    assert all(metric.metric_name.description for metric in measured.registry)


def test_requests_and_responses_count_in_all_and_per_node() -> None:
    measured = Measured()
    measured.metrics.sent(1, 100, 0)
    measured.metrics.sent(1, 300, 0)
    measured.metrics.sent(2, 50, 0)
    measured.metrics.answered(1, 40, 12, 0)
    measured.metrics.answered(2, 60, 30, 0)
    assert measured.of_all("request-total") == 3
    assert measured.of_all("request-size-avg") == 150
    assert measured.of_all("request-size-max") == 300
    assert measured.of_all("outgoing-byte-total") == 450
    assert measured.of_all("request-rate") == 3
    assert measured.of_all("outgoing-byte-rate") == 450
    assert measured.of_all("response-total") == 2
    assert measured.of_all("incoming-byte-total") == 100
    assert measured.of_node(1, "request-total") == 2
    assert measured.of_node(1, "outgoing-byte-total") == 400
    assert measured.of_node(1, "request-latency-max") == 12
    assert measured.of_node(2, "incoming-byte-rate") == 60
    assert measured.of_node(2, "response-rate") == 1
    assert measured.of_node(2, "request-latency-avg") == 30


def test_polls_carry_over_what_the_selector_has_counted() -> None:
    measured = Measured()
    counters = measured.counters
    counters.connections_created = 2
    counters.operations = 5
    counters.waited_ms = 30
    measured.metrics.polled(40, 0)
    counters.connections_closed = 1
    counters.operations = 6
    counters.waited_ms = 50
    assert measured.of_all("connection-count") == 1
    measured.metrics.polled(22, 0)
    measured.metrics.polled(0, 0)
    assert measured.of_all("connection-creation-total") == 2
    assert measured.of_all("connection-close-total") == 1
    assert measured.of_all("connection-close-rate") == 1
    assert measured.of_all("network-io-total") == 6
    assert measured.of_all("select-total") == 3
    assert measured.of_all("io-wait-time-ns-total") == 50e6
    assert measured.of_all("io-wait-time-ns-avg") == 50e6 / 3
    assert measured.of_all("io-wait-ratio") == 0.05
    assert measured.of_all("io-time-ns-total") == 12e6
    assert measured.of_all("io-ratio") == 0.012


def test_nodes_that_are_no_more_are_forgotten() -> None:
    measured = Measured()
    for node_id in (-1, 1, 2):
        measured.metrics.sent(node_id, 10, 0)
    measured.metrics.keep_nodes({1, 3})
    assert [group for group in measured.registry.by_group() if "node" in group] == ["producer-node-metrics.node-1"]
    measured.metrics.sent(2, 20, 0)
    assert measured.of_node(2, "request-size-avg") == 20
    assert measured.of_all("request-total") == 4


class TestInTheClient:
    def test_handshakes_metadata_and_requests_are_measured(self) -> None:
        measured = Measured()
        harness = ClientHarness(metrics=measured.metrics)
        harness.start(metadata_response({"t": 1}))
        assert measured.of_all("request-total") == 2
        # the first metadata remove the bootstrap server, but not the requests to it
        assert not [group for group in measured.registry.by_group() if "node" in group]
        harness.connect(0)
        harness.send(0, ProduceRequest(acks=-1, timeout_ms=100, topic_data=[]))
        harness.step()
        harness.clock.advance(25)
        harness.selector.respond("0", ProduceResponse(responses=[]))
        harness.step()
        assert measured.of_all("request-total") == measured.of_all("response-total") == 4
        assert measured.of_all("outgoing-byte-total") == sum(len(send.frame) for send in harness.selector.sent)
        assert measured.of_node(0, "request-total") == 2
        assert measured.of_node(0, "request-latency-max") == 25
        assert measured.of_node(0, "request-latency-avg") == 12.5
        assert measured.of_all("select-total") == len(harness.selector.polls)

    def test_the_bytes_of_a_response_include_its_length(self) -> None:
        measured = Measured()
        harness = ClientHarness(metrics=measured.metrics)
        harness.start(metadata_response())
        harness.connect(0)
        before = measured.of_all("incoming-byte-total")
        request = harness.send(0, ProduceRequest(acks=-1, timeout_ms=100, topic_data=[]))
        response = encode_response(ProduceResponse(responses=[]), version=13, correlation_id=request.correlation_id)
        harness.selector.respond("0", ProduceResponse(responses=[]))
        harness.step()
        assert measured.of_all("incoming-byte-total") - before == len(b"".join(response))

    def test_what_cannot_be_understood_is_no_response(self) -> None:
        measured = Measured()
        harness = ClientHarness(metrics=measured.metrics)
        harness.step()
        harness.selector.complete_connect("-1")
        harness.step()
        harness.selector.receive("-1", bytes(3))
        harness.step()
        assert measured.of_all("request-total") == 1
        assert measured.of_all("response-total") == 0

    def test_a_request_that_was_not_wholly_written_does_not_count(self) -> None:
        measured = Measured()
        harness = ClientHarness(metrics=measured.metrics)
        harness.start(metadata_response())
        harness.connect(0)
        harness.selector.hold_sends = True
        harness.send(0, ProduceRequest(acks=-1, timeout_ms=100, topic_data=[]))
        harness.step()
        assert measured.of_node(0, "request-total") == 1
        harness.selector.write_all()
        harness.step()
        assert measured.of_node(0, "request-total") == 2


class TestLogs:
    def test_a_broker_that_is_gone_is_said_once_a_minute(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "headrace")
        harness = ClientHarness()
        attempts = 0
        while harness.now_ms < 3 * QUIET_MS - 2000:
            harness.step()
            if len(harness.selector.connects) > attempts:
                attempts = len(harness.selector.connects)
                harness.selector.fail("-1", KafkaConnectionError("nothing listens there"))
                harness.step()
            harness.clock.advance(1000)
        assert attempts > 100
        assert [entry.levelno for entry in caplog.records] == [logging.WARNING] * 3
        assert "host0:9000: nothing listens there" in caplog.text

    def test_when_it_is_back_that_is_said_and_the_next_trouble_is_new(self, caplog: pytest.LogCaptureFixture) -> None:
        harness = ClientHarness()
        for _ in range(2):
            harness.step()
            harness.selector.fail("-1", KafkaConnectionError("nothing listens there"))
            harness.step()
            harness.clock.advance(2000)
        caplog.clear()
        caplog.set_level(logging.INFO, "headrace.network.client.network_client_cy")
        harness.start()
        assert [entry.levelno for entry in caplog.records] == [logging.INFO]
        assert "Node -1 (host0:9000) answers again" in caplog.text
        assert not harness.ready(0)
        harness.selector.fail("0", KafkaConnectionError("it is down"))
        harness.step()
        assert [entry.levelno for entry in caplog.records] == [logging.INFO, logging.WARNING]

    def test_what_does_not_speak_kafka_is_one_line_a_minute(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "headrace")
        harness = ClientHarness()
        for _ in range(30):
            harness.step()
            harness.selector.complete_connect("-1")
            harness.step()
            harness.selector.receive("-1", b"HTTP/1.1 400 Bad Request")
            harness.step()
            harness.clock.advance(1500)
        assert [entry.levelno for entry in caplog.records] == [logging.WARNING]
        assert "not Kafka" in caplog.text

    def test_garbage_from_a_broker_that_was_well_is_an_error(self, caplog: pytest.LogCaptureFixture) -> None:
        harness = ClientHarness()
        harness.start()
        harness.connect(0)
        caplog.set_level(logging.INFO, "headrace")
        for _ in range(3):
            harness.selector.receive("0", b"\0\0\0\7garbage")
            harness.step()
            harness.clock.advance(2000)
            harness.step()
            while harness.metadata.update_requested:
                harness.clock.advance(2000)
                harness.step()
                for channel_id in list(harness.selector.open):
                    if harness.selector.unanswered(channel_id):
                        harness.answer_metadata(channel_id, metadata_response())
                for connect in harness.selector.connects[-1:]:
                    if connect.channel_id not in harness.selector.open:
                        harness.handshake(connect.channel_id)
            if not harness.ready(0):
                harness.handshake("0")
        assert [entry.levelno for entry in caplog.records if entry.levelno > logging.INFO] == [logging.ERROR]
        assert "cannot be decoded" in caplog.text

    def test_a_topic_that_is_not_there_is_said_once(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "headrace.network.metadata")
        harness = ClientHarness()
        harness.metadata.add_topic("t", 0)
        harness.start(metadata_response(errors={"t": 3}))
        harness.connect(0)
        for error_code in (3, 3, 5, 5):
            harness.clock.advance(2000)
            harness.metadata.request_update()
            harness.step()
            (channel_id,) = [each for each in harness.selector.open if harness.selector.unanswered(each)]
            harness.answer_metadata(channel_id, metadata_response(errors={"t": error_code}))
        warned = [entry.getMessage() for entry in caplog.records if entry.levelno == logging.WARNING]
        assert len(warned) == 2
        assert "UnknownTopicOrPartition" in warned[0]
        assert "LeaderNotAvailable" in warned[1]


class TestRepeats:
    def test_the_same_trouble_is_loud_once_a_minute(self) -> None:
        repeats = Repeats()
        levels = [
            repeats.level("t", logging.WARNING, now_ms) for now_ms in (0, 1, QUIET_MS - 1, QUIET_MS, QUIET_MS + 1)
        ]
        assert levels == [logging.WARNING, logging.DEBUG, logging.DEBUG, logging.WARNING, logging.DEBUG]
        assert repeats.level("another", logging.ERROR, 2) == logging.ERROR

    def test_when_it_is_over_it_may_begin_anew(self) -> None:
        repeats = Repeats()
        assert not repeats.over("t")
        repeats.level("t", logging.WARNING, 0)
        assert repeats.over("t")
        assert repeats.level("t", logging.WARNING, 1) == logging.WARNING

    def test_what_is_remembered_is_bounded(self) -> None:
        repeats = Repeats()
        for trouble in range(3 * MAX_REMEMBERED):
            repeats.level(trouble, logging.WARNING, 0)
        assert len(repeats._said_ms) == MAX_REMEMBERED
        assert repeats.level(3 * MAX_REMEMBERED - 1, logging.WARNING, 1) == logging.DEBUG
        assert repeats.level(0, logging.WARNING, 1) == logging.WARNING
