"""Records sent from inside a section: by a finalizer or signal handler that interrupted a send (`network.sections`).

Such a send must not take a lock. It encodes its record into a batch of its own and puts that here; the sender thread
takes it up. It appends the record to its partition's open batch, or, if there is neither room nor memory, sends the
batch as it is. That memory isn't the pool's, because the pool has a lock; instead it is little.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ...network.clock import Clock
from ...network.latch import Latch
from ...network.protocol.errors import BufferExhaustedError

if TYPE_CHECKING:
    from .batch_cy import ProducerBatch, RecordFuture

#: The most records and bytes that sends from inside a section may have pending. A single record may be larger.
STASH_RECORDS = 1000
STASH_BYTES = 1_048_576


class StashedRecord:
    """One record on its way to a queue, and the batch it is in until then. `partition` is -1 if it names none."""

    __slots__ = ("batch", "future", "headers", "key", "partition", "timestamp", "value")

    def __init__(
        self,
        batch: ProducerBatch,
        future: RecordFuture,
        partition: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: bytes | None,
    ) -> None:
        self.batch = batch
        self.future = future
        self.partition = partition
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers


class Stash:
    """What was put aside. `check_room`, `put` and `take_back` may be called anywhere: they take no lock, never wait.

    `waiting` holds the records in order until the sender thread has taken them up, `pending` the batches that exist
    outside the pool until they are complete.
    """

    __slots__ = ("_taken_up", "pending", "waiting")

    def __init__(self) -> None:
        self.pending: dict[ProducerBatch, int] = {}
        self.waiting: deque[StashedRecord] = deque()
        # set, and replaced by a new one, each time the sender thread has taken records up
        self._taken_up = Latch()

    def check_room(self, size_bytes: int) -> None:
        """Raise BufferExhaustedError if a record of that size is one too many."""
        held_bytes = sum(list(self.pending.values()))
        if len(self.pending) >= STASH_RECORDS or (self.pending and held_bytes + size_bytes > STASH_BYTES):
            raise BufferExhaustedError(
                f"{len(self.pending)} records ({held_bytes} bytes) that finalizers or signal handlers sent while they "
                f"interrupted another send are pending, and no more than {STASH_RECORDS} records or {STASH_BYTES} "
                f"bytes may be. Send less from such places: have them put records into a queue.SimpleQueue that a "
                f"thread sends from."
            )

    def put(self, record: StashedRecord) -> None:
        """Add a record, for the sender thread to take up."""
        self.pending[record.batch] = record.batch.capacity_bytes
        self.waiting.append(record)

    def take_back(self, batch: ProducerBatch) -> bool:
        """Remove the record of a batch that has not been taken up; False if it has."""
        for record in list(self.waiting):
            if record.batch is batch:
                try:
                    self.waiting.remove(record)
                except ValueError:
                    return False
                self.release(batch)
                return True
        return False

    def release(self, batch: ProducerBatch) -> None:
        """Forget a batch that is complete, or whose record is in another one now."""
        self.pending.pop(batch, None)

    def holds(self, topic: str) -> bool:
        """Whether records of a topic wait to be taken up: they come before those sent after them."""
        return any([record.batch.topic == topic for record in list(self.waiting)])

    def await_taken_up(self, topic: str, clock: Clock, end_ms: float) -> None:
        """Wait until no record of a topic waits, or until it is `end_ms` on the clock. Not in a finalizer or handler
        that interrupted a section."""
        while True:
            # before the look: what is taken up after it sets this one
            taken_up = self._taken_up
            if not self.holds(topic) or clock.now_ms() >= end_ms:
                return
            clock.await_latch(taken_up, end_ms)

    def note_taken_up(self) -> None:
        """Wake those who wait for it. Sender thread."""
        taken_up, self._taken_up = self._taken_up, Latch()
        taken_up.set()
