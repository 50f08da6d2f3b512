"""The bounds on the batches of topics whose broker rejected one as too large. Sender thread only.

A rejected batch is split, and the topic's later batches have at most half of its size. The broker names no limit, and a
topic's ``max.message.bytes`` may be raised, so a bound doubles after an interval without a rejection, until it is above
the largest batch there is. A rejection sets the bound again and doubles the interval: a limit that stays where it is
costs one batch that is split per interval.

Source: none in Kafka, whose batches don't grow.
"""

from __future__ import annotations

from ...network.clock import NEVER_MS
from ...network.records.builder_cy import NO_LIMIT
from .queues_cy import TopicQueues

#: Milliseconds after which a bound doubles for the first time, and at most.
FIRST_INTERVAL_MS = 60_000.0
MAX_INTERVAL_MS = 3_600_000.0


class SizeBounds:
    """The bounded topics. `next_ms` is when `raise_due` has something to do."""

    def __init__(self, max_batch_size: int) -> None:
        """`max_batch_size`: the size of the largest batch without a bound."""
        self._max_batch_size = max_batch_size
        # topic -> its queues, the interval, and when that ends
        self._topics: dict[str, tuple[TopicQueues, float, float]] = {}
        self.next_ms = NEVER_MS

    def rejected(self, topic_queues: TopicQueues, size_bytes: int, now_ms: float) -> None:
        """A batch of `size_bytes` was too large for the broker."""
        bound = max(size_bytes // 2, 1)
        if bound >= topic_queues.max_batch_bytes:
            return  # it was filled before the bound was set
        topic_queues.max_batch_bytes = bound
        known = self._topics.get(topic_queues.topic)
        interval_ms = FIRST_INTERVAL_MS if known is None else min(known[1] * 2, MAX_INTERVAL_MS)
        self._wait(topic_queues, interval_ms, now_ms)

    def raise_due(self, now_ms: float) -> None:
        """Double the bounds whose interval has passed; forget those that have been lifted for one."""
        for topic, (topic_queues, interval_ms, ends_ms) in list(self._topics.items()):
            if now_ms < ends_ms:
                continue
            if topic_queues.max_batch_bytes == NO_LIMIT:
                del self._topics[topic]
                continue
            doubled = topic_queues.max_batch_bytes * 2
            topic_queues.max_batch_bytes = doubled if doubled < self._max_batch_size else NO_LIMIT
            self._wait(topic_queues, interval_ms, now_ms)
        self._note_next()

    def _wait(self, topic_queues: TopicQueues, interval_ms: float, now_ms: float) -> None:
        self._topics[topic_queues.topic] = (topic_queues, interval_ms, now_ms + interval_ms)
        self._note_next()

    def _note_next(self) -> None:
        self.next_ms = min([ends_ms for _, _, ends_ms in self._topics.values()], default=NEVER_MS)
