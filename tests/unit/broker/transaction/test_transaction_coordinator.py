"""The coordinator, stepped by hand: the test finishes writes and markers, and time is virtual."""

from __future__ import annotations

import itertools

import pytest

from headrace.broker.config.broker_config import BrokerConfig
from headrace.broker.transaction.coordinator import NO_PRODUCER, TransactionCoordinator
from headrace.broker.transaction.states import TransactionState
from headrace.broker.transaction.transaction import LAST_EPOCH_OF_CLIENTS, ProducerIdAndEpoch, Transaction
from headrace.network.clock import MockClock
from headrace.network.protocol.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    NotCoordinatorError,
    ProducerFencedError,
)

CLASSIC, BUMPED = 1, 2
T0 = ("t", 0)
S = TransactionState


class Store:
    """Keeps transactions in memory. A write waits until the test finishes it."""

    def __init__(self, level):
        self.level = lambda: level
        self.known = {}
        self.writes = []
        self.is_coordinator = True

    def find(self, transactional_id, make=None):
        if not self.is_coordinator:
            raise NotCoordinatorError("moved")
        if transactional_id not in self.known and make is not None:
            self.known[transactional_id] = make(0)
        return self.known.get(transactional_id)

    def is_current(self, transaction):
        return self.is_coordinator

    def transactions(self):
        return list(self.known.values())

    def append(self, transaction, values, done, *, then_pending=None, keeps_pending=False):
        assert transaction.pending is values.state
        self.writes.append((transaction, values, done, then_pending, keeps_pending))

    def remove(self, transaction, done):
        assert transaction.pending is S.DEAD
        del self.known[transaction.transactional_id]
        done(None)

    def finish(self, error=None):
        """Finish the oldest write. Returns the values."""
        transaction, values, done, then_pending, keeps_pending = self.writes.pop(0)
        if error is None:
            transaction.values, transaction.pending = values, then_pending
        elif not keeps_pending:
            transaction.pending = None
        done(error)
        return values


class Markers:
    """Records the transactions that need markers."""

    def __init__(self):
        self.asked = []

    def mark(self, transaction, on_marked):
        self.asked.append((transaction, on_marked))

    def finish(self):
        transaction, on_marked = self.asked.pop(0)
        on_marked(transaction)


class Timer:
    """Runs tasks when the test advances the clock."""

    def __init__(self, clock):
        self.clock = clock
        self.tasks = []

    def add(self, task):
        self.tasks.append((self.clock.wall_ms() + task.delay_ms, task))

    def advance(self, ms):
        self.clock.advance(ms)
        due = [each for each in self.tasks if each[0] <= self.clock.wall_ms()]
        self.tasks = [each for each in self.tasks if each not in due]
        for _, task in due:
            task.run()


class Harness:
    def __init__(self, level):
        self.clock = MockClock(wall_ms=1_000_000)
        self.store, self.markers, self.timer = Store(level), Markers(), Timer(self.clock)
        self.level = level
        ids = itertools.count(100)
        self.coordinator = TransactionCoordinator(
            config=BrokerConfig.resolve_from({}, {}, {}),
            clock=self.clock,
            timer=self.timer,
            store=self.store,
            markers=self.markers,
            next_producer_id=lambda: next(ids),
        )
        self.answers = []

    def respond(self, error, producer=NO_PRODUCER):
        self.answers.append((type(error) if error else None, producer))

    def init(self, name="x", timeout_ms=60_000, expected=None, *, writes=True):
        self.coordinator.init_producer_id(name, timeout_ms, expected, self.respond)
        if writes:
            self.store.finish()
        return self.answers[-1][1]

    def add(self, producer, *, writes=True):
        self.coordinator.add_partitions("x", producer, [T0], self.level, self.respond)
        if writes:
            self.store.finish()

    def end(self, producer, *, is_commit=True):
        self.coordinator.end("x", producer, self.level, self.respond, is_commit=is_commit)

    @property
    def error(self):
        return self.answers[-1][0]

    @property
    def state(self):
        return self.store.known["x"].values.state


@pytest.fixture(params=[CLASSIC, BUMPED], ids=["classic", "bumped"])
def harness(request):
    return Harness(request.param)


def test_a_transaction_from_begin_to_end(harness):
    producer = harness.init()
    assert producer == (100, 0)
    harness.add(producer)
    assert harness.state is S.ONGOING
    harness.end(producer)
    assert harness.state is S.ONGOING  # not decided before the decision is written
    assert harness.markers.asked == []
    harness.store.finish()
    expected = (100, 1) if harness.level == BUMPED else (100, 0)
    assert harness.answers[-1] == (None, expected)
    assert harness.state is S.PREPARE_COMMIT
    harness.markers.finish()
    harness.store.finish()
    assert harness.state is S.COMPLETE_COMMIT
    assert harness.store.known["x"].pending is None


def test_nothing_else_happens_while_a_change_is_written(harness):
    producer = harness.init()
    harness.add(producer, writes=False)
    for request in (
        lambda: harness.add(producer, writes=False),
        lambda: harness.end(producer),
        lambda: harness.init(writes=False),
    ):
        request()
        assert harness.error is ConcurrentTransactionsError
    assert len(harness.store.writes) == 1
    harness.store.finish()
    harness.end(producer)
    harness.store.finish()
    for request in (lambda: harness.add(harness.answers[-1][1], writes=False), lambda: harness.init(writes=False)):
        request()
        assert harness.error is ConcurrentTransactionsError


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_next_epoch_waits_for_the_markers_of_the_last_one(is_commit):
    harness = Harness(BUMPED)
    producer = harness.init()
    harness.add(producer)
    harness.end(producer)
    harness.store.finish()
    following = harness.answers[-1][1]
    # franz-go aborts what it began at once, and regards an epoch that is fenced as lost
    harness.end(following, is_commit=is_commit)
    assert harness.error is ConcurrentTransactionsError
    harness.markers.finish()
    harness.store.finish()
    harness.add(following)
    harness.end(following, is_commit=is_commit)
    assert harness.store.writes != []


def test_a_failed_write_changes_nothing(harness):
    producer = harness.init()
    harness.add(producer)
    harness.end(producer)
    harness.store.finish(CoordinatorNotAvailableError("too few replicas"))
    assert harness.error is CoordinatorNotAvailableError
    assert harness.state is S.ONGOING
    harness.end(producer, is_commit=False)
    harness.store.finish()
    assert harness.state is S.PREPARE_ABORT


def test_the_last_write_is_repeated_until_it_succeeds(harness):
    producer = harness.init()
    harness.add(producer)
    harness.end(producer)
    harness.store.finish()
    harness.markers.finish()
    for _ in range(3):
        harness.store.finish(CoordinatorNotAvailableError("too few replicas"))
        assert harness.store.writes == []
        harness.timer.advance(100)
    harness.store.finish()
    assert harness.state is S.COMPLETE_COMMIT


def test_ending_again(harness):
    producer = harness.init()
    harness.add(producer)
    harness.end(producer)
    harness.store.finish()
    answer = harness.answers[-1]
    harness.end(producer)
    assert harness.error is ConcurrentTransactionsError
    harness.markers.finish()
    harness.store.finish()
    harness.end(producer)
    assert harness.answers[-1] == answer
    harness.end(producer, is_commit=False)
    assert harness.error is InvalidTxnStateError
    assert harness.store.writes == []


def test_without_partitions_only_the_newer_protocol_aborts(harness):
    producer = harness.init()
    harness.end(producer)
    assert harness.error is InvalidTxnStateError
    harness.end(producer, is_commit=False)
    if harness.level == CLASSIC:
        assert harness.error is InvalidTxnStateError
    else:
        harness.store.finish()
        assert harness.answers[-1] == (None, (100, 1))


def test_a_second_producer_aborts_the_first(harness):
    old = harness.init()
    harness.add(old)
    harness.init(writes=False)
    harness.store.finish()
    assert harness.error is ConcurrentTransactionsError
    assert harness.state is S.PREPARE_ABORT
    assert harness.store.known["x"].values.producer_epoch == 1
    harness.markers.finish()
    harness.store.finish()
    new = harness.init()
    assert new == (100, 2)
    harness.add(old, writes=False)
    assert harness.error is ProducerFencedError
    harness.end(old)
    assert harness.error is ProducerFencedError


def test_a_transaction_times_out(harness):
    producer = harness.init(timeout_ms=5000)
    harness.clock.advance(1000)
    harness.add(producer)
    harness.timer.advance(5000)
    assert harness.store.writes == []
    harness.timer.advance(1)
    harness.store.finish()
    assert harness.state is S.PREPARE_ABORT
    harness.markers.finish()
    harness.store.finish()
    assert harness.store.known["x"].values.producer_epoch == 1
    harness.end(producer)
    assert harness.error in (ProducerFencedError, InvalidTxnStateError)


def test_the_timeout_waits_for_a_write_and_repeats_what_fails(harness):
    producer = harness.init(timeout_ms=5000)
    harness.add(producer)
    harness.coordinator.add_partitions("x", producer, [("u", 0)], harness.level, harness.respond)
    harness.timer.advance(5001)
    assert len(harness.store.writes) == 1
    harness.store.finish()
    harness.timer.advance(100)
    harness.store.finish(CoordinatorNotAvailableError("too few replicas"))
    assert harness.state is S.ONGOING
    harness.timer.advance(9_999)
    assert harness.store.writes == []
    harness.timer.advance(1)
    harness.store.finish()
    assert harness.state is S.PREPARE_ABORT


def test_each_transaction_has_its_own_timeout(harness):
    producer = harness.init(timeout_ms=5000)
    for _ in range(3):
        harness.add(producer)
        harness.timer.advance(3000)
        harness.end(producer)
        harness.store.finish()
        producer = harness.answers[-1][1]
        harness.markers.finish()
        harness.store.finish()
        assert harness.state is S.COMPLETE_COMMIT
    harness.add(producer)
    harness.timer.advance(5001)
    harness.store.finish()
    assert harness.state is S.PREPARE_ABORT


def test_what_another_coordinator_left_is_taken_up(harness):
    producer = harness.init(timeout_ms=5000)
    harness.add(producer)
    ongoing = harness.store.known["x"].values
    harness.end(producer)
    harness.store.finish()
    prepared = harness.store.known["x"].values
    other = Harness(harness.level)
    for name, values in (("x", ongoing), ("prepared", prepared)):
        other.store.known[name] = Transaction(name, 1, values)
    other.store.known["prepared"].pending = S.COMPLETE_COMMIT
    other.coordinator.store.on_loaded(other.store.transactions())
    other.markers.finish()
    other.store.finish()
    assert other.store.known["prepared"].values.state is S.COMPLETE_COMMIT
    other.timer.advance(5001)
    other.store.finish()
    assert other.state is S.PREPARE_ABORT


def test_wrong_requests(harness):
    producer = harness.init()
    for timeout_ms in (0, -1, 900_001):
        harness.init(timeout_ms=timeout_ms, writes=False)
        assert harness.error is InvalidTransactionTimeoutError
    harness.init("", writes=False)
    assert harness.error is InvalidRequestError
    harness.add(ProducerIdAndEpoch(99, 0), writes=False)
    assert harness.error is InvalidProducerIdMappingError
    harness.add(producer._replace(producer_epoch=1), writes=False)
    assert harness.error is ProducerFencedError
    harness.coordinator.end("nobody", producer, harness.level, harness.respond, is_commit=True)
    assert harness.error is InvalidProducerIdMappingError
    harness.init(expected=ProducerIdAndEpoch(5, 0), writes=False)
    assert harness.error is ProducerFencedError
    harness.store.is_coordinator = False
    harness.end(producer)
    assert harness.error is NotCoordinatorError
    assert harness.store.writes == []


def test_the_epochs_run_out(harness):
    producer = harness.init()
    transaction = harness.store.known["x"]
    transaction.values = transaction.values._replace(producer_epoch=LAST_EPOCH_OF_CLIENTS)
    producer = ProducerIdAndEpoch(100, LAST_EPOCH_OF_CLIENTS)
    harness.add(producer)
    harness.end(producer)
    prepared = harness.store.finish()
    answer = harness.answers[-1]
    assert prepared.producer_id == 100  # that of the markers
    harness.markers.finish()
    harness.store.finish()
    if harness.level == BUMPED:
        assert answer == (None, (101, 0))
        harness.end(producer)
        assert harness.answers[-1] == answer
        harness.add(ProducerIdAndEpoch(101, 0))
        assert harness.error is None
    else:
        assert answer == (None, producer)
        assert harness.init(expected=producer) == (101, 0)
        # Again, because the response was lost.
        assert harness.init(expected=producer) == (101, 0)


def test_ids_expire_unless_they_are_in_use(harness):
    producer = harness.init()
    harness.init("idle")
    harness.add(producer)
    harness.clock.advance(604_800_000)
    harness.coordinator.expire()
    assert set(harness.store.known) == {"x"}
