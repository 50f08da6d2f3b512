"""This project's producer, compiled and interpreted."""

from __future__ import annotations

import time
from typing import ClassVar

from ..shapes import Mode
from .client import DELIVERY_S, FutureClient, Unavailable


class Headrace(FutureClient):
    """`headrace.producer.KafkaProducer` with its hot modules compiled."""

    modes = frozenset(Mode) - {Mode.GATHER}
    tls = True
    environment: ClassVar[dict[str, str]] = {"HEADRACE_PURE": "0"}
    wants_compiled = True

    def start(self) -> None:
        from headrace.network import _build
        from headrace.producer import KafkaProducer

        if self.wants_compiled and not all(_build.compiled_modules().values()):
            raise Unavailable("the hot modules are not compiled; run `make compile`")
        config = {"bootstrap.servers": self.bootstrap_servers, **self.security, **self.shape.config}
        self.producer = KafkaProducer({**config, **self.transactional()})
        if self.shape.mode is Mode.TRANSACTIONS:
            self.producer.init_transactions()
            self.send_transaction(self.workload.values[:1])
        else:
            self.last_future = self.producer.send(self.topic, self.workload.values[0])
            self.last_future.get(DELIVERY_S)

    def close(self) -> None:
        self.producer.close()

    def flush(self) -> None:
        self.producer.flush(DELIVERY_S)
        self.last_future.get(0)

    def send_values(self) -> None:
        send, topic = self.producer.send, self.topic
        future = self.last_future
        for _ in range(self.workload.passes):
            for value in self.workload.values:
                future = send(topic, value)
        self.last_future = future

    def send_keyed(self) -> None:
        send, topic, blocks = self.producer.send, self.topic, self.workload.key_blocks
        future = self.last_future
        for number in range(self.workload.passes):
            for value, key in zip(self.workload.values, blocks[number % len(blocks)], strict=True):
                future = send(topic, value, key)
        self.last_future = future

    def send_with_headers(self) -> None:
        send, topic = self.producer.send, self.topic
        future = self.last_future
        for _ in range(self.workload.passes):
            for value, trace in zip(self.workload.values, self.workload.traces, strict=True):
                future = send(topic, value, headers=[("trace-id", trace), ("source", b"benchmark")])
        self.last_future = future

    def send_with_callback(self) -> None:
        send, topic = self.producer.send, self.topic
        acknowledged = 0

        def callback(metadata: object, exception: BaseException | None) -> None:
            nonlocal acknowledged
            if exception is None:
                acknowledged += 1

        for _ in range(self.workload.passes):
            for value in self.workload.values:
                send(topic, value, callback=callback)
        self.flush()
        self.check_acknowledged(acknowledged)

    def send_paced(self) -> list[float]:
        send, topic, now = self.producer.send, self.topic, time.perf_counter
        latencies: list[float] = []

        def send_one(value: bytes) -> None:
            began = now()

            def callback(metadata: object, exception: BaseException | None) -> None:
                if exception is None:
                    latencies.append(now() - began)

            send(topic, value, callback=callback)

        self.send_at_rate(send_one)
        self.check_acknowledged(len(latencies))
        return latencies

    def send_lists(self) -> None:
        send_many = getattr(self.producer, "send_many", None)
        if send_many is None:
            raise Unavailable("this KafkaProducer has no send_many")
        values, blocks = self.workload.values, self.workload.key_blocks
        futures = []
        for number in range(self.workload.passes):
            if self.shape.keyed:
                futures.append(send_many(self.topic, values, blocks[number % len(blocks)]))
            else:
                futures.append(send_many(self.topic, values))
        for future in futures:
            future.get(DELIVERY_S)

    def send_transaction(self, values: list[bytes]) -> None:
        self.producer.begin_transaction()
        for value in values:
            self.last_future = self.producer.send(self.topic, value)
        self.producer.commit_transaction()

    def send_tables(self) -> None:
        futures = [self.producer.send_arrow(self.topic, self.workload.table) for _ in range(self.workload.passes)]
        for future in futures:
            future.get(DELIVERY_S)


class HeadraceInterpreted(Headrace):
    """The same without the compiled modules, as on a machine without a C compiler."""

    share = 0.1
    environment: ClassVar[dict[str, str]] = {"HEADRACE_PURE": "1"}
    wants_compiled = False
