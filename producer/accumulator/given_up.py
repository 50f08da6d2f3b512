"""Batches not sent, because no response could arrive before their deadline."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from ...network.clock import NEVER_MS

if TYPE_CHECKING:
    from .batch_cy import ProducerBatch


class GivenUp:
    """A heap, by age, of batches that stay unsent until they expire. Sender thread only."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, ProducerBatch]] = []
        self._count = 0  # breaks ties, so that the heap never compares batches

    def add(self, batch: ProducerBatch) -> None:
        """Keep a batch until it expires."""
        self._count += 1
        heappush(self._heap, (batch.created_ms, self._count, batch))

    def take_older(self, created_by_ms: float) -> list[ProducerBatch]:
        """Remove and return the batches created at or before `created_by_ms`, oldest first."""
        taken: list[ProducerBatch] = []
        while self._heap and self._heap[0][0] <= created_by_ms:
            taken.append(heappop(self._heap)[2])
        return taken

    def oldest_ms(self) -> float:
        """The creation time of the oldest batch; NEVER_MS if there is none."""
        return self._heap[0][0] if self._heap else NEVER_MS
