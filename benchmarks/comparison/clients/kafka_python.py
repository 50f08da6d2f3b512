"""kafka-python, a client in pure Python."""

from __future__ import annotations

import time
from typing import Any

from .client import DELIVERY_S, FutureClient, Unavailable


class KafkaPython(FutureClient):
    """`kafka.KafkaProducer`, with idempotence."""

    share = 0.05

    def start(self) -> None:
        try:
            from kafka import KafkaProducer
        except ImportError as missing:
            raise Unavailable(f"kafka-python is not installed: {missing}") from missing
        config: dict[str, Any] = {key.replace(".", "_"): value for key, value in self.shape.config.items()}
        self.producer = KafkaProducer(bootstrap_servers=self.bootstrap_servers, enable_idempotence=True, **config)
        self.producer.send(self.topic, self.workload.values[0]).get(DELIVERY_S)

    def close(self) -> None:
        self.producer.close()

    def flush(self) -> None:
        self.producer.flush(DELIVERY_S)

    def send_values(self) -> None:
        send, topic = self.producer.send, self.topic
        for _ in range(self.workload.passes):
            for value in self.workload.values:
                send(topic, value)

    def send_keyed(self) -> None:
        send, topic, blocks = self.producer.send, self.topic, self.workload.key_blocks
        for number in range(self.workload.passes):
            for value, key in zip(self.workload.values, blocks[number % len(blocks)], strict=True):
                send(topic, value, key)

    def send_with_headers(self) -> None:
        send, topic = self.producer.send, self.topic
        for _ in range(self.workload.passes):
            for value, trace in zip(self.workload.values, self.workload.traces, strict=True):
                send(topic, value, headers=[("trace-id", trace), ("source", b"benchmark")])

    def send_with_callback(self) -> None:
        send, topic = self.producer.send, self.topic
        acknowledged = 0

        def callback(metadata: object) -> None:
            nonlocal acknowledged
            acknowledged += 1

        for _ in range(self.workload.passes):
            for value in self.workload.values:
                send(topic, value).add_callback(callback)
        self.flush()
        self.check_acknowledged(acknowledged)

    def send_paced(self) -> list[float]:
        send, topic, now = self.producer.send, self.topic, time.perf_counter
        latencies: list[float] = []

        def send_one(value: bytes) -> None:
            began = now()
            send(topic, value).add_callback(lambda metadata: latencies.append(now() - began))

        self.send_at_rate(send_one)
        self.check_acknowledged(len(latencies))
        return latencies
