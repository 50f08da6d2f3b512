"""A topic's batches are bounded after a rejection, and the bound is lifted step by step."""

from __future__ import annotations

from support.accumulator_bench import Bench

from headrace.network.clock import NEVER_MS
from headrace.network.records.builder_cy import NO_LIMIT
from headrace.producer.accumulator.batch_cy import ProducerBatch
from headrace.producer.accumulator.queues_cy import TopicQueues
from headrace.producer.accumulator.size_bounds import FIRST_INTERVAL_MS, MAX_INTERVAL_MS, SizeBounds


def test_a_bound_doubles_after_each_interval_until_it_is_lifted() -> None:
    bounds, topic = SizeBounds(1000), TopicQueues("t")
    assert bounds.next_ms == NEVER_MS
    bounds.rejected(topic, 500, 0.0)
    assert topic.max_batch_bytes == 250
    bounds.raise_due(FIRST_INTERVAL_MS - 1)
    assert topic.max_batch_bytes == 250
    bounds.raise_due(FIRST_INTERVAL_MS)
    assert topic.max_batch_bytes == 500
    assert bounds.next_ms == 2 * FIRST_INTERVAL_MS
    bounds.raise_due(2 * FIRST_INTERVAL_MS)
    assert topic.max_batch_bytes == NO_LIMIT
    bounds.raise_due(3 * FIRST_INTERVAL_MS)
    assert bounds.next_ms == NEVER_MS, "nothing is left to do"


def test_each_rejection_doubles_the_interval_up_to_a_limit() -> None:
    bounds, topic = SizeBounds(1000), TopicQueues("t")
    now_ms, interval_ms = 0.0, FIRST_INTERVAL_MS
    for _ in range(10):
        bounds.rejected(topic, 800, now_ms)
        assert topic.max_batch_bytes == 400
        assert bounds.next_ms == now_ms + interval_ms
        now_ms = bounds.next_ms
        bounds.raise_due(now_ms)
        assert topic.max_batch_bytes == 800
        interval_ms = min(interval_ms * 2, MAX_INTERVAL_MS)
    assert interval_ms == MAX_INTERVAL_MS


def test_a_lifted_bound_is_forgotten_after_another_interval() -> None:
    bounds, topic = SizeBounds(1000), TopicQueues("t")
    bounds.rejected(topic, 1000, 0.0)
    bounds.raise_due(FIRST_INTERVAL_MS)
    assert topic.max_batch_bytes == NO_LIMIT
    bounds.rejected(topic, 1000, FIRST_INTERVAL_MS + 1)
    assert bounds.next_ms == FIRST_INTERVAL_MS + 1 + 2 * FIRST_INTERVAL_MS
    now_ms = bounds.next_ms
    bounds.raise_due(now_ms)
    bounds.raise_due(now_ms + 2 * FIRST_INTERVAL_MS)
    bounds.rejected(topic, 1000, now_ms + 3 * FIRST_INTERVAL_MS)
    assert bounds.next_ms == now_ms + 4 * FIRST_INTERVAL_MS


def test_the_rejection_of_a_batch_filled_before_changes_nothing() -> None:
    bounds, topic = SizeBounds(1000), TopicQueues("t")
    bounds.rejected(topic, 500, 0.0)
    bounds.rejected(topic, 600, 10.0)
    assert topic.max_batch_bytes == 250
    assert bounds.next_ms == FIRST_INTERVAL_MS


def test_each_topic_has_its_own_bound() -> None:
    bounds, first, second = SizeBounds(1000), TopicQueues("a"), TopicQueues("b")
    bounds.rejected(first, 500, 0.0)
    bounds.rejected(second, 100, 50.0)
    bounds.raise_due(FIRST_INTERVAL_MS)
    assert (first.max_batch_bytes, second.max_batch_bytes) == (500, 50)
    assert bounds.next_ms == FIRST_INTERVAL_MS + 50


def test_the_turn_of_the_sender_raises_a_bound() -> None:
    b = Bench(memory=100_000, chunk_bytes=1000, batch_size=1000, max_batch_size=4000)
    b.append()
    topic_queues = b.queues
    b.accumulator.note_rejected(ProducerBatch("t", 0, bytearray(100), 0.0))
    bound = topic_queues.max_batch_bytes
    assert bound < 4000
    b.clock.advance(FIRST_INTERVAL_MS)
    b.ready()
    assert topic_queues.max_batch_bytes == 2 * bound
