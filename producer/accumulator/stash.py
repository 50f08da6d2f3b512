"""Records sent from inside a section: by a finalizer or signal handler that interrupted a send (`network.sections`).

Such a send must not take a lock. It encodes its record into a batch of its own and puts the batch into the stash. The
sender thread takes it out and appends the record to its partition's open batch or, if there is neither room nor memory,
sends the batch unchanged. The batch's memory isn't the pool's, because the pool has a lock; STASH_BYTES bounds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...network.clock import NEVER_MS, Clock
from ...network.latch_cy import Latch
from ...network.protocol.errors import BufferExhaustedError

if TYPE_CHECKING:
    from .batch_cy import ProducerBatch, RecordFuture

#: Maximum of pending records and bytes sent from inside a section. A single record may be larger.
STASH_RECORDS = 1000
STASH_BYTES = 1_048_576


class StashedRecord:
    """One record that waits in the stash."""

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
        """Hold a record for the sender thread.

        `batch`: the batch of its own that it is encoded in.
        `future`: the future that its sender has.
        `partition`: the partition it names; -1: none.
        `timestamp`: milliseconds since 1970.
        `key`, `value`, `headers`: the serialized key, value and headers; None: null.
        """
        self.batch = batch
        self.future = future
        self.partition = partition
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers


class Stash:
    """The stashed records. `check_room`, `put` and `take_back` take no lock and never wait: they are safe anywhere.

    `waiting` holds the records in order until the sender thread takes them out. `pending` holds the batches whose
    memory is not the pool's until they complete. `waiting` is a list, which other threads may copy while it changes;
    without the GIL a deque can't be copied then.
    """

    __slots__ = ("_taken_up", "pending", "waiting")

    def __init__(self) -> None:
        self.pending: dict[ProducerBatch, int] = {}
        self.waiting: list[StashedRecord] = []
        # set and replaced each time the sender thread has taken records out
        self._taken_up = Latch()

    def check_room(self, size_bytes: int) -> None:
        """Raise BufferExhaustedError if there is no room for a record of that size."""
        held_bytes = sum(list(self.pending.values()))
        if len(self.pending) >= STASH_RECORDS or (self.pending and held_bytes + size_bytes > STASH_BYTES):
            raise BufferExhaustedError(
                f"{len(self.pending)} records ({held_bytes} bytes) that finalizers or signal handlers sent while they "
                f"interrupted another send are pending; the limit is {STASH_RECORDS} records or {STASH_BYTES} bytes. "
                f"Send fewer from such code: have it put records into a queue.SimpleQueue that a thread sends from."
            )

    def put(self, record: StashedRecord) -> None:
        """Add a record for the sender thread."""
        self.pending[record.batch] = record.batch.capacity_bytes
        self.waiting.append(record)

    def take_back(self, batch: ProducerBatch) -> bool:
        """Remove the record of a batch; False if the sender thread has taken it out already."""
        for record in list(self.waiting):
            if record.batch is batch:
                try:
                    self.waiting.remove(record)
                except ValueError:
                    return False
                self.release(batch)
                # wakes the threads in `await_taken_up`; only the sender thread replaces the latch, in its next turn
                self._taken_up.set()
                return True
        return False

    def take_back_older(self, created_by_ms: float) -> list[ProducerBatch]:
        """Take back the batches created at or before a time. Sender thread."""
        batches = [record.batch for record in list(self.waiting)]
        return [batch for batch in batches if batch.created_ms <= created_by_ms and self.take_back(batch)]

    def oldest_ms(self) -> float:
        """When the oldest waiting batch was created; NEVER_MS if none waits."""
        return min([record.batch.created_ms for record in list(self.waiting)], default=NEVER_MS)

    def release(self, batch: ProducerBatch) -> None:
        """Remove a batch from `pending`, because it is complete or its record has moved to another batch."""
        self.pending.pop(batch, None)

    def holds(self, topic: str) -> bool:
        """Whether records of a topic are waiting. They come before records sent after them."""
        return any([record.batch.topic == topic for record in list(self.waiting)])

    def await_taken_up(self, topic: str, clock: Clock, end_ms: float) -> None:
        """Wait until no record of a topic is waiting, or until `end_ms` on the clock.

        Not in a finalizer or handler that interrupted a section.
        """
        while True:
            # read before the check: records taken out after it set this latch
            taken_up = self._taken_up
            if not self.holds(topic) or clock.now_ms() >= end_ms:
                return
            clock.await_latch(taken_up, end_ms)

    def note_taken_up(self) -> None:
        """Wake the threads in `await_taken_up`. Sender thread."""
        taken_up, self._taken_up = self._taken_up, Latch()
        taken_up.set()
