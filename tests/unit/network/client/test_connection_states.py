"""Connection states, backoff and addresses, stepped by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from support.client_harness import Names, no_jitter

from headrace.network.backoff import ExponentialBackoff
from headrace.network.client.connection_states_cy import (
    SLOW_NAME_MS,
    ClusterConnectionStates,
    ConnectionState,
)
from headrace.network.protocol.errors import IllegalStateError, UnresolvableHostError
from headrace.network.sockets.name_lookups import RESOLVE_PATIENCE_MS
from headrace.network.sockets.resolver import ResolvedAddress, resolve_host


def make_states(names: Names | None = None, random_unit: Callable[[], float] = no_jitter) -> ClusterConnectionStates:
    return ClusterConnectionStates(
        reconnect_backoff_ms=50,
        reconnect_backoff_max_ms=1000,
        connection_setup_timeout_ms=10_000,
        connection_setup_timeout_max_ms=30_000,
        resolver=names or Names(),
        random_unit=random_unit,
    )


def addresses_tried(states: ClusterConnectionStates, count: int, host: str = "host0") -> list[str]:
    """The addresses of `count` successive attempts, each of which fails."""
    tried = []
    for attempt in range(count):
        states.connecting(1, attempt * 10_000.0, host, 9092)
        tried.append(states.current_address(1).sockaddr[0])
        states.disconnected(1, attempt * 10_000.0)
    return tried


class TestExponentialBackoff:
    def test_doubles_up_to_its_maximum(self) -> None:
        backoff = ExponentialBackoff(100, 1000, random_unit=no_jitter)
        assert [backoff.backoff_ms(n) for n in range(6)] == pytest.approx([100, 200, 400, 800, 1000, 1000])

    def test_jitter_is_twenty_percent_either_way_and_never_above_the_maximum(self) -> None:
        assert ExponentialBackoff(100, 1000, random_unit=lambda: 0.0).backoff_ms(1) == pytest.approx(160)
        assert ExponentialBackoff(100, 1000, random_unit=lambda: 0.999999).backoff_ms(1) == pytest.approx(240, abs=1)
        assert ExponentialBackoff(100, 1000, random_unit=lambda: 0.999999).backoff_ms(9) == 1000

    def test_a_maximum_below_the_start_wins(self) -> None:
        assert ExponentialBackoff(500, 100).backoff_ms(7) == 100

    def test_a_start_of_zero_grows_all_the_same(self) -> None:
        backoff = ExponentialBackoff(0, 1000, random_unit=no_jitter)
        assert backoff.backoff_ms(20) == 0

    def test_huge_attempt_counts_do_not_overflow(self) -> None:
        assert ExponentialBackoff(50, 1000, random_unit=no_jitter).backoff_ms(10**9) == pytest.approx(1000)


class TestTransitions:
    def test_the_way_to_ready(self) -> None:
        states = make_states()
        assert states.state(1) is ConnectionState.DISCONNECTED
        assert states.can_connect(1, 0)
        states.connecting(1, 0, "host0", 9092)
        assert states.state(1) is ConnectionState.CONNECTING
        assert not states.can_connect(1, 1e9)
        states.checking_api_versions(1)
        assert states.is_preparing(1)
        assert not states.is_ready(1, 0)
        states.ready(1)
        assert states.is_ready(1, 0)
        assert not states.is_preparing(1)
        states.disconnected(1, 10)
        assert states.state(1) is ConnectionState.DISCONNECTED
        assert not states.is_ready(1, 10)

    def test_authentication_failed_is_disconnected_with_a_backoff(self) -> None:
        states = make_states()
        states.connecting(1, 0, "host0", 9092)
        states.authentication_failed(1, 0)
        assert states.state(1).is_disconnected
        assert states.state(1) is ConnectionState.AUTHENTICATION_FAILED
        assert not states.can_connect(1, 49)
        assert states.can_connect(1, 50)

    def test_a_node_that_was_never_tried_cannot_be_in_a_state(self) -> None:
        with pytest.raises(IllegalStateError):
            make_states().ready(1)


class TestReconnectBackoff:
    def test_doubles_with_each_failure_and_starts_anew_only_when_ready(self) -> None:
        states = make_states()
        waits = []
        for _ in range(7):
            states.connecting(1, 0, "host0", 9092)
            states.disconnected(1, 0)
            waits.append(states.connection_delay_ms(1, 0))
        assert waits == pytest.approx([50, 100, 200, 400, 800, 1000, 1000])
        # a connection lost in the handshake is a failure like any other
        states.connecting(1, 0, "host0", 9092)
        states.checking_api_versions(1)
        states.disconnected(1, 0)
        assert states.connection_delay_ms(1, 0) == pytest.approx(1000)
        states.connecting(1, 0, "host0", 9092)
        states.checking_api_versions(1)
        states.ready(1)
        states.disconnected(1, 0)
        assert states.connection_delay_ms(1, 0) == pytest.approx(50)

    def test_counts_from_the_disconnection_and_lets_connect_when_it_has_passed(self) -> None:
        states = make_states()
        states.connecting(1, 0, "host0", 9092)
        states.disconnected(1, 1000)
        assert not states.can_connect(1, 1049)
        assert states.connection_delay_ms(1, 1020) == pytest.approx(30)
        assert states.can_connect(1, 1050)
        assert states.connection_delay_ms(1, 1050) == 0

    def test_has_jitter(self) -> None:
        states = make_states(random_unit=lambda: 0.0)
        states.connecting(1, 0, "host0", 9092)
        states.disconnected(1, 0)
        assert states.connection_delay_ms(1, 0) == pytest.approx(40)

    def test_a_connected_node_is_not_to_be_waited_for(self) -> None:
        states = make_states()
        states.connecting(1, 0, "host0", 9092)
        states.checking_api_versions(1)
        assert states.connection_delay_ms(1, 0) == math.inf


class TestSetupTimeout:
    def test_doubles_with_each_attempt_that_never_connected(self) -> None:
        states = make_states()
        timeouts = []
        for _ in range(4):
            states.connecting(1, 0, "host0", 9092)
            timeouts.append(states.setup_timeout_ms(1))
            states.disconnected(1, 0)
        assert timeouts == pytest.approx([10_000, 20_000, 30_000, 30_000])
        states.connecting(1, 0, "host0", 9092)
        states.checking_api_versions(1)
        states.disconnected(1, 0)
        states.connecting(1, 0, "host0", 9092)
        assert states.setup_timeout_ms(1) == pytest.approx(10_000)
        states.disconnected(1, 0)
        states.connecting(1, 0, "host0", 9092)
        assert states.setup_timeout_ms(1) == pytest.approx(20_000), "it restarts"

    def test_only_connecting_nodes_time_out(self) -> None:
        states = make_states()
        states.connecting(1, 0, "host0", 9092)
        states.connecting(2, 5000, "host0", 9092)
        states.connecting(3, 0, "host0", 9092)
        states.checking_api_versions(3)
        assert states.next_setup_timeout_ms(0) == pytest.approx(10_000)
        assert states.nodes_with_setup_timeout(9999) == []
        assert states.nodes_with_setup_timeout(10_000) == [1]
        states.disconnected(1, 10_000)
        assert states.next_setup_timeout_ms(10_000) == pytest.approx(5000)
        assert states.nodes_with_setup_timeout(15_000) == [2]

    def test_the_time_that_the_name_service_takes_is_not_part_of_it(self) -> None:
        names = Names()
        names.slow.add("host0")
        states = make_states(names)
        states.connecting(1, 7500, "host0", 9092)
        assert states.current_address(1) is None
        assert states.state(1) is ConnectionState.RESOLVING
        assert states.resolving() == [1]
        names.slow.clear()
        assert states.current_address(1) == ResolvedAddress(2, ("10.0.0.1", 9092))
        states.attempt_started(1, 8000)
        assert states.state(1) is ConnectionState.CONNECTING
        assert states.resolving() == []
        assert states.nodes_with_setup_timeout(17_999) == []
        assert states.nodes_with_setup_timeout(18_000) == [1]

    def test_a_name_that_takes_too_long_fails_the_attempt_and_not_the_time_to_connect(self) -> None:
        names = Names()
        names.slow.add("host0")
        states = make_states(names)
        for attempt in range(5):
            now_ms = attempt * 20_000
            states.connecting(1, now_ms, "host0", 9092)
            assert states.current_address(1) is None
            assert states.is_preparing(1)
            assert states.next_setup_timeout_ms(now_ms) == SLOW_NAME_MS
            assert states.next_setup_timeout_ms(now_ms + 400) == RESOLVE_PATIENCE_MS - 400
            assert states.nodes_with_setup_timeout(now_ms + RESOLVE_PATIENCE_MS) == [1]
            states.disconnected(1, now_ms + RESOLVE_PATIENCE_MS)
            assert states.resolving() == []
            assert states.nodes_with_setup_timeout(now_ms + 2 * RESOLVE_PATIENCE_MS) == []
        assert states.setup_timeout_ms(1) == 10_000


class TestThrottling:
    def test_a_throttled_node_is_connected_but_not_ready(self) -> None:
        states = make_states()
        states.connecting(1, 0, "host0", 9092)
        states.checking_api_versions(1)
        states.ready(1)
        states.throttle(1, 500)
        assert not states.is_ready(1, 499)
        assert states.throttle_delay_ms(1, 200) == 300
        assert states.poll_delay_ms(1, 200) == 300
        assert states.is_ready(1, 500)
        assert states.poll_delay_ms(1, 500) == math.inf

    def test_a_shorter_throttle_does_not_end_a_longer_one(self) -> None:
        states = make_states()
        states.connecting(1, 0, "host0", 9092)
        states.throttle(1, 500)
        states.throttle(1, 300)
        assert states.throttle_delay_ms(1, 0) == 500


class TestAddresses:
    def test_every_address_of_a_name_is_tried_and_then_the_name_is_resolved_anew(self) -> None:
        names = Names()
        names.addresses["host0"] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
        states = make_states(names)
        assert addresses_tried(states, 3) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
        assert names.asked == ["host0"]
        names.addresses["host0"] = ["10.0.0.7", "10.0.0.8"]
        assert addresses_tried(states, 2) == ["10.0.0.7", "10.0.0.8"]
        assert names.asked == ["host0", "host0"]

    def test_the_name_is_resolved_anew_after_a_connection_was_lost(self) -> None:
        names = Names()
        names.addresses["host0"] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
        states = make_states(names)
        states.connecting(1, 0, "host0", 9092)
        states.current_address(1)
        states.checking_api_versions(1)
        states.ready(1)
        states.disconnected(1, 0)
        names.addresses["host0"] = ["10.9.9.9"]
        assert addresses_tried(states, 1) == ["10.9.9.9"]

    def test_a_name_resolved_anew_does_not_lead_back_to_the_address_that_just_failed(self) -> None:
        names = Names()
        names.addresses["host0"] = ["10.0.0.1", "10.0.0.2"]
        states = make_states(names)
        states.connecting(1, 0, "host0", 9092)
        assert states.current_address(1).sockaddr[0] == "10.0.0.1"
        states.checking_api_versions(1)
        states.disconnected(1, 0)
        assert addresses_tried(states, 1) == ["10.0.0.2"]

    def test_a_single_address_is_tried_again(self) -> None:
        assert addresses_tried(make_states(), 3) == ["10.0.0.1"] * 3

    def test_a_node_that_moved_is_resolved_under_its_new_name_and_port(self) -> None:
        names = Names()
        states = make_states(names)
        states.connecting(1, 0, "host0", 9092)
        states.current_address(1)
        states.disconnected(1, 0)
        states.connecting(1, 50, "host1", 9093)
        assert states.current_address(1) == ResolvedAddress(2, ("10.0.0.1", 9093))
        assert states.address(1) == "host1:9093"
        states.disconnected(1, 0)
        states.connecting(1, 100, "host1", 9094)
        assert states.current_address(1) == ResolvedAddress(2, ("10.0.0.1", 9094))
        assert names.asked == ["host0", "host1", "host1"]

    def test_a_name_without_addresses_is_tried_again_next_time(self) -> None:
        names = Names()
        states = make_states(names)
        states.connecting(1, 0, "nowhere", 9092)
        with pytest.raises(UnresolvableHostError):
            states.current_address(1)
        states.disconnected(1, 0)
        names.addresses["nowhere"] = ["10.0.0.5"]
        assert addresses_tried(states, 1, "nowhere") == ["10.0.0.5"]


class TestRetain:
    def test_forgets_nodes_that_left_unless_they_are_connected_or_back_off(self) -> None:
        states = make_states()
        for node_id in (1, 2, 3):
            states.connecting(node_id, 0, "host0", 9092)
        states.checking_api_versions(1)
        states.disconnected(2, 0)
        states.disconnected(3, 100)
        states.retain([], 100)
        assert states.state(1) is ConnectionState.CHECKING_API_VERSIONS
        assert states.last_attempt_ms(2) == -math.inf
        assert states.last_attempt_ms(3) == 100


class TestSystemResolver:
    def test_an_address_is_its_own_answer(self) -> None:
        family, sockaddr = resolve_host("127.0.0.1", 9092)[0]
        assert sockaddr == ("127.0.0.1", 9092)
        assert family == 2

    @pytest.mark.parametrize("host", ["a..b", "x" * 70 + ".example"])
    def test_what_no_host_can_be_called_is_a_typed_error_that_names_the_host(self, host: str) -> None:
        with pytest.raises(UnresolvableHostError) as caught:
            resolve_host(host, 9092)
        assert repr(host) in str(caught.value)
