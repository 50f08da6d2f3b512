"""Many threads that send to one producer, while others flush, abort, describe and close it, and topics grow.

Afterwards the log has what was sent, in order per thread and partition, callbacks were called once, and all memory is
back. Then several event loops share one producer: no await hangs.

python tests/support/thread_storm.py 0:200                  # two hundred rounds, the seeds 0 to 199
python3.14t tests/support/thread_storm.py 0:200             # without the GIL

A seed fixes what is sent and how the producer is configured, but not how the threads interleave.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import random
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from headrace.broker import EmbeddedCluster
from headrace.broker.controller.controller_api import MorePartitions
from headrace.producer import AsyncKafkaProducer, KafkaProducer, ProducerRecord, RecordFuture, errors
from headrace.producer.sender import compressors
from support.waiting import memory_comes_back

PARTITIONS = 3
MOST_PARTITIONS = 12
THREADS = 16
LOOPS = 4
PATIENCE_S = 120.0


class Sent(NamedTuple):
    """A record that `send` has accepted."""

    future: RecordFuture
    thread: int
    value: bytes
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Garbage:
    """An object in a cycle, whose finalizer sends a record: wherever the thread is when the collector finds it."""

    def __init__(self, send: Callable[[], object]) -> None:
        self.send = send
        self.itself = self

    def __del__(self) -> None:
        self.send()


class Round:
    """One producer, the threads that use it, and what they have seen."""

    def __init__(self, cluster: EmbeddedCluster, seed: int, records: int) -> None:
        """Draw the configuration from `seed`; each of the sending threads sends `records` records."""
        self.cluster = cluster
        self.seed = seed
        self.records = records
        dice = random.Random(seed)
        self.topics = [f"threads-{seed}-{number}" for number in range(2)]
        for topic in self.topics:
            cluster.create_topic(topic, PARTITIONS)
        self.closes_early = dice.random() < 0.3
        self.aborts = dice.random() < 0.5
        self.producer = KafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            linger_ms=dice.choice([0, 1, 5]),
            batch_size=dice.choice([0, 300, 2_000, 16_384]),
            batch_max_size=dice.choice([0, 20_000, 524_288]),
            buffer_memory=dice.choice([20_000, 200_000, 33_554_432]),
            compression_type=dice.choice(["none", "gzip", "lz4"]),
            max_in_flight_requests_per_connection=dice.choice([1, 5]),
            metadata_max_age_ms=dice.choice([10, 300_000]),
        )
        self.start = threading.Barrier(THREADS)
        self.left = THREADS - 2
        self.lock = threading.Lock()
        self.sent: list[list[Sent]] = [[] for _ in range(THREADS)]
        self.from_finalizers: list[RecordFuture] = []
        self.called: Counter[bytes] = Counter()
        self.wants_call: set[bytes] = set()
        self.failures: list[BaseException] = []

    def run(self) -> None:
        """Run all threads, close the producer, and compare the log with what they sent."""
        runs: list[Callable[[int], None]] = [self._send] * (THREADS - 2) + [self._disturb, self._look]
        threads = [
            threading.Thread(target=self._guarded, args=(run, number), name=f"storm-{number}", daemon=True)
            for number, run in enumerate(runs)
        ]
        for thread in threads:
            thread.start()
        if self.closes_early:
            while self.left > (THREADS - 2) // 2 and not self.failures:
                threads[0].join(0.001)
            self.producer.close(PATIENCE_S)
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), f"seed {self.seed}: {thread.name} hangs"
        if self.failures:
            raise self.failures[0]
        if not self.closes_early:
            self.producer.flush(PATIENCE_S)
        self.producer.close(PATIENCE_S)
        self._check()

    def _guarded(self, run: Callable[[int], None], number: int) -> None:
        try:
            self.start.wait(PATIENCE_S)
            run(number)
        except errors.ProducerClosedError as error:
            if not self.closes_early:
                self.failures.append(error)
        except BaseException as error:
            self.failures.append(error)
        finally:
            if run == self._send:
                with self.lock:
                    self.left -= 1

    def _send(self, number: int) -> None:
        dice = random.Random(self.seed * THREADS + number)
        for count in range(self.records):
            topic = dice.choice(self.topics)
            value = b"%d:%d:" % (number, count) + bytes(dice.choice([0, 10, 100, 700]))
            key = dice.choice([None, b"", b"k%d" % dice.randrange(50)])
            headers = dice.choice([(), (("h", b"v"),), (("ü", None), ("trace", b"%d" % count))])
            callback = None
            if dice.random() < 0.3:
                self.wants_call.add(value)
                callback = functools.partial(self._note_call, value)
            kind = dice.random()
            try:
                if kind < 0.1:
                    record = ProducerRecord(topic, value, key, list(headers))
                    future = self.producer.send(record, callback=callback)
                elif kind < 0.2:
                    place = dice.randrange(PARTITIONS)
                    future = self.producer.send(topic, value, key, list(headers), place, None, callback)
                else:
                    future = self.producer.send(topic, value, key, list(headers) or None, callback=callback)
            except BaseException:
                self.wants_call.discard(value)
                raise
            self.sent[number].append(Sent(future, number, value, key, headers))
            if kind > 0.99:
                Garbage(self._send_from_finalizer)
            elif kind > 0.98:
                future.add_done_callback(lambda future: future.done())
            elif kind > 0.97 and not self.closes_early and not self.aborts:
                assert future.get(PATIENCE_S).offset >= 0

    def _note_call(self, value: bytes, metadata: Any, error: Any) -> None:
        with self.lock:
            self.called[value] += 1

    def _send_from_finalizer(self) -> None:
        with contextlib.suppress(errors.ProducerClosedError, errors.BufferExhaustedError):
            self.from_finalizers.append(self.producer.send(self.topics[0], b"finalizer", partition=0))

    def _disturb(self, number: int) -> None:
        dice = random.Random(self.seed)
        partitions = PARTITIONS
        while self.left:
            if partitions < MOST_PARTITIONS:
                partitions += 1
                self.cluster.controller.create_partitions([MorePartitions(self.topics[1], partitions)])
            if self.aborts and dice.random() < 0.3:
                self.producer.abort()
            self.producer.flush(PATIENCE_S)

    def _look(self, number: int) -> None:
        while self.left:
            str(self.producer.describe())
            self.producer.metrics()
            self.producer.partitions_for(self.topics[1])

    def _check(self) -> None:
        log: dict[tuple[str, int, int], Any] = {}
        for topic in self.topics:
            for partition in range(len(self.cluster.controller.image.topics[topic].partitions)):
                for record in self.cluster.records(topic, partition):
                    log[topic, partition, record.offset] = record
        places: dict[tuple[int, str, int], list[int]] = defaultdict(list)
        delivered = 0
        for sent in [each for part in self.sent for each in part]:
            assert sent.future.done(), f"seed {self.seed}: {sent.value!r} is still pending"
            error = sent.future.exception()
            if error is not None:
                dropped = (errors.RecordAbortedError, errors.ProducerClosedError)
                assert isinstance(error, dropped), f"seed {self.seed}: {sent.value!r} failed with {error!r}"
                continue
            delivered += 1
            metadata = sent.future.get()
            record = log[metadata.topic, metadata.partition, metadata.offset]
            found = (record.value, record.key, tuple(record.headers))
            assert found == (sent.value, sent.key, sent.headers), f"seed {self.seed}: {found} for {sent}"
            places[sent.thread, metadata.topic, metadata.partition].append(metadata.offset)
        for offsets in places.values():
            assert all(before < after for before, after in pairwise(offsets)), f"seed {self.seed}: out of order"
        for future in self.from_finalizers:
            assert future.done()
            delivered += future.exception() is None
        assert len(log) == delivered, f"seed {self.seed}: {len(log)} records in the log, {delivered} delivered"
        assert self.called == Counter(self.wants_call), f"seed {self.seed}: callbacks"
        memory_comes_back(self.producer)
        assert self.producer._engine.accumulator.has_incomplete is False


def share_between_loops(cluster: EmbeddedCluster, seed: int, records: int) -> None:
    """Send from several event loops, each in a thread, with one producer; every await must end."""
    topic = f"loops-{seed}"
    cluster.create_topic(topic, PARTITIONS)
    dice = random.Random(seed)
    producer = AsyncKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers,
        linger_ms=dice.choice([0, 1]),
        buffer_memory=dice.choice([20_000, 33_554_432]),
    )
    failures: list[BaseException] = []

    async def send(number: int) -> None:
        for count in range(records // 20):
            value = b"%d:%d" % (number, count)
            assert (await producer.send_and_wait(topic, value)).offset >= 0
            futures = [await producer.send(topic, value) for _ in range(9)]
            while not futures[0].done():
                await asyncio.sleep(0)
            assert futures[0].result().offset >= 0
            assert len(await asyncio.gather(*futures, *(producer.send_and_wait(topic, value) for _ in range(10)))) == 19

    def run(number: int) -> None:
        try:
            asyncio.run(asyncio.wait_for(send(number), PATIENCE_S))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(LOOPS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S + 10)
        assert not thread.is_alive(), f"seed {seed}: a loop hangs"
    asyncio.run(producer.stop())
    if failures:
        raise failures[0]
    in_log = sum(len(cluster.records(topic, partition)) for partition in range(PARTITIONS))
    assert in_log == LOOPS * (records // 20) * 20, f"seed {seed}: {in_log} records in the log"


def main() -> None:
    """Run the rounds that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", help="a seed, or a range like 0:100")
    parser.add_argument("--records", type=int, default=300, help="records per thread")
    options = parser.parse_args()
    first, _, last = options.seeds.partition(":")
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    print(f"Python {sys.version.split()[0]} {'with' if gil else 'without'} the GIL")
    with EmbeddedCluster(brokers=1, config={"num.partitions": PARTITIONS}) as cluster:
        for seed in range(int(first), int(last or int(first) + 1)):
            Round(cluster, seed, options.records).run()
            share_between_loops(cluster, seed, options.records)
    print("ok")


if __name__ == "__main__":
    # the storm's batches are small: share them among the threads that compress all the same
    compressors.MIN_SHARED_BYTES = 0
    main()
