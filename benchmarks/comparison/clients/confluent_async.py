"""confluent-kafka's producer for asyncio, which collects records and hands them to a thread pool."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from ..shapes import Mode, Shape
from .client import DELIVERY_S, PythonClient, Unavailable


class ConfluentAsync(PythonClient):
    """`confluent_kafka.aio.AIOProducer`. Its records are acknowledged when the futures that `produce` returns are."""

    share = 0.1
    modes = frozenset({Mode.THROUGHPUT, Mode.GATHER})
    threads = False

    @classmethod
    def refusal(cls, shape: Shape) -> str | None:
        return "AIOProducer has no headers" if shape.headers else super().refusal(shape)

    def start(self) -> None:
        try:
            from confluent_kafka.aio import AIOProducer
        except ImportError as missing:
            raise Unavailable(f"confluent-kafka has no AIOProducer: {missing}") from missing
        self.loop = asyncio.new_event_loop()
        self.run(self._start(AIOProducer))

    async def _start(self, producer_class: Any) -> None:
        self.producer = producer_class(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                **self.shape.config,
            }
        )
        future = await self.producer.produce(self.topic, self.workload.values[0])
        await self.producer.flush()
        await future

    def run(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, DELIVERY_S))

    def close(self) -> None:
        self.run(self.producer.close())
        self.loop.close()

    def flush(self) -> None:
        self.run(self.producer.flush())

    def send_all(self, produce: Callable[[int], Iterable[Awaitable[asyncio.Future[Any]]]]) -> Sequence[Any]:
        """Await what `produce` yields for each pass, and then every future."""

        async def loop() -> Sequence[Any]:
            futures = [await sent for number in range(self.workload.passes) for sent in produce(number)]
            await self.producer.flush()
            return await asyncio.gather(*futures)

        return self.run(loop())

    def send_values(self) -> None:
        produce, topic = self.producer.produce, self.topic
        self.send_all(lambda number: (produce(topic, value) for value in self.workload.values))

    def send_keyed(self) -> None:
        produce, topic, blocks = self.producer.produce, self.topic, self.workload.key_blocks
        self.send_all(
            lambda number: (
                produce(topic, value, key)
                for value, key in zip(self.workload.values, blocks[number % len(blocks)], strict=True)
            )
        )

    def send_with_headers(self) -> None:
        raise NotImplementedError

    def send_with_callback(self) -> None:
        acknowledged = 0

        def callback(future: asyncio.Future[Any]) -> None:
            nonlocal acknowledged
            if future.exception() is None:
                acknowledged += 1

        async def sent(value: bytes) -> asyncio.Future[Any]:
            future = await self.producer.produce(self.topic, value)
            future.add_done_callback(callback)
            return future

        self.send_all(lambda number: (sent(value) for value in self.workload.values))
        self.run(asyncio.sleep(0))
        self.check_acknowledged(acknowledged)

    def send_gathered(self) -> None:
        produce, topic = self.producer.produce, self.topic

        async def send_and_wait(value: bytes) -> Any:
            return await (await produce(topic, value))

        async def loop() -> None:
            for _ in range(self.workload.passes):
                await asyncio.gather(*(send_and_wait(value) for value in self.workload.values))

        self.run(loop())

    def send_one_by_one(self) -> list[float]:
        raise NotImplementedError

    def send_paced(self) -> list[float]:
        raise NotImplementedError
