"""The table of a transaction's states, and the values that each event leads to."""

from __future__ import annotations

import pytest

from headrace.broker.transaction.states import TABLE, Event, Outcome, TransactionState, outcome_of
from headrace.broker.transaction.transaction import LAST_EPOCH_OF_CLIENTS, MAX_EPOCH, TransactionValues
from headrace.network.protocol.errors import ConcurrentTransactionsError, InvalidTxnStateError, ProducerFencedError

S, E = TransactionState, Event
T0 = frozenset({("t", 0)})


def values(**fields):
    return TransactionValues(
        **{"producer_id": 7, "producer_epoch": 3, "timeout_ms": 1000, "state": S.EMPTY, "update_ms": 5, **fields}
    )


def test_only_kafkas_transitions_are_in_the_table():
    # Kafka's `validPreviousStates`, of each state.
    previous = {
        S.EMPTY: {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
        S.ONGOING: {S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
        S.PREPARE_COMMIT: {S.ONGOING},
        S.PREPARE_ABORT: {S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
        S.COMPLETE_COMMIT: {S.PREPARE_COMMIT},
        S.COMPLETE_ABORT: {S.PREPARE_ABORT},
        S.DEAD: {S.EMPTY, S.COMPLETE_ABORT, S.COMPLETE_COMMIT},
    }
    found = {state: set() for state in S}
    for state, row in TABLE.items():
        for outcome in row.values():
            if outcome.state is not None:
                found[outcome.state].add(state)
    assert found == previous


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_a_decision_is_never_taken_back(state):
    for event in Event:
        outcome = outcome_of(state, event)
        if event is E.MARKED:
            assert outcome.state in (S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
        else:
            assert outcome == Outcome(error=ConcurrentTransactionsError)


def test_a_repeated_end_is_done_or_contradicts():
    assert outcome_of(S.COMPLETE_COMMIT, E.COMMIT_AGAIN) == Outcome()
    assert outcome_of(S.COMPLETE_ABORT, E.ABORT_AGAIN) == Outcome()
    assert outcome_of(S.COMPLETE_COMMIT, E.ABORT_AGAIN).error is InvalidTxnStateError
    assert outcome_of(S.COMPLETE_ABORT, E.COMMIT_AGAIN).error is InvalidTxnStateError
    assert outcome_of(S.DEAD, E.INIT).error is ConcurrentTransactionsError


def test_labels_are_kafkas():
    assert [state.label for state in S] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
    ]


def test_init_bumps_the_epoch():
    fresh = values(producer_epoch=-1).initialised(None, 2000, 9, None)
    assert (fresh.producer_epoch, fresh.last_producer_epoch, fresh.timeout_ms) == (0, -1, 2000)
    again = fresh.initialised(None, 2000, 9, None)
    assert (again.producer_epoch, again.last_producer_epoch) == (1, -1)


def test_a_producer_goes_on_with_its_epoch_and_may_repeat_that():
    next_values = values().initialised(3, 1000, 9, None)
    assert (next_values.producer_epoch, next_values.last_producer_epoch) == (4, 3)
    assert next_values.initialised(3, 1000, 9, None).producer_epoch == 4
    with pytest.raises(ProducerFencedError, match="epoch 2"):
        next_values.initialised(2, 1000, 9, None)


def test_another_id_when_the_epochs_are_exhausted():
    last = values(producer_epoch=LAST_EPOCH_OF_CLIENTS)
    assert last.is_exhausted
    assert not values(producer_epoch=LAST_EPOCH_OF_CLIENTS - 1).is_exhausted
    rotated = last.initialised(LAST_EPOCH_OF_CLIENTS, 1000, 9, 8)
    assert (rotated.producer_id, rotated.producer_epoch, rotated.previous_producer_id) == (8, 0, 7)
    assert rotated.last_producer_epoch == LAST_EPOCH_OF_CLIENTS


def test_the_start_is_that_of_the_first_partition():
    begun = values().with_partitions(T0, 100, 0)
    more = begun.with_partitions(frozenset({("u", 1)}), 200, 0)
    assert (begun.start_ms, more.start_ms, more.update_ms) == (100, 100, 200)
    assert more.partitions == {("t", 0), ("u", 1)}


@pytest.mark.parametrize(
    ("level", "fences", "epoch", "last_epoch"),
    [(0, False, 3, -1), (1, True, 4, -1), (2, False, 4, 3), (2, True, 4, 3)],
)
def test_the_epoch_of_a_decision(level, fences, epoch, last_epoch):
    """Since level 2 each transaction has its own epoch, and fencing needs no further one (KAFKA-19367)."""
    ongoing = values().with_partitions(T0, 100, level)
    decided = ongoing.prepared(S.PREPARE_ABORT, 200, client_level=level, next_producer_id=-1, fences=fences)
    assert (decided.producer_epoch, decided.last_producer_epoch, decided.start_ms) == (epoch, last_epoch, 100)
    done = decided.completed(300)
    assert (done.state, done.producer_epoch, done.partitions, done.update_ms) == (
        S.COMPLETE_ABORT,
        epoch,
        frozenset(),
        300,
    )


def test_the_last_epoch_ends_with_the_next_id():
    ongoing = values(producer_epoch=LAST_EPOCH_OF_CLIENTS).with_partitions(T0, 100, 2)
    decided = ongoing.prepared(S.PREPARE_COMMIT, 200, client_level=2, next_producer_id=8, fences=False)
    assert (decided.producer_id, decided.producer_epoch) == (7, MAX_EPOCH)  # that of the markers
    done = decided.completed(300)
    assert (done.producer_id, done.producer_epoch, done.previous_producer_id) == (8, 0, 7)
    assert done.last_producer_epoch == LAST_EPOCH_OF_CLIENTS
    assert done.next_producer_id == -1
