"""aiokafka, the client for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

from ..shapes import LATENCY_MODES, Mode
from .client import PythonClient, Unavailable, ticks

OPTIONS = {"batch.size": "max_batch_size", "linger.ms": "linger_ms", "compression.type": "compression_type"}


class Aiokafka(PythonClient):
    """`aiokafka.AIOKafkaProducer`, with idempotence. Its loops are coroutines on an event loop of the main thread."""

    share = 0.1
    modes = frozenset({Mode.THROUGHPUT, Mode.GATHER, *LATENCY_MODES})
    threads = False

    def start(self) -> None:
        try:
            from aiokafka import AIOKafkaProducer
        except ImportError as missing:
            raise Unavailable(f"aiokafka is not installed: {missing}") from missing
        self.start_with(AIOKafkaProducer)

    def start_with(self, producer_class: Any) -> None:
        """Construct a producer of this class on a new event loop, and wait for one acknowledged record."""
        self.loop = asyncio.new_event_loop()
        self.run(self._start(producer_class))

    async def _start(self, producer_class: Any) -> None:
        self.producer = producer_class(
            bootstrap_servers=self.bootstrap_servers, enable_idempotence=True, **self.configuration()
        )
        await self.producer.start()
        await self.producer.send_and_wait(self.topic, self.workload.values[0])

    def configuration(self) -> dict[str, Any]:
        """The shape's configuration by this client's names."""
        return {OPTIONS[key]: value for key, value in self.shape.config.items()}

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(coroutine)

    def close(self) -> None:
        self.run(self.producer.stop())
        self.loop.close()

    def flush(self) -> None:
        self.run(self.producer.flush())

    def send_values(self) -> None:
        async def loop() -> None:
            send, topic = self.producer.send, self.topic
            for _ in range(self.workload.passes):
                for value in self.workload.values:
                    await send(topic, value)

        self.run(loop())

    def send_keyed(self) -> None:
        async def loop() -> None:
            send, topic, blocks = self.producer.send, self.topic, self.workload.key_blocks
            for number in range(self.workload.passes):
                for value, key in zip(self.workload.values, blocks[number % len(blocks)], strict=True):
                    await send(topic, value, key)

        self.run(loop())

    def send_with_headers(self) -> None:
        async def loop() -> None:
            send, topic = self.producer.send, self.topic
            for _ in range(self.workload.passes):
                for value, trace in zip(self.workload.values, self.workload.traces, strict=True):
                    await send(topic, value, headers=[("trace-id", trace), ("source", b"benchmark")])

        self.run(loop())

    def send_with_callback(self) -> None:
        acknowledged = 0

        def callback(future: asyncio.Future) -> None:
            nonlocal acknowledged
            if future.exception() is None:
                acknowledged += 1

        async def loop() -> None:
            send, topic = self.producer.send, self.topic
            for _ in range(self.workload.passes):
                for value in self.workload.values:
                    (await send(topic, value)).add_done_callback(callback)
            await self.producer.flush()
            # callbacks of completed futures run in the next turn of the event loop
            await asyncio.sleep(0)

        self.run(loop())
        self.check_acknowledged(acknowledged)

    def send_gathered(self) -> None:
        async def loop() -> None:
            send, topic = self.producer.send_and_wait, self.topic
            for _ in range(self.workload.passes):
                if self.shape.headers:
                    await asyncio.gather(
                        *(
                            send(topic, value, headers=[("trace-id", trace), ("source", b"benchmark")])
                            for value, trace in zip(self.workload.values, self.workload.traces, strict=True)
                        )
                    )
                else:
                    await asyncio.gather(*(send(topic, value) for value in self.workload.values))

        self.run(loop())

    def send_one_by_one(self) -> list[float]:
        async def loop() -> list[float]:
            send, topic, now = self.producer.send_and_wait, self.topic, time.perf_counter
            latencies = []
            for _ in range(self.workload.passes):
                for value in self.workload.values:
                    began = now()
                    await send(topic, value)
                    latencies.append(now() - began)
            return latencies

        return self.run(loop())

    def send_paced(self) -> list[float]:
        send, topic, now = self.producer.send, self.topic, time.perf_counter
        latencies: list[float] = []

        async def send_one(value: bytes) -> None:
            began = now()
            (await send(topic, value)).add_done_callback(lambda future: latencies.append(now() - began))

        async def loop() -> None:
            value = self.workload.values[0]
            for due, wait_s in ticks(self.workload.records, self.shape.rate):
                for _ in range(due):
                    await send_one(value)
                await asyncio.sleep(wait_s)
            await self.producer.flush()
            await asyncio.sleep(0)

        self.run(loop())
        self.check_acknowledged(len(latencies))
        return latencies
