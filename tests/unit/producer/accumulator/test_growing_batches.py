"""Batches begin small, are full at batch.size and grow to batch.max.size until they are drained (KIP-782, KIP-1332)."""

from __future__ import annotations

from contextlib import suppress

import pytest
from support.accumulator_bench import LINGER_MS, MAX_OPEN_MS, Bench

from headrace.network.clock import NEVER_MS, MockClock
from headrace.network.cluster import Cluster
from headrace.network.protocol.errors import MessageSizeTooLargeError
from headrace.network.records.batch import RecordBatch, joined
from headrace.producer.accumulator.batch_cy import ProducerBatch
from headrace.producer.accumulator.buffer_pool_cy import SMALLEST_CHUNK_BYTES, BufferPool
from headrace.producer.errors import BufferExhaustedError

FULL = 4 * SMALLEST_CHUNK_BYTES
MOST = 4 * FULL


def a_bench(memory: int = 1_000_000, most: int = MOST) -> Bench:
    return Bench(memory=memory, chunk_bytes=FULL, batch_size=FULL, max_batch_size=most)


def batches(b: Bench, partition: int = 0) -> list[ProducerBatch]:
    return list(b.queues.queues[partition].batches)


def values_of(batch: ProducerBatch) -> list[bytes]:
    batch.records = batch.builder.finish()
    whole = RecordBatch(joined(batch.records))
    whole.validate()
    return [bytes(record.value) for record in whole.records()]


def test_a_batch_begins_small_and_doubles() -> None:
    b = a_bench()
    b.append(value=b"v" * 10)
    (batch,) = batches(b)
    seen = {batch.capacity_bytes}
    while not batch.full:
        b.append(value=b"v" * 10)
        seen.add(batch.capacity_bytes)
    assert sorted(seen) == [FULL // 4, FULL // 2, FULL, 2 * FULL]


def test_a_full_batch_grows_and_what_it_holds_is_one_batch() -> None:
    b = a_bench()
    sent = [b"%d" % number * 50 for number in range(80)]
    futures = [b.append(value=value) for value in sent]
    (batch,) = batches(b)
    assert batch.full
    assert FULL < batch.size_bytes < MOST
    assert not batch.closed
    assert b.pool.available_bytes == 1_000_000 - batch.capacity_bytes
    assert b.drain() == [batch]
    assert values_of(batch) == sent
    assert len(batch.records) > 2
    batch.complete(100)
    assert [future.get(0).offset for future in futures] == list(range(100, 180))


def test_it_grows_to_the_largest_size_and_not_beyond() -> None:
    b = a_bench()
    while len(batches(b)) < 3:
        b.append(value=b"v" * 100)
    first, second, _ = batches(b)
    assert first.closed
    for batch in (first, second):
        assert MOST - 200 < batch.size_bytes <= MOST


def test_without_room_to_grow_a_batch_is_closed_when_it_is_full() -> None:
    b = a_bench(most=0)
    while len(batches(b)) < 2:
        b.append(value=b"v" * 100)
    assert FULL - 200 < batches(b)[0].size_bytes <= FULL


def test_a_drained_batch_never_grows_again() -> None:
    b = a_bench()
    b.append(value=b"a" * FULL)
    (batch,) = b.drain()
    size = batch.size_bytes
    b.append(value=b"b")
    assert batch.size_bytes == size
    batch.last_error = None
    b.accumulator.reenqueue(batch, b.clock.now_ms())
    b.append(value=b"c")
    assert [each.count for each in batches(b)] == [1, 2]


def test_large_records_take_chunks_of_their_size() -> None:
    b = a_bench()
    for _ in range(3):
        b.append(value=b"v" * (FULL + 100))
    (batch,) = batches(b)
    assert batch.count == 3
    assert values_of(batch) == [b"v" * (FULL + 100)] * 3


def test_a_record_above_the_largest_size_has_a_batch_of_its_own() -> None:
    b = a_bench()
    b.append(value=b"a")
    b.append(value=b"b" * MOST)
    b.append(value=b"c")
    assert [(batch.count, batch.closed) for batch in batches(b)] == [(1, True), (1, True), (1, False)]


def test_a_record_that_does_not_fit_into_memory_is_refused() -> None:
    b = a_bench(memory=2 * FULL)
    with pytest.raises(MessageSizeTooLargeError):
        b.append(value=b"v" * 2 * FULL)


def test_a_batch_that_gets_no_memory_is_closed_as_it_is() -> None:
    b = a_bench(memory=FULL + FULL // 4)
    b.append(partition=1, value=b"other")
    while not batches(b)[-1:] or b.pool.available_bytes:
        b.append(value=b"v" * 100)
    (batch,) = batches(b)
    size = batch.size_bytes
    with suppress(BufferExhaustedError):
        while len(batches(b)) < 2:
            b.append(value=b"v" * 100)
    assert len(batches(b)) == 1, "there was no memory for a second one"
    assert batch.closed
    assert batch.size_bytes >= size
    assert batch.capacity_bytes == FULL


def test_two_threads_that_find_a_batch_full_extend_it_once() -> None:
    b = a_bench()
    b.append(value=b"v")
    queue = b.queues.queues[0]
    for _ in range(2):
        # the second has decided to extend it before the first appends its record
        assert b.accumulator.make_room(b.queues, queue, FULL // 2, False)
    (batch,) = batches(b)
    assert batch.capacity_bytes == FULL // 4 + FULL // 2
    b.append(value=b"w" * (FULL // 4 + 1))
    assert batch.capacity_bytes == FULL // 4 + FULL // 2
    assert values_of(batch) == [b"v", b"w" * (FULL // 4 + 1)]


def test_one_older_than_its_share_of_the_delivery_timeout_does_not_grow() -> None:
    b = a_bench()
    b.append(value=b"a" * FULL)
    b.clock.advance(MAX_OPEN_MS)
    b.append(value=b"b" * FULL)
    assert [batch.count for batch in batches(b)] == [1, 1]


def test_a_busy_broker_gets_a_full_batch_when_it_has_lingered_or_is_busy_no_more() -> None:
    b = a_bench()
    b.append(value=b"v" * FULL)
    check = b.accumulator.ready(b.clock.now_ms(), busy={0})
    assert (check.nodes, check.next_check_ms) == ({}, LINGER_MS)
    assert b.ready() == [0]
    b.clock.advance(LINGER_MS)
    assert list(b.accumulator.ready(b.clock.now_ms(), busy={0}).nodes) == [0]


def test_a_batch_that_lingered_half_the_time_goes_along_with_another() -> None:
    b = a_bench()
    b.append(partition=0)
    b.clock.advance(LINGER_MS / 2 + 1)
    b.append(partition=2)
    b.clock.advance(LINGER_MS / 2 - 1)
    assert b.ready() == [0]
    assert [batch.partition for batch in b.accumulator.drain(0, 1_000_000, b.clock.now_ms())] == [0]
    b.append(partition=0)
    b.clock.advance(LINGER_MS / 2 + 1)
    assert b.ready() == [0]
    assert [batch.partition for batch in b.accumulator.drain(0, 1_000_000, b.clock.now_ms())] == [2, 0]


def test_a_new_batch_begins_with_the_memory_that_the_last_ones_needed() -> None:
    b = a_bench()
    for _ in range(6):
        b.append(value=b"v" * 2 * FULL)
        (batch,) = b.drain()
        batch.complete(0)
        b.accumulator.release(batch)
    b.append(value=b"v")
    assert batches(b)[0].capacity_bytes == FULL
    assert b.pool.available_bytes == 1_000_000 - FULL


def test_released_chunks_are_used_again() -> None:
    pool = BufferPool(1_000_000, FULL, MockClock())
    lease = pool.allocate(FULL // 4, 0)
    more = pool.extend(lease, FULL)
    first = lease.buffer
    assert pool.available_bytes == 1_000_000 - FULL - FULL // 4
    pool.deallocate(lease)
    assert pool.available_bytes == 1_000_000
    again = pool.allocate(FULL, 0)
    assert again.buffer is more
    assert pool.extend(again, FULL // 4) is first


def test_kept_chunks_never_keep_memory_from_others() -> None:
    pool = BufferPool(4 * FULL, FULL, MockClock())
    leases = [pool.allocate(FULL // 4, 0) for _ in range(16)]
    for lease in leases:
        pool.deallocate(lease)
    whole = pool.allocate(4 * FULL, 0)
    assert len(whole.buffer) == 4 * FULL
    assert pool.extend(whole, FULL // 4) is None


def test_a_lease_that_was_returned_is_not_extended() -> None:
    pool = BufferPool(4 * FULL, FULL, MockClock())
    lease = pool.allocate(FULL, 0)
    pool.deallocate(lease)
    assert pool.extend(lease, FULL) is None
    assert pool.available_bytes == 4 * FULL


def test_a_topic_whose_broker_rejected_a_batch_has_smaller_ones_from_then_on() -> None:
    b = a_bench()
    while not batches(b) or batches(b)[0].size_bytes < 2 * FULL:
        b.append(value=b"v" * 100)
    (batch,) = b.drain()
    b.accumulator.note_rejected(batch)
    bound = batch.size_bytes // 2
    while len(batches(b)) < 2:
        b.append(value=b"v" * 100)
    assert bound - 200 < batches(b)[0].size_bytes <= bound


def test_the_sender_is_woken_only_if_that_changes_when_it_looks() -> None:
    b = a_bench()
    b.ready()
    b.append(partition=0)
    assert b.wakeups == 1, "it sleeps until it is woken"
    b.accumulator.next_look_ms = b.clock.now_ms() + LINGER_MS
    b.append(partition=1)
    assert b.wakeups == 1, "it looks by itself before this batch has lingered"
    b.clock.advance(1)
    b.append(partition=0, value=b"v" * FULL)
    assert b.wakeups == 2, "full: ready at once"
    b.accumulator.ready(b.clock.now_ms(), busy={1})
    b.accumulator.next_look_ms = b.clock.now_ms()
    b.append(partition=1, value=b"v" * FULL)
    assert b.wakeups == 2, "the response of a busy broker wakes it"
    b.accumulator.next_look_ms = NEVER_MS
    b.append(partition=3)
    assert b.wakeups == 3


def test_sticky_records_change_the_partition_at_batch_size_and_fill_open_batches_up() -> None:
    b = a_bench()
    for _ in range(60):
        b.append(partition=-1, value=b"v" * 1000)
    counts = [sum(batch.count for batch in batches(b, partition)) for partition in range(4)]
    assert sum(counts) == 60
    assert len([count for count in counts if count]) > 1
    assert all(not batch.closed for partition in range(4) for batch in batches(b, partition)[-1:])


def test_a_batch_that_fills_while_it_lingers_is_seen_at_the_next_look() -> None:
    b = a_bench()
    b.append(partition=0)
    assert b.ready() == []
    assert b.accumulator.ready(b.clock.now_ms()).next_check_ms == LINGER_MS
    while not batches(b)[0].full:
        b.append(partition=0, value=b"v" * 100)
    assert b.ready() == [b.queues.queues[0].leader_id]


def test_a_batch_that_is_followed_by_another_while_it_lingers_is_seen_at_the_next_look() -> None:
    b = a_bench(most=FULL)
    b.append(partition=0)
    assert b.ready() == []
    b.append(partition=0, value=b"v" * (FULL - 200))
    b.append(partition=0, value=b"v" * 300)
    assert len(batches(b)) == 2
    assert b.ready() == [b.queues.queues[0].leader_id]


def test_a_lingering_batch_without_a_leader_is_seen_at_the_next_look() -> None:
    b = a_bench()
    b.append(partition=0)
    assert b.ready() == []
    b.queues.update(Cluster(nodes=[], partitions={}))
    assert b.accumulator.ready(b.clock.now_ms()).leaderless_topics == {"t"}


def test_the_look_after_a_request_is_at_the_queues_that_were_sendable() -> None:
    b = a_bench(most=FULL)
    node_id = b.queues.queues[0].leader_id

    def add_three_batches(partition: int) -> None:
        for _ in range(3):
            b.append(partition=partition, value=b"v" * (FULL - 100))
        assert [batch.closed for batch in batches(b, partition)] == [True, True, False]

    add_three_batches(0)
    now_ms = b.clock.now_ms()
    assert list(b.accumulator.ready(now_ms).nodes) == [node_id]
    assert len(b.accumulator.drain(node_id, 1_000_000, now_ms)) == 1
    add_three_batches(2)  # led by the same node
    again = b.accumulator.ready(now_ms, again=True)
    assert list(again.nodes) == [node_id], "the second batch of the queue that was drained"
    assert [batch.partition for batch in b.accumulator.drain(node_id, 1_000_000, now_ms)] == [0]
    assert not b.accumulator.ready(now_ms, again=True).nodes
    assert b.accumulator.ready(now_ms).nodes, "the next turn looks at all"
