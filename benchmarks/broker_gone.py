"""A producer whose broker is gone: its memory, objects, threads and descriptors, and the outcome of each record.

    python benchmarks/broker_gone.py [--minutes 10] [--gone closed|silent] [--threads N] [--rate N]

Threads send records of 8 bytes to 16 KiB at a steady rate, with and without keys, callbacks and headers. Some keep the
future for a while, most drop it. After half a minute the broker stops: with `closed` nothing listens on its port, with
`silent` a server accepts connections and never responds. The buffer fills up, `send` fails after ``max.block.ms`` and
batches expire after ``delivery.timeout.ms``. After `--minutes` the broker restarts on its log, the threads send for
another half minute, and the producer is closed. The program prints a line of measurements every five seconds, and at
the end compares the records sent with the log. It exits with 1 if a record isn't accounted for, or if anything grew
while the broker was gone.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import multiprocessing
import os
import random
import socket
import statistics
import sys
import threading
import time
from collections import Counter, deque
from multiprocessing.connection import Connection
from typing import Any

from headrace.broker import EmbeddedCluster
from headrace.network._build import describe
from headrace.producer import KafkaProducer, RecordMetadata
from headrace.producer.errors import KafkaError

TOPIC = "watched"
PARTITIONS = 8
SAMPLE_S = 5
AROUND_S = 30
BUFFER_BYTES = 32 << 20
DELIVERY_TIMEOUT_MS = 30_000
#: the allowed growth of each measurement between the second and the last quarter of the time without a broker
GROWTH_ALLOWED = {"rss_kib": 4096, "blocks": 20_000, "objects": 2_000, "threads": 0, "descriptors": 2}

NOT_SENT, REFUSED, TAKEN, WRITTEN, FAILED = range(5)


# --- The broker, in its own process ---


def serve(pipe: Connection, silent: bool) -> None:
    """An embedded broker that stops and starts on command, and reports the records in its log."""
    with EmbeddedCluster(log_retention_bytes=-1) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        pipe.send(cluster.bootstrap_servers)
        # keeps the port reserved meanwhile: connections to a bound socket that doesn't listen fail, too
        placeholder = socket.socket()
        for command in iter(pipe.recv, "end"):
            if command == "stop":
                port = cluster.broker(1).server.port
                cluster.stop_broker(1)
                placeholder = socket.socket()
                placeholder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                placeholder.bind(("127.0.0.1", port))
                if silent:
                    placeholder.listen(100)
                    threading.Thread(target=swallow, args=(placeholder,), daemon=True).start()
            elif command == "start":
                if silent:
                    # wakes the thread that accepts
                    placeholder.shutdown(socket.SHUT_RDWR)
                placeholder.close()
                cluster.start_broker(1)
            elif command == "numbers":
                values = (record.value for part in range(PARTITIONS) for record in cluster.records(TOPIC, part))
                pipe.send(Counter(int.from_bytes(value[:8], "big") for value in values if value is not None))
            pipe.send(None)


def swallow(listener: socket.socket) -> None:
    """Accept connections and never respond; they are closed with the listener."""
    taken = []
    with contextlib.suppress(OSError), contextlib.ExitStack() as connections:
        while True:
            taken.append(connections.enter_context(listener.accept()[0]))


# --- The producer ---


class Senders:
    """Threads that send until they are stopped, and the known outcome of each record (one byte per record)."""

    def __init__(self, producer: KafkaProducer, threads: int, rate: float, seconds: float) -> None:
        self._producer = producer
        self._pause_s = threads / rate
        # allocated in advance, and written to so that its pages exist: it must not count as growth
        self.fates = bytearray(b"\xff") * int(rate * seconds * 1.5 + 10_000)
        self.fates[:] = bytes(len(self.fates))
        self._numbers = itertools.count()
        self.refusals: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(seed,)) for seed in range(threads)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _send(self, seed: int) -> None:
        chance = random.Random(seed)
        filler = chance.randbytes(16_384)
        kept: deque[tuple[int, Any]] = deque()
        next_s = time.monotonic()
        while not self._stop.is_set():
            number = next(self._numbers)
            value = number.to_bytes(8, "big") + filler[: int(2 ** chance.uniform(0, 14))]
            options: dict[str, Any] = {}
            if chance.random() < 0.5:
                options["key"] = b"key-%d" % chance.randrange(1000)
            if chance.random() < 0.1:
                options["headers"] = [("trace", b"%d" % number)]
            watched = chance.random()
            if watched < 0.5:
                options["callback"] = Told(self, number)
            try:
                future = self._producer.send(TOPIC, value, **options)
            except KafkaError as error:
                self.fates[number] = REFUSED
                self.refusals[type(error).__name__] += 1
            else:
                # the callback may have run before
                if self.fates[number] == NOT_SENT:
                    self.fates[number] = TAKEN
                if watched > 0.9:
                    kept.append((number, future))
                del future
            while kept and (kept[0][1].done() or len(kept) > 500):
                number, future = kept.popleft()
                if future.done():
                    self.told(number, future.exception(0))
            next_s = max(next_s + self._pause_s, time.monotonic() - 1)
            time.sleep(max(0.0, next_s - time.monotonic()))
        for number, future in kept:
            with contextlib.suppress(TimeoutError):
                self.told(number, future.exception(60))

    def told(self, number: int, exception: BaseException | None) -> None:
        self.fates[number] = WRITTEN if exception is None else FAILED
        if exception is not None:
            self.failures[type(exception).__name__] += 1


class Told:
    """A callback that stores a record's outcome."""

    __slots__ = ("number", "senders")

    def __init__(self, senders: Senders, number: int) -> None:
        self.senders = senders
        self.number = number

    def __call__(self, metadata: RecordMetadata, exception: BaseException | None) -> None:
        self.senders.told(self.number, exception)


# --- Measurements ---


def sample() -> dict[str, int]:
    with open("/proc/self/status") as status:
        told = dict(line.split(":", 1) for line in status)
    return {
        "rss_kib": int(told["VmRSS"].split()[0]),
        "blocks": sys.getallocatedblocks(),
        "objects": len(gc.get_objects()),
        "threads": int(told["Threads"]),
        "descriptors": len(os.listdir("/proc/self/fd")),
    }


def watch(seconds: float, phase: str, senders: Senders, producer: KafkaProducer) -> list[dict[str, int]]:
    samples = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(SAMPLE_S)
        samples.append(sample())
        measured = producer.metrics()["producer-metrics"]
        free = measured["buffer-available-bytes"] / 1024
        sizes = "  ".join(f"{name} {value:>8}" for name, value in samples[-1].items())
        sends = senders.fates.rfind(TAKEN) + 1
        print(f"{phase:<7} {sizes}  buffer free {free:>7.0f} KiB  last taken {sends}", flush=True)
    return samples


def grown(samples: list[dict[str, int]]) -> list[str]:
    """The measurements whose median grew from the second quarter to the last; the buffer fills in the first."""
    quarter = len(samples) // 4
    found = []
    for name, allowed in GROWTH_ALLOWED.items():
        before = statistics.median(each[name] for each in samples[quarter : 2 * quarter])
        after = statistics.median(each[name] for each in samples[-quarter:])
        print(f"{name}: {before:.0f} in the second quarter, {after:.0f} in the last")
        if after - before > allowed:
            found.append(name)
    return found


def unaccounted(senders: Senders, in_log: Counter[int], errors: float) -> list[str]:
    """The contradictions between the outcomes that the senders received, the log and the metrics."""
    fates = senders.fates
    told = Counter(fates)
    twice = sum(1 for count in in_log.values() if count > 1)
    lost = sum(1 for number, fate in enumerate(fates) if fate == WRITTEN and number not in in_log)
    refused = sum(1 for number in in_log if fates[number] == REFUSED)
    nobody = sum(1 for number in in_log if fates[number] == NOT_SENT)
    failed = sum(1 for number in in_log if fates[number] == FAILED)
    silent = sum(1 for number, fate in enumerate(fates) if fate == TAKEN and number not in in_log)
    print(
        f"enqueued {told[TAKEN] + told[WRITTEN] + told[FAILED]}: acknowledged {told[WRITTEN]}, failed {told[FAILED]} "
        f"({failed} of them are in the log), outcome not read {told[TAKEN]} ({silent} not in the log); "
        f"rejected {told[REFUSED]}; in the log {len(in_log)}; record-error-total {errors:.0f}"
    )
    print(f"rejected with {dict(senders.refusals)}, failed with {dict(senders.failures)}")
    problems = {
        "acknowledged but not in the log": lost,
        "in the log twice": twice,
        "rejected by send, yet in the log": refused,
        "in the log though never sent": nobody,
        # each record missing from the log has failed, and each failure is of one record
        "not in the log and not counted as failed": max(0, told[FAILED] + silent - int(errors)),
        "counted as failed, but neither reported nor missing": max(0, int(errors) - told[FAILED] - silent),
    }
    return [f"{count} records {what}" for what, count in problems.items() if count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--gone", choices=("closed", "silent"), default="closed")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--rate", type=float, default=1000, help="records per second, of all threads")
    options = parser.parse_args()
    if options.minutes < 2:
        parser.error("--minutes must be at least 2, for the buffer to fill up and the first batches to expire")
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    broker = context.Process(target=serve, args=(theirs, options.gone == "silent"))
    broker.start()

    def tell(command: str) -> None:
        pipe.send(command)
        pipe.recv()

    print(f"headrace: {describe()}; {options}", flush=True)
    producer = KafkaProducer(
        bootstrap_servers=pipe.recv(),
        buffer_memory=BUFFER_BYTES,
        delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
        request_timeout_ms=10_000,
        max_block_ms=500,
    )
    senders = Senders(producer, options.threads, options.rate, options.minutes * 60 + 2 * AROUND_S)
    senders.start()
    try:
        watch(AROUND_S, "before", senders, producer)
        tell("stop")
        gone = watch(options.minutes * 60, "gone", senders, producer)
        tell("start")
        watch(AROUND_S, "back", senders, producer)
    finally:
        senders.stop()
        producer.close()
    errors = producer.metrics()["producer-metrics"]["record-error-total"]
    pipe.send("numbers")
    in_log = pipe.recv()
    pipe.recv()
    pipe.send("end")
    broker.join()
    del producer
    problems = unaccounted(senders, in_log, errors) + [f"{name} grew" for name in grown(gone)]
    print("\n".join(problems) or "nothing grew, and every record is accounted for")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
