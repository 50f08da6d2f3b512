"""The embedded broker compared with Apache Kafka: throughput of each for one producer and one consumer.

    python benchmarks/broker.py [--megabytes N] [--rounds N] [--batch-bytes N] [--bootstrap HOST:PORT]

The client uses one connection and prebuilt requests, so that it costs next to nothing. It sends batches of 128 KiB with
acks=all, five in flight, then fetches the same bytes in responses of up to 8 MiB per partition. One broker is `headrace
broker` in its own process. The other is Apache Kafka in KRaft mode, from the jars that the tests use, too (this needs
Java, and Maven with access to Maven Central), or the broker at `--bootstrap`. They take turns, after a warm-up round.
Memory for the logs is touched in advance (`page_memory.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import resource
import socket
import statistics
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from page_memory import touch_memory

from headrace.network.protocol.frames import decode_response, encode_request
from headrace.network.protocol.message import Request
from headrace.network.protocol.messages.records.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.network.protocol.messages.records.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.network.protocol.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.network.protocol.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from headrace.network.records.builder_cy import build_batch

# Apache Kafka is started in the same way as in the tests.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.apache_kafka import ApacheKafka, ApacheKafkaUnavailable
from support.apache_kafka.cluster import SERVER_JVM_OPTIONS

RECORD_BYTES = 100
IN_FLIGHT = 5
PRODUCE_VERSION = 9
FETCH_VERSION = 11
FETCH_BYTES = 8 << 20


class Connection:
    """A blocking connection that sends and returns raw frames."""

    def __init__(self, address: str) -> None:
        host, port = address.split(",", 1)[0].rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = io.BufferedReader(socket.SocketIO(self._socket, "r"), 1 << 20)
        self._buffer = memoryview(bytearray(FETCH_BYTES * 2))

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def receive(self) -> memoryview:
        (size,) = struct.unpack(">i", self._file.read(4))
        filled = 0
        while filled < size:
            filled += self._file.readinto(self._buffer[filled:size])
        return self._buffer[:size]

    def ask(self, message: Request, version: int) -> object:
        self.send(frame(message, version))
        return decode_response(type(message), version, self.receive())[1]

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def frame(message: Request, version: int) -> bytes:
    return b"".join(encode_request(message, version=version, correlation_id=1, client_id="benchmark"))


def make_topic(connection: Connection) -> str:
    topic = f"benchmark-{uuid.uuid4()}"
    wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    connection.ask(CreateTopicsRequest(topics=[wanted]), 5)
    while True:
        answer = connection.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9)
        if answer.topics[0].error_code == 0 and answer.topics[0].partitions:  # type: ignore[attr-defined]
            return topic
        time.sleep(0.05)


def produce(connection: Connection, topic: str, batch: memoryview, count: int) -> float:
    """The time in seconds until every batch is acknowledged."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    request = frame(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]), PRODUCE_VERSION)
    began = time.perf_counter()
    for number in range(count + IN_FLIGHT):
        if number < count:
            connection.send(request)
        if number >= IN_FLIGHT:
            _, answer = decode_response(ProduceRequest, PRODUCE_VERSION, connection.receive())
            code = answer.responses[0].partition_responses[0].error_code  # type: ignore[attr-defined]
            if code:
                raise SystemExit(f"the broker rejected a batch with error {code}")
    return time.perf_counter() - began


def fetch(connection: Connection, topic: str, records_per_batch: int, batch_bytes: int, count: int) -> float:
    """The time in seconds until every batch is fetched."""
    offset = 0
    began = time.perf_counter()
    while offset < records_per_batch * count:
        asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=500, min_bytes=1, max_bytes=FETCH_BYTES, topics=[FetchTopic(topic=topic, partitions=[asked])]
        )
        answer = connection.ask(request, FETCH_VERSION)
        data = answer.responses[0].partitions[0]  # type: ignore[attr-defined]
        offset += len(data.records) // batch_bytes * records_per_batch
    return time.perf_counter() - began


def run(address: str, batch: memoryview, per_batch: int, count: int) -> tuple[float, float]:
    """Produce and fetch `count` batches. Returns the megabytes per second of both."""
    total = len(batch) * count / 1e6
    connection = Connection(address)
    topic = make_topic(connection)
    produced = produce(connection, topic, batch, count)
    fetched = fetch(connection, topic, per_batch, len(batch), count)
    connection.close()
    return total / produced, total / fetched


def children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextlib.contextmanager
def headrace_broker() -> Iterator[str]:
    command = [sys.executable, "-c", "import sys; from headrace.cli import main; sys.exit(main())", "broker"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        try:
            yield broker.stdout.readline().strip().partition("=")[2]
        finally:
            broker.terminate()


@contextlib.contextmanager
def with_cpu(name: str, broker: contextlib.AbstractContextManager[str]) -> Iterator[str]:
    """Print the CPU time of the broker's process after it has ended."""
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(broker)
        yield address
        before = children_cpu()
        stack.close()
        print(f"{name:14} {children_cpu() - before:8.2f} s of CPU, including its start")


@contextlib.contextmanager
def apache_kafka() -> Iterator[str]:
    with ApacheKafka(jvm_options=SERVER_JVM_OPTIONS) as kafka:
        yield kafka.bootstrap_servers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-bytes", type=int, default=128 * 1024)
    parser.add_argument("--bootstrap", help="the broker to compare with, instead of an Apache Kafka started here")
    options = parser.parse_args()
    per_batch = max(options.batch_bytes // (RECORD_BYTES + 10), 1)
    batch = memoryview(build_batch([(int(time.time() * 1000), None, b"x" * RECORD_BYTES)] * per_batch))
    count = max(options.megabytes * 1_000_000 // len(batch), 1)
    with contextlib.ExitStack() as stack:
        brokers = {"headrace": stack.enter_context(with_cpu("headrace", headrace_broker()))}
        if options.bootstrap:
            brokers[options.bootstrap] = options.bootstrap
        else:
            try:
                brokers["apache kafka"] = stack.enter_context(with_cpu("apache kafka", apache_kafka()))
            except ApacheKafkaUnavailable as missing:
                print(f"without Apache Kafka: {missing}")
        results: dict[str, list[tuple[float, float]]] = {name: [] for name in brokers}
        for turn in range(options.rounds + 1):
            for name, address in brokers.items():
                touch_memory(options.megabytes * 1_000_000)
                rates = run(address, batch, per_batch, count if turn else max(count // 5, 1))
                if turn:
                    results[name].append(rates)
        print(f"batches of {len(batch)} bytes, {options.megabytes} MB, medians of {options.rounds} rounds\n")
        medians = {
            name: [statistics.median(each) for each in zip(*runs, strict=True)] for name, runs in results.items()
        }
        print(f"{'broker':20} {'produce MB/s':>14} {'fetch MB/s':>14}")
        for name, (produced, fetched) in medians.items():
            print(f"{name:20} {produced:14,.0f} {fetched:14,.0f}")
        for name, (produced, fetched) in list(medians.items())[1:]:
            ours = medians["headrace"]
            print(f"headrace / {name}: produce {ours[0] / produced:.2f}, fetch {ours[1] / fetched:.2f}")
        print()


if __name__ == "__main__":
    main()
