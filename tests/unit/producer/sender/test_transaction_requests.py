"""The requests of a transactional producer, in both protocols, stepped by hand against a scripted coordinator."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from support.sender_harness import batch_of, sequence_of
from support.transaction_harness import HELD, LOST, PRODUCER_ID, TransactionHarness, versions_with

from headrace.network.cluster import TopicPartition
from headrace.network.protocol.errors import (
    ClusterAuthorizationFailedError,
    DeliveryTimeoutError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTransactionTimeoutError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    ProducerClosedError,
    ProducerFencedError,
    RecordAbortedError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionalIdAuthorizationFailedError,
    UnsupportedVersionError,
    error_for,
)
from headrace.network.protocol.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from headrace.network.protocol.messages.transactions.end_txn import EndTxnResponse
from headrace.producer.sender.transaction import GroupMember, Offset, State
from headrace.producer.sender.transaction_protocol import Protocol

CLASSIC, TV2 = 1, 2
LEVELS = pytest.mark.parametrize("level", [CLASSIC, TV2])
OFFSETS = {TopicPartition("t", 0): Offset(5, "m", 2), TopicPartition("t", 1): Offset(6)}
COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOADING = 15, 16, 14
INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_MAPPING = 47, 48, 49
CONCURRENT_TRANSACTIONS, PRODUCER_FENCED, TRANSACTION_ABORTABLE = 51, 90, 120
MESSAGE_TOO_LARGE, OUT_OF_ORDER, UNKNOWN_PRODUCER_ID, OPERATION_NOT_ATTEMPTED = 10, 45, 59, 55


def code_of(kind: type) -> int:
    return kind.code


def ready(level: int | None = TV2, **options: Any) -> TransactionHarness:
    harness = TransactionHarness(level=level, **options)
    harness.init()
    return harness


def begun(level: int | None = TV2, **options: Any) -> TransactionHarness:
    harness = ready(level, **options)
    harness.transaction.begin()
    return harness


def committed(harness: TransactionHarness, *values: bytes) -> None:
    """One transaction with these records."""
    harness.transaction.begin()
    futures = [harness.append(value) for value in values]
    harness.call(harness.transaction.commit)
    assert all(future.succeeded() for future in futures)


# --- The sequence of requests ---


def test_the_classic_protocol_announces_partitions_and_keeps_the_epoch() -> None:
    harness = ready(CLASSIC)
    committed(harness, b"a", b"b")
    assert harness.names == ["FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn"]
    produce = harness.requests_named("Produce")[0]
    assert produce.message.transactional_id == "id"
    assert produce.max_version == 11
    assert sequence_of(produce) == (PRODUCER_ID, 0, 0)
    assert batch_of(produce).is_transactional
    assert harness.requests_named("EndTxn")[0].max_version == 4
    committed(harness, b"c")
    # the partitions are added again, and the sequence numbers go on
    assert harness.names[5:] == ["AddPartitionsToTxn", "Produce", "EndTxn"]
    assert sequence_of(harness.requests_named("Produce")[-1]) == (PRODUCER_ID, 0, 2)


def test_tv2_announces_nothing_and_gets_the_next_epoch_from_endtxn() -> None:
    harness = ready(TV2)
    committed(harness, b"a", b"b")
    assert harness.names == ["FindCoordinator", "InitProducerId", "Produce", "EndTxn"]
    assert harness.requests_named("Produce")[0].min_version == 12
    assert harness.requests_named("EndTxn")[0].min_version == 5
    committed(harness, b"c")
    assert harness.names[4:] == ["Produce", "EndTxn"]
    assert sequence_of(harness.requests_named("Produce")[-1]) == (PRODUCER_ID, 1, 0)


@pytest.mark.parametrize(
    "versions",
    [
        versions_with(None),
        versions_with(0),
        versions_with(1),
        versions_with(2, Produce=11),
        versions_with(2, EndTxn=4),
        versions_with(2, AddPartitionsToTxn=0, AddOffsetsToTxn=0, EndTxn=1, Produce=7, FindCoordinator=1),
    ],
)
def test_tv2_needs_the_feature_and_the_versions(versions: Any) -> None:
    harness = TransactionHarness(versions=versions)
    harness.init()
    committed(harness, b"a")
    assert "AddPartitionsToTxn" in harness.names
    assert harness.transactions.gate._protocol is Protocol.CLASSIC


def test_a_level_that_changes_between_transactions_is_followed_and_not_within_one() -> None:
    harness = ready(CLASSIC)
    committed(harness, b"a")
    harness.transaction.begin()
    harness.append(b"b")
    harness.run()
    harness.client.default_api_versions = versions_with(TV2, epoch=2)
    harness.append(b"c", partition=0)
    harness.call(harness.transaction.commit)
    assert harness.requests_named("EndTxn")[-1].max_version == 4
    before = len(harness.names)
    committed(harness, b"d")
    assert harness.names[before:] == ["Produce", "EndTxn"]
    harness.client.default_api_versions = versions_with(CLASSIC, epoch=3)
    before = len(harness.names)
    # the coordinator's connection reports it first; the transaction after that follows
    committed(harness, b"e")
    committed(harness, b"f")
    assert harness.names[before:][-3:] == ["AddPartitionsToTxn", "Produce", "EndTxn"]


def test_an_older_report_of_the_level_does_not_count() -> None:
    harness = ready(TV2)
    committed(harness, b"a")
    harness.client.default_api_versions = versions_with(CLASSIC, epoch=0)
    before = len(harness.names)
    committed(harness, b"b")
    assert harness.names[before:] == ["Produce", "EndTxn"]


@LEVELS
def test_an_empty_transaction_needs_no_request(level: int) -> None:
    harness = begun(level)
    before = len(harness.names)
    harness.call(harness.transaction.commit)
    harness.transaction.begin()
    harness.call(harness.transaction.abort)
    assert harness.names[before:] == []
    assert harness.transaction.state is State.READY


def test_several_partitions_are_added_at_once_and_later_ones_as_they_come() -> None:
    harness = begun(CLASSIC, partitions=3)
    harness.append(partition=0)
    harness.append(partition=1)
    harness.run()
    harness.append(partition=2)
    harness.append(partition=0)
    harness.run()
    added = [request.message.v3_and_below_topics for request in harness.requests_named("AddPartitionsToTxn")]
    assert [[sorted(topic.partitions) for topic in topics] for topics in added] == [[[0, 1]], [[2]]]


def test_partitions_are_added_while_their_batches_linger() -> None:
    harness = begun(CLASSIC, linger_ms=1_000_000)
    harness.append()
    harness.step()
    assert harness.names[-1] == "AddPartitionsToTxn"


@LEVELS
def test_offsets_are_committed_with_the_transaction(level: int) -> None:
    harness = begun(level)
    before = len(harness.names)
    harness.call(harness.transaction.send_offsets, OFFSETS, GroupMember("g", 3, "m", "i"))
    first = ["AddOffsetsToTxn"] if level == CLASSIC else []
    assert harness.names[before:] == [*first, "FindCoordinator", "TxnOffsetCommit"]
    message = harness.last("TxnOffsetCommit")
    assert (message.group_id, message.generation_id, message.member_id, message.group_instance_id) == ("g", 3, "m", "i")
    offsets = [
        (each.partition_index, each.committed_offset, each.committed_metadata) for each in message.topics[0].partitions
    ]
    assert offsets == [(0, 5, "m"), (1, 6, "")]
    request = harness.requests_named("TxnOffsetCommit")[0]
    assert (request.min_version, request.max_version) == ((3, 4) if level == CLASSIC else (5, None))
    harness.call(harness.transaction.commit)
    assert harness.names[-1] == "EndTxn"


def test_offsets_that_are_retried_are_only_those_left() -> None:
    harness = begun(TV2)
    partly = harness._commit_offsets

    def first_only(request: Any) -> Any:
        response = partly(request, COORDINATOR_LOADING)
        response.topics[0].partitions[0].error_code = 0
        return response

    harness.script("TxnOffsetCommit", first_only)
    harness.call(harness.transaction.send_offsets, OFFSETS, GroupMember("g"))
    assert [each.partition_index for each in harness.last("TxnOffsetCommit").topics[0].partitions] == [1]


@LEVELS
def test_a_commit_sends_without_lingering_and_waits_for_every_batch(level: int) -> None:
    harness = begun(level, linger_ms=1_000_000)
    future = harness.append()
    harness.script("Produce", HELD)
    with pytest.raises(KafkaTimeoutError):
        harness.transaction.commit()
    harness.run()
    assert harness.names[-1] == "Produce"
    harness.answers.clear()
    harness.run()
    harness.transaction.commit()
    assert harness.names[-1] == "EndTxn"
    assert future.succeeded()
    assert not harness.accumulator.flushes


def test_what_is_sent_too_late_is_not_produced_while_the_end_is_in_flight() -> None:
    harness = begun(TV2)
    harness.append(b"in time")
    harness.script("EndTxn", HELD)
    with pytest.raises(KafkaTimeoutError):
        harness.transaction.commit()
    harness.run()
    late = harness.append(b"late")
    harness.run()
    assert harness.names.count("Produce") == 1
    harness.answers.clear()
    harness.run()
    harness.transaction.commit()
    assert not late.is_done
    # without another transaction it is never sent, and expires; the next one takes it
    harness.transaction.begin()
    harness.call(harness.transaction.commit)
    assert late.succeeded()


# --- Coordinators ---


@pytest.mark.parametrize(
    ("level", "name"),
    [
        *[(CLASSIC, name) for name in ("AddPartitionsToTxn", "AddOffsetsToTxn")],
        *[(level, name) for level in (CLASSIC, TV2) for name in ("InitProducerId", "TxnOffsetCommit", "EndTxn")],
    ],
)
@pytest.mark.parametrize("answer", [NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, LOST], ids=str)
def test_a_coordinator_that_moves_is_found_again(level: int, name: str, answer: object) -> None:
    harness = TransactionHarness(level=level)
    harness.script(name, answer, answer)
    harness.init()
    harness.transaction.begin()
    future = harness.append()
    harness.call(harness.transaction.send_offsets, OFFSETS, GroupMember("g"))
    harness.call(harness.transaction.commit)
    assert future.succeeded()
    assert harness.names.count(name) == 3
    assert harness.names.count("FindCoordinator") == 4


@LEVELS
@pytest.mark.parametrize("code", [COORDINATOR_LOADING, CONCURRENT_TRANSACTIONS])
def test_a_busy_coordinator_is_asked_again(level: int, code: int) -> None:
    harness = TransactionHarness(level=level)
    for name in ("FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "EndTxn"):
        harness.script(name, code)
    harness.init()
    committed(harness, b"a")
    assert harness.names.count("FindCoordinator") == harness.names.count("EndTxn") == 2


def test_retries_back_off() -> None:
    harness = TransactionHarness(level=TV2, backoff=lambda attempts: 1000.0 * 2**attempts)
    harness.script("InitProducerId", *[COORDINATOR_LOADING] * 3)
    with pytest.raises(KafkaTimeoutError):
        harness.transaction.init()
    times = []
    for _ in range(100):
        before = len(harness.client.sent)
        harness.step(100)
        for request in list(harness.client.requests):
            harness._answer(request)
        times += [harness.clock.now_ms()] * (len(harness.client.sent) - before)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times[1:])]
    assert [round(gap / 1000) for gap in gaps] == [1, 2, 4]


def test_the_first_partitions_are_added_again_soon_while_the_last_transaction_is_being_completed() -> None:
    harness = begun(CLASSIC)
    harness.script("AddPartitionsToTxn", CONCURRENT_TRANSACTIONS)
    harness.append()
    harness.step()
    harness._answer(harness.client.requests[0])
    harness.step()
    harness.step(20)
    assert harness.names.count("AddPartitionsToTxn") == 2


def test_a_coordinator_whose_broker_is_gone_is_found_again() -> None:
    harness = ready(TV2)
    coordinator = harness.requests_named("InitProducerId")[0].node_id
    assert coordinator == 2**31 - 1
    harness.client.set_unreachable(coordinator, 1_000_000)
    harness.coordinator_node = 3
    committed(harness, b"a")
    assert harness.requests_named("EndTxn")[0].node_id == 2**31 - 1 - 3


def test_no_broker_is_reachable() -> None:
    harness = TransactionHarness(level=TV2)
    for node in (0, 2**31 - 1):
        harness.client.set_unreachable(node, 5_000)
    with pytest.raises(KafkaTimeoutError):
        harness.transaction.init()
    for _ in range(20):
        harness.step(100)
    with pytest.raises(KafkaTimeoutError, match=r"node 0 is unreachable"):
        harness.transaction.init()
    harness.clock.advance(5_000)
    harness.run()
    harness.transaction.init()


# --- Aborts ---


@LEVELS
def test_an_abort_drops_what_waits_and_waits_for_what_is_in_flight(level: int) -> None:
    harness = begun(level)
    sent = harness.append(b"sent")
    harness.script("Produce", HELD)
    harness.run()
    waiting = harness.append(b"waiting")
    with pytest.raises(KafkaTimeoutError):
        harness.transaction.abort()
    harness.run()
    assert isinstance(waiting.exception(0), TransactionAbortedError)
    assert not sent.is_done
    assert harness.names[-1] == "Produce"
    harness.answers.clear()
    harness.run()
    harness.transaction.abort()
    assert isinstance(sent.exception(0), TransactionAbortedError)
    assert harness.last("EndTxn").committed is False
    committed(harness, b"next")
    assert harness.names.count("Produce") == 2
    # in the classic protocol nothing failed that a broker lacks, so the sequence numbers go on
    assert sequence_of(harness.requests_named("Produce")[-1]) == (
        PRODUCER_ID,
        *((0, 1) if level == CLASSIC else (1, 0)),
    )


@LEVELS
def test_an_abort_retries_what_a_broker_may_have(level: int) -> None:
    harness = begun(level)
    future = harness.append(b"doubt")
    harness.script("Produce", LOST)
    harness.step(10)
    harness.step(10)
    for request in list(harness.client.requests):
        harness._answer(request)
    with pytest.raises(KafkaTimeoutError):
        harness.transaction.abort()
    harness.run()
    harness.transaction.abort()
    assert isinstance(future.exception(0), TransactionAbortedError)
    assert harness.names[-1] == "EndTxn"


@LEVELS
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (MESSAGE_TOO_LARGE, MessageSizeTooLargeError),
        (code_of(TopicAuthorizationFailedError), TopicAuthorizationFailedError),
        (TRANSACTION_ABORTABLE, TransactionAbortableError),
        (INVALID_TXN_STATE, KafkaError),
        (INVALID_MAPPING, InvalidProducerIdMappingError),
        (UNKNOWN_PRODUCER_ID, KafkaError),
        (OUT_OF_ORDER, KafkaError),
    ],
)
def test_a_batch_that_fails_makes_the_transaction_abortable(level: int, answer: int, kind: type[KafkaError]) -> None:
    harness = begun(level)
    harness.script("Produce", answer)
    future = harness.append(b"bad")
    harness.run()
    assert isinstance(future.exception(0), kind)
    with pytest.raises(TransactionAbortableError):
        harness.transaction.check_send()
    with pytest.raises(TransactionAbortableError):
        harness.transaction.commit()
    harness.call(harness.transaction.abort)
    # the sequence numbers have a gap, so a new epoch begins: from the coordinator by InitProducerId or by EndTxn
    assert harness.names[-1] == ("InitProducerId" if level == CLASSIC else "EndTxn")
    if level == CLASSIC:
        assert (harness.last("InitProducerId").producer_id, harness.last("InitProducerId").producer_epoch) == (7, 0)
    committed(harness, b"good")
    assert sequence_of(harness.requests_named("Produce")[-1]) == (PRODUCER_ID, 1, 0)


@LEVELS
def test_a_batch_that_fails_during_the_commit_fails_the_commit(level: int) -> None:
    harness = begun(level)
    harness.script("Produce", MESSAGE_TOO_LARGE)
    harness.append(b"bad")
    with pytest.raises(TransactionAbortableError, match=r"call abort_transaction") as caught:
        harness.call(harness.transaction.commit)
    assert isinstance(caught.value.__cause__, MessageSizeTooLargeError)
    assert "EndTxn" not in harness.names
    harness.call(harness.transaction.abort)
    committed(harness, b"good")


@LEVELS
def test_a_batch_that_expires_in_flight_is_waited_for_before_the_end(level: int) -> None:
    harness = begun(level, delivery_timeout_ms=20_000)
    harness.script("Produce", HELD)
    future = harness.append(b"slow")
    harness.run()
    harness.step(20_000)
    assert isinstance(future.exception(0), DeliveryTimeoutError)
    with pytest.raises(KafkaTimeoutError):
        harness.transaction.abort()
    harness.run()
    assert "EndTxn" not in harness.names
    harness.answers.clear()
    harness.run()
    harness.transaction.abort()
    assert "EndTxn" in harness.names


def test_dropping_records_with_abort_makes_the_transaction_abortable() -> None:
    harness = begun(TV2, linger_ms=1_000_000)
    future = harness.append()
    harness.sender.request_abort()
    harness.run()
    assert isinstance(future.exception(0), RecordAbortedError)
    assert harness.transaction.state is State.ABORTABLE_ERROR
    harness.call(harness.transaction.abort)
    committed(harness, b"next")


def test_records_behind_a_failed_one_fail_with_the_cause() -> None:
    harness = begun(TV2, partitions=2)
    harness.script("Produce", MESSAGE_TOO_LARGE)
    harness.append(b"bad", partition=0)
    harness.run()
    behind = harness.append(b"behind", partition=1)
    harness.run()
    error = behind.exception(0)
    assert isinstance(error, TransactionAbortedError)
    assert "MESSAGE_TOO_LARGE" in str(error) or "larger than" in str(error)


def test_an_abort_of_a_transaction_that_the_coordinator_never_knew() -> None:
    harness = begun(CLASSIC)
    harness.script("AddPartitionsToTxn", LOST)
    harness.append()
    harness.step()
    harness._answer(harness.client.requests[0])
    with pytest.raises(KafkaTimeoutError):
        harness.transaction.abort()
    harness.script("EndTxn", INVALID_TXN_STATE)
    harness.run()
    harness.transaction.abort()
    committed(harness, b"next")


@LEVELS
def test_an_abort_before_the_first_record_was_sent_needs_no_request(level: int) -> None:
    harness = begun(level, linger_ms=1_000_000)
    future = harness.append()
    before = len(harness.names)
    harness.call(harness.transaction.abort)
    assert isinstance(future.exception(0), TransactionAbortedError)
    assert harness.names[before:] == []


def test_partitions_that_are_refused() -> None:
    harness = begun(CLASSIC, partitions=2)

    def refused(request: Any) -> AddPartitionsToTxnResponse:
        codes = {0: OPERATION_NOT_ATTEMPTED, 1: code_of(TopicAuthorizationFailedError)}
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name="t",
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                        for index, code in codes.items()
                    ],
                )
            ]
        )

    harness.script("AddPartitionsToTxn", refused)
    futures = [harness.append(partition=0), harness.append(partition=1)]
    with pytest.raises(TransactionAbortableError, match=r"AddPartitionsToTxn of t-1: .*not authorized") as caught:
        harness.call(harness.transaction.commit)
    assert isinstance(caught.value.__cause__, TopicAuthorizationFailedError)
    harness.run()
    assert all(isinstance(future.exception(0), TransactionAbortedError) for future in futures)
    harness.call(harness.transaction.abort)
    committed(harness, b"next")


@LEVELS
@pytest.mark.parametrize(
    "kind", [IllegalGenerationError, GroupAuthorizationFailedError, error_for(25), error_for(82), error_for(12)]
)
def test_offsets_that_are_refused_make_the_transaction_abortable(level: int, kind: type[Any]) -> None:
    harness = begun(level)
    harness.script("TxnOffsetCommit", kind.code)
    with pytest.raises(TransactionAbortableError) as caught:
        harness.call(harness.transaction.send_offsets, OFFSETS, GroupMember("g", 1, "m"))
    assert isinstance(caught.value.__cause__, kind)
    harness.call(harness.transaction.abort)
    committed(harness, b"next")


def test_a_group_whose_coordinator_may_not_be_asked() -> None:
    harness = begun(TV2)
    harness.script("FindCoordinator", GroupAuthorizationFailedError.code)
    with pytest.raises(TransactionAbortableError):
        harness.call(harness.transaction.send_offsets, OFFSETS, GroupMember("g"))
    harness.call(harness.transaction.abort)


def test_a_member_needs_a_broker_that_can_fence_it() -> None:
    harness = TransactionHarness(versions=versions_with(None, TxnOffsetCommit=2))
    harness.init()
    harness.transaction.begin()
    harness.call(harness.transaction.send_offsets, OFFSETS, GroupMember("g"))
    with pytest.raises(UnsupportedVersionError, match=r"TXN_OFFSET_COMMIT in versions 0 to 2"):
        harness.call(harness.transaction.send_offsets, OFFSETS, GroupMember("g", 1, "m"))


# --- Fencing, expiry and lost ids ---


@LEVELS
def test_a_fenced_producer_can_only_be_closed(level: int) -> None:
    harness = begun(level)
    harness.script("Produce", PRODUCER_FENCED)
    future = harness.append()
    harness.run()
    assert isinstance(future.exception(0), ProducerFencedError)
    for call in (harness.transaction.commit, harness.transaction.abort, harness.transaction.begin):
        with pytest.raises(ProducerFencedError):
            call()
    # what is sent nevertheless fails, and is not sent
    late = harness.append()
    harness.run()
    assert isinstance(late.exception(0), ProducerFencedError)


@pytest.mark.parametrize("name", ["InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn"])
@pytest.mark.parametrize("code", [PRODUCER_FENCED, INVALID_PRODUCER_EPOCH])
def test_a_producer_fenced_before_its_transaction_began(name: str, code: int) -> None:
    harness = TransactionHarness(level=CLASSIC)
    harness.script(name, code)

    def everything() -> None:
        harness.init()
        harness.transaction.begin()
        if name == "AddOffsetsToTxn":
            harness.call(harness.transaction.send_offsets, OFFSETS, GroupMember("g"))
        harness.append()
        harness.call(harness.transaction.commit)

    with pytest.raises(ProducerFencedError, match=r"another producer with the transactional.id 'id' has taken over"):
        everything()


@pytest.mark.parametrize("code", [PRODUCER_FENCED, INVALID_PRODUCER_EPOCH])
def test_a_fenced_commit_of_the_classic_protocol_finds_out_that_the_transaction_expired(code: int) -> None:
    harness = begun(CLASSIC)
    harness.append()
    harness.script("EndTxn", code)
    with pytest.raises(TransactionAbortableError, match=r"open for longer than transaction.timeout.ms") as caught:
        harness.call(harness.transaction.commit)
    assert isinstance(caught.value.__cause__, InvalidProducerEpochError)
    # the epoch that the coordinator has after an expiry, and no other
    assert harness.last("InitProducerId").producer_epoch == 1
    before = len(harness.names)
    harness.call(harness.transaction.abort)
    assert harness.names[before:] == []
    committed(harness, b"next")


def test_an_abort_of_a_transaction_that_expired() -> None:
    harness = begun(CLASSIC)
    harness.append()
    harness.run()
    harness.script("EndTxn", PRODUCER_FENCED)
    harness.call(harness.transaction.abort)
    assert harness.names[-1] == "InitProducerId"
    committed(harness, b"next")


@LEVELS
def test_a_fenced_end_is_fatal_if_another_producer_has_taken_over(level: int) -> None:
    harness = begun(level)
    harness.append()
    harness.run()
    harness.script("EndTxn", PRODUCER_FENCED)
    harness.script("InitProducerId", CONCURRENT_TRANSACTIONS, PRODUCER_FENCED)
    with pytest.raises(ProducerFencedError):
        harness.call(harness.transaction.commit)


def test_after_a_lost_answer_a_fenced_end_is_fatal() -> None:
    """The transaction may have been committed before another producer took over: nothing may be concluded."""
    harness = begun(CLASSIC)
    harness.append()
    harness.script("EndTxn", LOST, PRODUCER_FENCED)
    before = harness.names.count("InitProducerId")
    with pytest.raises(ProducerFencedError):
        harness.call(harness.transaction.commit)
    assert harness.names.count("InitProducerId") == before


def test_a_commit_of_tv2_after_the_transaction_expired() -> None:
    harness = begun(TV2)
    harness.append()
    harness.script("EndTxn", INVALID_TXN_STATE)
    with pytest.raises(TransactionAbortableError, match=r"open for longer than transaction.timeout.ms"):
        harness.call(harness.transaction.commit)
    harness.call(harness.transaction.abort)
    committed(harness, b"next")


@LEVELS
def test_a_stale_epoch_of_a_batch_is_abortable(level: int) -> None:
    """KIP-588: the coordinator may have aborted a transaction that expired, and incremented the epoch."""
    harness = begun(level)
    harness.append()
    harness.run()
    harness.script("Produce", INVALID_PRODUCER_EPOCH)
    late = harness.append()
    with pytest.raises(TransactionAbortableError):
        harness.call(harness.transaction.commit)
    assert isinstance(late.exception(0), InvalidProducerEpochError)
    if level == CLASSIC:
        harness.script("EndTxn", PRODUCER_FENCED)
    harness.call(harness.transaction.abort)
    committed(harness, b"next")


@LEVELS
def test_a_producer_id_that_the_coordinator_has_forgotten_is_replaced(level: int) -> None:
    harness = begun(level)
    harness.append()
    harness.script("EndTxn", INVALID_MAPPING)
    with pytest.raises(TransactionAbortableError):
        harness.call(harness.transaction.commit)
    before = len(harness.names)
    harness.call(harness.transaction.abort)
    assert harness.names[before:] == ["InitProducerId"]
    committed(harness, b"next")


def test_the_last_epoch_is_followed_by_another_producer_id() -> None:
    harness = begun(TV2)
    harness.append()
    harness.script("EndTxn", EndTxnResponse(producer_id=8, producer_epoch=0))
    harness.call(harness.transaction.commit)
    committed(harness, b"next")
    assert sequence_of(harness.requests_named("Produce")[-1]) == (8, 0, 0)


def test_the_last_epoch_has_no_successor_to_ask_for() -> None:
    harness = begun(CLASSIC)
    harness.transactions.producer_epoch = 2**15 - 1
    harness.append()
    harness.script("EndTxn", PRODUCER_FENCED)
    with pytest.raises(ProducerFencedError):
        harness.call(harness.transaction.commit)


def test_a_new_epoch_needs_a_broker_that_knows_epochs() -> None:
    harness = TransactionHarness(versions=versions_with(None, InitProducerId=2))
    harness.init()
    harness.transaction.begin()
    harness.script("Produce", MESSAGE_TOO_LARGE)
    harness.append()
    harness.run()
    with pytest.raises(UnsupportedVersionError, match=r"INIT_PRODUCER_ID in versions 0 to 2"):
        harness.call(harness.transaction.abort)


def test_a_new_epoch_that_is_refused_can_be_requested_again() -> None:
    harness = begun(CLASSIC)
    harness.script("Produce", MESSAGE_TOO_LARGE)
    harness.append()
    harness.run()
    harness.script("InitProducerId", TRANSACTION_ABORTABLE)
    with pytest.raises(TransactionAbortableError):
        harness.call(harness.transaction.abort)
    harness.call(harness.transaction.abort)
    committed(harness, b"next")


# --- Other fatal errors ---


@pytest.mark.parametrize("kind", [TransactionalIdAuthorizationFailedError, ClusterAuthorizationFailedError])
def test_an_initialization_that_is_not_authorized_can_be_repeated(kind: type[Any]) -> None:
    harness = TransactionHarness(level=TV2)
    harness.script("InitProducerId", kind.code)
    with pytest.raises(kind):
        harness.init()
    harness.init()
    committed(harness, b"a")


@LEVELS
def test_an_authorization_that_is_lost_is_fatal(level: int) -> None:
    harness = begun(level)
    harness.append()
    harness.script("EndTxn", TransactionalIdAuthorizationFailedError.code)
    with pytest.raises(TransactionalIdAuthorizationFailedError):
        harness.call(harness.transaction.commit)
    with pytest.raises(TransactionalIdAuthorizationFailedError):
        harness.transaction.abort()


def test_a_timeout_above_the_brokers_maximum() -> None:
    harness = TransactionHarness(level=TV2)
    harness.script("InitProducerId", InvalidTransactionTimeoutError.code)
    with pytest.raises(InvalidTransactionTimeoutError, match=r"transaction.timeout.ms=60000 is above the brokers'"):
        harness.init()


def test_a_broker_without_transactions() -> None:
    harness = TransactionHarness(versions=versions_with(None, FindCoordinator=0))
    with pytest.raises(UnsupportedVersionError, match=r"FIND_COORDINATOR in versions 0 to 0"):
        harness.init()


def test_transaction_abortable_from_the_coordinator() -> None:
    harness = begun(CLASSIC)
    harness.append()
    harness.script("EndTxn", TRANSACTION_ABORTABLE)
    with pytest.raises(TransactionAbortableError):
        harness.call(harness.transaction.commit)
    harness.script("EndTxn", TRANSACTION_ABORTABLE)
    harness.call(harness.transaction.abort)
    committed(harness, b"next")


# --- Closing ---


@LEVELS
def test_closing_within_a_transaction_aborts_it(level: int) -> None:
    harness = begun(level)
    harness.append()
    harness.run()
    dropped = harness.append()
    harness.client.prepare_response(lambda request: harness._end_txn(request, 0))
    harness.run_to_the_end()
    assert isinstance(dropped.exception(0), TransactionAbortedError)
    assert harness.last("EndTxn").committed is False


def test_closing_gives_up_the_abort_after_max_block_ms() -> None:
    harness = begun(TV2)
    harness.append()
    harness.run()
    harness.script("EndTxn", HELD)
    poll = harness.client.poll

    def later(timeout_ms: float, now_ms: float) -> Any:
        harness.clock.advance(1000)
        return poll(timeout_ms, now_ms)

    harness.client.poll = later  # type: ignore[method-assign]
    harness.run_to_the_end()
    assert harness.names[-1] in ("EndTxn", "FindCoordinator")
    assert harness.transaction.state is State.ABORTING


def test_closing_by_force_fails_the_pending_call() -> None:
    harness = begun(TV2)
    harness.append()
    harness.script("EndTxn", HELD)
    with pytest.raises(KafkaTimeoutError):
        harness.transaction.commit()
    harness.run()
    harness.run_to_the_end(force=True)
    with pytest.raises(ProducerClosedError):
        harness.transaction.commit()
