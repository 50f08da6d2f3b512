"""A leader that adds partitions to a transaction asks again while the transaction before it ends."""

from __future__ import annotations

import pytest

from headrace.broker.timer import SystemTimer
from headrace.broker.transaction.enrolment import Enrolment, EnrolmentClient
from headrace.network.clock import MockClock
from headrace.network.protocol.errors import ConcurrentTransactionsError, InvalidTxnStateError

PARTITION = ("topic", 0)
BUSY = {PARTITION: ConcurrentTransactionsError("it is ending")}


class Inline:
    """Runs the tasks of a timer on the thread that advances it."""

    def submit(self, task):
        task()

    def shutdown(self):
        pass


class Coordinator:
    """Every transaction's coordinator is broker 7."""

    def leader_of(self, _transactional_id, *, make):
        assert not make
        return 7


class Asked(EnrolmentClient):
    """Notes what would be sent to the coordinator."""

    def __init__(self, backoff_ms=20, patience_ms=100):
        self.clock = MockClock()
        self.timer = SystemTimer("test", clock=self.clock, executor=Inline())
        self.sent = []
        super().__init__(
            1,
            backoff_ms=backoff_ms,
            patience_ms=patience_ms,
            clock=self.clock,
            timer=self.timer,
            connector=None,
            image=None,
            transactions=Coordinator(),
        )

    def send(self, node_id, item):
        assert node_id == 7
        self.sent.append(item)

    def answer(self, errors):
        self.sent.pop().done(errors)

    def advance(self, ms):
        self.clock.advance(ms)
        self.timer.advance_clock(0)


def enrol(client, *, adds=True):
    outcomes = []
    client.enrol(Enrolment("id", 1, 0, [PARTITION], adds=adds, knows_abortable=True, done=outcomes.append))
    return outcomes


def test_it_asks_again_after_the_backoff_and_reports_the_last_answer_only():
    client = Asked()
    outcomes = enrol(client)
    client.answer(BUSY)
    client.advance(19)
    assert client.sent == []
    client.advance(1)
    client.answer(BUSY)
    assert outcomes == []
    client.advance(20)
    client.answer({})
    assert outcomes == [{}]
    client.advance(1000)
    assert client.sent == []


def test_it_reports_the_error_once_its_patience_is_over():
    client = Asked(backoff_ms=30, patience_ms=50)
    outcomes = enrol(client)
    client.answer(BUSY)
    client.advance(30)
    client.answer(BUSY)
    client.advance(30)
    assert outcomes == []
    client.answer(BUSY)
    assert outcomes == [BUSY]
    client.advance(1000)
    assert client.sent == []


@pytest.mark.parametrize(
    ("adds", "errors"),
    [
        pytest.param(False, BUSY, id="a verification"),
        pytest.param(True, {PARTITION: InvalidTxnStateError("it is over")}, id="another error"),
    ],
)
def test_it_does_not_ask_again_for(adds, errors):
    client = Asked()
    outcomes = enrol(client, adds=adds)
    client.answer(errors)
    assert outcomes == [errors]
    client.advance(1000)
    assert client.sent == []
