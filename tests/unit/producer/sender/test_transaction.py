"""The table of states and events of transactions, and the rule for calls that timed out."""

from __future__ import annotations

import contextlib
import re
import threading

import pytest

from headrace.network.clock import MockClock
from headrace.network.cluster import TopicPartition
from headrace.network.protocol.errors import (
    IllegalStateError,
    KafkaTimeoutError,
    ProducerClosedError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    UnrecognizedBrokerError,
)
from headrace.network.protocol.other_errors import BrokerNotAvailableError
from headrace.producer.sender.transaction import (
    ENDING,
    TABLE,
    Action,
    Event,
    GroupMember,
    Offset,
    State,
    Transaction,
)

OFFSETS = {TopicPartition("t", 0): Offset(5)}


class Woken:
    """A transaction whose calls time out at once. Counts wake-ups of the sender."""

    def __init__(self) -> None:
        self.count = 0
        self.transaction = Transaction("id", clock=MockClock(), max_block_ms=0, wakeup=self.wake)

    def wake(self) -> None:
        self.count += 1


@pytest.fixture
def transaction() -> Transaction:
    return Woken().transaction


def opened() -> Transaction:
    """A transaction that has begun."""
    transaction = Woken().transaction
    with pytest.raises(KafkaTimeoutError):
        transaction.init()
    transaction.assigned()
    transaction.init()
    transaction.begin()
    return transaction


def test_every_state_has_a_way_to_fatal_error_and_no_way_out_of_it() -> None:
    assert all(TABLE[state, Event.FATAL][0] is State.FATAL_ERROR for state in State)
    assert [event for (state, event) in TABLE if state is State.FATAL_ERROR] == [Event.FATAL]


def test_every_state_but_the_first_is_reached_and_every_call_that_waits_can_end() -> None:
    reached = {state for state, _ in TABLE.values()}
    assert reached == set(State)
    waiting = {state for state, action in TABLE.values() if action is Action.WAIT}
    assert waiting == {State.INITIALIZING, State.IN_TRANSACTION, State.COMMITTING, State.ABORTING}
    for state in waiting | ENDING:
        ends = {action for (each, _), (_, action) in TABLE.items() if each is state}
        assert ends & {Action.RETURN, Action.RAISE, Action.KEEP}, state


CALLS = ("init", "begin", "commit", "abort", "send_offsets", "check_send")
ALLOWED = {
    State.UNINITIALIZED: {"init"},
    State.READY: {"begin"},
    State.IN_TRANSACTION: {"commit", "abort", "send_offsets", "check_send"},
}


@pytest.mark.parametrize("state", list(State), ids=lambda state: state.name)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_in_a_state_that_does_not_allow_it_says_why(transaction: Transaction, state: State, call: str) -> None:
    transaction.state = state
    transaction.error = ProducerFencedError("because") if state is State.FATAL_ERROR else None
    if state is State.ABORTABLE_ERROR:
        transaction.error = TransactionAbortableError("because")
    arguments = (OFFSETS, GroupMember("g")) if call == "send_offsets" else ()
    allowed = call in ALLOWED.get(state, set()) or (state, call) == (State.ABORTABLE_ERROR, "abort")
    expected = {
        State.FATAL_ERROR: (ProducerFencedError, "close it and create a new one .because."),
        State.ABORTABLE_ERROR: (TransactionAbortableError, "is not possible: because"),
    }.get(state, (IllegalStateError, re.escape(f"the producer {state.value}")))
    if (call, state) == ("init", State.READY):
        expected = IllegalStateError, "init_transactions was called before"
    if allowed:
        with contextlib.suppress(KafkaTimeoutError):
            getattr(transaction, call)(*arguments)
        return
    with pytest.raises(expected[0], match=expected[1]):
        getattr(transaction, call)(*arguments)
    assert transaction.state is state


def test_a_call_that_timed_out_can_be_repeated_and_nothing_else_can_follow() -> None:
    woken = Woken()
    transaction = woken.transaction
    with pytest.raises(KafkaTimeoutError, match=r"init_transactions did not finish within max.block.ms"):
        transaction.init()
    assert woken.count == 1
    for _ in range(2):
        with pytest.raises(IllegalStateError, match=r"begin_transaction can't follow init_transactions"):
            transaction.begin()
        with pytest.raises(KafkaTimeoutError):
            transaction.init()
    transaction.assigned()
    with pytest.raises(IllegalStateError, match=r"call init_transactions again first"):
        transaction.begin()
    transaction.init()
    transaction.begin()


def test_the_outcome_of_a_call_that_timed_out_is_kept_for_the_same_call() -> None:
    transaction = opened()
    with pytest.raises(KafkaTimeoutError):
        transaction.commit()
    transaction.abortable(BrokerNotAvailableError("gone"))
    assert transaction.state is State.ABORTABLE_ERROR
    with pytest.raises(IllegalStateError, match=r"abort_transaction can't follow commit_transaction"):
        transaction.abort()
    with pytest.raises(TransactionAbortableError, match=r"gone") as caught:
        transaction.commit()
    assert isinstance(caught.value.__cause__, BrokerNotAvailableError)
    with pytest.raises(KafkaTimeoutError):
        transaction.abort()
    transaction.ended()
    transaction.abort()
    assert transaction.state is State.READY


def test_the_error_of_a_timeout_names_what_the_sender_waits_for() -> None:
    transaction = opened()
    transaction.obstacle = BrokerNotAvailableError("port 1 is closed")
    with pytest.raises(
        KafkaTimeoutError, match=r"port 1 is closed. It continues: call commit_transaction again"
    ) as late:
        transaction.commit()
    assert late.value.__cause__ is transaction.obstacle


def test_offsets_that_timed_out_are_repeated_with_the_same_arguments_or_aborted() -> None:
    transaction = opened()
    member = GroupMember("g", 3, "m")
    with pytest.raises(KafkaTimeoutError):
        transaction.send_offsets(OFFSETS, member)
    with pytest.raises(IllegalStateError, match=r"again with the same arguments first"):
        transaction.commit()
    with pytest.raises(IllegalStateError, match=r"with the same arguments"):
        transaction.send_offsets({TopicPartition("t", 0): Offset(6)}, member)
    pending = transaction.offsets()
    with pytest.raises(KafkaTimeoutError):
        transaction.send_offsets(dict(OFFSETS), member)
    assert pending is not None
    assert transaction.offsets() is pending
    with pytest.raises(KafkaTimeoutError):
        transaction.abort()
    assert transaction.offsets() is None
    assert transaction.state is State.ABORTING


def test_offsets_return_when_the_last_one_is_committed() -> None:
    transaction = opened()
    two = {TopicPartition("t", 0): Offset(5), TopicPartition("t", 1): Offset(6)}
    with pytest.raises(KafkaTimeoutError):
        transaction.send_offsets(two, GroupMember("g"))
    pending = transaction.offsets()
    assert pending is not None
    transaction.offsets_committed(pending, [TopicPartition("t", 0)])
    assert transaction.offsets() is pending
    transaction.offsets_committed(pending, [TopicPartition("t", 1)])
    transaction.send_offsets(two, GroupMember("g"))
    assert transaction.state is State.IN_TRANSACTION


def test_an_abortable_error_ends_pending_offsets() -> None:
    transaction = opened()
    with pytest.raises(KafkaTimeoutError):
        transaction.send_offsets(OFFSETS, GroupMember("g"))
    transaction.abortable(BrokerNotAvailableError("gone"))
    with pytest.raises(TransactionAbortableError, match=r"gone"):
        transaction.send_offsets(OFFSETS, GroupMember("g"))


def test_an_initialization_that_is_refused_may_be_repeated(transaction: Transaction) -> None:
    with pytest.raises(KafkaTimeoutError):
        transaction.init()
    transaction.denied(TransactionalIdAuthorizationFailedError("no"))
    with pytest.raises(TransactionalIdAuthorizationFailedError, match=r"no"):
        transaction.init()
    with pytest.raises(KafkaTimeoutError):
        transaction.init()
    transaction.assigned()
    transaction.init()


def test_an_authorization_that_is_lost_later_is_fatal() -> None:
    transaction = opened()
    transaction.denied(TransactionalIdAuthorizationFailedError("no"))
    with pytest.raises(TransactionalIdAuthorizationFailedError, match=r"close it and create a new one"):
        transaction.abort()


def test_a_fatal_error_keeps_its_class_and_code() -> None:
    transaction = opened()
    transaction.fatal(UnrecognizedBrokerError("new", 999))
    transaction.fatal(BrokerNotAvailableError("a later one is ignored"))
    with pytest.raises(UnrecognizedBrokerError) as caught:
        transaction.check_send()
    assert caught.value.code == 999


def test_the_first_abortable_error_is_kept() -> None:
    transaction = opened()
    transaction.abortable(BrokerNotAvailableError("first"))
    transaction.abortable(BrokerNotAvailableError("second"))
    assert "first" in str(transaction.aborted_error())
    assert transaction.is_doomed


def test_a_waiting_thread_is_released() -> None:
    transaction = Transaction("id", clock=MockClock(), max_block_ms=1000, wakeup=lambda: None)
    outcome: list[str] = []

    def call() -> None:
        try:
            transaction.init()
        except ProducerClosedError as closed:
            outcome.append(str(closed))

    thread = threading.Thread(target=call)
    thread.start()
    while transaction.state is not State.INITIALIZING:
        pass
    transaction.fail_pending(ProducerClosedError("closed"))
    thread.join()
    assert outcome == ["closed"]


def test_closing_aborts_an_open_transaction_and_nothing_else() -> None:
    transaction = opened()
    transaction.close()
    assert transaction.state is State.ABORTING
    assert transaction.is_ending
    idle = Woken().transaction
    idle.close()
    assert idle.state is State.UNINITIALIZED
    assert not idle.is_open
