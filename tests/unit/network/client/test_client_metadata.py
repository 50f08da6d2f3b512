"""How a NetworkClient fetches metadata: when, from which node, and what it does without a response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.client_harness import MAX_AGE_MS, ClientHarness, Waiter, api_versions_response
from support.mock_client import metadata_response

from headrace.network.client.connection_states_cy import SLOW_NAME_MS
from headrace.network.client.metadata_updater import MetadataRecoveryStrategy
from headrace.network.protocol.api import ApiKey
from headrace.network.protocol.errors import (
    DisconnectedError,
    KafkaConnectionError,
    KafkaTimeoutError,
    NotKafkaError,
    UnresolvableHostError,
    UnsupportedVersionError,
)
from headrace.network.protocol.messages.api_versions import ApiVersionsRequest
from headrace.network.protocol.messages.topics.metadata import MetadataRequest
from headrace.network.sockets.name_lookups import RESOLVE_PATIENCE_MS

REBOOTSTRAP_REQUIRED = 129


def kill(harness: ClientHarness) -> None:
    """Break all connections and connection attempts."""
    for channel_id in [*harness.selector.open, *harness.selector._connecting]:
        harness.selector.fail(channel_id, KafkaConnectionError("nobody there"))


def live_without_brokers(harness: ClientHarness, duration_ms: float) -> None:
    end_ms = harness.now_ms + duration_ms
    while harness.now_ms < end_ms:
        kill(harness)
        harness.step(0)
        harness.clock.advance(25)


class TestFetch:
    def test_metadata_is_fetched_at_once_and_again_by_age(self) -> None:
        harness = ClientHarness()
        harness.start()
        assert harness.metadata.version == 1
        assert list(harness.metadata.cluster.nodes) == [0]
        harness.step(10**9)
        assert harness.selector.polls[-1] == pytest.approx(MAX_AGE_MS)
        harness.clock.advance(MAX_AGE_MS - 1)
        harness.step()
        assert [connect.channel_id for connect in harness.selector.connects] == ["-1"]
        harness.clock.advance(1)
        harness.step()
        harness.handshake("0")
        harness.step()
        harness.answer_metadata("0", metadata_response(brokers=2))
        assert list(harness.metadata.cluster.nodes) == [0, 1]

    def test_a_new_topic_is_fetched_on_demand_and_alone(self) -> None:
        harness = ClientHarness()
        harness.start()
        harness.connect(0)
        for topic in ("one", "two"):
            harness.metadata.add_topic(topic, harness.now_ms)
            harness.step()
            request = harness.answer_metadata("0", metadata_response({topic: 1}))
            assert request.topics is not None
            assert [asked.name for asked in request.topics] == [topic]
        assert set(harness.metadata.cluster.topics) == {"one", "two"}

    def test_one_request_at_a_time(self) -> None:
        harness = ClientHarness()
        harness.start()
        harness.connect(0)
        harness.metadata.add_topic("one", harness.now_ms)
        harness.step()
        harness.metadata.add_topic("two", harness.now_ms)
        harness.step()
        assert len(harness.selector.unanswered("0")) == 1
        harness.answer_metadata("0", metadata_response({"one": 1}))
        # topics requested meanwhile need another request
        harness.step()
        request = harness.answer_metadata("0", metadata_response({"two": 1}))
        assert request.topics is not None
        assert [asked.name for asked in request.topics] == ["two"]

    def test_only_one_connection_is_tried_at_a_time(self) -> None:
        harness = ClientHarness(bootstrap=[("host0", 1), ("host1", 2)])
        harness.step()
        harness.step()
        assert len(harness.selector.connects) == 1
        kill(harness)
        harness.step()
        harness.clock.advance(1000)
        harness.step()
        assert {connect.channel_id for connect in harness.selector.connects} == {"-1", "-2"}

    def test_a_broker_that_knows_no_brokers_is_asked_again(self) -> None:
        harness = ClientHarness()
        harness.step()
        harness.handshake("-1")
        harness.step()
        empty = metadata_response()
        empty.brokers = []
        harness.answer_metadata("-1", empty)
        assert harness.metadata.version == 0
        harness.step()
        assert harness.selector.unanswered("-1") == []
        harness.clock.advance(100)
        harness.step()
        harness.answer_metadata("-1", metadata_response())
        assert harness.metadata.version == 1

    def test_a_disconnection_asks_for_new_metadata(self) -> None:
        harness = ClientHarness()
        harness.start(metadata_response(brokers=2))
        harness.connect(0)
        harness.connect(1)
        harness.selector.fail("1", DisconnectedError("reset"))
        harness.step()
        harness.clock.advance(100)
        harness.step()
        assert isinstance(harness.selector.unanswered("0")[0].message, MetadataRequest)

    def test_a_broker_that_is_too_old_is_told_to_those_who_wait(self) -> None:
        harness = ClientHarness(allow_auto_topic_creation=False)
        harness.step()
        harness.selector.complete_connect("-1")
        harness.step()
        harness.selector.respond("-1", api_versions_response({ApiKey.METADATA: (0, 2)}))
        harness.step()
        waiter = Waiter(harness.metadata, harness.clock)
        harness.step()
        with pytest.raises(UnsupportedVersionError) as caught:
            waiter.result()
        assert "0 to 2" in str(caught.value)
        assert "4 to 13" in str(caught.value)
        assert "host0:9000" in str(caught.value)
        # and not in a tight loop
        harness.step(10_000)
        assert harness.selector.polls[-1] >= 50


class TestWaiting:
    def test_those_who_wait_are_woken_by_the_update(self) -> None:
        harness = ClientHarness()
        waiter = Waiter(harness.metadata, harness.clock)
        harness.start()
        waiter.result()

    def test_a_wait_that_times_out_tells_the_last_error(self) -> None:
        harness = ClientHarness()
        waiter = Waiter(harness.metadata, harness.clock, timeout_ms=1000)
        harness.step()
        harness.selector.complete_connect("-1")
        harness.step()
        harness.selector.fail("-1", NotKafkaError("it is an HTTP server: check the port"))
        harness.step()
        assert waiter.is_waiting
        harness.clock.advance(1000)
        with pytest.raises(KafkaTimeoutError) as caught:
            waiter.result()
        assert "1000 ms" in str(caught.value)
        assert "host0:9000 answered with something that is not Kafka" in str(caught.value)
        assert "HTTP" in str(caught.value)
        assert isinstance(caught.value.__cause__, NotKafkaError)

    def test_a_wait_that_times_out_without_an_error_tells_what_is_waited_for(self) -> None:
        harness = ClientHarness()

        def reason() -> str:
            with pytest.raises(KafkaTimeoutError) as caught:
                harness.metadata.await_update(0, 0)
            assert caught.value.__cause__ is None
            return str(caught.value).partition(": ")[2]

        assert reason() == "no broker was asked yet"
        harness.step()
        assert reason() == "host0:9000 is being connected to"
        harness.selector.complete_connect("-1")
        harness.step()
        assert reason().startswith("host0:9000 accepted the connection, but has not answered anything yet")
        harness.selector.respond("-1", api_versions_response())
        harness.step()
        harness.step()
        assert reason() == "host0:9000 has not answered the request for metadata yet"


class TestUnresolvableNames:
    def test_no_bootstrap_server_can_be_resolved(self) -> None:
        harness = ClientHarness(bootstrap=[("nowhere1", 1), ("nowhere2", 2)])
        waiters = [Waiter(harness.metadata, harness.clock) for _ in range(2)]
        harness.step()
        for waiter in waiters:
            with pytest.raises(UnresolvableHostError, match="nowhere"):
                waiter.result()
        assert sorted(harness.names.asked) == ["nowhere1", "nowhere2"]

    def test_the_names_are_tried_again_with_a_backoff(self) -> None:
        harness = ClientHarness(bootstrap=[("nowhere", 1)])
        harness.step()
        harness.step()
        assert harness.names.asked == ["nowhere"]
        assert harness.selector.polls[-1] == pytest.approx(100)
        harness.clock.advance(100)
        harness.names.addresses["nowhere"] = ["10.1.1.1"]
        harness.step()
        assert harness.selector.connects[-1].address == ("10.1.1.1", 1)
        harness.handshake("-1")
        harness.step()
        harness.answer_metadata("-1", metadata_response())
        assert harness.metadata.last_error is None

    def test_one_bad_name_of_several_is_passed_over_at_once(self) -> None:
        harness = ClientHarness(bootstrap=[("host0", 1), ("nowhere", 2)])
        waiter = Waiter(harness.metadata, harness.clock)
        harness.step()
        assert harness.selector.connects[-1].channel_id == "-1"
        assert harness.names.asked == ["nowhere", "host0"]
        assert waiter.is_waiting
        harness.client.close()

    def test_without_backoff_a_bad_name_does_not_spin(self) -> None:
        harness = ClientHarness(bootstrap=[("nowhere", 1)], reconnect_backoff_ms=0, reconnect_backoff_max_ms=0)
        harness.step()
        assert harness.names.asked == ["nowhere"]

    def test_a_running_producer_waits_through_an_outage_of_the_name_service(self) -> None:
        harness = ClientHarness(bootstrap=[("host0", 1)])
        harness.start(metadata_response())
        harness.names.addresses["host0"] = []
        harness.names.addresses["localhost"] = []
        waiter = Waiter(harness.metadata, harness.clock)
        harness.metadata.request_update()
        live_without_brokers(harness, 5000)
        assert waiter.is_waiting
        assert isinstance(harness.metadata.last_error, UnresolvableHostError)
        harness.client.close()


class TestSlowNames:
    def test_the_client_goes_on_when_the_name_is_known(self) -> None:
        harness = ClientHarness(bootstrap=[("slow", 1)])
        harness.names.slow.add("slow")
        harness.step()
        assert harness.selector.connects == []
        assert harness.selector.polls[-1] == SLOW_NAME_MS
        harness.clock.advance(SLOW_NAME_MS)
        harness.step()
        assert harness.selector.polls[-1] == RESOLVE_PATIENCE_MS - SLOW_NAME_MS
        harness.names.slow.clear()
        harness.step()
        assert harness.selector.connects[-1].address == ("10.0.0.1", 1)

    def test_an_unknown_name_makes_room_for_the_next_at_once(self) -> None:
        harness = ClientHarness(bootstrap=[("host0", 1), ("nowhere", 2)])
        harness.names.slow.add("nowhere")
        waiter = Waiter(harness.metadata, harness.clock)
        harness.step()
        assert harness.selector.connects == []
        harness.names.slow.clear()
        harness.step()
        harness.step()
        assert harness.selector.connects[-1].channel_id == "-1"
        assert waiter.is_waiting
        harness.client.close()

    @pytest.mark.parametrize("backoff_ms", [0, 50])
    def test_where_all_are_unknown_those_who_wait_learn_it_and_nothing_spins(self, backoff_ms: int) -> None:
        harness = ClientHarness(
            bootstrap=[("nowhere1", 1), ("nowhere2", 2)],
            reconnect_backoff_ms=backoff_ms,
            reconnect_backoff_max_ms=backoff_ms,
        )
        waiter = Waiter(harness.metadata, harness.clock)
        for name in ("nowhere2", "nowhere1"):
            harness.names.slow.add(name)
            harness.step()
            harness.names.slow.clear()
            harness.step()
        with pytest.raises(UnresolvableHostError, match="nowhere"):
            waiter.result()
        harness.step()
        harness.step()
        assert harness.selector.polls[-1] >= 50

    def test_a_name_service_that_does_not_answer_makes_room_for_the_next(self) -> None:
        harness = ClientHarness(bootstrap=[("host0", 1), ("slow", 2)])
        harness.names.slow.add("slow")
        waiter = Waiter(harness.metadata, harness.clock)
        harness.step()
        harness.clock.advance(SLOW_NAME_MS - 1)
        harness.step()
        assert harness.selector.connects == []
        harness.clock.advance(1)
        harness.step()
        assert harness.selector.connects[-1].channel_id == "-1"
        harness.clock.advance(RESOLVE_PATIENCE_MS)
        harness.step()
        assert "the lookup continues" in str(harness.metadata.last_error)
        assert waiter.is_waiting
        harness.client.close()

    def test_a_slow_name_does_not_double_the_backoff(self) -> None:
        harness = ClientHarness(bootstrap=[("slow", 1)], reconnect_backoff_ms=50, reconnect_backoff_max_ms=10_000)
        harness.names.slow.add("slow")
        for _ in range(8):
            harness.step()
            harness.clock.advance(RESOLVE_PATIENCE_MS)
            harness.step()
            harness.clock.advance(1000)
        harness.step()
        assert harness.client.connection_delay_ms(harness.node(-1), harness.now_ms) == RESOLVE_PATIENCE_MS
        harness.names.slow.clear()
        harness.step()
        assert harness.selector.connects[-1].address == ("10.0.0.1", 1)


class TestRebootstrap:
    def lose_cluster(self, **settings: Any) -> ClientHarness:
        """A cluster of two nodes with a topic. Nothing answers any longer, and the reconnect backoff is long."""
        harness = ClientHarness(reconnect_backoff_ms=5000, reconnect_backoff_max_ms=5000, **settings)
        harness.metadata.add_topic("topic", harness.now_ms)
        harness.start(metadata_response({"topic": 2}, brokers=2))
        harness.connect(0)
        harness.connect(1)
        live_without_brokers(harness, 4000)
        return harness

    def test_when_no_known_node_can_be_reached_the_configured_addresses_are_used_again(self) -> None:
        harness = self.lose_cluster()
        assert harness.metadata.cluster.is_bootstrap
        attempts = len(harness.selector.connects)
        harness.clock.advance(5000)
        harness.step()
        assert [connect.channel_id for connect in harness.selector.connects[attempts:]] == ["-1"]
        harness.handshake("-1")
        harness.step()
        harness.answer_metadata("-1", metadata_response({"topic": 2}, brokers=2))
        assert not harness.metadata.cluster.is_bootstrap
        assert list(harness.metadata.cluster.nodes) == [0, 1]

    def test_partitions_stay_known_but_have_no_leader(self) -> None:
        harness = self.lose_cluster()
        cluster = harness.metadata.cluster
        assert cluster.partition_count("topic") == 2
        assert [info.leader for info in cluster.partitions_for("topic") or ()] == [None, None]
        assert cluster.available_partitions_for("topic") == ()

    def test_not_with_recovery_strategy_none(self) -> None:
        harness = self.lose_cluster(metadata_recovery_strategy=MetadataRecoveryStrategy.NONE)
        assert not harness.metadata.cluster.is_bootstrap
        attempts = len(harness.selector.connects)
        live_without_brokers(harness, 10_000)
        assert {connect.channel_id for connect in harness.selector.connects[attempts:]} == {"0", "1"}

    def test_not_while_a_node_is_connected(self) -> None:
        harness = ClientHarness(max_in_flight_requests_per_connection=1)
        harness.start()
        harness.connect(0)
        request = harness.client.new_request(0, ApiVersionsRequest(), now_ms=0)
        harness.client.send(request, 0)
        harness.metadata.request_update()
        harness.clock.advance(100)
        harness.step()
        assert not harness.metadata.cluster.is_bootstrap

    def test_after_the_trigger_time_without_metadata_connections_are_closed_and_all_begins_anew(self) -> None:
        harness = ClientHarness(metadata_recovery_rebootstrap_trigger_ms=50_000)
        harness.start(metadata_response(brokers=1))
        harness.connect(0)
        harness.metadata.request_update()
        harness.clock.advance(100)
        start_ms = harness.now_ms
        # the node is reachable, but answers every metadata request with an error
        while harness.now_ms < start_ms + 50_000:
            harness.step()
            for send in harness.selector.unanswered("0"):
                assert isinstance(send.message, MetadataRequest)
                broken = metadata_response()
                broken.brokers = []
                harness.selector.respond("0", broken)
            harness.clock.advance(500)
            assert not harness.metadata.cluster.is_bootstrap
        harness.clock.advance(1)
        harness.step()
        assert harness.metadata.cluster.is_bootstrap
        assert "0" not in harness.selector.open

    def test_a_broker_may_ask_for_it(self) -> None:
        harness = ClientHarness()
        harness.start()
        harness.connect(0)
        harness.metadata.request_update()
        harness.clock.advance(100)
        harness.step()
        answer = metadata_response()
        answer.error_code = REBOOTSTRAP_REQUIRED
        harness.answer_metadata("0", answer)
        assert harness.metadata.cluster.is_bootstrap
        assert "0" not in harness.selector.open
        harness.clock.advance(1000)
        harness.step()
        # the bootstrap connection is still open
        harness.answer_metadata("-1", metadata_response(brokers=3))
        assert list(harness.metadata.cluster.nodes) == [0, 1, 2]

    def test_a_success_ends_the_trigger_time(self) -> None:
        harness = ClientHarness(metadata_recovery_rebootstrap_trigger_ms=50_000)
        harness.start()
        harness.connect(0)
        for _ in range(4):
            harness.clock.advance(40_000)
            harness.metadata.request_update()
            harness.step()
            harness.answer_metadata("0", metadata_response())
        assert not harness.metadata.cluster.is_bootstrap
        assert "0" in harness.selector.open


class TestCanonicalNames:
    def test_bootstrap_servers_are_replaced_by_their_canonical_names(self) -> None:
        asked: list[str] = []

        def canonical_names(host: str, port: int) -> Sequence[str]:
            asked.append(f"{host}:{port}")
            return [f"{host}-a", f"{host}-b"]

        harness = ClientHarness(bootstrap=[("host0", 1), ("host1", 2)], canonical_names=canonical_names)
        harness.step()
        harness.step()
        assert asked == ["host0:1", "host1:2"]
        assert [node.address for node in harness.metadata.cluster.nodes.values()] == [
            "host0-a:1",
            "host0-b:1",
            "host1-a:2",
            "host1-b:2",
        ]
        assert harness.metadata.cluster.is_bootstrap
        assert harness.names.asked == ["host1-a"]

    def test_names_that_cannot_be_resolved_are_told_and_tried_again(self) -> None:
        known: dict[str, list[str]] = {}

        def canonical_names(host: str, port: int) -> Sequence[str]:
            if host not in known:
                raise UnresolvableHostError(f"cannot resolve host name {host!r}")
            return known[host]

        harness = ClientHarness(bootstrap=[("host0", 1), ("host1", 2)], canonical_names=canonical_names)
        waiter = Waiter(harness.metadata, harness.clock)
        harness.step()
        with pytest.raises(UnresolvableHostError, match="host1"):
            waiter.result()
        assert harness.selector.connects == []
        known["host1"] = ["real"]
        harness.clock.advance(100)
        harness.step()
        assert [node.address for node in harness.metadata.cluster.nodes.values()] == ["real:2"]

    def test_they_are_looked_up_again_to_bootstrap_again(self) -> None:
        names = [["first"], ["second"]]
        harness = ClientHarness(
            canonical_names=lambda host, port: names.pop(0), reconnect_backoff_ms=5000, reconnect_backoff_max_ms=5000
        )
        harness.start()
        harness.connect(0)
        live_without_brokers(harness, 2000)
        assert names == []
        assert [node.address for node in harness.metadata.cluster.nodes.values()] == ["second:9000"]

    def test_they_may_take_their_time(self) -> None:
        answers: dict[str, list[str]] = {}

        def canonical_names(host: str, port: int) -> Sequence[str] | None:
            return answers.pop(host, None)

        harness = ClientHarness(bootstrap=[("host0", 1), ("host1", 2)], canonical_names=canonical_names)
        harness.step()
        answers["host1"] = ["b"]
        harness.step()
        assert harness.selector.connects == []
        answers["host0"] = ["a"]
        harness.step()
        assert [node.address for node in harness.metadata.cluster.nodes.values()] == ["a:1", "b:2"]
        assert len(harness.selector.connects) == 1

    def test_names_that_hang_are_left_out_after_a_second(self) -> None:
        def canonical_names(host: str, port: int) -> Sequence[str] | None:
            return None if host == "hangs" else [f"{host}-a"]

        harness = ClientHarness(bootstrap=[("hangs", 1), ("host1", 2)], canonical_names=canonical_names)
        harness.step()
        assert harness.selector.polls[-1] == RESOLVE_PATIENCE_MS
        harness.clock.advance(RESOLVE_PATIENCE_MS)
        harness.step()
        assert [node.address for node in harness.metadata.cluster.nodes.values()] == ["host1-a:2"]
