"""Goodput under overload: the acknowledged records if more are offered than a broker can take, and confluent-kafka's.

    python benchmarks/overload.py [--rate 4000] [--seconds 30] [--answer-ms 50] [--record 100] [--partitions 1]

An embedded broker in its own process answers each produce request after `--answer-ms`. With small batches
(``batch.size=1000``) and ``delivery.timeout.ms=6000``, a producer that is offered `--rate` records per second fills its
queues until every batch waits for nearly its whole delivery timeout. If such a batch is sent nevertheless, it expires
in flight: capacity is spent, the record is in the log, and its sender receives an error.

Prints for each client the capacity, which is the rate of acknowledgements with few records outstanding, then the
goodput under overload, measured in the second half of the run, and the ratio of the two, which is the result.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Protocol

from headrace.broker import EmbeddedCluster
from headrace.broker.requests.control import Fault
from headrace.network._build import describe
from headrace.network.protocol.api import ApiKey
from headrace.producer import KafkaProducer
from headrace.producer.errors import KafkaError

SETTINGS = {"batch.size": 1000, "delivery.timeout.ms": 6000, "request.timeout.ms": 5000, "linger.ms": 5}
#: Outstanding records during the measurement of the capacity: the pipeline is full, and no record waits for long.
WINDOW = 500
TICK_S = 0.005


# --- The broker, in its own process ---


def serve(pipe: Connection, answer_ms: float, partitions: int) -> None:
    """A broker with delayed responses, which reports the number of records in its log on request."""
    with EmbeddedCluster() as cluster:
        topics = itertools.count()
        pipe.send(cluster.bootstrap_servers)
        cluster.on_request(ApiKey.PRODUCE, lambda context, request: Fault(delay_ms=answer_ms))
        topic = ""
        for command in iter(pipe.recv, "end"):
            if command == "topic":
                topic = f"overload-{next(topics)}"
                cluster.create_topic(topic, partitions)
                pipe.send(topic)
            else:
                pipe.send(sum(len(cluster.records(topic, partition)) for partition in range(partitions)))


# --- The clients ---


class Client(Protocol):
    """A producer. It calls `done` for each record, on any thread, with whether the record was acknowledged."""

    def send(self, topic: str, value: bytes) -> bool: ...

    def poll(self) -> None: ...

    def close(self) -> None: ...


class Headrace:
    def __init__(self, servers: str, done: Callable[[bool], None]) -> None:
        self._producer = KafkaProducer({"bootstrap.servers": servers, "max.block.ms": 0, **SETTINGS})
        self._done = done

    def send(self, topic: str, value: bytes) -> bool:
        try:
            self._producer.send(topic, value, callback=self._told)
        except KafkaError:
            return False
        return True

    def poll(self) -> None:
        """Nothing to do: callbacks run on their own thread."""

    def _told(self, metadata: Any, exception: BaseException | None) -> None:
        self._done(exception is None)

    def close(self) -> None:
        self._producer.close()


class Confluent:
    def __init__(self, servers: str, done: Callable[[bool], None]) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **SETTINGS})
        self._done = done

    def send(self, topic: str, value: bytes) -> bool:
        try:
            self._producer.produce(topic, value, on_delivery=self._told)
        except BufferError:
            return False
        return True

    def poll(self) -> None:
        self._producer.poll(0)

    def _told(self, error: Any, message: Any) -> None:
        self._done(error is None)

    def close(self) -> None:
        self._producer.flush()


CLIENTS: dict[str, Callable[[str, Callable[[bool], None]], Client]] = {"headrace": Headrace, "confluent": Confluent}


class Tally:
    """The outcomes of the records, and their times."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.acknowledged_at: list[float] = []
        self.failed = 0
        self.outstanding = 0

    def sent(self) -> None:
        with self._lock:
            self.outstanding += 1

    def told(self, acknowledged: bool) -> None:
        with self._lock:
            self.outstanding -= 1
            if acknowledged:
                self.acknowledged_at.append(time.monotonic())
            else:
                self.failed += 1

    def rate(self, since: float, until: float) -> float:
        return sum(since <= at < until for at in list(self.acknowledged_at)) / (until - since)


def run(name: str, servers: str, topic: str, options: argparse.Namespace, rate: float | None) -> tuple[float, Tally]:
    """Offer `rate` records per second (None: keep WINDOW outstanding). Returns the acknowledgements per second."""
    tally = Tally()
    client = CLIENTS[name](servers, tally.told)
    value = bytes(options.record)
    started = time.monotonic()
    until = started + options.seconds
    sent = 0
    try:
        while (now := time.monotonic()) < until:
            due = WINDOW - tally.outstanding if rate is None else int((now - started) * rate) - sent
            for _ in range(due):
                sent += 1
                if client.send(topic, value):
                    tally.sent()
            client.poll()
            time.sleep(TICK_S)
        return tally.rate(started + options.seconds / 2, until), tally
    finally:
        client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=4000, help="records offered per second")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--answer-ms", type=float, default=50)
    parser.add_argument("--record", type=int, default=100, help="bytes per value")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    broker = context.Process(target=serve, args=(theirs, options.answer_ms, options.partitions), daemon=True)
    broker.start()
    servers = pipe.recv()

    def ask(question: str) -> Any:
        pipe.send(question)
        return pipe.recv()

    print(f"headrace: {describe()}; {options}", flush=True)
    for name in options.clients:
        capacity, _ = run(name, servers, ask("topic"), options, None)
        goodput, tally = run(name, servers, ask("topic"), options, options.rate)
        print(
            f"{name:<10} capacity {capacity:6.0f}/s  under overload {goodput:6.0f}/s  ratio {goodput / capacity:.2f}  "
            f"(acknowledged {len(tally.acknowledged_at)}, failed {tally.failed}, in the log {ask('log')})",
            flush=True,
        )
    pipe.send("end")
    broker.join()


if __name__ == "__main__":
    main()
