"""The stash: who waits for a topic's records to be taken up sleeps no longer than they are in it."""

from __future__ import annotations

import threading

import pytest

from headrace.network.clock import SYSTEM_CLOCK
from headrace.producer.accumulator.batch_cy import ProducerBatch, RecordFuture
from headrace.producer.accumulator.stash import Stash, StashedRecord

PATIENCE_S = 60.0


def stashed(stash: Stash, topic: str) -> ProducerBatch:
    batch = ProducerBatch(topic, 0, bytearray(100), 1_000.0)
    stash.put(StashedRecord(batch, RecordFuture(), 0, 0, b"k", b"v", None))
    return batch


@pytest.mark.parametrize("older", [True, False])
def test_a_thread_that_waits_for_a_record_is_woken_when_it_is_taken_back(older: bool) -> None:
    stash = Stash()
    batch = stashed(stash, "t")
    taken_up = stash._taken_up
    never_ms = SYSTEM_CLOCK.now_ms() + 1e3 * PATIENCE_S
    thread = threading.Thread(target=stash.await_taken_up, args=("t", SYSTEM_CLOCK, never_ms), daemon=True)
    thread.start()
    assert (stash.take_back_older(1_000.0) == [batch]) if older else stash.take_back(batch)
    assert taken_up.is_set
    thread.join(PATIENCE_S / 2)
    assert not thread.is_alive()


def test_the_next_thread_sleeps_again_once_the_sender_has_looked() -> None:
    stash = Stash()
    stash.take_back(stashed(stash, "t"))
    stashed(stash, "t")
    stash.note_taken_up()
    assert not stash._taken_up.is_set
