"""confluent-kafka, the Python client over librdkafka.

With ``enable.idempotence`` and the murmur2 partitioner, which are defaults of Kafka's own producer: without them it
would do less work than the others. When its queue is full `produce` raises BufferError, and the loops poll and repeat
the call, as its documentation asks for.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from ..shapes import Mode
from .client import DELIVERY_S, PythonClient, Unavailable, ticks

#: How long to wait for room in the queue, in seconds.
ROOM_S = 0.01
#: Timeout in seconds of one `poll` in the thread that calls the callbacks.
POLL_S = 0.1


class Confluent(PythonClient):
    """`confluent_kafka.Producer`."""

    modes = frozenset(Mode) - {Mode.GATHER}
    tls = True

    def start(self) -> None:
        try:
            from confluent_kafka import Producer
        except ImportError as missing:
            raise Unavailable(f"confluent-kafka is not installed: {missing}") from missing
        self.producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                **self.security,
                **self.shape.config,
                **self.transactional(),
            }
        )
        if self.shape.mode is Mode.TRANSACTIONS:
            self.producer.init_transactions(DELIVERY_S)
            self.send_transaction(self.workload.values[:1])
        else:
            self.producer.produce(self.topic, self.workload.values[0])
            self.flush()

    def close(self) -> None:
        self.producer.flush(DELIVERY_S)

    def flush(self) -> None:
        if left := self.producer.flush(DELIVERY_S):
            raise RuntimeError(f"{left} records were not delivered in {DELIVERY_S} s")

    def produce_when_there_is_room(self, *arguments: Any, **keywords: Any) -> None:
        """Repeat a call that raised BufferError until it succeeds."""
        while True:
            self.producer.poll(ROOM_S)
            try:
                self.producer.produce(self.topic, *arguments, **keywords)
                return
            except BufferError:
                pass

    def send_values(self) -> None:
        produce, poll, topic = self.producer.produce, self.producer.poll, self.topic
        for _ in range(self.workload.passes):
            for value in self.workload.values:
                try:
                    produce(topic, value)
                except BufferError:
                    self.produce_when_there_is_room(value)
            poll(0)

    def send_keyed(self) -> None:
        produce, poll, topic, blocks = self.producer.produce, self.producer.poll, self.topic, self.workload.key_blocks
        for number in range(self.workload.passes):
            for value, key in zip(self.workload.values, blocks[number % len(blocks)], strict=True):
                try:
                    produce(topic, value, key)
                except BufferError:
                    self.produce_when_there_is_room(value, key)
            poll(0)

    def send_with_headers(self) -> None:
        produce, poll, topic = self.producer.produce, self.producer.poll, self.topic
        for _ in range(self.workload.passes):
            for value, trace in zip(self.workload.values, self.workload.traces, strict=True):
                headers: Any = [("trace-id", trace), ("source", b"benchmark")]
                try:
                    produce(topic, value, headers=headers)
                except BufferError:
                    self.produce_when_there_is_room(value, headers=headers)
            poll(0)

    def send_with_callback(self) -> None:
        produce, poll, topic = self.producer.produce, self.producer.poll, self.topic
        acknowledged = 0

        def callback(error: object, message: object) -> None:
            nonlocal acknowledged
            if error is None:
                acknowledged += 1

        for _ in range(self.workload.passes):
            for value in self.workload.values:
                try:
                    produce(topic, value, on_delivery=callback)
                except BufferError:
                    self.produce_when_there_is_room(value, on_delivery=callback)
            poll(0)
        self.flush()
        self.check_acknowledged(acknowledged)

    def send_one_by_one(self) -> list[float]:
        """With `flush` after each record, which waits for less long than `poll` with a callback."""
        produce, topic, now = self.producer.produce, self.topic, time.perf_counter
        latencies = []
        for _ in range(self.workload.passes):
            for value in self.workload.values:
                began = now()
                produce(topic, value)
                self.flush()
                latencies.append(now() - began)
        return latencies

    def send_paced(self) -> list[float]:
        """With a thread that polls, which calls the callbacks sooner than polling between two records."""
        produce, poll, topic, now = self.producer.produce, self.producer.poll, self.topic, time.perf_counter
        latencies: list[float] = []
        all_sent = threading.Event()

        def send_one(value: bytes) -> None:
            began = now()

            def callback(error: object, message: object) -> None:
                if error is None:
                    latencies.append(now() - began)

            produce(topic, value, on_delivery=callback)

        def call_callbacks() -> None:
            while not all_sent.is_set():
                poll(POLL_S)

        caller = threading.Thread(target=call_callbacks)
        caller.start()
        value = self.workload.values[0]
        for due, wait_s in ticks(self.workload.records, self.shape.rate):
            for _ in range(due):
                send_one(value)
            time.sleep(wait_s)
        all_sent.set()
        self.flush()
        caller.join()
        self.check_acknowledged(len(latencies))
        return latencies

    def send_lists(self) -> None:
        if not hasattr(self.producer, "produce_batch"):
            raise Unavailable("this confluent-kafka has no produce_batch")
        values, blocks = self.workload.values, self.workload.key_blocks
        for number in range(self.workload.passes):
            if self.shape.keyed:
                keys = blocks[number % len(blocks)]
                self.produce_list([{"value": value, "key": key} for value, key in zip(values, keys, strict=True)])
            else:
                self.produce_list([{"value": value} for value in values])
            self.producer.poll(0)

    def produce_list(self, messages: list[dict[str, Any]]) -> None:
        """Call `produce_batch` until every message is queued: it marks those for which its queue had no room."""
        while self.producer.produce_batch(self.topic, messages) < len(messages):
            messages = [message for message in messages if message.pop("_error", None) is not None]
            self.producer.poll(ROOM_S)

    def send_transaction(self, values: list[bytes]) -> None:
        self.producer.begin_transaction()
        for value in values:
            self.producer.produce(self.topic, value)
        self.producer.commit_transaction(DELIVERY_S)

    def send_tables(self) -> None:
        produce, poll, topic = self.producer.produce, self.producer.poll, self.topic
        for _ in range(self.workload.passes):
            for value in self.workload.table.column("value").to_pylist():
                try:
                    produce(topic, value)
                except BufferError:
                    self.produce_when_there_is_room(value)
            poll(0)
