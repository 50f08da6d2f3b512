"""Overload: which batches are drained, which are passed over, and when an open batch is closed."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.accumulator_bench import BATCH, DELIVERY_MS, MAX_OPEN_MS, NODES, Bench
from support.waiting import wait_until

from headrace.network.protocol.errors import RecordAbortedError
from headrace.producer.accumulator.batch_cy import ProducerBatch

FULL = b"x" * 100  # two don't fit into a batch


def aged(ages_ms: list[int]) -> Bench:
    """A queue of full batches with these ages, oldest first."""
    b = Bench(nodes=NODES[:1])
    for age_ms, next_age_ms in pairwise([*ages_ms, 0]):
        b.append(value=FULL)
        b.clock.advance(age_ms - next_age_ms)
    return b


def ages(b: Bench, batches: list[ProducerBatch]) -> list[float]:
    return [b.clock.now_ms() - batch.created_ms for batch in batches]


def drained(b: Bench, answer_ms: float, *, probe: bool = False, max_bytes: int = 1_000_000) -> list[float]:
    return ages(b, b.drain(0, max_bytes, answer_ms, probe))


# --- Passing over ---


def test_what_would_expire_on_the_way_is_passed_over_and_fails_at_its_deadline() -> None:
    b = aged([950, 901, 900, 100])
    assert drained(b, 100) == [900]
    assert drained(b, 100) == [100]
    assert not b.accumulator.has_undrained
    assert len(b.accumulator.incomplete_batches()) == 4
    assert b.accumulator.expired(b.clock.now_ms()) == []
    assert b.accumulator.next_expiry_ms(b.clock.now_ms()) == 50
    b.clock.advance(49)
    assert b.accumulator.expired(b.clock.now_ms()) == []
    b.clock.advance(1)
    assert ages(b, b.accumulator.expired(b.clock.now_ms())) == [DELIVERY_MS]
    b.clock.advance(49)
    assert ages(b, b.accumulator.expired(b.clock.now_ms())) == [DELIVERY_MS]
    assert b.accumulator.expired(b.clock.now_ms() + DELIVERY_MS) == []


def test_where_nothing_is_in_time_everything_waits_but_a_probe() -> None:
    b = aged([950, 940, 930])
    assert drained(b, 100) == []
    assert drained(b, 100, probe=True) == [950]
    assert drained(b, 60) == [940], "no batch was given up: with a faster broker it is in time"


def test_without_an_estimate_nothing_is_passed_over() -> None:
    b = aged([999, 998])
    assert drained(b, 0) == [999]
    assert drained(b, 0) == [998]


def test_a_batch_with_a_sequence_number_is_not_overtaken() -> None:
    b = aged([950, 100])
    (first,) = b.drain(0, 1000)
    first.base_sequence = 7
    b.accumulator.reenqueue(first, b.clock.now_ms() - 1000)
    assert drained(b, 100) == [950]
    assert drained(b, 100) == [100]


def test_what_does_not_fit_into_the_request_is_not_given_up() -> None:
    b = Bench(nodes=NODES[:1])
    b.append(0, value=FULL)
    b.append(1, value=FULL)
    b.clock.advance(DELIVERY_MS - 50)
    b.append(0, value=FULL)
    b.append(1, value=FULL)
    assert drained(b, 100, max_bytes=1) == [0]
    assert [queue.depth() for queue in b.queues.queues[:2]] == [0, 2]


def test_given_up_batches_are_taken_with_everything_else() -> None:
    b = aged([950, 100, 50])
    assert drained(b, 100) == [100]
    assert sorted(ages(b, b.accumulator.take_everything())) == [50, 950]
    b.clock.advance(DELIVERY_MS)
    assert b.accumulator.expired(b.clock.now_ms()) == []


def test_a_batch_that_was_overtaken_does_not_hide_those_before_it() -> None:
    b = Bench(nodes=NODES[:1])
    b.append(value=FULL)
    overtaken = ProducerBatch("t", 0, bytearray(BATCH), b.clock.now_ms())
    b.clock.advance(500)
    b.append(value=FULL)
    overtaken.closed = True
    b.queues.queues[0].add(overtaken)
    b.clock.advance(450)
    assert drained(b, 100) == [450]
    assert drained(b, 100) == [450]


@given(
    st.lists(st.integers(0, DELIVERY_MS - 1), max_size=20),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, DELIVERY_MS), st.booleans()), max_size=20),
)
def test_each_batch_is_sent_in_order_and_in_time_or_expires_on_time(
    made: list[int], turns: list[tuple[int, int, bool]]
) -> None:
    b = aged(sorted(made, reverse=True))
    made_ms = sorted(b.clock.now_ms() - age for age in made)
    sent: list[float] = []
    gone: list[float] = []

    def expire() -> None:
        for batch in b.accumulator.expired(b.clock.now_ms()):
            gone.append(batch.created_ms)
            assert b.clock.now_ms() - batch.created_ms >= DELIVERY_MS

    for wait_ms, answer_ms, probe in turns:
        b.clock.advance(wait_ms)
        expire()
        now_ms = b.clock.now_ms()
        assert b.accumulator.next_expiry_ms(now_ms) > 0
        for batch in b.drain(0, 1_000_000, answer_ms, probe):
            sent.append(batch.created_ms)
            assert probe or now_ms + answer_ms <= batch.created_ms + DELIVERY_MS
    assert sent == sorted(sent)
    b.clock.advance(DELIVERY_MS)
    expire()
    assert sorted(sent + gone) == made_ms


# --- Open batches ---


def test_a_batch_takes_no_more_records_when_its_first_is_old() -> None:
    b = Bench()
    b.append(value=b"1")
    assert b.accumulator.expired(b.clock.now_ms()) == []
    assert b.accumulator.next_expiry_ms(b.clock.now_ms()) == MAX_OPEN_MS
    b.clock.advance(MAX_OPEN_MS - 1)
    b.accumulator.expired(b.clock.now_ms())
    b.append(value=b"2")
    assert b.queues.queues[0].depth() == 1
    b.clock.advance(1)
    b.accumulator.expired(b.clock.now_ms())
    b.append(value=b"3")
    assert b.queues.queues[0].depth() == 2
    assert [batch.count for batch in b.drain()] == [2]


def test_lingering_is_not_cut_short() -> None:
    b = Bench(linger_ms=5 * MAX_OPEN_MS)
    b.append(value=b"1")
    b.clock.advance(4 * MAX_OPEN_MS)
    b.accumulator.expired(b.clock.now_ms())
    b.append(value=b"2")
    assert b.queues.queues[0].depth() == 1
    assert b.ready() == []


# --- Memory pressure ---


@pytest.mark.parametrize("pressed", [True, False])
def test_where_memory_is_waited_for_the_batches_that_free_most_come_first(pressed: bool) -> None:
    b = Bench(partitions=5, nodes=NODES[:1], memory=8 * BATCH, batch_size=5 * BATCH)
    for partition, size in enumerate([1, 1, 2 * BATCH - 90, 1]):
        b.append(partition, value=b"v" * size)
    thread = threading.Thread(target=lambda: b.append(4, value=b"v" * 4 * BATCH, max_block_ms=60_000), daemon=True)
    if pressed:
        thread.start()
        wait_until(lambda: b.pool.waiting)
    assert b.accumulator.ready(b.clock.now_ms(), busy={0}).nodes == {}
    b.ready()
    batches = b.accumulator.drain(0, 700, b.clock.now_ms())
    assert [batch.partition for batch in batches] == ([2, 0, 1, 3] if pressed else [])
    for batch in batches:
        batch.fail(RecordAbortedError("the test is over"))
        b.accumulator.release(batch)
    if pressed:
        thread.join(30)


class OneAtATime:
    """Transactions that allow a partition one batch until its response."""

    def __init__(self) -> None:
        self.in_flight: set[int] = set()

    def may_drain(self, batch: ProducerBatch) -> bool:
        return batch.partition not in self.in_flight


def test_a_batch_that_may_not_be_sent_yet_keeps_no_memory_of_others_from_who_waits_for_it() -> None:
    transactions = OneAtATime()
    b = Bench(
        partitions=3,
        nodes=NODES[:1],
        memory=8 * BATCH,
        batch_size=4 * BATCH,
        linger_ms=60_000,
        transactions=transactions,
    )
    b.append(0, value=b"v" * 5 * BATCH)
    (sent,) = b.drain()
    transactions.in_flight.add(sent.partition)
    b.accumulator.release(sent)
    b.append(0, value=b"v" * BATCH)
    b.append(0, value=b"v" * 4 * BATCH)
    b.append(1, value=b"v" * BATCH)
    thread = threading.Thread(target=lambda: b.append(2, value=b"v" * BATCH, max_block_ms=60_000), daemon=True)
    thread.start()
    wait_until(lambda: b.pool.waiting)
    assert b.ready() == [0]
    (batch,) = b.accumulator.drain(0, 1_000_000, b.clock.now_ms())
    assert batch.partition == 1
    batch.fail(RecordAbortedError("the test is over"))
    b.accumulator.release(batch)
    thread.join(30)
    assert not thread.is_alive()


# --- Retries ---


def test_batches_that_come_back_are_in_order_again_and_expire_in_order() -> None:
    b = aged([500, 300, 100])
    first, second = (b.drain()[0] for _ in range(2))
    for batch in (first, second):
        b.accumulator.reenqueue(batch, b.clock.now_ms())
    assert ages(b, list(b.queues.queues[0].batches)) == [500, 300, 100]
    b.clock.advance(DELIVERY_MS - 500)
    assert b.accumulator.expired(b.clock.now_ms()) == [first]
