"""Batches that were passed over, because no response could have arrived before their deadline."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from ...network.clock import NEVER_MS

if TYPE_CHECKING:
    from .batch_cy import ProducerBatch


class GivenUp:
    """A heap of batches by age, which stay unsent until they expire. Belongs to the sender thread."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, ProducerBatch]] = []
        self._count = 0  # so that the heap never compares batches

    def add(self, batch: ProducerBatch) -> None:
        """Keep a batch until it expires."""
        self._count += 1
        heappush(self._heap, (batch.created_ms, self._count, batch))

    def take_older(self, created_by_ms: float) -> list[ProducerBatch]:
        """Take out the batches created at or before a time, oldest first."""
        taken: list[ProducerBatch] = []
        while self._heap and self._heap[0][0] <= created_by_ms:
            taken.append(heappop(self._heap)[2])
        return taken

    def oldest_ms(self) -> float:
        """When the oldest batch was created; NEVER_MS if there is none."""
        return self._heap[0][0] if self._heap else NEVER_MS
