"""A producer with jumping clocks, many partitions and topics, and records whose futures nobody reads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.waiting import memory_comes_back

from headrace.broker import EmbeddedCluster
from headrace.broker.requests.control import Fault
from headrace.network.clock import Clock
from headrace.network.protocol import errors
from headrace.network.protocol.api import ApiKey
from headrace.producer import KafkaProducer, RecordFuture

PATIENCE_S = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster
        cluster.control.clear()


class JumpingClock(Clock):
    """The machine's clocks, plus offsets that a test sets."""

    def __init__(self) -> None:
        self.monotonic_ms = 0.0
        self.wall_offset_ms = 0

    def now_ms(self) -> float:
        return super().now_ms() + self.monotonic_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self.wall_offset_ms

    def wall_ns(self) -> int:
        return self.wall_ms() * 1_000_000


def test_a_wall_clock_that_jumps_backwards_only_shows_in_the_timestamps(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("wall", 1)
    clock = JumpingClock()
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, clock=clock, linger_ms=20) as producer:
        futures = []
        for number in range(200):
            futures.append(producer.send("wall", b"%d" % number))
            clock.wall_offset_ms -= 3_600_000
        producer.flush(PATIENCE_S)
    timestamps = [future.get(0).timestamp for future in futures]
    assert timestamps == [record.timestamp for record in cluster.records("wall", 0)]
    assert [record.value for record in cluster.records("wall", 0)] == [b"%d" % number for number in range(200)]
    assert timestamps[-1] < timestamps[0] - 100 * 3_600_000


@pytest.mark.parametrize("jump_ms", [-3_600_000, 50_000])
def test_a_monotonic_clock_that_is_not_one_loses_nothing(cluster: EmbeddedCluster, jump_ms: float) -> None:
    topic = f"monotonic{int(jump_ms)}"
    cluster.create_topic(topic, 1)
    clock = JumpingClock()
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, clock=clock, batch_size=200) as producer:
        futures = []
        for number in range(300):
            futures.append(producer.send(topic, b"%d" % number))
            if number in (100, 200):
                cluster.inject(ApiKey.PRODUCE, Fault(error=errors.NotLeaderOrFollowerError))
                futures[-1].add_both(lambda either: None)
                clock.monotonic_ms += jump_ms / 2
        producer.flush(PATIENCE_S)
        assert [future.exception(0) for future in futures] == [None] * 300
    assert [record.value for record in cluster.records(topic, 0)] == [b"%d" % number for number in range(300)]


def test_batches_stay_large_after_memory_was_exhausted() -> None:
    """Keyed records for 1,000 partitions fill an eighth of the memory, then all of it several times over.

    Only full batches, memory and flushes make the producer send: nothing lingers long enough.
    """
    partitions, before, after = 1000, 30_000, 200_000
    # a cluster of its own: others would keep a thousand partitions
    with EmbeddedCluster() as cluster:
        cluster.create_topic("exhausting", partitions)
        value = b"v" * 100
        with KafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            buffer_memory=8 << 20,
            linger_ms=60_000,
            max_block_ms=PATIENCE_S * 1000,
        ) as producer:
            pool = producer._engine.pool

            def send(count: int) -> list[RecordFuture]:
                return [producer.send("exhausting", value, b"%d" % number) for number in range(count)]

            def per_batch(futures: list[RecordFuture]) -> float:
                assert [future.exception(PATIENCE_S) for future in futures] == [None] * len(futures)
                return len(futures) / len({id(future.final_batch) for future in futures})

            first = send(before)
            assert pool.wait_time_ms == 0
            producer.flush(PATIENCE_S)
            exhausting = send(after)
            assert pool.wait_time_ms > 0, "memory was not exhausted"
            later = send(after)
            producer.flush(PATIENCE_S)
            usual = per_batch(first)
            assert usual > 20
            assert per_batch(exhausting) >= usual / 10
            assert per_batch(later) >= usual / 10
            memory_comes_back(producer)
            # out of it again
            last = send(before)
            producer.flush(PATIENCE_S)
            assert per_batch(last) >= usual / 10
            memory_comes_back(producer)


def test_thousands_of_partitions(cluster: EmbeddedCluster) -> None:
    partitions = 3000
    cluster.create_topic("wide", partitions)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, max_request_size=100_000) as producer:
        futures: list[RecordFuture] = []
        for turn in range(3):
            futures += [producer.send("wide", b"%d" % turn, partition=partition) for partition in range(partitions)]
        producer.flush(PATIENCE_S)
        assert [future.get(0).offset for future in futures] == [turn for turn in range(3) for _ in range(partitions)]
        memory_comes_back(producer)


def test_thousands_of_topics(cluster: EmbeddedCluster) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        done = threading.Semaphore(0)
        told: list[Any] = []

        def send(worker: int) -> None:
            try:
                for number in range(worker, 2000, 8):
                    told.append(producer.send(f"topic-{number}", b"x"))
            finally:
                done.release()

        for worker in range(8):
            threading.Thread(target=send, args=(worker,), daemon=True).start()
        for _ in range(8):
            assert done.acquire(timeout=PATIENCE_S)
        producer.flush(PATIENCE_S)
        assert sorted(future.get(0).topic for future in told) == sorted(f"topic-{number}" for number in range(2000))


def test_keys_choose_the_partitions_that_javas_client_chooses(cluster: EmbeddedCluster) -> None:
    # from the vectors of Kafka's UtilsTest: (hash & 0x7fffffff) % 100
    cluster.create_topic("keyed", 100)
    vectors = {b"21": -973932308, b"foobar": -790332482, b"abc": 479470107}
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for key, expected in vectors.items():
            for headers in (None, [("h", b"")]):
                found = producer.send("keyed", b"x", key=key, headers=headers).get(PATIENCE_S).partition
                assert found == (expected & 0x7FFFFFFF) % 100


def test_records_without_key_use_all_partitions_and_fill_batches(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("keyless", 10)
    cluster.control.requests.clear()
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, batch_size=1000, linger_ms=10_000) as producer:
        futures = [producer.send("keyless", b"x" * 50) for _ in range(10_000)]
    counts = [0] * 10
    for future in futures:
        counts[future.get(0).partition] += 1
    assert min(counts) > 0
    batches = sum(len({record.timestamp for record in cluster.records("keyless", p)}) > 0 for p in range(10))
    assert batches == 10
    # 14 of these records fit into a batch, so hundreds of batches, not thousands
    assert sum(seen.size_bytes for seen in cluster.requests if seen.api_key == ApiKey.PRODUCE) < 10_000 * 70


def test_futures_that_are_kept_do_not_keep_their_records(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("large", 1, configs={"max.message.bytes": "2000000"})
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, max_request_size=2_000_000) as producer:
        futures = []
        for _ in range(20):
            futures.append(producer.send("large", b"x" * 1_000_000))
            futures[-1].get(PATIENCE_S)
        producer.flush(PATIENCE_S)
        memory_comes_back(producer)
    assert [future.get(0).offset for future in futures] == list(range(20))
