"""What a producer holds on to while its broker is gone: memory, objects, threads and descriptors, and what became of
each record.

    python benchmarks/broker_gone.py [--minutes 10] [--gone refused|silent] [--threads N] [--rate N]

Threads send records of 8 bytes to 16 KiB, steadily: with and without a key, a callback, headers; some keep the future
for a while, most drop it. After half a minute the broker stops: `refused` leaves nobody on its port, `silent` leaves
somebody who takes connections and never says a word. Then the buffer is full, `send` fails after ``max.block.ms`` and
batches expire after ``delivery.timeout.ms``. After `--minutes` the broker comes back on its log, half a minute more is
sent, and the producer is closed. Every five seconds a line of figures; at the end what was sent is compared with what
stands in the log. Exits with 1 where a record isn't accounted for, or where something grew while the broker was gone.
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
#: how much more of each there may be at the end of the time without a broker than after its first quarter
GROWTH_ALLOWED = {"rss_kib": 4096, "blocks": 20_000, "objects": 2_000, "threads": 0, "descriptors": 2}

NOT_SENT, REFUSED, TAKEN, WRITTEN, FAILED = range(5)


# --- The broker, in a process of its own ---


def serve(pipe: Connection, silent: bool) -> None:
    """An embedded broker that stops and comes back when told, and says which records are in its log."""
    with EmbeddedCluster(log_retention_bytes=-1) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        pipe.send(cluster.bootstrap_servers)
        # in the meantime nobody else may be given the port: a bound socket that doesn't listen refuses connections, too
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
                pipe.send(Counter(int.from_bytes(value[:8], "big") for value in values))
            pipe.send(None)


def swallow(listener: socket.socket) -> None:
    """Take connections and never answer; they end with the listener."""
    taken = []
    with contextlib.suppress(OSError), contextlib.ExitStack() as connections:
        while True:
            taken.append(connections.enter_context(listener.accept()[0]))


# --- The producer ---


class Senders:
    """Threads that send until they are told to stop, and what they know of each record (a byte a record)."""

    def __init__(self, producer: KafkaProducer, threads: int, rate: float, seconds: float) -> None:
        self._producer = producer
        self._pause_s = threads / rate
        # made beforehand, and written to so that the pages are there: it must not look like growth
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
                # the callback may have been faster
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
    """A callback that notes a record's fate."""

    __slots__ = ("number", "senders")

    def __init__(self, senders: Senders, number: int) -> None:
        self.senders = senders
        self.number = number

    def __call__(self, metadata: RecordMetadata, exception: BaseException | None) -> None:
        self.senders.told(self.number, exception)


# --- Figures ---


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
        figures = "  ".join(f"{name} {value:>8}" for name, value in samples[-1].items())
        sends = senders.fates.rfind(TAKEN) + 1
        print(f"{phase:<7} {figures}  buffer free {free:>7.0f} KiB  last taken {sends}", flush=True)
    return samples


def grown(samples: list[dict[str, int]]) -> list[str]:
    """What there is more of in the last quarter than in the second, by the medians; the first fills the buffer."""
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
    """What doesn't agree between what the senders were told, the log and the metrics."""
    fates = senders.fates
    told = Counter(fates)
    twice = sum(1 for count in in_log.values() if count > 1)
    lost = sum(1 for number, fate in enumerate(fates) if fate == WRITTEN and number not in in_log)
    refused = sum(1 for number in in_log if fates[number] == REFUSED)
    nobody = sum(1 for number in in_log if fates[number] == NOT_SENT)
    failed = sum(1 for number in in_log if fates[number] == FAILED)
    silent = sum(1 for number, fate in enumerate(fates) if fate == TAKEN and number not in in_log)
    print(
        f"taken {told[TAKEN] + told[WRITTEN] + told[FAILED]}: told written {told[WRITTEN]}, told failed {told[FAILED]} "
        f"({failed} of them are in the log), not asked for {told[TAKEN]} ({silent} not in the log); "
        f"refused {told[REFUSED]}; in the log {len(in_log)}; record-error-total {errors:.0f}"
    )
    print(f"refused with {dict(senders.refusals)}, failed with {dict(senders.failures)}")
    problems = {
        "written but not in the log": lost,
        "in the log twice": twice,
        "refused by send, yet in the log": refused,
        "in the log though never sent": nobody,
        # each record that isn't in the log has failed, and each failure is of one record
        "not in the log and not counted as failed": max(0, told[FAILED] + silent - int(errors)),
        "counted as failed, but neither told nor missing": max(0, int(errors) - told[FAILED] - silent),
    }
    return [f"{count} records {what}" for what, count in problems.items() if count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--gone", choices=("refused", "silent"), default="refused")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--rate", type=float, default=1000, help="records a second, of all threads")
    options = parser.parse_args()
    if options.minutes < 2:
        parser.error("less than two minutes are over before the buffer is full and the first batches have expired")
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
