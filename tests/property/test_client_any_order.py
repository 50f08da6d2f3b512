"""Whatever happens on the connections, in any order: every request ends once, and the client recovers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.client_harness import ClientHarness, api_versions_response
from support.mock_client import metadata_response

from headrace.network.client.request import ClientRequest, ClientResponse
from headrace.network.protocol.errors import DisconnectedError, KafkaConnectionError
from headrace.network.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.network.protocol.messages.records.produce import ProduceRequest, ProduceResponse
from headrace.network.protocol.messages.topics.metadata import MetadataRequest

MAX_IN_FLIGHT = 3
TOPICS = {"one": 4, "two": 1}


class AnyOrder(RuleBasedStateMachine):
    """A cluster of three. Rules are what the network and the sender may do; `check_recovery` restores the network."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = ClientHarness(
            bootstrap=[("host0", 1), ("nowhere", 2)],
            max_in_flight_requests_per_connection=MAX_IN_FLIGHT,
            metadata_recovery_rebootstrap_trigger_ms=60_000,
        )
        self.waiting: dict[ClientRequest, int] = {}
        self.ended: set[int] = set()

    @initialize(connected=st.sampled_from([False, True, True, True]))
    def start(self, connected: bool) -> None:
        """Start with three ready nodes in most runs, otherwise with none."""
        if connected:
            for _ in range(10):
                self.all_is_well(1)
                for node in self.harness.metadata.cluster.nodes.values():
                    self.harness.client.ready(node, self.harness.now_ms)

    def heard(self, response: ClientResponse) -> None:
        assert response.request in self.waiting, "ended twice, or was never sent"
        del self.waiting[response.request]
        assert (response.message is not None) + (response.error is not None) == 1 or (
            not response.request.expect_response and response.error is None
        )
        if response.disconnected:
            assert isinstance(response.error, Exception)

    def respond(self, channel_id: str, *, throttle_ms: int = 0) -> None:
        message = self.harness.selector.unanswered(channel_id)[0].message
        answer: Any
        if isinstance(message, ApiVersionsRequest):
            answer = api_versions_response(throttle_time_ms=throttle_ms)
        elif isinstance(message, MetadataRequest):
            answer = metadata_response(TOPICS, brokers=3)
        else:
            answer = ProduceResponse(responses=[], throttle_time_ms=throttle_ms)
        self.harness.selector.respond(channel_id, answer)

    @property
    def connecting(self) -> list[str]:
        return sorted(self.harness.selector._connecting)

    @property
    def open(self) -> list[str]:
        return sorted(self.harness.selector.open)

    @property
    def answerable(self) -> list[str]:
        return [each for each in self.open if self.harness.selector.unanswered(each)]

    @rule()
    def poll(self) -> None:
        self.harness.step()

    @rule(polls=st.integers(1, 6))
    def all_is_well(self, polls: int) -> None:
        """Let the network work for a while; otherwise few nodes would ever become ready."""
        for _ in range(polls):
            for channel_id in self.connecting:
                self.harness.selector.complete_connect(channel_id)
            for channel_id in self.answerable:
                self.respond(channel_id)
            self.harness.step()

    @rule(duration_ms=st.sampled_from([1, 49, 100, 1000, 10_000, 30_000, 400_000]))
    def time_passes(self, duration_ms: float) -> None:
        self.harness.clock.advance(duration_ms)

    @rule(topic=st.sampled_from(sorted(TOPICS)))
    def want_topic(self, topic: str) -> None:
        self.harness.metadata.add_topic(topic, self.harness.now_ms)

    @rule(choice=st.integers(0, 9), answered=st.booleans(), count=st.integers(1, 4))
    def send(self, choice: int, answered: bool, count: int) -> None:
        for _ in range(count):
            self.send_one(choice, answered)

    def send_one(self, choice: int, answered: bool) -> None:
        nodes = list(self.harness.metadata.cluster.nodes.values())
        node = nodes[choice % len(nodes)]
        client = self.harness.client
        if client.ready(node, self.harness.now_ms):
            message = ProduceRequest(acks=1 if answered else 0, timeout_ms=1, topic_data=[])
            request = client.new_request(
                node.id, message, now_ms=self.harness.now_ms, expect_response=answered, callback=self.heard
            )
            self.waiting[request] = node.id
            client.send(request, self.harness.now_ms)

    @precondition(lambda self: self.connecting)
    @rule(choice=st.integers(0, 9), works=st.booleans())
    def connect(self, choice: int, works: bool) -> None:
        channel_id = self.connecting[choice % len(self.connecting)]
        if works:
            self.harness.selector.complete_connect(channel_id)
        else:
            self.harness.selector.fail(channel_id, KafkaConnectionError("connection refused"))

    @precondition(lambda self: self.answerable)
    @rule(choice=st.integers(0, 9), throttle_ms=st.sampled_from([0, 0, 0, 500]))
    def answer(self, choice: int, throttle_ms: int) -> None:
        self.respond(self.answerable[choice % len(self.answerable)], throttle_ms=throttle_ms)

    @precondition(lambda self: self.open)
    @rule(choice=st.integers(0, 9), payload=st.binary(max_size=12))
    def garbage(self, choice: int, payload: bytes) -> None:
        self.harness.selector.receive(self.open[choice % len(self.open)], payload)

    @precondition(lambda self: self.answerable)
    @rule(choice=st.integers(0, 9), code=st.sampled_from([-1, 3, 35, 58, 129]))
    def refuse(self, choice: int, code: int) -> None:
        channel_id = self.answerable[choice % len(self.answerable)]
        message = self.harness.selector.unanswered(channel_id)[0].message
        if isinstance(message, ApiVersionsRequest):
            answer = ApiVersionsResponse(error_code=code, api_keys=[])
            self.harness.selector.respond_in_version(channel_id, answer, 0)
        elif isinstance(message, MetadataRequest):
            metadata = metadata_response(errors=dict.fromkeys(TOPICS, 3))
            metadata.error_code = code
            self.harness.selector.respond(channel_id, metadata)

    @precondition(lambda self: self.open)
    @rule(choice=st.integers(0, 9))
    def lose(self, choice: int) -> None:
        self.harness.selector.fail(self.open[choice % len(self.open)], DisconnectedError("reset"))

    @precondition(lambda self: self.open)
    @rule(choice=st.integers(0, 9))
    def disconnect(self, choice: int) -> None:
        self.harness.client.disconnect(int(self.open[choice % len(self.open)]), self.harness.now_ms)

    @rule(hold=st.booleans())
    def socket_buffers(self, hold: bool) -> None:
        self.harness.selector.hold_sends = hold
        if not hold:
            self.harness.selector.write_all()

    @invariant()
    def bounded(self) -> None:
        for node_id in {send.channel_id for send in self.harness.selector.sent}:
            assert self.harness.client.in_flight_request_count(int(node_id)) <= MAX_IN_FLIGHT
        assert len(self.harness.client.connection_errors) <= 8

    def teardown(self) -> None:
        """Let everything work: soon metadata are known, nodes are ready, and nothing is pending."""
        harness = self.harness
        harness.selector.write_all()
        for topic in TOPICS:
            harness.metadata.add_topic(topic, harness.now_ms)
        for _ in range(3000):
            harness.step()
            for channel_id in self.connecting:
                harness.selector.complete_connect(channel_id)
            for channel_id in self.answerable:
                self.respond(channel_id)
            ready = [harness.client.ready(node, harness.now_ms) for node in harness.metadata.cluster.nodes.values()]
            if all(ready) and not self.waiting and harness.metadata.cluster.partition_count("one") == 4:
                assert not harness.metadata.cluster.is_bootstrap
                break
            harness.clock.advance(50)
        else:
            raise AssertionError(f"no recovery: {harness.metadata.cluster}, waiting {self.waiting}")


AnyOrder.TestCase.settings = settings(
    max_examples=120, stateful_step_count=80, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAnyOrder = pytest.mark.timeout(120)(AnyOrder.TestCase)
