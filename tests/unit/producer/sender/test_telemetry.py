"""Client telemetry (KIP-714): the requests, stepped, and the metrics in them."""

from __future__ import annotations

import threading
import uuid

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData
from support.mock_client import latest_api_versions
from support.sender_harness import REQUEST_TIMEOUT_MS, SenderHarness

from headrace.network.client.api_versions import NodeApiVersions
from headrace.network.client.request import ClientRequest
from headrace.network.clock import MockClock
from headrace.network.metrics import MetricName, Metrics
from headrace.network.protocol.api_keys import ApiKey
from headrace.network.protocol.errors import (
    InvalidRecordError,
    InvalidRequestError,
    KafkaTimeoutError,
    ProducerClosedError,
    TelemetryTooLargeError,
    ThrottlingQuotaExceededError,
    UnknownSubscriptionIdError,
    UnsupportedCompressionTypeError,
    UnsupportedVersionError,
)
from headrace.network.protocol.messages.telemetry.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from headrace.network.protocol.messages.telemetry.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from headrace.network.protocol.types import ZERO_UUID
from headrace.network.records.compression import Compression, decompress
from headrace.producer.metrics import PRODUCER
from headrace.producer.sender import telemetry_reporter
from headrace.producer.sender.telemetry import LOOK_AGAIN_MS
from headrace.producer.sender.telemetry_metrics import Subscription, TelemetryMetrics, telemetry_name
from headrace.producer.sender.telemetry_reporter import LAST_PUSH_MS, RETRY_MS, State

INSTANCE = uuid.UUID(int=714)
INTERVAL_MS = 60_000
#: With the harness's random number, a quarter.
FIRST_PUSH_MS = INTERVAL_MS * 0.75
#: The harness's node that is connected first.
NODE = 0


class Pushing(SenderHarness):
    """A sender that is connected to a node with telemetry, and what it sends there."""

    def __init__(self, **options) -> None:
        super().__init__(telemetry=True, **options)
        self.client.connected.add(NODE)
        self.sender.run_once()

    def asked(self) -> ClientRequest:
        """The GetTelemetrySubscriptions request in flight."""
        (request,) = self.client.requests
        assert isinstance(request.message, GetTelemetrySubscriptionsRequest)
        return request

    def pushed(self) -> ClientRequest:
        """The PushTelemetry request in flight."""
        (request,) = self.client.requests
        assert isinstance(request.message, PushTelemetryRequest)
        return request

    def subscribe(self, **fields) -> None:
        """Answer the request for a subscription."""
        response = GetTelemetrySubscriptionsResponse(
            **{
                "client_instance_id": INSTANCE,
                "subscription_id": 7,
                "accepted_compression_types": [Compression.ZSTD, Compression.GZIP],
                "push_interval_ms": INTERVAL_MS,
                "telemetry_max_bytes": 100_000,
                "delta_temporality": True,
                "requested_metrics": ["*"],
                **fields,
            }
        )
        self.client.respond(response, request=self.asked())
        self.sender.run_once()

    def advance(self, duration_ms: float) -> None:
        """Let time pass; the sender sends what is due, after the metrics were encoded."""
        self.step(duration_ms)
        self.step()

    def answer_push(self, error_code: int = 0) -> None:
        self.client.respond(PushTelemetryResponse(error_code=error_code), request=self.pushed())
        self.sender.run_once()


def metrics_in(request: ClientRequest) -> dict[str, list]:
    """The points of a push by metric name, and whether each is a sum."""
    message = request.message
    data = MetricsData.FromString(bytes(decompress(Compression(message.compression_type), message.metrics, 10**7)))
    (within,) = data.resource_metrics
    (scope,) = within.scope_metrics
    return {
        metric.name: list((metric.sum if metric.HasField("sum") else metric.gauge).data_points)
        for metric in scope.metrics
    }


# --- Subscriptions ---


def test_the_first_connection_is_asked_for_a_subscription_at_once():
    harness = Pushing()
    assert harness.asked().message.client_instance_id == ZERO_UUID
    assert harness.asked().node_id == NODE
    harness.subscribe()
    assert harness.telemetry.client_instance_id(0) == INSTANCE


def test_nothing_is_asked_before_a_connection():
    harness = SenderHarness(telemetry=True)
    harness.sender.run_once()
    assert harness.client.sent == []
    with pytest.raises(KafkaTimeoutError, match="within 0 s"):
        harness.telemetry.client_instance_id(0)
    # that a program wants the id is reason enough to connect
    harness.sender.run_once()
    harness.sender.run_once()
    assert [type(each.message) for each in harness.client.sent] == [GetTelemetrySubscriptionsRequest]


def test_a_node_without_telemetry_is_not_asked():
    harness = SenderHarness(telemetry=True)
    known = latest_api_versions()
    without = {
        key: of for key in ApiKey if (of := known.range_of(key)) and key is not ApiKey.GET_TELEMETRY_SUBSCRIPTIONS
    }
    harness.client.node_api_versions[NODE] = NodeApiVersions(without, name="an old broker")
    harness.client.connected.add(NODE)
    harness.sender.run_once()
    assert harness.client.sent == []
    with pytest.raises(UnsupportedVersionError, match="an old broker serves no client telemetry"):
        harness.telemetry.client_instance_id(0)
    # it is upgraded
    del harness.client.node_api_versions[NODE]
    harness.step(LOOK_AGAIN_MS - 1)
    assert harness.client.sent == []
    harness.step(1)
    assert [type(each.message) for each in harness.client.sent] == [GetTelemetrySubscriptionsRequest]


def test_an_error_that_is_obsolete_does_not_end_the_wait_for_an_id(monkeypatch):
    harness = SenderHarness(telemetry=True)
    harness.client.node_api_versions[NODE] = NodeApiVersions({}, name="an old broker")
    harness.client.connected.add(NODE)
    harness.sender.run_once()
    del harness.client.node_api_versions[NODE]
    harness.step(LOOK_AGAIN_MS)
    (request,) = harness.client.requests
    answer = GetTelemetrySubscriptionsResponse(
        client_instance_id=INSTANCE, accepted_compression_types=[], requested_metrics=[], push_interval_ms=INTERVAL_MS
    )

    def await_latch(latch, end_ms):
        # the response comes while the thread waits
        if not latch.is_set:
            harness.client.respond(answer, request=request)
            harness.sender.run_once()
        return latch.is_set

    monkeypatch.setattr(harness.clock, "await_latch", await_latch)
    assert harness.telemetry.client_instance_id(10_000) == INSTANCE


def test_without_metrics_the_subscription_is_asked_for_again_after_the_interval():
    harness = Pushing()
    harness.subscribe(requested_metrics=[])
    harness.step(INTERVAL_MS - 1)
    assert not harness.client.requests
    harness.step(1)
    assert harness.asked().message.client_instance_id == INSTANCE


def test_the_sender_sleeps_until_the_next_push_and_no_longer():
    harness = Pushing()
    harness.subscribe(push_interval_ms=10_000)
    harness.step()
    assert harness.client.polls[-1] == 7_500


def test_an_interval_that_a_broker_does_not_give_is_five_minutes():
    harness = Pushing()
    harness.subscribe(push_interval_ms=0)
    harness.advance(300_000 * 0.75 - 1)
    assert not harness.client.requests
    harness.advance(1)
    harness.pushed()


def test_an_id_that_the_broker_does_not_repeat_is_kept():
    harness = Pushing()
    harness.subscribe(requested_metrics=[])
    harness.step(INTERVAL_MS)
    harness.subscribe(client_instance_id=ZERO_UUID)
    harness.advance(FIRST_PUSH_MS)
    assert harness.pushed().message.client_instance_id == INSTANCE


# --- Pushes ---


def test_the_first_push_is_jittered_and_the_others_follow_at_the_interval():
    harness = Pushing()
    harness.subscribe()
    harness.advance(FIRST_PUSH_MS - 1)
    assert not harness.client.requests
    harness.advance(1)
    message = harness.pushed().message
    assert (message.client_instance_id, message.subscription_id, message.terminating) == (INSTANCE, 7, False)
    harness.answer_push()
    harness.advance(INTERVAL_MS - 1)
    assert not harness.client.requests
    harness.advance(1)
    harness.pushed()


def test_pushes_stay_with_one_node_while_it_is_ready():
    harness = Pushing(brokers=2, partitions=2)
    harness.subscribe()
    harness.client.connected.add(1)
    harness.append(partition=0)
    harness.send()
    harness.advance(FIRST_PUSH_MS)
    # the other node has fewer requests in flight
    (push,) = [each for each in harness.client.requests if isinstance(each.message, PushTelemetryRequest)]
    assert push.node_id == NODE
    harness.client.respond(PushTelemetryResponse(), request=push)
    harness.sender.run_once()
    harness.client.backoff(NODE, 10**9)
    harness.advance(INTERVAL_MS)
    pushes = [each for each in harness.client.requests if isinstance(each.message, PushTelemetryRequest)]
    assert [each.node_id for each in pushes] == [1]


def test_metrics_are_encoded_on_a_thread_of_their_own():
    harness = Pushing()
    waiting = []
    harness.reporter._run = lambda function, name: waiting.append((function, name))
    harness.subscribe()
    harness.advance(FIRST_PUSH_MS)
    assert not harness.client.requests
    assert harness.reporter.state is State.ENCODING
    ((encode, name),) = waiting
    wakeups = harness.client.wakeups
    encode()
    assert harness.client.wakeups == wakeups + 1
    harness.sender.run_once()
    harness.pushed()
    assert name == "harness"


def test_a_thread_that_cannot_start_is_replaced_by_the_caller(monkeypatch):
    def refuse(self) -> None:
        raise RuntimeError("can't start new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    ran = []
    telemetry_reporter.run_aside(lambda: ran.append(threading.current_thread()), "name")
    assert ran == [threading.current_thread()]


def test_a_prefix_selects_metrics():
    harness = Pushing()
    harness.subscribe(requested_metrics=["org.apache.kafka.producer.record.queue.", "org.apache.kafka.producer.byte."])
    harness.request(b"v")
    harness.client.requests.clear()
    harness.advance(FIRST_PUSH_MS)
    names = set(metrics_in(harness.pushed()))
    assert {name.rpartition("org.apache.kafka.producer.")[2].split(".")[0] for name in names} == {"record", "byte"}
    assert "org.apache.kafka.producer.record.queue.time.avg" in names


@pytest.mark.parametrize("everything", ["*", ""])
def test_a_star_and_an_empty_prefix_select_everything(everything: str):
    harness = Pushing()
    harness.subscribe(requested_metrics=[everything])
    harness.advance(FIRST_PUSH_MS)
    assert len(metrics_in(harness.pushed())) > 20


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [([], Compression.NONE), ([77, 1, 4], Compression.GZIP), ([Compression.SNAPPY], Compression.SNAPPY)],
)
def test_the_first_known_codec_is_used(accepted: list[int], chosen: Compression):
    harness = Pushing()
    harness.subscribe(accepted_compression_types=accepted)
    harness.advance(FIRST_PUSH_MS)
    assert harness.pushed().message.compression_type == chosen
    assert metrics_in(harness.pushed())


# --- Errors ---


def test_an_unknown_subscription_is_asked_for_again_at_once():
    harness = Pushing()
    harness.subscribe()
    harness.advance(FIRST_PUSH_MS)
    harness.answer_push(UnknownSubscriptionIdError.code)
    harness.step()
    assert harness.asked().message.client_instance_id == INSTANCE
    harness.subscribe(subscription_id=8)
    harness.advance(FIRST_PUSH_MS)
    assert harness.pushed().message.subscription_id == 8


def test_a_codec_that_a_broker_rejects_is_not_used_again():
    harness = Pushing()
    harness.subscribe()
    harness.advance(FIRST_PUSH_MS)
    assert harness.pushed().message.compression_type == Compression.ZSTD
    harness.answer_push(UnsupportedCompressionTypeError.code)
    harness.step()
    harness.subscribe()
    harness.advance(FIRST_PUSH_MS)
    assert harness.pushed().message.compression_type == Compression.GZIP


@pytest.mark.parametrize("error", [ThrottlingQuotaExceededError, TelemetryTooLargeError])
def test_after_a_refused_push_the_subscription_is_asked_for_after_the_interval(error):
    harness = Pushing()
    harness.subscribe()
    harness.advance(FIRST_PUSH_MS)
    harness.answer_push(error.code)
    harness.step(INTERVAL_MS - 1)
    assert not harness.client.requests
    harness.step(1)
    harness.asked()


def test_an_error_of_the_subscription_is_never_repeated_at_once():
    harness = Pushing()
    for _ in range(3):
        harness.client.respond(
            GetTelemetrySubscriptionsResponse(error_code=UnknownSubscriptionIdError.code), request=harness.asked()
        )
        harness.sender.run_once()
        harness.step(300_000 - 1)
        assert not harness.client.requests
        harness.step(1)


@pytest.mark.parametrize("error", [InvalidRequestError, InvalidRecordError])
def test_an_error_that_stays_ends_telemetry_with_a_warning(error, caplog):
    harness = Pushing()
    harness.subscribe()
    harness.advance(FIRST_PUSH_MS)
    harness.answer_push(error.code)
    harness.advance(10**9)
    assert not harness.client.requests
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "no metrics are pushed any longer" in caplog.text


def test_a_request_without_a_response_is_repeated_later():
    harness = Pushing()
    harness.client.respond(request=harness.asked(), disconnected=True)
    harness.sender.run_once()
    harness.client.connected.add(NODE)
    harness.step(RETRY_MS - 1)
    assert not harness.client.requests
    harness.step(1)
    harness.asked()


def test_a_push_whose_response_is_lost_is_followed_by_the_next_after_the_interval():
    harness = Pushing()
    harness.subscribe()
    harness.advance(FIRST_PUSH_MS)
    harness.client.respond(request=harness.pushed(), disconnected=True)
    harness.sender.run_once()
    harness.advance(INTERVAL_MS - 1)
    assert not harness.client.requests
    harness.advance(1)
    assert harness.pushed().message.subscription_id == 7


def test_a_push_that_times_out_does_not_stop_the_next():
    harness = Pushing()
    harness.subscribe()
    harness.advance(FIRST_PUSH_MS)
    harness.pushed()
    harness.step(REQUEST_TIMEOUT_MS)
    harness.client.connected.add(NODE)
    harness.advance(INTERVAL_MS)
    harness.pushed()


def test_a_node_that_has_lost_the_api_is_asked_again_after_five_minutes():
    harness = Pushing()
    harness.client.respond(request=harness.asked(), error=UnsupportedVersionError("gone"))
    harness.sender.run_once()
    harness.step(LOOK_AGAIN_MS - 1)
    assert not harness.client.requests
    harness.step(1)
    harness.asked()


def test_a_missing_library_ends_telemetry_with_one_warning_per_process(monkeypatch, caplog):
    monkeypatch.setattr(telemetry_reporter._Warned, "once", False)
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.proto.metrics.v1.metrics_pb2", None)
    for _ in range(2):
        harness = Pushing()
        harness.subscribe()
        harness.advance(FIRST_PUSH_MS)
        harness.advance(10**9)
        assert not harness.client.requests
        assert harness.telemetry.client_instance_id(0) == INSTANCE
    (record,) = caplog.records
    assert "pip install 'headrace[telemetry]'" in record.getMessage()


# --- The end ---


def test_closing_pushes_a_last_time_after_the_records():
    harness = Pushing()
    harness.subscribe()
    harness.client.prepare_response(harness.response)
    harness.client.prepare_response(PushTelemetryResponse())
    future = harness.append(b"v")
    harness.run_to_the_end()
    assert future.get(0).offset == 0
    last = harness.client.sent[-1]
    assert isinstance(last.message, PushTelemetryRequest)
    assert last.message.terminating
    (sent,) = metrics_in(last)["org.apache.kafka.producer.record.send.total"]
    assert sent.as_double == 1


def test_a_broker_that_does_not_answer_the_last_push_delays_the_end_for_a_bounded_time(monkeypatch):
    harness = Pushing()
    harness.subscribe()
    polls = []
    poll = harness.client.poll

    def waiting_poll(timeout_ms: float, now_ms: float):
        polls.append(timeout_ms)
        harness.clock.advance(timeout_ms)
        return poll(timeout_ms, now_ms)

    monkeypatch.setattr(harness.client, "poll", waiting_poll)
    harness.run_to_the_end()
    assert sum(polls) == LAST_PUSH_MS


def test_a_push_in_flight_at_the_close_is_followed_by_the_last_one():
    harness = Pushing()
    harness.subscribe()
    harness.advance(FIRST_PUSH_MS)
    first = harness.pushed()
    harness.client.respond(PushTelemetryResponse(), request=first)
    harness.client.prepare_response(PushTelemetryResponse())
    harness.run_to_the_end()
    pushes = [each.message for each in harness.client.sent if isinstance(each.message, PushTelemetryRequest)]
    assert [push.terminating for push in pushes] == [False, True]


@pytest.mark.parametrize("force", [True, False])
def test_closing_without_a_subscription_sends_nothing_and_ends_the_wait_for_an_id(force: bool):
    harness = Pushing()
    harness.run_to_the_end(force=force)
    assert [type(each.message) for each in harness.client.sent] == [GetTelemetrySubscriptionsRequest]
    with pytest.raises(ProducerClosedError, match="before a broker assigned"):
        harness.telemetry.client_instance_id(0)


def test_a_forced_close_pushes_nothing():
    harness = Pushing()
    harness.subscribe()
    harness.run_to_the_end(force=True)
    assert [type(each.message) for each in harness.client.sent] == [GetTelemetrySubscriptionsRequest]


# --- Metrics ---


@pytest.mark.parametrize(
    ("group", "name", "expected"),
    [
        ("producer-metrics", "connection-creation-rate", "producer.connection.creation.rate"),
        ("producer-metrics", "connection-creation-total", "producer.connection.creation.total"),
        ("producer-node-metrics", "request-latency-avg", "producer.node.request.latency.avg"),
        ("producer-node-metrics", "request-latency-max", "producer.node.request.latency.max"),
        ("producer-metrics", "produce-throttle-time-avg", "producer.produce.throttle.time.avg"),
        ("producer-metrics", "produce-throttle-time-max", "producer.produce.throttle.time.max"),
        ("producer-metrics", "record-queue-time-avg", "producer.record.queue.time.avg"),
        ("producer-metrics", "record-queue-time-max", "producer.record.queue.time.max"),
        ("producer-topic-metrics", "byte-total", "producer.topic.byte.total"),
    ],
)
def test_names_are_those_of_the_kip(group: str, name: str, expected: str):
    """The first eight are all that KIP-714 requires of a producer."""
    assert telemetry_name(MetricName(name, group, "")) == f"org.apache.kafka.{expected}"


@pytest.fixture
def collected() -> Collected:
    return Collected()


class Collected:
    """A registry with a counter, a gauge, a text and a gauge without a value, and its telemetry."""

    def __init__(self) -> None:
        self.clock = MockClock(5_000)
        self.registry = Metrics(self.clock)
        self.count = 10.0
        tags = (("client-id", "c"),)
        of_node = (*tags, ("node-id", "node-1"))
        self.registry.add(MetricName("sent-total", PRODUCER, "", tags), lambda: self.count)
        self.registry.add(MetricName("size-avg", PRODUCER, "", of_node), lambda: 2.5)
        self.registry.add(MetricName("version", "app-info", "", tags), lambda: "1")
        self.registry.add(MetricName("nothing-avg", PRODUCER, "", tags), lambda: float("nan"))
        self.started_ns = self.clock.wall_ms() * 1_000_000
        self.telemetry = TelemetryMetrics(self.registry, self.clock, {"client_rack": "r"})

    def subscription(self, *, is_delta: bool = True, max_bytes: int = 0) -> Subscription:
        return Subscription(1, ("*",), 1000, Compression.NONE, is_delta, max_bytes)

    def push(self, **options) -> tuple:
        payload = self.telemetry.payload(self.subscription(**options))
        return payload, MetricsData.FromString(payload.data)

    def sent(self, **options) -> tuple[float, int]:
        """The counter's value in a push, and since when."""
        metric = {each.name: each for each in self.push(**options)[1].resource_metrics[0].scope_metrics[0].metrics}[
            "org.apache.kafka.producer.sent.total"
        ]
        (point,) = metric.sum.data_points
        assert metric.sum.is_monotonic
        assert metric.sum.aggregation_temporality == (
            AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
            if options.get("is_delta", True)
            else AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        )
        assert point.time_unix_nano == self.clock.wall_ms() * 1_000_000
        return point.as_double, point.start_time_unix_nano


def test_totals_are_sums_the_rest_are_gauges_and_what_is_no_number_is_left_out(collected: Collected):
    _, data = collected.push()
    (within,) = data.resource_metrics
    assert [(each.key, each.value.string_value) for each in within.resource.attributes] == [("client_rack", "r")]
    counter, gauge = within.scope_metrics[0].metrics
    assert (counter.name, gauge.name) == ("org.apache.kafka.producer.sent.total", "org.apache.kafka.producer.size.avg")
    # the broker knows the client id
    assert list(counter.sum.data_points[0].attributes) == []
    (point,) = gauge.gauge.data_points
    assert [(each.key, each.value.string_value) for each in point.attributes] == [("node_id", "node-1")]
    assert (point.as_double, point.start_time_unix_nano) == (2.5, 0)


def test_deltas_count_from_the_push_before(collected: Collected):
    assert collected.sent() == (10, collected.started_ns)
    first_ns = collected.clock.wall_ms() * 1_000_000
    collected.clock.advance(1000)
    collected.count = 13
    assert collected.sent() == (3, first_ns)
    collected.clock.advance(1000)
    assert collected.sent() == (0, first_ns + 10**9)


def test_cumulative_totals_count_from_the_start(collected: Collected):
    assert collected.sent(is_delta=False) == (10, collected.started_ns)
    collected.clock.advance(1000)
    collected.count = 13
    assert collected.sent(is_delta=False) == (13, collected.started_ns)


def test_the_first_delta_after_cumulative_totals_counts_from_the_start(collected: Collected):
    collected.sent()
    collected.sent(is_delta=False)
    assert collected.sent() == (10, collected.started_ns)


def test_a_rejected_push_is_carried_over(collected: Collected):
    payload, _ = collected.push()
    collected.telemetry.rejected(payload)
    collected.count = 12
    assert collected.sent() == (12, collected.started_ns)
    collected.count = 15
    payload, _ = collected.push()
    collected.telemetry.rejected(payload)
    collected.count = 16
    assert collected.sent()[0] == 4


def test_a_counter_that_starts_again_is_not_negative(collected: Collected):
    collected.sent()
    collected.count = 4
    assert collected.sent()[0] == 4


def test_what_has_no_room_is_left_out_and_its_increase_carried_over(collected: Collected):
    for number in range(500):
        tags = (("client-id", "c"), ("topic", f"topic-{number:03}"))
        collected.registry.add(MetricName("byte-total", "producer-topic-metrics", "", tags), lambda: 7.0)
    whole, data = collected.push()
    collected.telemetry.rejected(whole)
    assert whole.left_out == 0
    payload, data = collected.push(max_bytes=10_000)
    assert len(payload.data) <= 10_000
    points = {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    # those of the whole producer come first
    assert "org.apache.kafka.producer.sent.total" in points
    kept = len(points["org.apache.kafka.producer.topic.byte.total"].sum.data_points)
    assert 0 < kept < 500
    assert payload.left_out == 500 - kept
    _, data = collected.push()
    totals = {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    values = [point.as_double for point in totals["org.apache.kafka.producer.topic.byte.total"].sum.data_points]
    assert (values.count(0.0), values.count(7.0)) == (kept, 500 - kept)


def test_a_limit_below_any_payload_leaves_an_empty_one(collected: Collected):
    payload, data = collected.push(max_bytes=1)
    assert payload.left_out == 2
    assert list(data.resource_metrics[0].scope_metrics[0].metrics) == []


def test_a_payload_that_is_too_large_is_logged(caplog):
    harness = Pushing()
    harness.subscribe(telemetry_max_bytes=500)
    harness.advance(FIRST_PUSH_MS)
    assert len(harness.pushed().message.metrics) <= 500
    assert "the broker accepts 500 bytes (telemetry.max.bytes)" in caplog.text


def test_a_push_waits_for_a_node_that_can_be_connected():
    harness = Pushing()
    harness.subscribe()
    harness.client.backoff(NODE, FIRST_PUSH_MS + 60_000)
    harness.advance(FIRST_PUSH_MS)
    assert not harness.client.requests
    harness.advance(60_000)
    harness.pushed()
