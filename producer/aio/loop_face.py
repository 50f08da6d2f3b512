"""What an `AsyncKafkaProducer` has per event loop: futures, and the sends that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sized

from ...network.cluster import TopicPartition
from ..accumulator.batch_cy import ProducerBatch
from ..accumulator.queues_cy import TopicQueues
from ..engine import Engine
from .direct import DirectProducer
from .futures_cy import Completions
from .sends_cy import LoopSends
from .waiting import MemoryLine, TopicLine


class LoopFace:
    """One event loop's sends. Only the loop's thread touches it."""

    __slots__ = ("_topics", "completions", "engine", "future_of", "loop", "memory", "sends", "untraced")

    def __init__(self, loop: asyncio.AbstractEventLoop, engine: Engine, producer: DirectProducer) -> None:
        self.loop = loop
        self.engine = engine
        self.completions = Completions(loop, engine.clock)
        self.future_of = self.completions.future_of
        self.memory = MemoryLine(loop, engine)
        waiting: Sized = self.memory.line
        # with plugins that may wait, no record takes the direct path
        is_direct = producer.is_direct
        # within a span, or without tracing
        self.untraced = LoopSends(self.completions, engine.clock, producer.send, waiting, is_direct)
        self.sends = self.untraced
        if producer.tracing is not None:
            # a span begins on the path with awaits
            self.sends = LoopSends(self.completions, engine.clock, producer.send, waiting, is_direct=False)
        self._topics: dict[TopicPartition, TopicLine] = {}

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
