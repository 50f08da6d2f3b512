"""What the producer costs at scale: 1,000 brokers and 200,000 partitions by simulation, 10,000 partitions for real.

    python benchmarks/scale.py [--parts turns,metadata,memory,restart,real] [--brokers N] [--topics N] [--partitions N]

By simulation, the real sender, network client, metadata and accumulator run on one thread, stepped by hand, over
brokers in virtual time (`tests/support/simulated_cluster.py`). CPU times are the client's alone, medians over turns.
*turns*: one turn of the sender. *metadata*: one update. *memory*: bytes per partition. *restart*: all brokers
restart, in ten groups one after another and then all at once, while every broker is sent a record each 100 ms.

*real*: records with keys to 100 topics of 100 partitions on one embedded broker in its own process, with the
producer's defaults. CPU and memory are those of the producer's process, and all records are counted in the log.
"""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import statistics
import sys
import tracemalloc
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from comparison.brokers import PATIENCE_S, Embedded, Topic
from comparison.measurement import Measurement, measure
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]
from support.scale_harness import ScaleHarness

from headrace.network._build import describe
from headrace.producer import KafkaProducer

PARTS = ("turns", "metadata", "memory", "restart", "real")
#: Memory for a batch of each of 100,000 partitions at once.
MUCH_MEMORY = 1 << 29
#: So long that nothing becomes ready while a turn is measured.
LONG_LINGER_MS = 1000
ACTIVE = (1_000, 10_000, 100_000)
READY = 10
DOWN_MS = 5_000
GROUPS = 10
#: Milliseconds of virtual time between two records for the same broker.
EVERY_MS = 100
REAL_TOPICS, REAL_PARTITIONS, REAL_RECORDS, REAL_BYTES = 100, 100, 100_000, 100


class Size:
    """The size of the simulated cluster. `partitions`: of each topic."""

    def __init__(self, brokers: int, topics: int, partitions: int) -> None:
        self.brokers = brokers
        self.topics = topics
        self.partitions = partitions

    @property
    def total(self) -> int:
        return self.topics * self.partitions

    def harness(self, **settings: object) -> ScaleHarness:
        return ScaleHarness(topics=self.topics, partitions=self.partitions, brokers=self.brokers, **settings)  # type: ignore[arg-type]


def show(what: str, cost: str) -> None:
    print(f"  {what:<58}{cost:>24}", flush=True)


def micros(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} us" if seconds >= 1e-5 else f"{seconds * 1e6:.1f} us"


# --- By simulation ---


def measure_turns(size: Size) -> None:
    print("CPU of one turn of the sender")
    harness = size.harness(buffer_memory=MUCH_MEMORY, linger_ms=LONG_LINGER_MS, keep_logs=False)
    harness.learn(harness.topics)
    partitions = harness.partitions()
    for topic, partition in harness.one_per_broker():
        harness.append(topic, partition)
    harness.deliver()
    harness.cluster.frozen = True

    def turn(turns: int) -> str:
        return micros(statistics.median(harness.turn() for _ in range(turns)))

    show(f"idle, {harness.cluster.connection_count:,} connections", turn(200))
    begun = 0
    counts = [count for count in ACTIVE if count <= len(partitions)]
    for count in counts:
        for topic, partition in partitions[begun:count]:
            harness.append(topic, partition)
        begun = count
        show(f"{count:,} active partitions, none ready", turn(max(5, 20_000 // count)))
    full = bytes(harness.config.batch_size + 1)
    for topic, partition in partitions[: begun : begun // READY][:READY]:
        harness.append(topic, partition, full)
    show(f"{READY} ready among {begun:,} active, sent", micros(harness.turn()))
    harness.cluster.frozen = False
    _, spent_s = harness.deliver()
    show(f"{begun:,} ready, sent and acknowledged, per batch", micros(spent_s / begun))
    queues = harness.accumulator.topic(harness.topics[0])
    started = harness.cpu_s()
    for _ in range(100):
        queues.switch(None)
    show(f"next partition for records without a key, of {size.partitions:,}", micros((harness.cpu_s() - started) / 100))


def measure_metadata(size: Size) -> None:
    print("CPU of one metadata update")
    harness = size.harness()
    _, spent_s = harness.learn(harness.topics[:-1])
    show(f"first, {size.total - size.partitions:,} partitions", f"{spent_s * 1e3:,.0f} ms")
    _, spent_s = harness.learn(harness.topics[-1:])
    show(f"one more topic, {size.partitions:,} partitions", f"{spent_s * 1e3:,.1f} ms")
    version = harness.metadata.version
    harness.metadata.request_update()
    _, spent_s = harness.run_until(lambda: harness.metadata.version > version)
    show(f"full, nothing changed, {size.total:,} partitions", f"{spent_s * 1e3:,.0f} ms")


def traced_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def measure_memory(size: Size) -> None:
    print("Memory, of Python objects (tracemalloc)")
    harness = size.harness(buffer_memory=MUCH_MEMORY, linger_ms=LONG_LINGER_MS, keep_logs=False)
    harness.cluster.prepare_metadata(harness.topics)
    tracemalloc.start()
    before = traced_bytes()
    harness.learn(harness.topics)
    learnt = traced_bytes()
    partitions = harness.partitions()
    listed = traced_bytes()
    for topic in harness.topics:
        harness.accumulator.topic_queues(topic, lambda: harness.metadata.cluster)
    idle = traced_bytes()
    show("per idle partition: metadata and queue", f"{(learnt - before + idle - listed) / size.total:,.0f} bytes")
    count = min(10_000, len(partitions))
    before, free = traced_bytes(), harness.pool.available_bytes
    for topic, partition in partitions[:count]:
        harness.append(topic, partition)
    taken = free - harness.pool.available_bytes
    show("more per active partition, with one record", f"{(traced_bytes() - before) / count:,.0f} bytes")
    show("  of these from buffer.memory", f"{taken / count:,.0f} bytes")
    harness.deliver()
    show("  taken from buffer.memory after delivery", f"{free - harness.pool.available_bytes:,} bytes")
    tracemalloc.stop()


def measure_restart(size: Size) -> None:
    for what, groups in (("in groups of a tenth", GROUPS), ("all at once", 1)):
        print(f"Restart of all brokers, {what}, each down for {DOWN_MS / 1e3:g} s (virtual time)")
        harness = size.harness(buffer_memory=MUCH_MEMORY)
        harness.learn(harness.topics)
        places = harness.one_per_broker()
        start_ms = harness.clock.now_ms()
        appended = 0
        cluster = harness.cluster
        for number in range(groups):
            group = range(number * size.brokers // groups, (number + 1) * size.brokers // groups)
            stops_ms = start_ms + 1_000 + number * (DOWN_MS + 1_000)
            cluster.at(stops_ms, partial(cluster.stop, group))
            cluster.at(stops_ms + DOWN_MS, partial(cluster.start, group))
        spent_s = 0.0
        while harness.clock.now_ms() < start_ms + 1_000 + groups * (DOWN_MS + 1_000) + 2_000:
            for topic, partition in places:
                harness.append(topic, partition)
            appended += len(places)
            spent_s += harness.run_for(EVERY_MS)[1]
        harness.deliver()
        delivered = sum(log.records for log in cluster.logs.values())
        if delivered != appended:
            raise SystemExit(f"{delivered} of {appended} records were delivered")
        waits = sorted(
            each.at_ms - each.started_ms for each in cluster.first_requests.values() if each.started_ms > start_ms
        )
        middle, last = waits[len(waits) // 2], waits[-1]
        show("from a broker's start to its first bytes, median / last", f"{middle:,.0f} / {last:,.0f} ms")
        attempts = Counter(
            int((each.at_ms - start_ms) // 100) for each in cluster.attempts if each.at_ms > start_ms + 1_000
        )
        show("attempts to connect, per broker", f"{sum(attempts.values()) / size.brokers:.1f}")
        show(
            "attempts per 100 ms, median / most",
            f"{statistics.median(attempts.values()):,.0f} / {max(attempts.values()):,}",
        )
        show("metadata requests", f"{cluster.requests['MetadataRequest']:,}")
        show("records, all delivered / CPU of the client", f"{delivered:,} / {spent_s:,.1f} s")
        if groups == 1:
            first = min(attempts)
            line = " ".join(str(attempts.get(first + number, 0)) for number in range(DOWN_MS // 100))
            print(f"  attempts in each 100 ms since the outage began: {line}")


# --- For real ---


def send_for_real(bootstrap_servers: str, topics: list[str], records: int) -> Measurement:
    value = bytes(REAL_BYTES)
    with KafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        for topic in topics:
            producer.partitions_for(topic)

        def work() -> None:
            for number in range(records):
                producer.send(topics[number % len(topics)], value, key=b"%d" % number)
            producer.flush()

        return measure(records, 0, work)


def measure_real() -> None:
    print(f"For real: {REAL_TOPICS} topics of {REAL_PARTITIONS} partitions, keys, {REAL_BYTES} bytes, defaults")
    with Embedded() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        names = [f"topic-{number:03}" for number in range(REAL_TOPICS)]
        # in one request: one after another, each rewrites the controller's state
        wanted = [NewTopic(name, REAL_PARTITIONS, 1) for name in names]
        for created in admin.create_topics(wanted, operation_timeout=PATIENCE_S, request_timeout=PATIENCE_S).values():
            created.result(PATIENCE_S)
        # in a process of its own, so that its memory is the producer's
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
            result = process.submit(send_for_real, broker.bootstrap_servers, names, REAL_RECORDS).result()
        topics = [Topic(broker.bootstrap_servers, name, REAL_PARTITIONS, admin) for name in names]
        written = sum(topic.records() for topic in topics)
        if written != REAL_RECORDS:
            raise SystemExit(f"{written} of {REAL_RECORDS} records are in the log")
    show("records per second", f"{result.rate:,.0f}")
    show("CPU per record", micros(result.cpu_us / 1e6))
    show("peak memory of the process", f"{result.peak_kib / 1024:,.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--parts", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--brokers", type=int, default=1_000)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=2_000, help="of each topic")
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"no such parts: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    size = Size(arguments.brokers, arguments.topics, arguments.partitions)
    # thousands of brokers that are down, and of batches that are sent again
    logging.getLogger("headrace").setLevel(logging.CRITICAL)
    print(f"headrace: {describe()}; {size.brokers:,} brokers, {size.total:,} partitions in {size.topics} topics")
    if "turns" in parts:
        measure_turns(size)
    if "metadata" in parts:
        measure_metadata(size)
    if "memory" in parts:
        measure_memory(size)
    if "restart" in parts:
        measure_restart(size)
    if "real" in parts:
        measure_real()


if __name__ == "__main__":
    main()
