"""This producer compared with confluent-kafka (interpreted, with aiokafka), against the same broker process.

    python benchmarks/producer.py [--records N] [--rounds N] [--bootstrap HOST:PORT] [--batch-size BYTES]

Every measurement runs in its own process, the clients take turns for `--rounds` rounds, and the program prints medians.
All clients have the same settings: idempotence, `linger.ms=5`, the same `batch.size`, no compression, values of 100
random bytes, a topic with 4 partitions. The time is measured from the first `send` until every record is acknowledged;
the CPU time is that of the client's process, without the broker. Memory for the broker's log is touched in advance
(`page_memory.py`). Without ``--bootstrap`` the broker is ``headrace broker``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from page_memory import touch_memory

VALUE_BYTES = 100
KEYS = 1000
MODES = ("plain", "key", "callback")
CLIENTS = {
    # name -> (client, HEADRACE_PURE, share of the records)
    "headrace": ("headrace", False, 1.0),
    "confluent-kafka": ("confluent", False, 1.0),
    "headrace, interpreted": ("headrace", True, 0.1),
    "aiokafka": ("aiokafka", False, 0.1),
}
# the pairs whose ratios are printed
PAIRS = (("headrace", "confluent-kafka"), ("headrace, interpreted", "aiokafka"))


def measured(records: int, work: Callable[[], int]) -> dict[str, float]:
    started, cpu = time.perf_counter(), time.process_time()
    acknowledged = work()
    seconds = time.perf_counter() - started
    if acknowledged not in (records, -1):
        raise SystemExit(f"{acknowledged} of {records} records were acknowledged")
    return {"rate": records / seconds, "cpu_us": (time.process_time() - cpu) / records * 1e6}


def run_headrace(bootstrap: str, topic: str, mode: str, records: int, batch_bytes: int) -> dict[str, float]:
    from headrace.producer import KafkaProducer

    value = os.urandom(VALUE_BYTES)
    keys = [b"user-%d" % number for number in range(KEYS)]
    done = 0

    def callback(metadata: object, exception: BaseException | None) -> None:
        nonlocal done
        if exception is None:
            done += 1

    with KafkaProducer(
        bootstrap_servers=bootstrap, batch_size=batch_bytes, linger_ms=5, buffer_memory=64 << 20
    ) as producer:
        producer.send(topic, value).get(30)

        def work() -> int:
            future = None
            if mode == "plain":
                for _ in range(records):
                    future = producer.send(topic, value)
            elif mode == "key":
                for number in range(records):
                    future = producer.send(topic, value, keys[number % KEYS])
            else:
                for _ in range(records):
                    producer.send(topic, value, callback=callback)
            producer.flush()
            if future is not None:
                future.get(0)
            return done if mode == "callback" else -1

        return measured(records, work)


def run_confluent(bootstrap: str, topic: str, mode: str, records: int, batch_bytes: int) -> dict[str, float]:
    from confluent_kafka import Producer

    value = os.urandom(VALUE_BYTES)
    keys = [b"user-%d" % number for number in range(KEYS)]
    done = 0

    def callback(error: object, message: object) -> None:
        nonlocal done
        if error is None:
            done += 1

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "batch.size": batch_bytes,
            "linger.ms": 5,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
            "partitioner": "murmur2_random",
        }
    )
    producer.produce(topic, value)
    producer.flush(30)

    def work() -> int:
        produce, poll = producer.produce, producer.poll
        for number in range(records):
            while True:
                try:
                    if mode == "plain":
                        produce(topic, value)
                    elif mode == "key":
                        produce(topic, value, keys[number % KEYS])
                    else:
                        produce(topic, value, callback=callback)
                    break
                except BufferError:
                    poll(0.01)
            if number % 1000 == 0:
                poll(0)
        if producer.flush(120):
            raise SystemExit("confluent-kafka did not deliver everything")
        return done if mode == "callback" else -1

    return measured(records, work)


def run_aiokafka(bootstrap: str, topic: str, mode: str, records: int, batch_bytes: int) -> dict[str, float]:
    from aiokafka import AIOKafkaProducer

    value = os.urandom(VALUE_BYTES)
    keys = [b"user-%d" % number for number in range(KEYS)]

    async def whole() -> dict[str, float]:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, max_batch_size=batch_bytes, linger_ms=5, enable_idempotence=True
        )
        await producer.start()
        await producer.send_and_wait(topic, value)
        started, cpu = time.perf_counter(), time.process_time()
        done = 0

        def count(future: asyncio.Future) -> None:
            nonlocal done
            done += 1

        for number in range(records):
            future = await producer.send(topic, value, key=keys[number % KEYS] if mode == "key" else None)
            if mode == "callback":
                future.add_done_callback(count)
        await producer.flush()
        seconds = time.perf_counter() - started
        cpu_us = (time.process_time() - cpu) / records * 1e6
        await producer.stop()
        return {"rate": records / seconds, "cpu_us": cpu_us}

    return asyncio.run(whole())


def measure(name: str, bootstrap: str, mode: str, records: int, batch_bytes: int) -> dict[str, float]:
    client, pure, share = CLIENTS[name]
    environment = {**os.environ, "HEADRACE_PURE": "1" if pure else ""}
    command = [sys.executable, __file__, "--measure", client, "--mode", mode, "--bootstrap", bootstrap]
    command += ["--records", str(int(records * share)), "--batch-size", str(batch_bytes)]
    touch_memory(int(records * share) * VALUE_BYTES)
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    if ran.returncode:
        raise SystemExit(f"{name}, {mode} failed:\n{ran.stderr}")
    return json.loads(ran.stdout.strip().splitlines()[-1])


def report(bootstrap: str, options: argparse.Namespace) -> None:
    results: dict[tuple[str, str], list[dict[str, float]]] = {}
    for turn in range(options.rounds):
        for mode in MODES:
            for name in CLIENTS:
                results.setdefault((name, mode), []).append(
                    measure(name, bootstrap, mode, options.records, options.batch_size)
                )
        print(f"round {turn + 1} of {options.rounds}", file=sys.stderr)
    print(f"\n{VALUE_BYTES}-byte values, batch.size={options.batch_size}, medians of {options.rounds} rounds\n")
    print(f"{'client':24} {'mode':10} {'records/s':>12} {'min':>12} {'max':>12} {'CPU µs/record':>14}")
    medians = {}
    for mode in MODES:
        for name in CLIENTS:
            runs = results[name, mode]
            rates = [run["rate"] for run in runs]
            medians[name, mode] = statistics.median(rates)
            cpu = statistics.median([run["cpu_us"] for run in runs])
            print(
                f"{name:24} {mode:10} {medians[name, mode]:12,.0f} {min(rates):12,.0f} {max(rates):12,.0f} {cpu:14.2f}"
            )
    print()
    for ours, theirs in PAIRS:
        for mode in MODES:
            ratio = medians[ours, mode] / medians[theirs, mode]
            print(f"{ours} / {theirs}, {mode}: {ratio:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bootstrap", help="HOST:PORT of a running broker")
    parser.add_argument("--batch-size", type=int, default=131_072)
    parser.add_argument("--measure", choices=("headrace", "confluent", "aiokafka"), help=argparse.SUPPRESS)
    parser.add_argument("--mode", choices=MODES, default="plain", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        run = {"headrace": run_headrace, "confluent": run_confluent, "aiokafka": run_aiokafka}[options.measure]
        print(json.dumps(run(options.bootstrap, "bench", options.mode, options.records, options.batch_size)))
        return
    if options.bootstrap:
        report(options.bootstrap, options)
        return
    command = [os.path.join(os.path.dirname(sys.executable), "headrace"), "broker", "--config", "num.partitions=4"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        try:
            report(broker.stdout.readline().strip().partition("=")[2], options)
        finally:
            broker.terminate()


if __name__ == "__main__":
    main()
