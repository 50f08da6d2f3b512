"""The accumulator: which batches are ready, in which order it drains them, and where records without a key go."""

from __future__ import annotations

import collections
import itertools
import sys
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.accumulator_bench import (
    BACKOFF_MS,
    BATCH,
    DELIVERY_MS,
    LINGER_MS,
    MAX_OPEN_MS,
    NODES,
    Bench,
    cluster,
)

from headrace.network import _build
from headrace.network.clock import MockClock
from headrace.network.cluster import Cluster
from headrace.network.protocol.errors import BufferExhaustedError, KafkaTimeoutError, ProducerClosedError
from headrace.network.records.compression import Compression
from headrace.producer.accumulator.accumulator_cy import RecordAccumulator
from headrace.producer.accumulator.batch_cy import ProducerBatch, RecordFuture
from headrace.producer.accumulator.murmur2_cy import partition_for_key
from headrace.producer.accumulator.queues_cy import TopicQueues
from headrace.producer.accumulator.send_path_cy import SendPath


class DirectPath(SendPath):
    """The per-record fast path over an accumulator; other records go the longer way, as in a producer."""

    def __init__(self, accumulator: RecordAccumulator, clock: MockClock) -> None:
        self._accumulator = accumulator
        super().__init__(clock, keys_choose=True)
        self._use(accumulator.topics, (), direct=True, max_direct_bytes=BATCH)

    def _send_serialized(
        self, topic: Any, value: Any, key: Any, headers: Any, partition: Any, timestamp_ms: Any, callback: Any
    ) -> RecordFuture:
        queues = self._accumulator.topics[topic]
        count = queues.partition_count or len(queues.queues)
        partition = -1 if key is None else partition_for_key(key, count)
        return self._accumulator.append(queues, partition, 0, key, value, None, None, 0)

    _send_checked = _send_serialized


# --- Ready ---


def test_nothing_is_ready_where_nothing_was_appended() -> None:
    b = Bench()
    assert b.ready() == []
    assert not b.accumulator.has_undrained
    assert not b.accumulator.has_incomplete


def test_a_batch_is_ready_when_it_has_lingered() -> None:
    b = Bench()
    b.append()
    check = b.accumulator.ready(b.clock.now_ms())
    assert (check.nodes, check.next_check_ms) == ({}, LINGER_MS)
    b.clock.advance(LINGER_MS - 1)
    assert b.ready() == []
    b.clock.advance(1)
    assert b.accumulator.ready(b.clock.now_ms()).nodes == {0: NODES[0]}


def test_a_full_batch_is_ready_at_once() -> None:
    b = Bench()
    b.append(value=b"x" * 70)
    assert b.ready() == []
    b.append(value=b"x" * 70)
    assert b.ready() == [0]
    (batch,) = b.drain()
    assert batch.count == 1


def test_a_record_larger_than_a_batch_goes_alone_and_at_once() -> None:
    b = Bench()
    b.append(value=b"x" * 1000)
    assert b.ready() == [0]
    b.append(value=b"y")
    (first,) = b.drain()
    assert first.count == 1


def test_what_waits_is_ready_when_the_memory_is_used_up() -> None:
    b = Bench(memory=BATCH)
    b.append()
    assert b.ready() == []
    thread = threading.Thread(target=lambda: b.append(partition=1, max_block_ms=1e9))
    thread.start()
    while not b.pool.waiting:
        pass
    assert b.ready() == [0]
    (batch,) = b.drain()
    b.accumulator.release(batch)
    thread.join(10)
    assert not thread.is_alive()


def test_what_waits_is_ready_while_somebody_flushes_and_lingers_again_after() -> None:
    b = Bench()
    b.append()
    flusher = threading.Thread(target=lambda: b.accumulator.flush(1e9))
    flusher.start()
    while not b.ready():
        pass
    (batch,) = b.drain()
    b.append()
    assert b.ready() == [0], "records appended during the flush don't linger either"
    batch.complete(0)
    flusher.join(10)
    assert not flusher.is_alive()
    assert b.ready() == []


def test_what_waits_is_ready_when_the_producer_closes_and_nothing_more_is_taken() -> None:
    b = Bench()
    b.append()
    b.accumulator.close()
    assert b.ready() == [0]
    with pytest.raises(ProducerClosedError):
        b.append(value=b"x" * 1000)
    assert b.pool.available_bytes == 100_000 - BATCH


def test_a_batch_that_came_back_waits_for_its_backoff_even_when_there_is_a_hurry() -> None:
    b = Bench()
    b.append()
    b.clock.advance(LINGER_MS)
    (batch,) = b.drain()
    b.accumulator.reenqueue(batch, b.clock.now_ms())
    b.append()
    b.accumulator.close()
    check = b.accumulator.ready(b.clock.now_ms())
    assert (check.nodes, check.next_check_ms) == ({}, BACKOFF_MS)
    assert b.drain() == []
    b.clock.advance(BACKOFF_MS)
    assert b.ready() == [0]
    assert b.drain() == [batch]


def test_a_muted_partition_is_neither_ready_nor_drained() -> None:
    b = Bench()
    b.append()
    b.append(partition=2)
    b.clock.advance(LINGER_MS)
    first, second = b.drain()
    b.append()
    b.append(partition=2)
    b.clock.advance(LINGER_MS)
    b.accumulator.set_muted(first, True)
    (drained,) = b.drain()
    assert drained.partition == 2
    assert b.ready() == []
    b.accumulator.set_muted(first, False)
    assert b.ready() == [0]
    assert second.partition == 2


def test_topics_without_leader_are_told_and_do_not_hold_up_others() -> None:
    b = Bench()
    b.append(partition=0)
    b.append(partition=1)
    b.accumulator.update_metadata(cluster(without_leader=(0,)), {"t"})
    b.clock.advance(LINGER_MS)
    check = b.accumulator.ready(b.clock.now_ms())
    assert (list(check.nodes), check.leaderless_topics) == ([1], {"t"})
    b.accumulator.update_metadata(cluster(), {"t"})
    assert b.ready() == [0, 1]


def test_a_new_leader_is_the_one_to_send_to() -> None:
    b = Bench()
    b.append()
    b.clock.advance(LINGER_MS)
    b.accumulator.update_metadata(cluster(nodes=[NODES[1]]), {"t"})
    assert b.ready() == [1]
    assert b.drain(0) == []
    assert len(b.drain(1)) == 1


# --- Drain ---


def test_a_drain_takes_one_batch_of_each_partition_of_the_broker() -> None:
    b = Bench()
    for _ in range(3):
        for partition in range(4):
            b.append(partition=partition, value=b"x" * 100)
    assert [batch.partition for batch in b.drain(0)] == [0, 2]
    assert sorted(batch.partition for batch in b.drain(1)) == [1, 3]
    assert len(b.drain(0)) == 2
    assert len(b.drain(0)) == 2
    assert b.drain(0) == []


def test_a_drain_stops_at_the_size_of_a_request_but_takes_one_at_least() -> None:
    b = Bench(partitions=6, nodes=NODES[:1])
    for partition in range(6):
        b.append(partition=partition, value=b"x" * 60)
    size = 61 + 60 + 8
    assert len(b.drain(0, max_bytes=1)) == 1
    assert len(b.drain(0, max_bytes=3 * size)) == 3
    assert len(b.drain(0, max_bytes=3 * size)) == 2


def test_the_next_drain_begins_where_the_last_one_stopped_so_that_no_partition_starves() -> None:
    b = Bench(partitions=5, nodes=NODES[:1])
    last_round = dict.fromkeys(range(5), -1)
    for this_round in range(50):
        for partition in range(5):
            if not len(b.queues.queues[partition].batches):
                b.append(partition=partition, value=b"x" * 100)
        # two of the five fit
        for batch in b.drain(0, max_bytes=350):
            assert this_round - last_round[batch.partition] <= 3
            last_round[batch.partition] = this_round
    assert min(last_round.values()) >= 47


def test_drained_batches_take_no_more_records() -> None:
    b = Bench()
    b.append()
    (batch,) = b.drain()
    b.append()
    assert batch.count == 1
    assert len(b.queues.queues[0].batches) == 1


def test_what_came_back_goes_before_what_has_not_been_sent() -> None:
    b = Bench()
    for value in (b"1" * 100, b"2" * 100, b"3" * 100):
        b.append(value=value)
    (first,) = b.drain()
    b.accumulator.reenqueue(first, b.clock.now_ms())
    b.clock.advance(BACKOFF_MS)
    (again,) = b.drain()
    assert again is first
    assert (again.attempts, again.last_attempt_ms) == (1, b.clock.now_ms() - BACKOFF_MS)


# --- Memory ---


def test_released_memory_is_free_again_and_only_once() -> None:
    b = Bench()
    b.append()
    (batch,) = b.drain()
    b.accumulator.release(batch)
    b.accumulator.release(batch)
    assert b.pool.available_bytes == 100_000
    assert batch.records is None


def test_kept_futures_do_not_keep_the_records() -> None:
    b = Bench()
    futures = []
    for _ in range(10):
        futures.append(b.append(value=b"x" * 50_000))
        (batch,) = b.drain()
        batch.complete(0)
        b.accumulator.release(batch)
        assert batch.builder.buffer is None
    assert [future.get(0).serialized_value_size for future in futures] == [50_000] * 10


def test_without_memory_append_waits_as_long_as_it_may() -> None:
    b = Bench(memory=BATCH)
    b.append()
    with pytest.raises(BufferExhaustedError):
        b.append(partition=1)
    b.append()


def test_memory_for_a_batch_that_somebody_else_opened_goes_back() -> None:
    b = Bench(memory=2 * BATCH)
    first = b.append()
    (batch,) = b.drain()
    threads = [threading.Thread(target=lambda: b.append(max_block_ms=1e9)) for _ in range(2)]
    b.append(partition=1, value=b"x" * 80)
    for thread in threads:
        thread.start()
    while b.pool.waiting < 2:
        pass
    b.accumulator.release(batch)
    (other,) = b.drain(1)
    b.accumulator.release(other)
    for thread in threads:
        thread.join(10)
    assert len(b.queues.queues[0].batches) == 1
    assert b.queues.queues[0].batches[0].count == 2
    assert b.pool.available_bytes == BATCH
    assert not first.done()


@pytest.mark.parametrize(("ratio", "expected"), [(1.0, BATCH), (0.5, 2 * BATCH), (0.01, 8 * BATCH)])
def test_a_compressed_batch_takes_the_records_that_fill_it_on_the_wire(ratio: float, expected: int) -> None:
    b = Bench(compression=Compression.GZIP)
    b.queues.compression_ratio = ratio
    assert expected - 100 < fill_one(b) <= expected


def test_no_estimate_takes_more_than_an_eighth_of_the_memory() -> None:
    b = Bench(compression=Compression.GZIP, memory=8 * 500)
    b.queues.compression_ratio = 0.01
    assert 400 < fill_one(b) <= 500


def fill_one(b: Bench) -> int:
    """Append until a second batch is opened; the size of the first."""
    queue = b.queues.queues[0]
    while len(queue.batches) < 2:
        b.append()
    return queue.batches[0].size_bytes


# --- Expiry ---


def test_batches_expire_by_their_age_and_the_oldest_first() -> None:
    b = Bench()
    b.append(value=b"1" * 100)
    b.clock.advance(300)
    b.append(value=b"2" * 100)
    b.clock.advance(MAX_OPEN_MS)
    assert b.accumulator.expired(b.clock.now_ms()) == []
    # batches that don't exist yet may have to be closed before the first of these expires
    assert b.accumulator.next_expiry_ms(b.clock.now_ms()) == MAX_OPEN_MS
    b.clock.advance(DELIVERY_MS - 301 - MAX_OPEN_MS)
    assert b.accumulator.expired(b.clock.now_ms()) == []
    b.clock.advance(1)
    (gone,) = b.accumulator.expired(b.clock.now_ms())
    assert gone.created_ms == 1000
    b.clock.advance(300)
    assert len(b.accumulator.expired(b.clock.now_ms())) == 1
    assert not b.accumulator.has_undrained


def test_an_expired_batch_takes_no_more_records() -> None:
    b = Bench()
    b.append()
    b.clock.advance(DELIVERY_MS)
    (gone,) = b.accumulator.expired(b.clock.now_ms())
    b.append()
    assert gone.count == 1


# --- Flush ---


def test_a_flush_of_nothing_returns() -> None:
    Bench().accumulator.flush(0)


def test_a_flush_whose_time_passes_says_how_much_is_left() -> None:
    b = Bench()
    b.append()
    b.append()
    b.append(partition=1)
    with pytest.raises(KafkaTimeoutError, match="3 records in 2 batches"):
        b.accumulator.flush(0)
    assert b.ready() == [], "no thread is flushing"


def test_a_flush_does_not_wait_for_what_came_after_it() -> None:
    b = Bench()
    b.append()

    def wakeup() -> None:
        # as soon as other threads can see the flush
        b.accumulator.wakeup = lambda: None
        (batch,) = b.drain()
        b.append(partition=1)
        batch.complete(0)
        b.accumulator.release(batch)

    b.accumulator.wakeup = wakeup
    b.accumulator.flush(0)


def test_a_failed_batch_ends_a_flush_too() -> None:
    b = Bench()
    b.append()
    (batch,) = b.drain()
    batch.fail(RuntimeError())
    b.accumulator.flush(0)


# --- Closing ---


def test_once_closed_the_last_sweep_sees_a_queue_that_was_being_filled() -> None:
    b = Bench()
    queue = b.queues.queues[3]
    batch = ProducerBatch("t", 3, bytearray(BATCH), 0.0)
    # as a thread does that found the accumulator open before it was closed
    queue.batches.append(batch)
    assert b.accumulator.take_everything() == []
    b.accumulator.close()
    assert b.accumulator.take_everything() == [batch]


# --- Records without a key (KIP-480, KIP-794) ---


def test_records_without_key_stay_with_one_partition_until_it_has_its_share() -> None:
    b = Bench(partitions=8, nodes=NODES[:1])
    seen = []
    # enough to choose each of the eight with near certainty
    for _ in range(1200):
        b.append(partition=-1, value=b"x" * 20)
        seen.append(b.queues.sticky.partition)
        for batch in b.drain():
            b.accumulator.release(batch)
    runs = [1]
    for before, after in itertools.pairwise(seen):
        if before == after:
            runs[-1] += 1
        else:
            runs.append(1)
    assert set(seen) == set(range(8))
    assert min(runs[:-1]) > 1
    assert len(runs) > 20


def test_records_that_go_into_the_open_batch_count_towards_the_share() -> None:
    b = Bench(partitions=64, nodes=NODES[:1])
    before = b.queues.sticky
    for _ in range(3):
        b.append(partition=-1, value=b"x" * 30)
    assert b.queues.sticky is before
    assert b.queues.needs_switch(BATCH, 100)
    assert not b.queues.needs_switch(BATCH, 50)


def test_a_long_queue_is_chosen_less_often() -> None:
    b = Bench(partitions=2, nodes=NODES[:1])
    for _ in range(9):
        b.append(partition=0, value=b"x" * 100)
    chosen: collections.Counter[int] = collections.Counter()
    for _ in range(4000):
        b.queues.switch(None)
        chosen[b.queues.sticky.partition] += 1
    # weighted by queue lengths of 1 and 10
    assert 2 * chosen[0] < chosen[1]
    assert chosen[0] > 0
    even: collections.Counter[int] = collections.Counter()
    for _ in range(4000):
        b.queues.switch(None, adaptive=False)
        even[b.queues.sticky.partition] += 1
    assert 3 * even[0] > 2 * even[1]


def test_partitions_without_leader_are_not_chosen() -> None:
    b = Bench()
    b.accumulator.update_metadata(cluster(without_leader=(0, 1, 3)), {"t"})
    assert {_switched(b.queues) for _ in range(50)} == {2}
    b.accumulator.update_metadata(cluster(without_leader=(0, 1, 2, 3)), {"t"})
    assert len({_switched(b.queues) for _ in range(200)}) == 4


def _switched(queues: TopicQueues) -> int:
    queues.switch(None)
    return queues.sticky.partition


def test_a_broker_that_takes_nothing_for_too_long_is_left_out() -> None:
    b = Bench(availability_timeout_ms=100)
    b.accumulator.availability.note(0, 1000, True)
    b.accumulator.availability.note(1, 1000, True)
    b.accumulator.availability.note(0, 1150, False)
    b.accumulator.availability.note(1, 1090, False)
    seen = set()
    for _ in range(50):
        b.append(partition=-1, value=b"x" * 150)
        seen.add(b.queues.sticky.partition % 2)
        b.drain(0)
        b.drain(1)
    # the first one was chosen before anything was known
    assert seen - {1} in ({0}, set())
    b.accumulator.availability.note(0, 1200, True)
    assert {b.append(partition=-1, value=b"x" * 150) and b.queues.sticky.partition % 2 for _ in range(60)} == {0, 1}


# --- Metadata ---


def test_new_partitions_are_added_and_old_ones_keep_their_queues() -> None:
    b = Bench(partitions=2)
    old = list(b.queues.queues)
    b.accumulator.update_metadata(cluster(5), {"t"})
    assert b.queues.partition_count == 5
    assert b.queues.queues[:2] == old


def test_a_topic_that_vanishes_and_returns_keeps_its_records() -> None:
    b = Bench(partitions=2)
    b.append()
    b.accumulator.update_metadata(cluster(0), {"t"})
    b.clock.advance(LINGER_MS)
    check = b.accumulator.ready(b.clock.now_ms())
    assert (check.nodes, check.leaderless_topics, b.queues.partition_count) == ({}, {"t"}, 0)
    assert b.queues.sticky is not None, "a thread in the middle of a send finds a partition"
    b.append(partition=-1)
    b.accumulator.update_metadata(cluster(2), {"t"})
    assert b.ready() != []


def test_a_sticky_partition_that_is_gone_is_left() -> None:
    b = Bench(partitions=4)
    while _switched(b.queues) < 2:
        pass
    b.accumulator.update_metadata(cluster(2), {"t"})
    assert b.queues.sticky.partition < 2


def test_threads_that_learn_of_a_topic_at_once_make_one_queue_a_partition() -> None:
    for _ in range(20):
        b = Bench(partitions=0)
        wide = cluster(200)
        seen: list[list] = []
        gate = threading.Barrier(5)

        def learn(b: Bench = b, wide: Cluster = wide, seen: list[list] = seen, gate: threading.Barrier = gate) -> None:
            gate.wait()
            seen.append(list(b.accumulator.topic_queues("t", lambda: wide, 199).queues))

        threads = [threading.Thread(target=learn) for _ in range(4)]
        for thread in threads:
            thread.start()
        gate.wait()
        b.accumulator.update_metadata(wide, {"t"})
        for thread in threads:
            thread.join(10)
        assert all(queues == seen[0] for queues in seen)
        assert len(seen[0]) == 200


@given(st.lists(st.integers(0, 2**31 - 1), max_size=6, unique=True), st.randoms())
def test_batches_that_come_back_in_any_order_stand_in_the_order_of_their_sequence(sizes: list[int], random) -> None:
    b = Bench(partitions=1)
    start = random.choice([0, 2**31 - 3, 100])
    batches = []
    for i in range(len(sizes)):
        b.append(value=b"x" * 150)
        (batch,) = b.drain()
        batch.base_sequence = (start + i) & 0x7FFFFFFF
        batches.append(batch)
    b.append()
    shuffled = list(batches)
    random.shuffle(shuffled)
    for batch in shuffled:
        b.accumulator.reenqueue(batch, b.clock.now_ms())
    assert list(b.queues.queues[0].batches)[: len(batches)] == batches


def test_a_topic_that_grows_vanishes_and_returns_while_many_threads_send_loses_no_record() -> None:
    bench = Bench(2, memory=100_000_000)
    accumulator = bench.accumulator
    path = DirectPath(accumulator, bench.clock)
    threads, each = 4, 3_000
    sent: list[list[RecordFuture]] = [[] for _ in range(threads)]
    failures: list[BaseException] = []
    begin = threading.Barrier(threads + 2)

    def send(mine: list[RecordFuture]) -> None:
        begin.wait(30)
        try:
            for number in range(each):
                key = None if number % 2 else b"%d" % number
                mine.append(path.send("t", b"%d" % number, key))
        except BaseException as failure:
            failures.append(failure)

    senders = [threading.Thread(target=send, args=(mine,)) for mine in sent]

    def grow_for_callers() -> None:
        # as a thread does that waits for a partition that is still unknown
        begin.wait(30)
        while any(sender.is_alive() for sender in senders):
            accumulator.topic_queues("t", lambda: cluster(40), 39)

    switch_interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        others = [*senders, threading.Thread(target=grow_for_callers)]
        for thread in others:
            thread.start()
        begin.wait(30)
        sizes = itertools.cycle([2, 3, 0, 5, 40, 0, 1])
        while any(sender.is_alive() for sender in senders):
            accumulator.update_metadata(cluster(next(sizes)), ["t"])
        for thread in others:
            thread.join(30)
            assert not thread.is_alive()
    finally:
        sys.setswitchinterval(switch_interval)
    assert failures == []
    assert [len(mine) for mine in sent] == [each] * threads
    queues = accumulator.topics["t"].queues
    assert [queue.partition for queue in queues] == list(range(len(queues)))
    # every batch is in the queue that the sender thread drains
    waiting = [batch for queue in queues for batch in queue.batches]
    assert set(map(id, waiting)) == {id(future.batch) for mine in sent for future in mine}
    assert sum(batch.count for batch in waiting) == threads * each
    accumulator.update_metadata(cluster(len(queues)), ["t"])
    accumulator.close()  # ends lingering
    drained = 0
    while nodes := accumulator.ready(bench.clock.now_ms()).nodes:
        drained += sum(batch.count for node in nodes for batch in bench.drain(node))
    assert drained == threads * each


def test_a_topic_that_vanishes_in_the_midst_of_a_send_takes_the_record_where_it_would_have_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # the interpreted copy, because only there another thread may run within these few steps
    send_path = _build.interpreted("headrace.producer.accumulator.send_path_cy")
    queues = _build.interpreted("headrace.producer.accumulator.queues_cy").TopicQueues("t")
    queues.update(cluster(4))

    def vanishes(key: bytes) -> int:
        queues.update(cluster(0))
        return 7

    monkeypatch.setattr(send_path, "murmur2_of", vanishes)

    class Path(send_path.SendPath):
        def _send_serialized(self, *record: Any) -> Any:
            return record

    path = Path(MockClock(), keys_choose=True)
    path._use({"t": queues}, (), direct=True, max_direct_bytes=BATCH)
    # there is no open batch, so the record goes the longer way
    assert path.send("t", b"v", b"k")[:3] == ("t", b"v", b"k")
