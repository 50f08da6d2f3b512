"""Producer ids, from blocks that the controller allocates (Kafka's `RPCProducerIdManager`)."""

from __future__ import annotations

import threading
from collections.abc import Callable


class ProducerIds:
    """Hands out each id once. Any thread."""

    def __init__(self, allocate: Callable[[], tuple[int, int]]) -> None:
        self._allocate = allocate
        self._lock = threading.Lock()
        self._next = 0
        self._end = 0

    def next_id(self) -> int:
        """A new id; blocks for the controller once per block. Raises KafkaStorageError."""
        with self._lock:
            if self._next == self._end:
                first, count = self._allocate()
                self._next, self._end = first, first + count
            self._next += 1
            return self._next - 1
