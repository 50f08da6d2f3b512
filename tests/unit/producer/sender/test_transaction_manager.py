"""Idempotence: sequence numbers across retries, expiries, splits and epochs, against a leader that checks them."""

from __future__ import annotations

import pytest
from support.mock_client import metadata_response
from support.sender_harness import (
    DELIVERY_TIMEOUT_MS,
    MEMORY,
    PRODUCER_ID,
    FakeLeader,
    SenderHarness,
    sequence_of,
    values_of,
)

from headrace.network.client.request import ClientRequest
from headrace.network.cluster import TopicPartition
from headrace.network.protocol import errors
from headrace.network.protocol.messages.records.init_producer_id import InitProducerIdRequest
from headrace.producer.sender.transaction_manager_cy import (
    BATCHES_REMEMBERED,
    MAX_PRODUCER_EPOCH,
    TRANSITIONS,
    State,
    TransactionManager,
)

P0 = TopicPartition("t", 0)
NOT_LEADER = 6
OUT_OF_ORDER = 45
DUPLICATE = 46
UNKNOWN_PRODUCER_ID = 59
UNKNOWN_SERVER_ERROR = -1
MESSAGE_TOO_LARGE = 10


def manager(h: SenderHarness) -> TransactionManager:
    assert h.transactions is not None
    return h.transactions


def deliver(h: SenderHarness, leader: FakeLeader, request: ClientRequest, *, step: bool = True) -> None:
    """Deliver the request to the leader, and its response to the sender."""
    code, offset = leader.append(request)
    h.answer(request, code, offset, step=step, log_start_offset=0)


def finish(h: SenderHarness, leader: FakeLeader) -> None:
    """Deliver everything, with as many retries as it takes."""
    for _ in range(50):
        while h.client.requests:
            request = h.client.requests[0]
            if isinstance(request.message, InitProducerIdRequest):
                h.answer_producer_id(PRODUCER_ID + 1)
            else:
                deliver(h, leader, request)
        if not h.accumulator.has_incomplete:
            return
        h.retry()
    raise AssertionError("the requests do not end")


# --- The states ---


def test_every_state_has_its_transitions_and_nothing_leaves_the_fatal_one() -> None:
    assert set(TRANSITIONS) == set(State)
    assert TRANSITIONS[State.FATAL_ERROR] == {State.FATAL_ERROR}
    assert all(State.FATAL_ERROR in allowed for allowed in TRANSITIONS.values())


def test_a_transition_that_is_not_in_the_table_is_a_defect() -> None:
    transactions = TransactionManager()
    with pytest.raises(errors.IllegalStateError, match="has no producer id"):
        transactions.assign(1, 0)
    transactions.asking()
    with pytest.raises(errors.IllegalStateError):
        transactions.asking()
    transactions.fail(errors.ProducerFencedError("first"))
    transactions.fail(errors.ProducerFencedError("second"))
    assert str(transactions.fatal_error).endswith("first")
    with pytest.raises(errors.IllegalStateError):
        transactions.assign(1, 0)


# --- Sequence numbers ---


def test_batches_are_numbered_by_their_records_and_partitions_by_themselves() -> None:
    h = SenderHarness(partitions=2)
    _, first = h.request(b"a", b"b", b"c")
    _, second = h.request(b"d")
    _, other = h.request(b"e", partition=1)
    assert [sequence_of(request)[2] for request in (first, second, other)] == [0, 3, 0]


def test_no_more_batches_are_open_than_a_broker_remembers_wherever_they_went() -> None:
    h = SenderHarness(brokers=2)
    for _ in range(5):
        h.request(b"a")
    moved = metadata_response({"t": 1}, brokers=2, leader_epoch=1)
    moved.topics[0].partitions[0].leader_id = 1
    h.client.update_metadata(moved)
    h.append(b"b")
    assert h.send() == []
    assert len(manager(h).in_flight(P0)) == BATCHES_REMEMBERED
    h.answer(h.client.requests[0])
    (request,) = h.send()
    assert (request.node_id, sequence_of(request)[2]) == (1, 5)


def test_sequence_numbers_wrap_to_zero_and_keep_the_order_of_retries() -> None:
    h = SenderHarness()
    h.request(b"x")
    h.answer(h.client.requests[0])
    manager(h)._partitions[P0].next_sequence = 2**31 - 2
    manager(h)._partitions[P0].last_acked_sequence = 2**31 - 3
    futures, requests = [], []
    for values in ((b"a", b"b"), (b"c",), (b"d",)):
        more, request = h.request(*values)
        futures += more
        requests.append(request)
    assert [sequence_of(request)[2] for request in requests] == [2**31 - 2, 0, 1]
    h.lose(*requests)
    sent: list[bytes] = []
    for _ in range(3):
        (request,) = h.retry()
        sent += values_of(request)
        h.answer(request, base_offset=0)
    assert sent == [b"a", b"b", b"c", b"d"]
    assert all(future.exception(0) is None for future in futures)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1)])
def test_batches_that_come_back_in_any_order_go_out_again_in_theirs_one_at_a_time(order: tuple[int, ...]) -> None:
    h = SenderHarness()
    requests = [h.request(b"%d" % i)[1] for i in range(3)]
    h.append(b"new")
    for i in order:
        h.answer(requests[i], NOT_LEADER, step=False)
    h.sender.run_once()
    sent: list[tuple[bytes, int]] = []
    while len(sent) < 4:
        for request in h.retry():
            sent.append((values_of(request)[0], sequence_of(request)[2]))
            h.answer(request)
    assert sent == [(b"0", 0), (b"1", 1), (b"2", 2), (b"new", 3)]


# --- Duplicates and gaps ---


def test_a_duplicate_counts_as_delivered_without_an_offset() -> None:
    h = SenderHarness()
    (future,), request = h.request(b"a")
    h.answer(request, DUPLICATE)
    assert future.get(0).offset == -1
    assert h.free_bytes == MEMORY
    _, later = h.request(b"b")
    assert sequence_of(later) == (PRODUCER_ID, 0, 1)


def test_response_lost_after_the_append_does_not_double_the_record() -> None:
    h, leader = SenderHarness(), FakeLeader()
    (future,), request = h.request(b"a")
    leader.append(request)
    h.lose(request)
    finish(h, leader)
    assert leader.log == [b"a"]
    assert future.get(0).offset == 0


def test_five_in_flight_with_all_answers_lost_after_the_third_append() -> None:
    h, leader = SenderHarness(), FakeLeader()
    requests = [h.request(b"%d" % i)[1] for i in range(5)]
    for request in requests[:3]:
        leader.append(request)
    h.lose(*requests)
    finish(h, leader)
    assert leader.log == [b"0", b"1", b"2", b"3", b"4"]


def test_out_of_order_behind_a_batch_that_is_retried_is_only_retried() -> None:
    h, leader = SenderHarness(), FakeLeader()
    leader.append(h.request(b"0")[1])
    h.answer(h.client.requests[0])
    _, first = h.request(b"1")
    _, second = h.request(b"2")
    h.answer(first, NOT_LEADER)
    h.answer(second, OUT_OF_ORDER)
    finish(h, leader)
    assert leader.log == [b"0", b"1", b"2"]
    assert manager(h).producer_epoch == 0


def test_out_of_order_of_the_oldest_batch_begins_a_new_epoch_for_this_partition() -> None:
    h = SenderHarness(partitions=2)
    _, other = h.request(b"other", partition=1)
    h.answer(other)
    (lost,), request = h.request(b"a")
    h.answer(request)
    assert lost.done()
    (future,), request = h.request(b"b")
    h.answer(request, OUT_OF_ORDER)
    (again,) = h.retry()
    assert sequence_of(again) == (PRODUCER_ID, 1, 0)
    h.answer(again, base_offset=5)
    assert future.get(0).offset == 5
    _, other = h.request(b"more", partition=1)
    assert sequence_of(other) == (PRODUCER_ID, 1, 0), "an idle partition switches to the newest epoch, from sequence 0"


def test_a_partition_with_open_batches_keeps_its_epoch_while_another_begins_a_new_one() -> None:
    h = SenderHarness(partitions=2)
    _, other = h.request(b"o1", partition=1)
    _, request = h.request(b"a")
    h.answer(request, OUT_OF_ORDER)
    (again,) = h.retry()
    assert sequence_of(again) == (PRODUCER_ID, 1, 0)
    h.append(b"o2", partition=1)
    assert h.send() == [], "the new epoch waits for the response under the old one"
    h.answer(other)
    (later,) = h.send()
    assert sequence_of(later) == (PRODUCER_ID, 1, 0)


def test_a_new_epoch_waits_until_no_batch_of_the_partition_is_on_the_wire() -> None:
    h = SenderHarness()
    _, first = h.request(b"a")
    _, second = h.request(b"b")
    h.answer(first, OUT_OF_ORDER)
    assert h.retry() == []
    assert manager(h).producer_epoch == 0
    h.answer(second, OUT_OF_ORDER)
    got = []
    for _ in range(2):
        (again,) = h.retry()
        got.append((values_of(again), sequence_of(again)))
        h.answer(again)
    assert got == [([b"a"], (PRODUCER_ID, 1, 0)), ([b"b"], (PRODUCER_ID, 1, 1))]


def test_a_batch_whose_answer_was_lost_is_not_renumbered_before_the_broker_was_asked() -> None:
    # The first fails for good, so the second is due for a new epoch. But the leader has appended the second, and its
    # response was lost: under new sequence numbers the leader would append it again.
    h, leader = SenderHarness(), FakeLeader()
    (failed,), first = h.request(b"a")
    (kept,), second = h.request(b"b")
    leader.append(first)
    leader.append(second)
    h.answer(first, UNKNOWN_SERVER_ERROR, step=False)
    h.lose(second)
    assert isinstance(failed.exception(0), errors.UnknownError)
    finish(h, leader)
    assert leader.log == [b"a", b"b"]
    assert kept.get(0).offset == 1
    (later,), request = h.request(b"c")
    deliver(h, leader, request)
    assert leader.log == [b"a", b"b", b"c"]
    assert later.get(0).offset == 2


def test_a_batch_whose_leader_moved_while_it_waited_for_its_replicas_is_not_renumbered_before_that_is_asked() -> None:
    # Appended, then answered with NOT_LEADER: the new leader has the batch, because it was replicated.
    h, leader = SenderHarness(), FakeLeader()
    _, zeroth = h.request(b"0")
    deliver(h, leader, zeroth)
    (kept,), first = h.request(b"a")
    (failed,), second = h.request(b"b")
    leader.append(first)
    h.answer(second, MESSAGE_TOO_LARGE, step=False)
    h.answer(first, NOT_LEADER)
    assert isinstance(failed.exception(0), errors.MessageSizeTooLargeError)
    finish(h, leader)
    assert leader.log == [b"0", b"a"]
    assert kept.get(0).offset == 1


def test_a_batch_that_was_lost_on_its_way_is_renumbered_after_the_broker_was_asked() -> None:
    h, leader = SenderHarness(), FakeLeader()
    _, zeroth = h.request(b"0")
    deliver(h, leader, zeroth)
    _, first = h.request(b"a")
    _, second = h.request(b"b")
    _, third = h.request(b"c")
    h.answer(first, 87, step=False)
    h.lose(second, third)
    finish(h, leader)
    assert leader.log == [b"0", b"b", b"c"]
    assert manager(h).producer_epoch == 1


def test_one_partition_in_doubt_does_not_keep_another_one_from_its_new_epoch() -> None:
    h = SenderHarness(partitions=2, brokers=2)
    _, bad = h.request(b"a")
    _, doubtful = h.request(b"b")
    _, gap = h.request(b"c", partition=1)
    h.answer(bad, 87)
    h.lose(doubtful)
    h.client.set_unreachable(0, 10_000)
    h.answer(gap, OUT_OF_ORDER)
    (again,) = h.retry()
    assert (values_of(again), sequence_of(again)) == ([b"c"], (PRODUCER_ID, 1, 0))


# --- Unknown producer id ---


def test_unknown_producer_id_without_a_log_start_offset_is_asked_again_as_it_is() -> None:
    h = SenderHarness()
    (future,), request = h.request(b"a")
    h.answer(request, UNKNOWN_PRODUCER_ID, log_start_offset=-1)
    (again,) = h.retry()
    assert sequence_of(again) == (PRODUCER_ID, 0, 0)
    h.answer(again)
    assert future.exception(0) is None


def test_unknown_producer_id_begins_a_new_epoch() -> None:
    h = SenderHarness()
    _, request = h.request(b"a")
    h.answer(request, base_offset=4)
    (future,), request = h.request(b"b")
    h.answer(request, UNKNOWN_PRODUCER_ID, log_start_offset=10)
    (again,) = h.retry()
    assert sequence_of(again) == (PRODUCER_ID, 1, 0)
    h.answer(again, base_offset=10)
    assert future.get(0).offset == 10


# --- Failures ---


def test_a_refused_batch_does_not_take_those_behind_it_along() -> None:
    h, leader = SenderHarness(), FakeLeader()
    deliver(h, leader, h.request(b"0")[1])
    (refused,), first = h.request(b"a")
    (second,), behind = h.request(b"b")
    h.answer(first, 87)
    deliver(h, leader, behind)
    finish(h, leader)
    assert isinstance(refused.exception(0), errors.InvalidRecordError)
    assert second.exception(0) is None
    assert leader.log == [b"0", b"b"]


def test_a_batch_that_ran_out_of_retries_does_not_take_those_behind_it_along() -> None:
    h, leader = SenderHarness(retries=1), FakeLeader()
    deliver(h, leader, h.request(b"0")[1])
    (given_up,), request = h.request(b"a")
    h.answer(request, NOT_LEADER)
    (request,) = h.retry()
    h.answer(request, NOT_LEADER)
    assert isinstance(given_up.exception(0), errors.NotLeaderOrFollowerError)
    (after,), request = h.request(b"b")
    deliver(h, leader, request)
    assert after.exception(0) is None
    assert leader.log == [b"0", b"b"]


@pytest.mark.parametrize("was_appended", [True, False])
def test_after_the_expiry_of_a_batch_in_flight_the_next_ones_are_delivered_once(was_appended: bool) -> None:
    h, leader = SenderHarness(delivery_timeout_ms=1000), FakeLeader()
    deliver(h, leader, h.request(b"0")[1])
    (expired,), first = h.request(b"a")
    h.clock.advance(500)
    _, second = h.request(b"b")
    if was_appended:
        leader.append(first)
    h.lose(second)
    h.step(500)
    assert isinstance(expired.exception(0), errors.DeliveryTimeoutError)
    new = h.append(b"c")
    h.lose(first)
    finish(h, leader)
    assert leader.log == [b"0", *([b"a"] if was_appended else []), b"b", b"c"]
    assert new.exception(0) is None


def test_new_numbers_are_not_given_while_it_is_open_what_became_of_expired_ones() -> None:
    h = SenderHarness(delivery_timeout_ms=1000)
    (expired,), first = h.request(b"a")
    h.clock.advance(500)
    (second,), request = h.request(b"b")
    h.step(500)
    assert isinstance(expired.exception(0), errors.DeliveryTimeoutError)
    h.append(b"c")
    assert h.send() == []
    h.answer(request, base_offset=1)
    assert second.get(0).offset == 1
    (later,) = h.send()
    assert sequence_of(later) == (PRODUCER_ID, 0, 2), "the second was acknowledged, so the first was appended too"
    h.answer(first)


def test_when_all_open_batches_expired_a_new_epoch_begins() -> None:
    h = SenderHarness(delivery_timeout_ms=1000)
    _, request = h.request(b"a")
    h.step(1000)
    h.append(b"b")
    (later,) = h.send()
    assert sequence_of(later) == (PRODUCER_ID, 1, 0)
    h.answer(request)
    assert manager(h)._partitions[P0].last_acked_sequence == -1, (
        "a response to an earlier epoch does not concern this one"
    )


def test_a_batch_that_expires_before_it_was_sent_leaves_no_gap() -> None:
    h = SenderHarness()
    h.client.backoff(0, DELIVERY_TIMEOUT_MS + 1000)
    expired = h.append(b"a")
    h.step(DELIVERY_TIMEOUT_MS)
    assert isinstance(expired.exception(0), errors.DeliveryTimeoutError)
    h.step(2000)
    _, request = h.request(b"b")
    assert sequence_of(request) == (PRODUCER_ID, 0, 0)


# --- Exhausted epochs ---


def test_when_the_epochs_are_used_up_a_new_producer_id_is_asked_for() -> None:
    h = SenderHarness()
    manager(h).producer_epoch = MAX_PRODUCER_EPOCH
    (future,), request = h.request(b"a")
    h.answer(request, OUT_OF_ORDER)
    assert h.retry() == []
    h.answer_producer_id(4321, 0)
    (again,) = h.retry()
    assert sequence_of(again) == (4321, 0, 0)
    h.answer(again, base_offset=2)
    assert future.get(0).offset == 2


def test_the_last_epoch_is_used() -> None:
    h = SenderHarness()
    manager(h).producer_epoch = MAX_PRODUCER_EPOCH - 1
    _, request = h.request(b"a")
    h.answer(request, OUT_OF_ORDER)
    (again,) = h.retry()
    assert sequence_of(again) == (PRODUCER_ID, MAX_PRODUCER_EPOCH, 0)


# --- Splits ---


def test_the_parts_of_a_split_batch_have_its_numbers() -> None:
    h, leader = SenderHarness(), FakeLeader()
    deliver(h, leader, h.request(b"0")[1])
    _, request = h.request(b"a", b"b", b"c")
    h.answer(request, MESSAGE_TOO_LARGE)
    assert [(batch.base_sequence, batch.count) for batch in manager(h).in_flight(P0)] == [(1, 2), (3, 1)]
    finish(h, leader)
    assert leader.log == [b"0", b"a", b"b", b"c"]
    assert manager(h).producer_epoch == 0


def test_until_a_partitions_first_batch_is_acknowledged_no_second_one_is_on_its_way() -> None:
    # a broker without state for this producer would accept the second batch's sequence number as it is
    h, leader = SenderHarness(established=False), FakeLeader()
    _, first = h.request(b"a")
    h.append(b"b")
    assert h.send() == []
    h.answer(first, NOT_LEADER)
    finish(h, leader)
    assert leader.log == [b"a", b"b"]
    h.request(b"c")
    h.request(b"d")


def test_nothing_new_follows_a_batch_that_is_sent_again_lest_the_broker_forgets_that_it_has_it() -> None:
    h, leader = SenderHarness(), FakeLeader()
    (future,), request = h.request(b"a")
    leader.append(request)
    h.lose(request)
    values = [b"a"]
    for round_ in range(4):
        # the leader has the batch but never checks it: each attempt is rejected for another reason
        for number in range(4):
            values.append(b"%d-%d" % (round_, number))
            h.append(values[-1])
            for request in h.retry():
                if values_of(request) == [b"a"]:
                    h.answer(request, NOT_LEADER)
                else:
                    deliver(h, leader, request)
    finish(h, leader)
    assert leader.log == values
    assert future.get(0).offset == 0
    assert manager(h).producer_epoch == 0


def test_no_more_follow_an_unanswered_batch_at_an_old_leader_than_the_new_one_remembers() -> None:
    h, leader = SenderHarness(brokers=2), FakeLeader()
    (future,), slow = h.request(b"a")
    leader.append(slow)
    moved = metadata_response({"t": 1}, brokers=2, leader_epoch=1)
    moved.topics[0].partitions[0].leader_id = 1
    h.client.update_metadata(moved)
    values = [b"a"]
    for number in range(20):
        values.append(b"%d" % number)
        h.append(values[-1])
        for request in h.send():
            assert request.node_id == 1
            deliver(h, leader, request)
    assert 1 < len(leader.log) <= BATCHES_REMEMBERED
    h.lose(slow)
    finish(h, leader)
    assert leader.log == values
    assert future.get(0).offset == 0
