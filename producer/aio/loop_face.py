"""What an `AsyncKafkaProducer` has per event loop: futures, and the sends that wait."""

from __future__ import annotations

import asyncio

from ...network.cluster import TopicPartition
from ..accumulator.batch_cy import ProducerBatch
from ..accumulator.queues_cy import TopicQueues
from ..engine import Engine
from .futures_cy import Completions
from .waiting import MemoryLine, TopicLine

#: A task that sends without ever waiting gives the loop a turn after this many milliseconds.
TURN_MS = 5.0

#: The clock is read once per this many sends.
SENDS_PER_LOOK = 16


class LoopFace:
    """One event loop's sends. Only the loop's thread touches it."""

    __slots__ = ("_clock", "_topics", "_turn_began_ms", "completions", "engine", "future_of", "left", "loop", "memory")

    def __init__(self, loop: asyncio.AbstractEventLoop, engine: Engine) -> None:
        self.loop = loop
        self.engine = engine
        self._clock = engine.clock
        self.completions = Completions(loop, engine.clock)
        self.future_of = self.completions.future_of
        self.memory = MemoryLine(loop, engine)
        self._topics: dict[TopicPartition, TopicLine] = {}
        #: Sends until the clock is read.
        self.left = SENDS_PER_LOOK
        self._turn_began_ms = engine.clock.now_ms()

    async def give_turn(self) -> None:
        """Let the loop do other work, if the sends have taken a whole turn of it."""
        self.left = SENDS_PER_LOOK
        if self._clock.now_ms() - self._turn_began_ms >= TURN_MS:
            await asyncio.sleep(0)
            self._turn_began_ms = self._clock.now_ms()

    async def partitions(self, topic: str, partition: int, budget_ms: float) -> TopicQueues:
        """Wait at most `budget_ms` for a topic's metadata, with `partition` (-1: any). Raises what `send` raises."""
        place = TopicPartition(topic, max(partition, 0))
        line = self._topics.get(place)
        if line is None:
            line = self._topics[place] = TopicLine(self.loop, self.engine, topic, partition)
        try:
            return await line.wait(budget_ms)
        finally:
            if not line:
                self._topics.pop(place, None)

    async def await_batches(self, batches: list[ProducerBatch]) -> None:
        """Wait until the batches, and the parts of those that are split, are done. Empties the list."""
        while batches:
            batch = batches.pop()
            if batch.children is not None:
                batches.extend(part for _, part in batch.children)
            elif not batch.done:
                batches.append(batch)
                await self.completions.batch_done(batch)
        while not self.completions.is_settled:
            # what awaits these records is woken first
            await asyncio.sleep(0)
