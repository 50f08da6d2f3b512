"""Which queues a turn of the sender looks at, compared with a look at all of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.accumulator_bench import BATCH, LINGER_MS, NODES, Bench, cluster

from headrace.producer.accumulator.batch_cy import ProducerBatch

PARTITIONS = 5
#: Smaller than a chunk, larger than a full batch, and as large as the largest batch, which takes nothing else.
SIZES = (1, 90, BATCH, 3 * BATCH)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, PARTITIONS - 1), st.sampled_from(SIZES)),
        st.tuples(st.just("advance"), st.sampled_from((1, LINGER_MS // 2, LINGER_MS, 120))),
        st.tuples(st.just("drain"), st.integers(0, 1), st.booleans()),
        st.tuples(st.just("answer"), st.booleans()),
        st.tuples(st.just("leaders"), st.sets(st.integers(0, PARTITIONS - 1), max_size=2)),
    ),
    max_size=60,
)


def sendable_nodes(b: Bench, busy: frozenset[int]) -> set[int]:
    """The brokers with a sendable batch, as a look at each queue finds them."""
    now_ms = b.clock.now_ms()
    nodes = set()
    for queue in b.queues.queues:
        if not queue.batches or queue.leader is None:
            continue
        batch: ProducerBatch = queue.batches[0]
        if batch.attempts:
            is_ready = batch.retry_at_ms <= now_ms
        else:
            lingered = batch.created_ms + LINGER_MS <= now_ms
            is_ready = batch.closed or lingered or (batch.full and queue.leader.id not in busy)
        if is_ready:
            nodes.add(queue.leader.id)
    return nodes


def check_tables(b: Bench) -> None:
    waiting = b.accumulator.waiting
    with_batches = [queue for queue in b.queues.queues if queue.batches]
    assert set(waiting.all()) == set(with_batches)
    assert waiting.any() == bool(with_batches)
    assert not waiting.active.keys() & set(waiting.lingering)
    for queue in waiting.lingering:
        (batch,) = queue.batches
        assert not batch.closed
        assert not batch.full
        assert batch.attempts == 0
        assert queue.leader_id >= 0
        assert queue.lingers_until_ms == batch.created_ms + LINGER_MS
    times = [queue.lingers_until_ms for queue in waiting.lingering]
    assert times == sorted(times)


@given(steps, st.sampled_from([frozenset[int](), frozenset({0})]))
def test_no_sendable_batch_is_missed(script: list[tuple], busy: frozenset[int]) -> None:
    b = Bench(PARTITIONS, max_batch_size=2 * BATCH)
    in_flight: list[ProducerBatch] = []
    for step, *arguments in script:
        if step == "append":
            partition, size = arguments
            b.append(partition, bytes(size))
        elif step == "advance":
            b.clock.advance(arguments[0])
        elif step == "drain":
            node, again = arguments
            b.accumulator.ready(b.clock.now_ms(), busy)
            in_flight += b.accumulator.drain(node, 1_000_000, b.clock.now_ms())
            if again:
                b.accumulator.ready(b.clock.now_ms(), busy, True)
                in_flight += b.accumulator.drain(node, 1_000_000, b.clock.now_ms())
        elif step == "answer" and in_flight:
            batch = in_flight.pop(0)
            if arguments[0]:
                batch.complete(0)
                b.accumulator.release(batch)
            else:
                b.accumulator.reenqueue(batch, b.clock.now_ms())
        elif step == "leaders":
            b.accumulator.update_metadata(cluster(PARTITIONS, NODES, tuple(arguments[0])), ["t"])
        check_tables(b)
        found = b.accumulator.ready(b.clock.now_ms(), busy)
        assert set(found.nodes) == sendable_nodes(b, busy)
        check_tables(b)
        for queue in b.accumulator.waiting.lingering:
            assert queue.lingers_until_ms > b.clock.now_ms()
            # the sender looks again by then
            assert b.clock.now_ms() + found.next_check_ms <= queue.lingers_until_ms
    # whatever is left can be sent in the end
    b.accumulator.update_metadata(cluster(PARTITIONS, NODES), ["t"])
    b.clock.advance(300)
    for _ in range(60):
        b.accumulator.ready(b.clock.now_ms())
        for node in NODES:
            in_flight += b.accumulator.drain(node.id, 1_000_000, b.clock.now_ms())
    assert not b.accumulator.waiting.any()


def test_a_queue_whose_entering_was_interrupted_is_looked_at() -> None:
    b = Bench()
    b.append(0)
    queue = b.queues.queues[0]
    waiting = b.accumulator.waiting
    # as an exception leaves it that came between two steps of `look`
    waiting.active[queue] = True
    assert waiting.all() == [queue]
    b.clock.advance(LINGER_MS)
    taken: list = []
    waiting.take_lingered(b.clock.now_ms(), taken)
    assert taken == [queue]
    assert not waiting.lingering
    assert [batch.count for batch in b.drain()] == [1]
