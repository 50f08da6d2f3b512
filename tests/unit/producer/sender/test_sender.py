"""The sender, turn by turn: what it sends, and how it handles each response."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from support.mock_client import latest_api_versions, metadata_response
from support.sender_harness import (
    BACKOFF_MS,
    DELIVERY_TIMEOUT_MS,
    LINGER_MS,
    MEMORY,
    PRODUCER_ID,
    REQUEST_TIMEOUT_MS,
    SenderHarness,
    batches_of,
    sequence_of,
    values_of,
)

from headrace.network.protocol import errors
from headrace.network.protocol.messages.records.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.network.protocol.messages.records.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.network.protocol.messages.topics.metadata import MetadataRequest
from headrace.network.records import compression
from headrace.network.records.compression import Compression
from headrace.producer.accumulator.record_metadata_cy import RecordMetadata
from headrace.producer.sender import delivery
from headrace.producer.sender.delivery import Verdict
from headrace.producer.sender.transaction_manager_cy import MAX_PRODUCER_EPOCH

NOT_LEADER = 6
NOT_ENOUGH_REPLICAS = 19
INVALID_RECORD = 87
TOPIC_AUTHORIZATION_FAILED = 29
MESSAGE_TOO_LARGE = 10


def broker_errors(*verdicts: Verdict) -> list[type[errors.BrokerResponseError]]:
    """Every error of a broker with one of these verdicts."""
    kinds = {errors.error_for(code) for code in range(-1, 200)} - {None, errors.UnrecognizedBrokerError}
    known = [kind for kind in kinds if kind is not None and delivery.action_for(kind).verdict in verdicts]
    return sorted(known, key=lambda kind: kind.code)


# --- Sending ---


def test_a_record_lingers_then_goes_out_and_its_future_tells_where_it_is() -> None:
    h = SenderHarness()
    future = h.append(b"hello", key=b"k")
    h.step()
    assert h.client.sent == []
    assert not future.done()
    (request,) = h.send()
    message = request.message
    assert (message.acks, message.timeout_ms, message.transactional_id) == (-1, REQUEST_TIMEOUT_MS, None)
    assert sequence_of(request) == (PRODUCER_ID, 0, 0)
    assert values_of(request) == [b"hello"]
    h.answer(request, base_offset=41)
    assert future.get(0) == RecordMetadata("t", 0, 41, h.clock.wall_ms() - LINGER_MS, 1, 5, -1)
    assert h.free_bytes == MEMORY
    assert not h.accumulator.has_incomplete


def test_the_poll_sleeps_until_the_linger_is_over_and_no_longer() -> None:
    h = SenderHarness(linger_ms=50)
    h.append()
    h.clock.advance(20)
    h.sender.run_once()
    assert h.client.polls[-1] == 30


def test_a_turn_sends_all_that_is_ready_and_then_sleeps_until_the_linger_is_over() -> None:
    h = SenderHarness(batch_size=100)
    for value in (b"a" * 60, b"b" * 60, b"c" * 60):
        h.append(value)
    h.sender.run_once()
    assert [values_of(request) for request in h.client.sent] == [[b"a" * 60], [b"b" * 60], [b"c" * 60]]
    h.append(b"d")
    h.sender.run_once()
    assert h.client.polls[-1] == LINGER_MS


def test_one_request_a_broker_with_all_its_partitions() -> None:
    h = SenderHarness(partitions=4, brokers=2)
    for partition in range(4):
        h.append(b"%d" % partition, partition=partition)
    requests = h.send()
    assert {request.node_id: sorted(part for _, part, _ in batches_of(request)) for request in requests} == {
        0: [0, 2],
        1: [1, 3],
    }


def test_an_answer_with_log_append_time_gives_that_timestamp() -> None:
    h = SenderHarness()
    (future,), request = h.request(b"a")
    h.answer(request, base_offset=3, log_append_time_ms=77)
    assert (future.get(0).offset, future.get(0).timestamp) == (3, 77)


def test_offsets_count_up_within_a_batch() -> None:
    h = SenderHarness()
    futures, request = h.request(b"a", b"b", b"c")
    h.answer(request, base_offset=10)
    assert [future.get(0).offset for future in futures] == [10, 11, 12]


def test_without_acks_a_record_is_done_once_it_is_written_and_has_no_offset() -> None:
    h = SenderHarness(idempotent=False, acks=0)
    future = h.append()
    (request,) = h.send()
    assert not request.expect_response
    assert request.message.acks == 0
    assert (future.get(0).offset, future.get(0).has_offset) == (-1, False)
    assert h.free_bytes == MEMORY


def test_requests_give_topic_ids_only_where_all_are_known() -> None:
    topic_id = uuid.uuid4()
    h = SenderHarness(topic_ids={"t": topic_id})
    _, request = h.request(b"a")
    assert (request.max_version, request.message.topic_data[0].topic_id) == (None, topic_id)
    h = SenderHarness()
    _, request = h.request(b"a")
    assert request.max_version == 12


def test_an_answer_by_topic_id_is_understood_after_the_topic_was_created_anew() -> None:
    h = SenderHarness(topic_ids={"t": uuid.uuid4()})
    (future,), request = h.request(b"a")
    answer = h.response(request, base_offset=5)
    answer.responses[0].name = ""
    h.client.update_metadata(metadata_response({"t": 1}, topic_ids={"t": uuid.uuid4()}))
    h.client.respond(answer, request=request)
    h.sender.run_once()
    assert future.get(0).offset == 5


def test_batches_of_a_closed_and_a_lingering_partition_of_one_broker_each_keep_their_time() -> None:
    # the sequence state blocks the first partition, which must not delay the second one
    h = SenderHarness(partitions=2, linger_ms=LINGER_MS)
    _, first = h.request(b"a")
    _, second = h.request(b"b")
    h.lose(first, second)
    h.clock.advance(BACKOFF_MS)
    h.sender.run_once()
    h.append(b"c", partition=1)
    h.sender.run_once()
    assert values_of(h.client.sent[-1]) == [b"c"] or h.client.polls[-1] <= LINGER_MS


def test_a_topic_without_leader_has_its_metadata_refreshed_and_is_sent_later() -> None:
    h = SenderHarness()
    h.append(b"a")
    no_leader = metadata_response({"t": 1})
    no_leader.topics[0].partitions[0].leader_id = -1
    no_leader.topics[0].partitions[0].leader_epoch = 1
    h.client.update_metadata(no_leader)
    assert h.send() == []
    again = metadata_response({"t": 1}, leader_epoch=2)
    h.client.prepare_metadata(again)
    h.step(1000)
    assert values_of(h.send()) == [b"a"]
    assert isinstance(h.client.metadata_fetches[-1].message, MetadataRequest)


def test_a_node_that_is_not_connected_is_waited_for() -> None:
    h = SenderHarness()
    h.client.backoff(0, 70)
    h.append()
    h.clock.advance(LINGER_MS)
    h.sender.run_once()
    assert h.client.sent == []
    assert h.client.polls[-1] == 70 - LINGER_MS
    h.clock.advance(70)
    assert len(h.send()) == 1


def test_the_metadata_of_a_topic_in_use_is_renewed_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    h = SenderHarness()
    renewals: list[float] = []
    monkeypatch.setattr(h.metadata, "add_topic", lambda topic, now_ms: renewals.append(now_ms))
    for _ in range(5):
        _, request = h.request(b"v")
        h.answer(request)
        h.step(400)
    assert len(renewals) == 2
    assert renewals[1] - renewals[0] >= 1000


# --- Memory ---


def test_the_memory_of_completed_batches_returns_one_before_each_compression_and_the_rest_before_the_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    h = SenderHarness(partitions=4, compression=Compression.GZIP)
    free: list[int] = []
    compress_gzip = compression.CODECS[Compression.GZIP].compress

    def compress(*arguments: Any) -> Any:
        free.append(h.free_bytes)
        return compress_gzip(*arguments)

    for partition in range(4):
        h.append(b"a" * 50, partition=partition)
    before = h.free_bytes
    batch_bytes = (MEMORY - before) // 4
    (request,) = h.send()
    h.answer(request)
    assert h.free_bytes == before
    monkeypatch.setitem(
        compression.CODECS, Compression.GZIP, compression.CODECS[Compression.GZIP]._replace(compress=compress)
    )
    for partition in range(2):
        h.append(b"b" * 50, partition=partition)
    h.send()
    # six batches have memory; each compression finds one of the completed four returned
    assert [(MEMORY - each) // batch_bytes for each in free] == [5, 4]
    assert (MEMORY - h.free_bytes) // batch_bytes == 2


@pytest.mark.parametrize("force", [False, True])
def test_a_closed_sender_has_returned_the_memory_of_compressed_batches(force: bool) -> None:
    h = SenderHarness(compression=Compression.GZIP)
    _, request = h.request(b"a" * 50)
    h.answer(request)
    h.run_to_the_end(force=force)
    assert h.free_bytes == MEMORY


# --- Retries ---


def test_the_table_has_errors_of_every_verdict() -> None:
    for verdict in Verdict:
        assert broker_errors(verdict), verdict


@pytest.mark.parametrize(
    ("kind", "idempotent"),
    [
        (kind, idempotent)
        for kind in broker_errors(Verdict.RETRY)
        for idempotent in (True, False)
        # the others only concern sequence numbers
        if idempotent or issubclass(kind, errors.RetriableError)
    ],
)
def test_a_retriable_error_is_retried_after_the_backoff(
    kind: type[errors.BrokerResponseError], idempotent: bool
) -> None:
    h = SenderHarness(idempotent=idempotent)
    (future,), request = h.request(b"a")
    h.answer(request, kind.code, log_start_offset=0)
    assert h.send() == []
    assert not future.done()
    (again,) = h.retry()
    assert values_of(again) == [b"a"]
    h.answer(again, base_offset=9)
    assert future.get(0).offset == 9
    assert h.free_bytes == MEMORY


@pytest.mark.parametrize("kind", broker_errors(Verdict.FAIL, Verdict.FATAL), ids=lambda kind: kind.__name__)
def test_any_other_error_fails_the_batch_at_once(kind: type[errors.BrokerResponseError]) -> None:
    h = SenderHarness()
    (first, second), request = h.request(b"a", b"b")
    h.answer(request, kind.code, error_message="because")
    for future in (first, second):
        failure = future.exception(0)
        assert type(failure) is kind
        assert "t-0" in str(failure) or "because" in str(failure)
        with pytest.raises(kind):
            future.get(0)
    assert h.free_bytes == MEMORY
    assert h.retry() == []


def test_an_unknown_error_code_fails_the_batch_and_tells_the_code() -> None:
    h = SenderHarness()
    (future,), request = h.request(b"a")
    h.answer(request, 9999)
    failure = future.exception(0)
    assert isinstance(failure, errors.BrokerResponseError)
    assert failure.code == 9999


@pytest.mark.parametrize("kind", broker_errors(Verdict.RETRY), ids=lambda kind: kind.__name__)
def test_errors_about_metadata_and_no_others_refresh_it(kind: type[errors.BrokerResponseError]) -> None:
    h = SenderHarness()
    h.step(1000)
    _, request = h.request(b"a")
    assert not h.metadata.update_requested
    h.client.prepare_metadata()
    h.client.respond(h.response(request, kind.code), request=request)
    h.client._last_metadata = None  # the mock client has no metadata to answer with, so the request stays visible
    h.sender.run_once()
    expected = issubclass(kind, errors.InvalidMetadataError) or delivery.action_for(kind).refresh_metadata
    assert h.metadata.update_requested == expected


def test_a_lost_connection_is_retried_and_the_last_cause_is_told_at_the_end() -> None:
    h = SenderHarness(retries=1)
    (future,), request = h.request(b"a")
    h.lose(request)
    (again,) = h.retry()
    h.lose(again)
    failure = future.exception(0)
    assert isinstance(failure, errors.NetworkExceptionError)
    assert isinstance(failure.__cause__, errors.DisconnectedError)
    assert h.free_bytes == MEMORY


def test_a_partition_that_the_answer_leaves_out_is_sent_again() -> None:
    h = SenderHarness(partitions=2)
    first, second = h.append(b"a", partition=0), h.append(b"b", partition=1)
    (request,) = h.send()
    answer = h.response(request, base_offset=4)
    answer.responses[0].partition_responses = [
        part for part in answer.responses[0].partition_responses if part.index == 0
    ]
    h.client.respond(answer, request=request)
    h.sender.run_once()
    assert first.get(0).offset == 4
    assert not second.done()
    (again,) = h.retry()
    assert values_of(again) == [b"b"]


def test_an_answer_for_a_partition_that_was_not_asked_harms_nobody() -> None:
    h = SenderHarness()
    (future,), request = h.request(b"a")
    answer = h.response(request, base_offset=4)
    answer.responses.append(
        TopicProduceResponse(
            name="other", partition_responses=[PartitionProduceResponse(index=7, error_code=0, base_offset=0)]
        )
    )
    h.client.respond(answer, request=request)
    h.sender.run_once()
    assert future.get(0).offset == 4


def test_retries_have_an_end() -> None:
    h = SenderHarness(retries=2)
    (future,), request = h.request(b"a")
    for _ in range(2):
        h.answer(request, NOT_LEADER)
        assert not future.done()
        (request,) = h.retry()
    h.answer(request, NOT_LEADER)
    assert isinstance(future.exception(0), errors.NotLeaderOrFollowerError)
    assert h.free_bytes == MEMORY


def test_each_attempt_backs_off_by_the_number_of_those_before() -> None:
    asked = []

    def backoff(attempts: int) -> float:
        asked.append(attempts)
        return BACKOFF_MS

    h = SenderHarness(backoff=backoff)
    _, request = h.request(b"a")
    for _ in range(3):
        h.answer(request, NOT_LEADER)
        (request,) = h.retry()
    assert asked == [0, 1, 2]


def test_a_node_that_supports_no_version_of_produce_that_we_know_is_a_fatal_error() -> None:
    h = SenderHarness()
    h.client.node_api_versions[0] = latest_api_versions({int(ProduceRequest.api_key): (14, 15)})
    future = h.append()
    h.clock.advance(LINGER_MS)
    h.sender.run_once()
    h.sender.run_once()
    assert isinstance(future.exception(0), errors.UnsupportedVersionError)


# --- Order without idempotence ---


def test_with_one_request_in_flight_order_is_kept_over_retries_without_idempotence() -> None:
    h = SenderHarness(idempotent=False, max_in_flight=1)
    _, request = h.request(b"a")
    h.append(b"b")
    assert h.send() == []
    h.answer(request, NOT_LEADER)
    assert values_of(h.retry()) == [b"a"]
    (again,) = h.client.requests
    h.answer(again)
    assert values_of(h.send()) == [b"b"]


def test_a_partition_is_held_back_on_another_broker_too_while_its_batch_is_in_flight() -> None:
    h = SenderHarness(idempotent=False, max_in_flight=1, brokers=2)
    _, request = h.request(b"a")
    assert request.node_id == 0
    moved = metadata_response({"t": 1}, brokers=2, leader_epoch=1)
    moved.topics[0].partitions[0].leader_id = 1
    h.client.update_metadata(moved)
    h.append(b"b")
    assert h.send() == []
    h.answer(request)
    (after,) = h.send()
    assert (after.node_id, values_of(after)) == (1, [b"b"])


# --- Leader hints (KIP-951) ---


def test_the_leader_that_an_answer_names_is_sent_to_without_asking_for_metadata() -> None:
    h = SenderHarness(brokers=2)
    (future,), request = h.request(b"a")
    assert request.node_id == 0
    answer = h.response(request, NOT_LEADER, current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=5))
    answer.node_endpoints = [NodeEndpoint(node_id=1, host="localhost", port=9093)]
    h.client._last_metadata = None
    h.client.respond(answer, request=request)
    h.sender.run_once()
    (again,) = h.retry()
    assert (again.node_id, values_of(again)) == (1, [b"a"])
    h.answer(again, base_offset=2)
    assert future.get(0).offset == 2


# --- Splits (KIP-126) ---


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("idempotent", [True, False])
def test_a_batch_that_is_too_large_is_halved_and_its_records_keep_futures_callbacks_and_order(
    compression: Compression, idempotent: bool
) -> None:
    h = SenderHarness(compression=compression, idempotent=idempotent, max_in_flight=1)
    called: list[int] = []
    futures = [
        h.append(b"value %d" % i, callback=lambda metadata, error: called.append(metadata.offset)) for i in range(5)
    ]
    added: list[int] = []
    for future in futures:
        future.add_callback(lambda metadata: added.append(metadata.offset))
    (request,) = h.send()
    h.answer(request, MESSAGE_TOO_LARGE, step=False)
    h.sender.run_once()
    assert not any(future.done() for future in futures)
    (first,) = h.send()
    assert values_of(first) == [b"value 0", b"value 1", b"value 2"]
    h.answer(first, base_offset=100)
    (second,) = h.send()
    assert values_of(second) == [b"value 3", b"value 4"]
    if idempotent:
        assert sequence_of(second) == (PRODUCER_ID, 0, 3)
    assert [future.done() for future in futures] == [True, True, True, False, False]
    h.answer(second, base_offset=200)
    assert [future.get(0).offset for future in futures] == [100, 101, 102, 200, 201]
    assert called == added == [100, 101, 102, 200, 201]
    assert h.free_bytes == MEMORY
    assert not h.accumulator.has_incomplete


def test_splits_go_on_down_to_single_records_and_a_single_one_fails_alone() -> None:
    h = SenderHarness(max_in_flight=1)
    futures, request = h.request(b"a", b"too large", b"c", b"d")
    sent: list[list[bytes]] = []
    offset = 0
    while True:
        sent.append(values_of(request))
        if b"too large" in sent[-1]:
            h.answer(request, MESSAGE_TOO_LARGE)
        else:
            h.answer(request, base_offset=offset)
            offset += len(sent[-1])
        h.send()
        if not h.client.requests:
            break
        (request,) = h.client.requests
    assert sent == [[b"a", b"too large", b"c", b"d"], [b"a", b"too large"], [b"a"], [b"too large"], [b"c", b"d"]]
    assert [future.exception(0) is None for future in futures] == [True, False, True, True]
    assert isinstance(futures[1].exception(0), errors.MessageSizeTooLargeError)
    assert [futures[i].get(0).offset for i in (0, 2, 3)] == [0, 1, 2]
    assert h.free_bytes == MEMORY


def test_parts_go_before_later_batches_that_were_in_flight() -> None:
    h = SenderHarness()
    _, first = h.request(b"a", b"b")
    _, second = h.request(b"c")
    h.append(b"d")
    h.answer(first, MESSAGE_TOO_LARGE, step=False)
    h.answer(second, 45, step=False)
    h.sender.run_once()
    got: list[bytes] = []
    sequences = []
    while len(got) < 4:
        for request in h.retry():
            got += values_of(request)
            sequences.append(sequence_of(request)[2])
            h.answer(request, base_offset=0)
    assert got == [b"a", b"b", b"c", b"d"]
    assert sequences == [0, 1, 2, 3]


def test_a_flush_waits_for_the_parts_of_a_split_batch() -> None:
    h = SenderHarness(max_in_flight=1)
    _, request = h.request(b"a", b"b")
    flushed = threading.Event()

    def flush() -> None:
        h.accumulator.flush(1e9)
        flushed.set()

    thread = threading.Thread(target=flush)
    thread.start()
    h.answer(request, MESSAGE_TOO_LARGE)
    for _ in range(2):
        h.send()
        (request,) = h.client.requests
        assert not flushed.is_set()
        h.answer(request)
    thread.join(10)
    assert flushed.is_set()


def test_parts_that_expire_give_back_all_memory() -> None:
    h = SenderHarness()
    futures, request = h.request(b"a", b"b", b"c")
    h.answer(request, MESSAGE_TOO_LARGE, step=False)
    h.client.backoff(0, 10 * DELIVERY_TIMEOUT_MS)
    h.sender.run_once()
    h.step(DELIVERY_TIMEOUT_MS)
    assert all(isinstance(future.exception(0), errors.DeliveryTimeoutError) for future in futures)
    assert h.free_bytes == MEMORY


# --- Per-record errors (KIP-467) ---


def test_a_refused_record_tells_its_own_cause_and_the_others_the_batchs() -> None:
    h = SenderHarness()
    (first, second, third), request = h.request(b"a", b"b", b"c")
    h.answer(
        request,
        87,
        error_message="one of them is bad",
        record_errors=[BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key")],
    )
    assert isinstance(second.exception(0), errors.InvalidRecordError)
    assert "no key" in str(second.exception(0))
    for other in (first, third):
        assert isinstance(other.exception(0), errors.InvalidRecordError)
        assert "one of them is bad" in str(other.exception(0))


# --- Expiry ---


def test_a_record_that_is_never_sent_expires_and_says_so() -> None:
    h = SenderHarness()
    h.client.backoff(0, 10 * DELIVERY_TIMEOUT_MS)
    future = h.append()
    h.step(DELIVERY_TIMEOUT_MS - 1)
    assert not future.done()
    h.step(1)
    failure = future.exception(0)
    assert isinstance(failure, errors.DeliveryTimeoutError)
    assert "never sent" in str(failure)
    assert h.free_bytes == MEMORY


def test_the_poll_does_not_sleep_over_an_expiry() -> None:
    h = SenderHarness(delivery_timeout_ms=500)
    h.client.backoff(0, 10_000)
    h.append()
    h.step(100)
    assert 0 < h.client.polls[-1] <= 400
    h = SenderHarness(delivery_timeout_ms=500)
    h.request(b"a")
    h.step(100)
    assert 0 < h.client.polls[-1] <= 400 - LINGER_MS


def test_a_batch_in_flight_expires_but_its_memory_is_not_used_again_before_the_request_ends() -> None:
    h = SenderHarness(delivery_timeout_ms=1000)
    (future,), request = h.request(b"a")
    h.step(1000)
    failure = future.exception(0)
    assert isinstance(failure, errors.DeliveryTimeoutError)
    assert "after 1 attempt" in str(failure)
    assert h.free_bytes < MEMORY
    assert values_of(request) == [b"a"]
    h.answer(request, base_offset=3)
    assert h.free_bytes == MEMORY
    assert future.exception(0) is failure
    assert not h.accumulator.has_incomplete


@pytest.mark.parametrize("ending", ["error", "lost", "too large"])
def test_an_expired_batch_is_not_sent_again_whatever_its_answer_is(ending: str) -> None:
    h = SenderHarness(delivery_timeout_ms=1000)
    (future, _), request = h.request(b"a", b"b")
    h.step(1000)
    assert isinstance(future.exception(0), errors.DeliveryTimeoutError)
    if ending == "lost":
        h.lose(request)
    else:
        h.answer(request, NOT_LEADER if ending == "error" else MESSAGE_TOO_LARGE)
    assert h.free_bytes == MEMORY
    assert h.retry() == []
    assert not h.accumulator.has_incomplete


def test_a_batch_that_backs_off_expires_and_tells_how_often_it_was_tried() -> None:
    h = SenderHarness(delivery_timeout_ms=1000, backoff=lambda attempts: 5000)
    (future,), request = h.request(b"a")
    h.answer(request, NOT_LEADER)
    h.step(1000)
    error = future.exception(0)
    assert isinstance(error, errors.DeliveryTimeoutError)
    assert "after 1 attempt" in str(error)
    assert isinstance(error.__cause__, errors.NotLeaderOrFollowerError)
    assert h.free_bytes == MEMORY


def test_a_batch_behind_one_that_expires_does_not_wait_for_its_backoff() -> None:
    h = SenderHarness(delivery_timeout_ms=1000, backoff=lambda attempts: 5000, idempotent=False)
    (first,), request = h.request(b"a")
    h.answer(request, NOT_LEADER)
    h.step(900)
    h.append(b"b")
    h.step(100)
    assert isinstance(first.exception(0), errors.DeliveryTimeoutError)
    assert h.client.polls[-1] == 0
    h.step()
    assert values_of(h.client.sent[-1]) == [b"b"]


def test_an_error_after_the_delivery_timeout_is_not_retried() -> None:
    h = SenderHarness(delivery_timeout_ms=1000)
    (future,), request = h.request(b"a")
    h.clock.advance(1000)
    h.client.respond(h.response(request, NOT_LEADER), request=request)
    # the poll finds the response before the next turn can expire the batch
    h.client.poll(0, h.clock.now_ms())
    error = future.exception(0)
    assert isinstance(error, errors.DeliveryTimeoutError)
    assert "after 1 attempt" in str(error)
    assert isinstance(error.__cause__, errors.NotLeaderOrFollowerError)
    assert h.retry() == []
    assert h.free_bytes == MEMORY


@pytest.mark.parametrize("last_code", [NOT_ENOUGH_REPLICAS, TOPIC_AUTHORIZATION_FAILED])
@pytest.mark.parametrize("idempotent", [True, False])
def test_an_error_that_speaks_of_the_last_attempt_names_the_one_that_may_have_left_the_record_in_the_log(
    last_code: int, idempotent: bool
) -> None:
    h = SenderHarness(retries=2, idempotent=idempotent)
    (future,), request = h.request(b"a")
    h.lose(request)
    (request,) = h.retry()
    h.answer(request, NOT_ENOUGH_REPLICAS)
    (request,) = h.retry()
    h.answer(request, last_code)
    error = future.exception(0)
    assert error is not None
    assert type(error) is errors.error_for(last_code)
    assert isinstance(error.__cause__, errors.NetworkExceptionError)
    futures, request = h.request(b"b", b"c")
    h.lose(request)
    (request,) = h.retry()
    h.answer(request, INVALID_RECORD, record_errors=[BatchIndexAndErrorMessage(batch_index=0)])
    for error in (future.exception(0) for future in futures):
        assert isinstance(error, errors.InvalidRecordError)
        assert isinstance(error.__cause__, errors.NetworkExceptionError)
    (future,), request = h.request(b"d")
    h.answer(request, TOPIC_AUTHORIZATION_FAILED)
    error = future.exception(0)
    assert error is not None
    assert error.__cause__ is None


def test_a_timed_out_request_is_retried() -> None:
    h = SenderHarness()
    (future,), _ = h.request(b"a")
    h.step(REQUEST_TIMEOUT_MS)
    assert not future.done()
    (again,) = h.retry()
    h.answer(again, base_offset=1)
    assert future.get(0).offset == 1


# --- The producer id ---


def test_nothing_goes_out_before_there_is_a_producer_id() -> None:
    h = SenderHarness(with_producer_id=False)
    h.step()
    assert h.client.sent == []
    future = h.append(b"a")
    assert h.send() == []
    assert len(h.client.requests) == 1
    h.answer_producer_id(7, 3)
    (request,) = h.send()
    assert sequence_of(request) == (7, 3, 0)
    h.answer(request)
    assert future.get(0).offset == 0


@pytest.mark.parametrize("code", [7, 13, 14, 15])
def test_a_retriable_failure_to_get_a_producer_id_is_tried_again_after_the_backoff(code: int) -> None:
    h = SenderHarness(with_producer_id=False)
    future = h.append(b"a")
    h.send()
    h.answer_producer_id(error_code=code)
    h.send()
    assert len(h.client.requests) == 0
    h.retry()
    assert len(h.client.requests) == 1
    h.answer_producer_id()
    (request,) = h.send()
    h.answer(request)
    assert future.get(0).offset == 0


def test_a_lost_answer_about_the_producer_id_is_asked_for_again() -> None:
    h = SenderHarness(with_producer_id=False)
    h.append(b"a")
    h.send()
    h.lose(h.client.requests[0])
    h.retry()
    h.answer_producer_id()
    assert values_of(h.send()) == [b"a"]


def test_a_rejected_request_for_a_producer_id_fails_everything_now_and_later() -> None:
    h = SenderHarness(with_producer_id=False)
    future = h.append(b"a")
    h.send()
    h.answer_producer_id(error_code=42)
    h.step()
    assert isinstance(future.exception(0), errors.InvalidRequestError)
    later = h.append(b"b")
    h.step()
    assert isinstance(later.exception(0), errors.InvalidRequestError)
    assert h.free_bytes == MEMORY
    h.run_to_the_end()


def test_a_missing_acl_for_a_producer_id_fails_what_waits_and_later_records_ask_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    h = SenderHarness(with_producer_id=False)
    for value in (b"a", b"b"):
        future = h.append(value)
        h.send()
        h.answer_producer_id(error_code=31)
        failure = future.exception(0)
        assert isinstance(failure, errors.ClusterAuthorizationFailedError)
        assert "WRITE on any topic" in str(failure)
        assert h.free_bytes == MEMORY
        h.step()
        assert not h.client.requests
        h.retry()
    # each fails for the same reason, which is logged once
    assert [each.levelname for each in caplog.records if "no producer id yet" in each.message] == ["ERROR"]
    granted = h.append(b"c")
    h.send()
    h.answer_producer_id()
    (request,) = h.send()
    assert values_of(request) == [b"c"]
    h.answer(request)
    assert granted.get(0).offset >= 0


def test_between_refusals_of_a_producer_id_the_sender_backs_off() -> None:
    h = SenderHarness(with_producer_id=False)
    h.append(b"a")
    h.send()
    h.answer_producer_id(error_code=31)
    waiting = h.append(b"b")
    h.step()
    assert not h.client.requests
    assert not waiting.done()
    h.retry()
    assert [type(each.message) for each in h.client.requests] == [InitProducerIdRequest]


def test_a_broker_without_idempotence_is_told_with_what_to_do() -> None:
    h = SenderHarness(with_producer_id=False)
    h.client.node_api_versions[0] = latest_api_versions({int(InitProducerIdRequest.api_key): (90, 91)})
    future = h.append(b"a")
    h.send()
    h.step()
    failure = future.exception(0)
    assert isinstance(failure, errors.UnsupportedVersionError)
    assert "enable.idempotence=false" in str(failure)


def test_an_answer_about_the_producer_id_after_a_fatal_error_changes_nothing() -> None:
    h = SenderHarness(partitions=2)
    assert h.transactions is not None
    (retried,), request = h.request(b"a")
    (fenced,), other = h.request(b"b", partition=1)
    h.transactions.producer_epoch = MAX_PRODUCER_EPOCH
    h.answer(request, 45)
    h.sender.run_once()
    asking = h.client.requests[-1]
    assert isinstance(asking.message, InitProducerIdRequest)
    h.answer(other, 90)
    h.client.respond(InitProducerIdResponse(producer_id=5, producer_epoch=0), request=asking)
    h.sender.run_once()
    for future in (retried, fenced):
        assert isinstance(future.exception(0), errors.ProducerFencedError)


# --- A fatal error ---


def test_after_a_fatal_error_what_is_in_flight_is_still_answered_and_the_rest_fails() -> None:
    h = SenderHarness(partitions=3)
    _, first = h.request(b"a", partition=0)
    (second,), second_request = h.request(b"b", partition=1)
    (third,), third_request = h.request(b"c", partition=2)
    waiting = h.append(b"d")
    h.answer(first, 31)
    h.step()
    assert isinstance(waiting.exception(0), errors.ClusterAuthorizationFailedError)
    h.answer(second_request, base_offset=8)
    assert second.get(0).offset == 8
    h.answer(third_request, NOT_LEADER)
    h.step()
    assert isinstance(third.exception(0), errors.KafkaError)
    assert h.free_bytes == MEMORY


# --- Closing, aborting, dying ---


def test_closing_delivers_what_is_there_without_lingering() -> None:
    h = SenderHarness(linger_ms=60_000)
    future = h.append(b"a")
    h.client.prepare_response(lambda request: h.response(request, base_offset=6))
    h.run_to_the_end()
    assert future.get(0).offset == 6
    assert h.client.closed
    with pytest.raises(errors.ProducerClosedError):
        h.append()


def test_closing_retries_what_fails_on_the_way() -> None:
    h = SenderHarness(backoff=lambda attempts: 0)
    future = h.append(b"a")
    h.client.prepare_response(lambda request: h.response(request, NOT_LEADER))
    h.client.prepare_response(lambda request: h.response(request, base_offset=6))
    h.run_to_the_end()
    assert future.get(0).offset == 6


def test_closing_by_force_fails_what_waits_and_what_is_in_flight() -> None:
    h = SenderHarness(partitions=2)
    (in_flight,), _ = h.request(b"a")
    waiting = h.append(b"b", partition=1)
    h.run_to_the_end(force=True)
    for future in (in_flight, waiting):
        assert isinstance(future.exception(0), errors.ProducerClosedError)
    assert h.free_bytes == MEMORY


def test_closing_wakes_threads_that_wait_for_memory() -> None:
    h = SenderHarness(memory=400, batch_size=400)
    h.append(b"a" * 100)
    raised: list[BaseException] = []

    def send() -> None:
        try:
            h.append(b"b" * 300, max_block_ms=1e9)
        except errors.KafkaError as error:
            raised.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    while not h.pool.waiting:
        pass
    h.sender.close()
    thread.join(10)
    assert isinstance(raised[0], errors.ProducerClosedError)


def test_abort_fails_what_waits_and_lets_what_is_in_flight_go_on() -> None:
    h = SenderHarness()
    (in_flight,), request = h.request(b"a")
    waiting = h.append(b"b")
    done = h.sender.request_abort()
    h.sender.run_once()
    assert done.is_set
    assert isinstance(waiting.exception(0), errors.RecordAbortedError)
    h.answer(request, base_offset=1)
    assert in_flight.get(0).offset == 1
    (after,), later = h.request(b"c")
    h.answer(later, base_offset=2)
    assert after.get(0).offset == 2


def test_abort_of_a_retry_does_not_leave_a_gap_in_the_sequence() -> None:
    h = SenderHarness()
    (dropped,), request = h.request(b"a")
    h.answer(request, NOT_LEADER)
    h.sender.request_abort()
    h.sender.run_once()
    assert isinstance(dropped.exception(0), errors.RecordAbortedError)
    _, later = h.request(b"b")
    assert sequence_of(later) == (PRODUCER_ID, 1, 0)


class Bang(Exception):
    pass


@pytest.mark.parametrize("death", [Bang, SystemExit])
def test_a_dead_sender_thread_fails_everything_with_the_cause(
    death: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    h = SenderHarness(memory=400, batch_size=200)
    future = h.append(b"a")
    refused: list[BaseException] = []

    def wait_for_memory() -> None:
        try:
            h.append(b"b" * 300, max_block_ms=30_000)
        except errors.KafkaError as error:
            refused.append(error)

    waiter = threading.Thread(target=wait_for_memory)

    def poll(timeout_ms: float, now_ms: float) -> list:
        waiter.start()
        while not h.pool.waiting:
            pass
        raise death("bang")

    monkeypatch.setattr(h.client, "poll", poll)
    if death is SystemExit:
        with pytest.raises(SystemExit):
            h.sender.run()
    else:
        h.sender.run()
    failure = future.exception(0)
    assert isinstance(failure, errors.IllegalStateError)
    assert isinstance(failure.__cause__, death)
    assert isinstance(h.sender.death, death)
    waiter.join(30)
    with pytest.raises(errors.IllegalStateError) as raised:
        h.append(b"c" * 300)
    for error in (*refused, raised.value):
        assert isinstance(error, errors.IllegalStateError)
        assert isinstance(error.__cause__, death)
    assert len(refused) == 1
    with pytest.raises(errors.IllegalStateError):
        h.metadata.await_update(h.metadata.version, 0)
    assert h.client.closed


@pytest.mark.parametrize("raised", [Bang, SystemExit, KeyboardInterrupt])
def test_a_callback_that_raises_harms_neither_its_neighbours_nor_the_sender(
    raised: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    h = SenderHarness()
    called: list[int] = []

    def bad(metadata: RecordMetadata, error: BaseException | None) -> None:
        raise raised("bang")

    def good(metadata: RecordMetadata, error: BaseException | None) -> None:
        called.append(metadata.offset)

    callbacks: list[Callable] = [good, bad, good]
    futures = [h.append(callback=callback) for callback in callbacks]
    (request,) = h.send()
    h.answer(request, base_offset=5)
    assert called == [5, 7]
    assert [future.get(0).offset for future in futures] == [5, 6, 7]
    (logged,) = [record for record in caplog.records if "raised" in record.message]
    assert "t-0" in logged.message
    assert "offset 6" in logged.message


def test_a_callback_may_append_and_the_record_goes_out() -> None:
    h = SenderHarness()
    more: list = []
    h.append(b"a", callback=lambda metadata, error: more.append(h.append(b"b")))
    (request,) = h.send()
    h.answer(request)
    (after,) = h.send()
    assert values_of(after) == [b"b"]
    h.answer(after, base_offset=1)
    assert more[0].get(0).offset == 1


def test_an_empty_answer_to_several_partitions_is_a_lost_one() -> None:
    h = SenderHarness(partitions=2)
    futures = [h.append(b"%d" % partition, partition=partition) for partition in range(2)]
    (request,) = h.send()
    h.client.respond(ProduceResponse(responses=[]), request=request)
    h.sender.run_once()
    (again,) = h.retry()
    h.answer(again, base_offset=1)
    assert [future.get(0).offset for future in futures] == [1, 1]
