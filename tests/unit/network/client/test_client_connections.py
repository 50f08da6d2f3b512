"""How a NetworkClient connects: handshake, timeouts, backoff, and the errors when the peer is no broker."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from support.client_harness import ClientHarness, Waiter, api_versions_response
from support.mock_client import metadata_response

from headrace.network import _build
from headrace.network.client.api_versions import NodeApiVersions
from headrace.network.protocol.api import ApiKey
from headrace.network.protocol.errors import (
    DisconnectedError,
    EncodeError,
    IllegalStateError,
    InvalidReceiveError,
    KafkaConnectionError,
    KafkaError,
    NotKafkaError,
    SaslAuthenticationFailedError,
    UnresolvableHostError,
    UnsupportedVersionError,
)
from headrace.network.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from headrace.network.protocol.messages.records.list_offsets import ListOffsetsRequest
from headrace.network.protocol.messages.records.produce import ProduceRequest
from headrace.network.protocol.messages.topics.metadata import MetadataRequest

UNSUPPORTED_VERSION = 35


class TestHandshake:
    def test_a_connection_begins_with_api_versions_and_says_who_asks(self) -> None:
        harness = ClientHarness()
        harness.step()
        harness.selector.complete_connect("-1")
        harness.step()
        (sent,) = harness.selector.unanswered("-1")
        assert sent.header.api_key is ApiKey.API_VERSIONS
        assert sent.header.api_version == 4
        assert sent.header.client_id == "test"
        assert sent.message.client_software_name == "headrace"
        assert sent.message.client_software_version == _build.VERSION

    def test_a_node_is_ready_only_when_its_versions_are_known(self) -> None:
        harness = ClientHarness()
        harness.start()
        node = harness.node(0)
        assert not harness.client.ready(node, 0)
        assert [connect.channel_id for connect in harness.selector.connects] == ["-1", "0"]
        harness.selector.complete_connect("0")
        harness.step()
        assert not harness.client.is_ready(node, 0)
        assert harness.client.api_versions(0) is None
        harness.selector.respond("0", api_versions_response())
        harness.step()
        assert harness.client.is_ready(node, 0)
        versions = harness.client.api_versions(0)
        assert versions is not None
        assert versions.range_of(ApiKey.PRODUCE) == (0, 13)

    def test_finalized_features_are_kept(self) -> None:
        harness = ClientHarness()
        features = [FinalizedFeatureKey(name="transaction.version", max_version_level=2, min_version_level=0)]
        harness.start(versions=api_versions_response(finalized_features=features, finalized_features_epoch=7))
        versions = harness.client.api_versions(-1)
        assert versions is not None
        assert versions.finalized_features == {"transaction.version": 2}
        assert versions.finalized_features_epoch == 7

    @pytest.mark.parametrize(
        ("listed", "expected"),
        [([], 0), ([ApiVersion(api_key=18, min_version=0, max_version=3)], 3)],
        ids=["before Kafka 2.4", "KIP-511"],
    )
    def test_falls_back_to_the_version_that_the_broker_names_or_to_0(
        self, listed: list[ApiVersion], expected: int
    ) -> None:
        harness = ClientHarness()
        harness.step()
        harness.selector.complete_connect("-1")
        harness.step()
        sent = harness.selector.unanswered("-1")[0]
        # the broker answers in version 0, whatever the requested version
        harness.selector.respond_in_version(
            "-1", ApiVersionsResponse(error_code=UNSUPPORTED_VERSION, api_keys=listed), 0
        )
        harness.step()
        (again,) = harness.selector.unanswered("-1")
        assert again.header.api_version == expected
        assert again.header.correlation_id != sent.header.correlation_id
        harness.selector.respond("-1", api_versions_response())
        harness.step()
        assert harness.client.api_versions(-1) is not None
        assert harness.metadata.last_error is None

    def test_a_broker_that_knows_no_version_of_api_versions_is_left(self) -> None:
        harness = ClientHarness()
        harness.step()
        harness.selector.complete_connect("-1")
        for _ in range(2):
            harness.step()
            harness.selector.respond_in_version(
                "-1", ApiVersionsResponse(error_code=UNSUPPORTED_VERSION, api_keys=[]), 0
            )
        harness.step()
        assert harness.selector.open == set()
        error = harness.client.connection_errors.get(harness.node(-1).id)
        assert isinstance(error, UnsupportedVersionError)
        assert "host0:9000" in str(error)

    def test_a_broker_that_never_stops_naming_versions_is_left_too(self) -> None:
        harness = ClientHarness()
        harness.step()
        harness.selector.complete_connect("-1")
        same_again = ApiVersionsResponse(
            error_code=UNSUPPORTED_VERSION, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=99)]
        )
        for _ in range(10):
            harness.step()
            if not harness.selector.unanswered("-1"):
                break
            harness.selector.respond_in_version("-1", same_again, 0)
        assert len(harness.selector.sent) == 5  # versions 4, 3, 2, 1, 0
        assert harness.selector.open == set()

    def test_a_connection_that_is_lost_in_the_poll_that_asks_for_another_version(self) -> None:
        harness = ClientHarness()
        harness.step()
        harness.selector.complete_connect("-1")
        harness.step()
        harness.selector.respond_in_version("-1", ApiVersionsResponse(error_code=UNSUPPORTED_VERSION, api_keys=[]), 0)
        harness.selector.fail("-1", DisconnectedError("reset"))
        harness.step()
        assert isinstance(harness.metadata.last_error, DisconnectedError)
        harness.clock.advance(1000)
        harness.step()
        harness.handshake("-1")

    def test_a_client_id_that_does_not_fit_into_a_request_is_told_to_those_who_wait(self) -> None:
        harness = ClientHarness(client_id="x" * 40_000)
        waiter = Waiter(harness.metadata, harness.clock)
        harness.step()
        harness.selector.complete_connect("-1")
        harness.step()
        with pytest.raises(EncodeError, match="client_id"):
            waiter.result()
        assert harness.selector.open == set()


class TestVersions:
    def test_the_highest_version_that_both_sides_know(self) -> None:
        versions = NodeApiVersions({ApiKey.PRODUCE: (0, 9)})
        assert versions.usable_version(ProduceRequest) == 9
        assert versions.usable_version(ProduceRequest, max_version=7) == 7
        assert NodeApiVersions({ApiKey.PRODUCE: (0, 99)}).usable_version(ProduceRequest) == 13

    def test_no_common_version_names_both_ranges_and_the_broker(self) -> None:
        with pytest.raises(UnsupportedVersionError) as caught:
            NodeApiVersions({ApiKey.LIST_OFFSETS: (0, 0)}, name="host0:9092").usable_version(ListOffsetsRequest)
        message = str(caught.value)
        assert "host0:9092" in message
        assert "0 to 0" in message
        assert "1 to 11" in message
        assert "broker is too old" in message

    def test_a_broker_from_the_future(self) -> None:
        with pytest.raises(UnsupportedVersionError, match="client is too old"):
            NodeApiVersions({ApiKey.PRODUCE: (20, 22)}).usable_version(ProduceRequest)

    def test_an_api_that_the_broker_does_not_have(self) -> None:
        with pytest.raises(UnsupportedVersionError, match="PRODUCE"):
            NodeApiVersions({}).usable_version(ProduceRequest)

    def test_the_repr_names_apis_known_or_not(self) -> None:
        assert repr(NodeApiVersions({0: (0, 2), 999: (1, 1)})) == "NodeApiVersions(PRODUCE: 0-2, 999: 1-1)"

    def test_the_software_version_has_only_characters_that_brokers_accept(self) -> None:
        assert set(_build.VERSION) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-")


class TestFailures:
    def test_a_refused_connection_is_tried_again_after_the_backoff(self) -> None:
        harness = ClientHarness()
        harness.step()
        harness.selector.fail("-1", KafkaConnectionError("cannot connect to 10.0.0.1:9000: Connection refused"))
        harness.step()
        assert len(harness.selector.connects) == 1
        error = harness.metadata.last_error
        assert isinstance(error, KafkaConnectionError)
        assert "host0:9000" in str(error)
        assert "refused" in str(error)
        harness.step()
        # the poll timeout is exact: the metadata backoff, which is longer than the connection's
        assert harness.selector.polls[-1] == pytest.approx(100)
        harness.clock.advance(100)
        harness.step()
        assert len(harness.selector.connects) == 2

    def test_retries_get_rarer(self) -> None:
        harness = ClientHarness()
        attempts = []
        for _ in range(20_000 // 10):
            harness.step(0)
            if harness.selector.connects[-1] and len(harness.selector.connects) > len(attempts):
                attempts.append(harness.now_ms)
                harness.selector.fail("-1", KafkaConnectionError("connection refused"))
            harness.clock.advance(10)
        gaps = [later - earlier for earlier, later in itertools.pairwise(attempts)]
        assert gaps[:3] == pytest.approx([100, 200, 400], abs=20)
        assert gaps[-1] == pytest.approx(1000, abs=20)

    def test_a_connection_that_is_never_made_times_out(self) -> None:
        harness = ClientHarness()
        harness.step(60_000)
        harness.step(60_000)
        assert harness.selector.polls[-1] == pytest.approx(10_000)
        harness.clock.advance(9_999)
        harness.step()
        assert harness.selector.connects == harness.selector.connects[:1]
        harness.clock.advance(1)
        harness.step()
        error = harness.client.connection_errors.get(harness.node(-1).id)
        assert isinstance(error, KafkaConnectionError)
        assert "10000 ms" in str(error)
        # the next attempt uses the same channel id, so the old channel must be closed
        harness.clock.advance(1000)
        harness.step()
        assert len(harness.selector.connects) == 2

    def test_a_slow_name_service_does_not_use_up_the_time_to_connect(self) -> None:
        harness = ClientHarness()
        harness.names.on_ask = lambda: harness.clock.advance(9_000)
        harness.step()
        harness.clock.advance(9_000)
        harness.step()
        assert harness.metadata.last_error is None
        harness.clock.advance(1_000)
        harness.step()
        assert harness.metadata.last_error is not None

    @pytest.mark.parametrize(
        "reason",
        [
            NotKafkaError("10.0.0.1:9000 does not speak Kafka's protocol, it is an HTTP server: check the port"),
            InvalidReceiveError("10.0.0.1:9000 sent a frame whose length, -7, is negative (HTTP?)"),
        ],
        ids=["recognized", "garbage length"],
    )
    def test_something_else_answers(self, reason: KafkaError) -> None:
        harness = ClientHarness()
        harness.step()
        harness.selector.complete_connect("-1")
        harness.step()
        harness.selector.fail("-1", reason)
        harness.step()
        error = harness.metadata.last_error
        assert isinstance(error, NotKafkaError)
        assert str(error).startswith("host0:9000 answered with something that is not Kafka")
        assert "HTTP" in str(error)
        assert error.__cause__ is reason

    def test_something_that_talks_before_it_is_asked(self) -> None:
        harness = ClientHarness()
        harness.step()
        # connected and lost in the same poll, so never reported as connected
        harness.selector.fail("-1", InvalidReceiveError("10.0.0.1:9000 sent a frame whose length is above the limit"))
        harness.step()
        assert isinstance(harness.metadata.last_error, NotKafkaError)

    @pytest.mark.parametrize(
        "payload",
        [b"", b"\0", b"\0\0\0\0", b"\0\0\0\0\0\0\0\0\0\xff", b"\0\0\0\7 what is this", b"\xff" * 40],
        ids=["empty", "short", "no body", "torn body", "other correlation id", "ones"],
    )
    def test_a_well_framed_answer_that_is_no_kafka_response(self, payload: bytes) -> None:
        harness = ClientHarness()
        harness.step()
        harness.selector.complete_connect("-1")
        harness.step()
        harness.selector.receive("-1", payload)
        harness.step()
        assert isinstance(harness.metadata.last_error, NotKafkaError)
        assert "host0:9000" in str(harness.metadata.last_error)
        assert harness.selector.open == set()
        assert harness.client.in_flight_request_count() == 0

    def test_a_connection_closed_without_an_answer(self) -> None:
        harness = ClientHarness()
        harness.step()
        harness.selector.complete_connect("-1")
        harness.step()
        harness.selector.fail("-1", DisconnectedError("10.0.0.1:9000 closed the connection without an answer"))
        harness.step()
        assert isinstance(harness.metadata.last_error, DisconnectedError)
        assert "host0:9000" in str(harness.metadata.last_error)

    def test_bytes_before_anything_was_asked(self) -> None:
        harness = ClientHarness()
        harness.start()
        harness.connect(0)
        harness.selector.receive("0", b"\0\0\0\1")
        harness.step()
        assert "0" not in harness.selector.open
        error = harness.client.connection_errors.get(harness.node(0).id)
        assert error is not None
        assert "without a request" in str(error)

    def test_the_error_is_forgotten_when_the_node_is_ready(self) -> None:
        harness = ClientHarness()
        harness.start()
        assert not harness.ready(0)
        harness.selector.fail("0", KafkaConnectionError("connection refused"))
        harness.step()
        assert harness.client.connection_errors.get(harness.node(0).id) is not None
        harness.clock.advance(100)
        harness.step()
        assert harness.client.connection_errors.get(harness.node(0).id) is not None
        harness.handshake("0")
        assert harness.client.connection_errors.get(harness.node(0).id) is None

    def test_an_unresolvable_broker_is_an_error_of_that_node_only(self) -> None:
        harness = ClientHarness()
        response = metadata_response(brokers=2)
        response.brokers[1].host = "nowhere"
        harness.start(response)
        assert not harness.ready(1)
        error = harness.client.connection_errors.get(harness.node(1).id)
        assert isinstance(error, UnresolvableHostError)
        assert "nowhere" in str(error)
        assert len(harness.selector.connects) == 1
        assert harness.metadata.update_requested

    def test_authentication_failures_reach_those_who_wait(self) -> None:
        harness = ClientHarness()
        harness.step()
        harness.selector.fail("-1", SaslAuthenticationFailedError("wrong password"))
        waiter = Waiter(harness.metadata, harness.clock)
        harness.step()
        with pytest.raises(SaslAuthenticationFailedError, match="wrong password"):
            waiter.result()

    def test_a_connection_that_broke_in_the_poll_in_which_it_was_closed_here(self) -> None:
        harness = ClientHarness(reconnect_backoff_ms=0, reconnect_backoff_max_ms=0)
        harness.start()
        harness.connect(0)
        harness.selector.receive("0", b"unasked")
        harness.selector.fail("0", DisconnectedError("reset"))
        harness.step()
        error = harness.client.connection_errors.get(harness.node(0).id)
        assert error is not None
        assert "without a request" in str(error)


class TestLife:
    def test_disconnect_answers_what_is_in_flight_and_backs_off(self) -> None:
        harness = ClientHarness()
        harness.start()
        harness.connect(0)
        request = harness.send(0, ProduceRequest(acks=1, timeout_ms=1, topic_data=[]))
        harness.client.disconnect(0, harness.now_ms)
        assert "0" not in harness.selector.open
        (response,) = harness.step()
        assert response.request is request
        assert response.disconnected
        assert isinstance(response.error, DisconnectedError)
        assert harness.client.api_versions(0) is None
        harness.client.disconnect(0, harness.now_ms)
        assert harness.client.connection_delay_ms(harness.node(0), harness.now_ms) == pytest.approx(50)

    def test_close_closes_the_selector_and_wakes_those_who_wait(self) -> None:
        harness = ClientHarness()
        waiter = Waiter(harness.metadata, harness.clock)
        harness.client.close()
        harness.client.close()
        assert harness.selector.closed
        with pytest.raises(IllegalStateError):
            waiter.result()
        with pytest.raises(IllegalStateError):
            harness.step()

    def test_wakeup_goes_to_the_selector(self) -> None:
        harness = ClientHarness()
        harness.client.wakeup()
        assert harness.selector.wakeups == 1

    def test_errors_and_states_of_nodes_that_left_the_cluster_are_forgotten(self) -> None:
        harness = ClientHarness()
        harness.start(metadata_response(brokers=3))
        node = harness.node(2)
        harness.client.ready(node, harness.now_ms)
        harness.selector.fail("2", KafkaConnectionError("connection refused"))
        harness.step()
        harness.clock.advance(5000)
        harness.step()
        assert harness.selector.connects[-1].channel_id == "1"
        harness.handshake("1")
        harness.step()
        assert harness.client.connection_errors.get(node.id) is not None
        harness.answer_metadata("1", metadata_response(brokers=2))
        assert harness.client.connection_errors.get(node.id) is None
        assert harness.client.connection_delay_ms(node, harness.now_ms) == 0

    def test_least_loaded_prefers_idle_then_connecting_then_longest_untried(self) -> None:
        harness = ClientHarness()
        harness.start(metadata_response(brokers=3))
        harness.connect(0)
        harness.connect(1)
        harness.send(0, ProduceRequest(acks=1, timeout_ms=1, topic_data=[]))
        assert harness.client.least_loaded_node(harness.now_ms) == harness.node(1)
        harness.client.disconnect(1, harness.now_ms)
        harness.step()
        assert harness.client.least_loaded_node(harness.now_ms) == harness.node(0)
        harness.client.disconnect(0, harness.now_ms)
        harness.step()
        # 0 and 1 are in backoff
        assert harness.client.least_loaded_node(harness.now_ms) == harness.node(2)
        harness.client.connect(harness.node(2), harness.now_ms)
        harness.clock.advance(1)
        assert harness.client.least_loaded_node(harness.now_ms) == harness.node(2)
        harness.client.disconnect(2, harness.now_ms)
        assert harness.client.least_loaded_node(harness.now_ms) is None
        harness.clock.advance(50)
        assert harness.client.least_loaded_node(harness.now_ms) in (harness.node(0), harness.node(1), harness.node(2))

    @pytest.mark.parametrize("idlest", [0, 1, 2])
    def test_least_loaded_counts_what_is_in_flight(self, idlest: int) -> None:
        harness = ClientHarness()
        harness.start(metadata_response(brokers=3))
        for node_id in range(3):
            harness.connect(node_id)
            for _ in range(1 if node_id == idlest else 2):
                harness.send(node_id, ProduceRequest(acks=1, timeout_ms=1, topic_data=[]))
        assert harness.client.least_loaded_node(harness.now_ms) == harness.node(idlest)

    @pytest.mark.parametrize("connecting", [0, 1, 2])
    def test_least_loaded_waits_for_the_connection_that_is_being_made(self, connecting: int) -> None:
        harness = ClientHarness()
        harness.start(metadata_response(brokers=3))
        assert not harness.ready(connecting)
        assert harness.client.least_loaded_node(harness.now_ms) == harness.node(connecting)
        harness.selector.complete_connect(str(connecting))
        harness.step()
        assert harness.client.least_loaded_node(harness.now_ms) == harness.node(connecting)

    def test_the_first_node_is_chosen_at_random(self) -> None:
        def choice(random_unit: Callable[[], float]) -> str:
            harness = ClientHarness(bootstrap=[("host0", 1), ("host1", 2), ("host2", 3)], random_unit=random_unit)
            harness.step()
            return harness.selector.connects[0].channel_id

        assert {choice(lambda: 0.0), choice(lambda: 0.4), choice(lambda: 0.99)} == {"-1", "-2", "-3"}


def test_nothing_touches_the_network_before_the_first_poll() -> None:
    harness = ClientHarness()
    assert harness.names.asked == []
    assert harness.selector.connects == []
    harness.step()
    assert harness.names.asked == ["host0"]


def test_metadata_is_asked_for_in_a_version_that_can_forbid_creation() -> None:
    harness = ClientHarness(allow_auto_topic_creation=False)
    harness.step()
    harness.handshake("-1", api_versions_response({ApiKey.METADATA: (0, 5)}))
    harness.step()
    (sent,) = harness.selector.unanswered("-1")
    assert isinstance(sent.message, MetadataRequest)
    assert sent.header.api_version == 5
    assert not sent.message.allow_auto_topic_creation
    assert not isinstance(sent.message, ApiVersionsRequest)
