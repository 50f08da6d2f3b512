"""A NetworkClient's requests and responses: order, limits, timeouts, throttling, invalid responses."""

from __future__ import annotations

import math

import pytest
from support.client_harness import REQUEST_TIMEOUT_MS, ClientHarness, api_versions_response
from support.mock_client import metadata_response

from headrace.network.client.in_flight_cy import InFlightRequest, InFlightRequests
from headrace.network.client.request import ClientRequest, ClientResponse
from headrace.network.protocol.api import ApiKey, requests
from headrace.network.protocol.errors import (
    CorrelationIdError,
    DisconnectedError,
    EncodeError,
    IllegalStateError,
    MalformedMessageError,
    UnsupportedVersionError,
)
from headrace.network.protocol.frames import encode_response
from headrace.network.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from headrace.network.protocol.messages.records.init_producer_id import InitProducerIdRequest
from headrace.network.protocol.messages.records.produce import ProduceRequest, ProduceResponse, TopicProduceData
from headrace.network.protocol.versions import Versions


def produce(acks: int = 1) -> ProduceRequest:
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[])


@pytest.fixture
def harness() -> ClientHarness:
    """A client with metadata of a cluster of two, connected to node 0."""
    harness = ClientHarness(max_in_flight_requests_per_connection=3)
    harness.start(metadata_response(brokers=2))
    harness.connect(0)
    return harness


class TestAnswers:
    def test_an_answer_comes_back_decoded_with_its_request(self, harness: ClientHarness) -> None:
        heard: list[ClientResponse] = []
        harness.clock.advance(5)
        request = harness.send(0, produce(), callback=heard.append)
        harness.clock.advance(20)
        harness.selector.respond("0", ProduceResponse(responses=[], throttle_time_ms=0))
        (response,) = harness.step()
        assert heard == [response]
        assert response.request is request
        assert response.node_id == 0
        assert isinstance(response.message, ProduceResponse)
        assert response.version == 13
        assert response.error is None
        assert not response.disconnected
        assert response.latency_ms == 20
        assert response.received_ms == 25

    def test_several_answers_in_one_poll_come_in_order(self, harness: ClientHarness) -> None:
        requests = [harness.send(0, produce()) for _ in range(3)]
        for _ in requests:
            harness.selector.respond("0", ProduceResponse(responses=[]))
        assert [response.request for response in harness.step()] == requests

    def test_the_version_is_the_highest_common_one_within_the_caller_s_bounds(self) -> None:
        harness = ClientHarness()
        harness.start()
        harness.connect(0, api_versions_response({ApiKey.PRODUCE: (0, 11)}))
        harness.send(0, produce())
        harness.send(0, produce(), max_version=8)
        assert [send.header.api_version for send in harness.selector.unanswered("0")] == [11, 8]
        harness.send(0, produce(), min_version=12)
        (response,) = harness.step()
        assert isinstance(response.error, UnsupportedVersionError)
        assert "12 to 13" in str(response.error)
        assert "0 to 11" in str(response.error)
        assert not response.disconnected
        assert "0" in harness.selector.open

    def test_a_request_that_cannot_be_encoded_is_answered_with_why(self, harness: ClientHarness) -> None:
        heard: list[ClientResponse] = []
        impossible = ProduceRequest(
            acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="x" * 40_000, partition_data=[])]
        )
        harness.send(0, impossible, callback=heard.append, max_version=3)
        assert harness.client.in_flight_request_count(0) == 0
        (response,) = harness.step()
        assert isinstance(response.error, EncodeError)
        assert heard == [response]

    def test_a_request_without_an_answer_ends_when_it_is_written(self, harness: ClientHarness) -> None:
        harness.selector.hold_sends = True
        request = harness.send(0, produce(acks=0), expect_response=False)
        assert harness.step() == []
        harness.selector.write_all()
        (response,) = harness.step()
        assert response.request is request
        assert response.message is None
        assert response.error is None
        assert harness.client.in_flight_request_count(0) == 0

    def test_requests_with_and_without_answers_mix(self, harness: ClientHarness) -> None:
        first = harness.send(0, produce())
        silent = [harness.send(0, produce(acks=0), expect_response=False) for _ in range(2)]
        assert [response.request for response in harness.step()] == silent
        assert harness.client.in_flight_request_count(0) == 1
        harness.selector.respond("0", ProduceResponse(responses=[]))
        assert [response.request for response in harness.step()] == [first]

    def test_only_the_request_that_was_written_ends(self, harness: ClientHarness) -> None:
        harness.send(0, produce())
        harness.selector.hold_sends = True
        harness.send(0, produce(acks=0), expect_response=False)
        # this poll reports that the first one is written
        assert harness.step() == []
        harness.selector.write_all()
        assert len(harness.step()) == 1

    def test_correlation_ids_are_unique_and_wrap_within_int32(self, harness: ClientHarness) -> None:
        first = harness.client.new_request(0, produce(), now_ms=0)
        assert harness.client.new_request(0, produce(), now_ms=0).correlation_id == first.correlation_id + 1
        harness.client._next_correlation_id = 0x7FFFFFFF
        assert harness.client.new_request(0, produce(), now_ms=0).correlation_id == 0x7FFFFFFF
        assert harness.client.new_request(0, produce(), now_ms=0).correlation_id == 0

    def test_a_callback_that_raises_does_not_keep_the_others_from_being_called(self, harness: ClientHarness) -> None:
        heard: list[ClientResponse] = []

        def boom(response: ClientResponse) -> None:
            raise RuntimeError(f"boom {response.request.correlation_id}")

        first = harness.send(0, produce(), callback=boom)
        harness.send(0, produce(), callback=heard.append)
        harness.send(0, produce(), callback=boom)
        for _ in range(3):
            harness.selector.respond("0", ProduceResponse(responses=[]))
        with pytest.raises(RuntimeError, match=f"boom {first.correlation_id}"):
            harness.step()
        assert len(heard) == 1


class TestBounds:
    def test_no_more_than_max_in_flight(self, harness: ClientHarness) -> None:
        for _ in range(3):
            assert harness.ready(0)
            harness.send(0, produce())
        assert not harness.ready(0)
        with pytest.raises(IllegalStateError):
            harness.send(0, produce())
        assert harness.client.in_flight_request_count(0) == 3
        assert harness.client.in_flight_request_count() == 3
        harness.selector.respond("0", ProduceResponse(responses=[]))
        harness.step()
        assert harness.ready(0)

    def test_not_before_the_last_request_is_written(self, harness: ClientHarness) -> None:
        harness.selector.hold_sends = True
        harness.send(0, produce())
        assert not harness.ready(0)
        harness.selector.write_all()
        assert harness.ready(0)

    def test_not_over_a_channel_that_is_gone(self, harness: ClientHarness) -> None:
        assert harness.ready(0)
        harness.selector.open.discard("0")
        assert not harness.ready(0)

    def test_not_to_a_node_that_is_not_connected(self, harness: ClientHarness) -> None:
        with pytest.raises(IllegalStateError, match="not ready"):
            harness.send(1, produce())

    def test_metadata_that_is_due_goes_first(self, harness: ClientHarness) -> None:
        harness.send(0, produce())
        harness.step()
        harness.metadata.add_topic("new", harness.now_ms)
        assert not harness.ready(0)
        harness.step()
        assert harness.ready(0)

    def test_the_oldest_is_the_one_that_is_answered(self) -> None:
        in_flight = InFlightRequests(2)
        sends = [_Written(), _Written()]
        entries = [InFlightRequest(_request(index), 0, 0.0, send) for index, send in enumerate(sends)]
        for entry in entries:
            assert in_flight.can_send_more(7)
            in_flight.add(entry)
        assert not in_flight.can_send_more(7)
        assert in_flight.oldest(7) is entries[0]
        assert in_flight.complete_next(7) is entries[0]
        assert in_flight.complete_next(7) is entries[1]
        assert in_flight.oldest(7) is None
        with pytest.raises(IllegalStateError):
            in_flight.complete_next(7)
        assert in_flight.next_timeout_ms(0) == math.inf


class _Written:
    remaining_bytes = 0


def _request(correlation_id: int) -> ClientRequest:
    return ClientRequest(7, produce(), correlation_id, created_ms=0.0, timeout_ms=10)


class TestTimeouts:
    def test_an_overdue_answer_ends_the_connection_and_all_that_is_in_flight_there(
        self, harness: ClientHarness
    ) -> None:
        late = harness.send(0, produce())
        harness.clock.advance(REQUEST_TIMEOUT_MS - 1000)
        young = harness.send(0, produce())
        harness.step(60_000)
        assert harness.selector.polls[-1] == pytest.approx(1000)
        harness.clock.advance(999)
        assert harness.step() == []
        harness.clock.advance(1)
        responses = harness.step()
        assert [response.request for response in responses] == [late, young]
        for response in responses:
            assert response.timed_out
            assert response.disconnected
            assert isinstance(response.error, DisconnectedError)
        assert "30000 ms" in str(responses[0].error)
        assert "0" not in harness.selector.open
        assert harness.metadata.update_requested

    def test_a_request_may_have_a_timeout_of_its_own(self, harness: ClientHarness) -> None:
        harness.send(0, produce(), timeout_ms=100)
        harness.clock.advance(100)
        (response,) = harness.step()
        assert response.timed_out

    def test_a_handshake_that_is_never_answered_times_out(self) -> None:
        harness = ClientHarness()
        harness.step()
        harness.selector.complete_connect("-1")
        harness.step()
        harness.clock.advance(REQUEST_TIMEOUT_MS)
        harness.step()
        assert harness.selector.open == set()
        error = harness.metadata.last_error
        assert error is not None
        assert "did not answer in time" in str(error)
        assert "ApiVersionsRequest" in str(error)

    def test_a_metadata_request_that_is_never_answered_is_sent_again(self) -> None:
        harness = ClientHarness()
        harness.step()
        harness.handshake("-1")
        harness.step()
        harness.clock.advance(REQUEST_TIMEOUT_MS)
        harness.step()
        harness.clock.advance(1000)
        harness.step()
        harness.handshake("-1")
        harness.step()
        harness.answer_metadata("-1", metadata_response())
        assert harness.metadata.version == 1


class TestDisconnection:
    def test_all_in_flight_requests_end_with_the_reason(self, harness: ClientHarness) -> None:
        requests = [harness.send(0, produce()) for _ in range(2)]
        harness.selector.fail("0", DisconnectedError("10.0.0.1:9092 closed the connection"))
        responses = harness.step()
        assert [response.request for response in responses] == requests
        for response in responses:
            assert response.disconnected
            assert not response.timed_out
            assert response.message is None
            assert isinstance(response.error, DisconnectedError)
            assert "localhost:9092" in str(response.error)
            assert "closed the connection" in str(response.error)
        assert harness.metadata.update_requested
        assert harness.client.in_flight_request_count() == 0

    def test_answers_that_arrived_before_the_disconnection_count(self, harness: ClientHarness) -> None:
        harness.send(0, produce())
        harness.send(0, produce())
        harness.selector.respond("0", ProduceResponse(responses=[]))
        harness.selector.fail("0", DisconnectedError("reset"))
        answered, lost = harness.step()
        assert isinstance(answered.message, ProduceResponse)
        assert lost.disconnected


class TestBadAnswers:
    def test_an_answer_that_cannot_be_decoded(self, harness: ClientHarness) -> None:
        broken, behind = harness.send(0, produce()), harness.send(0, produce())
        good = b"".join(
            encode_response(ProduceResponse(responses=[]), version=13, correlation_id=broken.correlation_id)
        )
        harness.selector.receive("0", good[4:-1])
        responses = {response.request: response for response in harness.step()}
        error = responses[broken].error
        assert isinstance(error, MalformedMessageError)
        assert "localhost:9092" in str(error)
        assert responses[broken].disconnected
        assert isinstance(responses[behind].error, DisconnectedError)
        assert "0" not in harness.selector.open
        assert harness.client.in_flight_request_count() == 0

    def test_an_answer_to_another_request(self, harness: ClientHarness) -> None:
        request = harness.send(0, produce())
        wrong = b"".join(
            encode_response(ProduceResponse(responses=[]), version=13, correlation_id=request.correlation_id + 1)
        )
        harness.selector.receive("0", wrong[4:])
        (response,) = harness.step()
        assert isinstance(response.error, CorrelationIdError)
        assert str(request.correlation_id + 1) in str(response.error)
        assert "0" not in harness.selector.open

    def test_what_follows_a_bad_answer_is_not_read(self, harness: ClientHarness) -> None:
        harness.send(0, produce())
        second = harness.send(0, produce())
        harness.selector.receive("0", b"\0\0")
        good = encode_response(ProduceResponse(responses=[]), version=13, correlation_id=second.correlation_id)
        harness.selector.receive("0", b"".join(good)[4:])
        assert all(response.message is None for response in harness.step())
        # one disconnection, so the initial backoff
        assert harness.client.connection_delay_ms(harness.node(0), harness.now_ms) == pytest.approx(50)

    def test_a_metadata_answer_that_cannot_be_decoded_is_a_failed_update(self, harness: ClientHarness) -> None:
        harness.metadata.request_update()
        harness.clock.advance(100)
        harness.step()
        correlation_id = harness.selector.unanswered("0")[0].header.correlation_id
        harness.selector.receive("0", correlation_id.to_bytes(4, "big") + b"\xff" * 20)
        harness.step()
        assert isinstance(harness.metadata.last_error, MalformedMessageError)
        assert harness.metadata.time_to_next_update(harness.now_ms) > 0
        assert harness.metadata.version == 1


class TestThrottling:
    def test_a_node_that_throttles_is_left_alone_for_so_long(self, harness: ClientHarness) -> None:
        harness.send(0, produce())
        harness.selector.respond("0", ProduceResponse(responses=[], throttle_time_ms=500))
        harness.step()
        assert not harness.ready(0)
        assert harness.client.throttle_delay_ms(harness.node(0), harness.now_ms) == 500
        assert harness.client.poll_delay_ms(harness.node(0), harness.now_ms) == 500
        harness.clock.advance(499)
        assert not harness.ready(0)
        harness.clock.advance(1)
        assert harness.ready(0)

    def test_in_older_versions_the_broker_has_waited_already(self) -> None:
        harness = ClientHarness()
        harness.start()
        harness.connect(0, api_versions_response({ApiKey.PRODUCE: (0, 5)}))
        harness.send(0, produce())
        harness.selector.respond("0", ProduceResponse(responses=[], throttle_time_ms=500))
        harness.step()
        assert harness.ready(0)

    @pytest.mark.parametrize(
        ("api_key", "first"),
        [(ApiKey.PRODUCE, 6), (ApiKey.METADATA, 6), (ApiKey.INIT_PRODUCER_ID, 1), (ApiKey.DESCRIBE_CLUSTER, 0)],
    )
    def test_from_which_version_on(self, api_key: ApiKey, first: int) -> None:
        assert requests[api_key].response_class.client_throttles == Versions.parse(f"{first}+")

    def test_requests_in_flight_get_that_much_more_time(self, harness: ClientHarness) -> None:
        harness.send(0, produce())
        harness.send(0, produce())
        harness.clock.advance(1000)
        harness.selector.respond("0", ProduceResponse(responses=[], throttle_time_ms=5000))
        harness.step()
        harness.clock.advance(REQUEST_TIMEOUT_MS - 1000)
        assert harness.step() == []
        harness.clock.advance(5000)
        (response,) = harness.step()
        assert response.timed_out

    def test_metadata_is_not_asked_of_a_throttled_node_and_that_is_no_reason_to_rebootstrap(self) -> None:
        harness = ClientHarness()
        harness.start()
        harness.connect(0)
        harness.send(0, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1))
        response_class = InitProducerIdRequest.response_class
        harness.selector.respond("0", response_class(throttle_time_ms=700, producer_id=1, producer_epoch=0))
        harness.step()
        harness.metadata.request_update()
        harness.clock.advance(100)
        harness.step(60_000)
        assert harness.selector.polls[-1] == pytest.approx(600)
        assert not harness.metadata.cluster.is_bootstrap
        assert harness.selector.unanswered("0") == []
        harness.clock.advance(600)
        harness.step()
        assert len(harness.selector.unanswered("0")) == 1


def test_an_api_that_the_node_lacks_is_answered_locally() -> None:
    harness = ClientHarness()
    harness.start()
    harness.connect(0, api_versions_response({ApiKey.FIND_COORDINATOR: None}))
    harness.send(0, FindCoordinatorRequest(key="group"))
    (response,) = harness.step()
    assert isinstance(response.error, UnsupportedVersionError)
    assert "FIND_COORDINATOR" in str(response.error)
    assert "localhost:9092" in str(response.error)
