"""A partition's state of its idempotent producers, to detect duplicates, gaps and fenced producers (KIP-98, Kafka's
`ProducerStateManager`).

A snapshot is written at each roll and at a clean stop, in Kafka's `.snapshot` format version 1: version (int16),
CRC-32C of the rest (uint32), then an array of entries.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from ...network.protocol.errors import InvalidProducerEpochError, InvalidTxnStateError, OutOfOrderSequenceNumberError
from ...network.records.batch import NO_SEQUENCE, increment_sequence
from ...network.records.crc import crc32c
from .files import replace_file

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
#: The number of recent batches remembered per producer to detect duplicates: as many as may be in flight.
BATCHES_KEPT = 5

_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_SNAPSHOT_VERSION = 1


class CorruptSnapshotError(ValueError):
    """A `.snapshot` file is damaged. An older one, or the log itself, is read instead."""


class IdempotentBatch(Protocol):
    """The fields of a batch's header that the producer state needs."""

    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def is_transactional(self) -> bool: ...


class BatchMetadata(NamedTuple):
    """One remembered batch."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def base_sequence(self) -> int:
        return increment_sequence(self.last_sequence, -self.offset_delta)


@dataclass(slots=True)
class ProducerStateEntry:
    """One producer's epoch and its last batches, oldest first."""

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    current_txn_first_offset: int = -1
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1

    def find_duplicate(self, batch: IdempotentBatch) -> BatchMetadata | None:
        """The remembered batch with the same epoch and sequence numbers, or None."""
        if batch.producer_epoch != self.producer_epoch:
            return None
        last_sequence = increment_sequence(batch.base_sequence, batch.last_offset_delta)
        for known in self.batches:
            if known.last_sequence == last_sequence and known.base_sequence == batch.base_sequence:
                return known
        return None

    def check(self, batch: IdempotentBatch) -> None:
        """Raise InvalidProducerEpochError for a fenced producer, OutOfOrderSequenceNumberError for a gap."""
        epoch = batch.producer_epoch
        if epoch < self.producer_epoch:
            raise InvalidProducerEpochError(
                f"producer {self.producer_id} wrote with epoch {epoch}, but its epoch is now "
                f"{self.producer_epoch}: a newer "
                "producer has taken over; start a new one"
            )
        if epoch > self.producer_epoch:
            if batch.base_sequence != 0 and self.producer_epoch != NO_PRODUCER_EPOCH:
                raise OutOfOrderSequenceNumberError(
                    f"producer {self.producer_id} begins epoch {epoch} at sequence {batch.base_sequence} instead of 0"
                )
        # Without remembered batches (retention, DeleteRecords) any sequence number may be the first.
        elif self.producer_epoch != NO_PRODUCER_EPOCH and batch.base_sequence != (
            increment_sequence(self.last_sequence, 1) if self.last_sequence != NO_SEQUENCE else 0
        ):
            raise OutOfOrderSequenceNumberError(
                f"producer {self.producer_id} (epoch {epoch}) wrote sequence {batch.base_sequence} "
                f"after {self.last_sequence}"
            )
        if self.current_txn_first_offset >= 0 and not batch.is_transactional:
            raise InvalidTxnStateError(f"producer {self.producer_id} wrote outside its open transaction")

    def add(self, batch: IdempotentBatch) -> None:
        if batch.producer_epoch != self.producer_epoch:
            self.batches.clear()
            self.producer_epoch = batch.producer_epoch
        self.batches.append(
            BatchMetadata(
                increment_sequence(batch.base_sequence, batch.last_offset_delta),
                batch.base_offset + batch.last_offset_delta,
                batch.last_offset_delta,
                batch.max_timestamp,
            )
        )
        self.last_timestamp = batch.max_timestamp
        if batch.is_transactional and self.current_txn_first_offset < 0:
            self.current_txn_first_offset = batch.base_offset


class ProducerStateManager:
    """All producers of one log. Owned by the log and used only under its lock.

    Invariant: it reflects exactly the batches below `end_offset`.
    """

    def __init__(self, directory: Path, *, expiration_ms: int) -> None:
        self.directory = directory
        self.expiration_ms = expiration_ms
        self.producers: dict[int, ProducerStateEntry] = {}
        self.end_offset = 0

    def find_duplicate(self, batch: IdempotentBatch) -> BatchMetadata | None:
        entry = self.producers.get(batch.producer_id)
        return None if entry is None else entry.find_duplicate(batch)

    def check(self, batch: IdempotentBatch) -> None:
        """Raise unless a client's batch continues its producer's sequence (see `ProducerStateEntry.check`)."""
        entry = self.producers.get(batch.producer_id)
        if entry is not None:
            entry.check(batch)

    def update(self, batch: IdempotentBatch) -> None:
        """Record a batch that is in the log."""
        entry = self.producers.get(batch.producer_id)
        if entry is None:
            entry = self.producers[batch.producer_id] = ProducerStateEntry(batch.producer_id)
        entry.add(batch)

    def end_transaction(self, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp: int) -> None:
        """Record that a control batch ended the producer's open transaction."""
        entry = self.producers.setdefault(producer_id, ProducerStateEntry(producer_id))
        if producer_epoch > entry.producer_epoch:
            entry.batches.clear()
            entry.producer_epoch = producer_epoch
        entry.coordinator_epoch = coordinator_epoch
        entry.current_txn_first_offset = -1
        entry.last_timestamp = timestamp

    def expire(self, wall_ms: int) -> None:
        """Forget producers that wrote nothing for `producer.id.expiration.ms`."""
        oldest = wall_ms - self.expiration_ms
        for producer_id in [
            entry.producer_id
            for entry in self.producers.values()
            if entry.last_timestamp <= oldest and entry.current_txn_first_offset < 0
        ]:
            del self.producers[producer_id]

    def first_unstable_offset(self) -> int | None:
        """The offset at which the oldest open transaction began; None if there is none."""
        return min(
            (
                entry.current_txn_first_offset
                for entry in self.producers.values()
                if entry.current_txn_first_offset >= 0
            ),
            default=None,
        )

    # --- Snapshots ---

    def snapshot_path(self, offset: int) -> Path:
        return self.directory / f"{offset:020d}.snapshot"

    def snapshot_offsets(self) -> list[int]:
        """The offsets of the snapshots, ascending."""
        return sorted(int(path.stem) for path in self.directory.glob("*.snapshot") if path.stem.isdigit())

    def take_snapshot(self) -> None:
        """Write a snapshot of the state at `end_offset`. Raises OSError."""
        replace_file(self.snapshot_path(self.end_offset), encode_snapshot(self.producers.values()), sync=False)

    def load_snapshot(self, at_most: int, at_least: int, wall_ms: int) -> None:
        """Load the newest readable snapshot within `at_least`..`at_most`; without one, an empty state at `at_least`."""
        self.producers.clear()
        self.end_offset = at_least
        for offset in reversed(self.snapshot_offsets()):
            if not at_least <= offset <= at_most:
                continue
            path = self.snapshot_path(offset)
            try:
                entries = decode_snapshot(path.read_bytes())
            except CorruptSnapshotError:
                path.unlink()
                continue
            self.producers = {entry.producer_id: entry for entry in entries}
            self.end_offset = offset
            self.expire(wall_ms)
            return

    def delete_snapshots(self, *, before: int | None = None, after: int | None = None) -> None:
        for offset in self.snapshot_offsets():
            if (before is not None and offset < before) or (after is not None and offset > after):
                self.snapshot_path(offset).unlink(missing_ok=True)


def encode_snapshot(entries: Iterable[ProducerStateEntry]) -> bytes:
    """Encode a snapshot file. Like Kafka's, it has only the last batch of each producer."""
    rows = []
    for entry in entries:
        last = entry.batches[-1] if entry.batches else BatchMetadata(NO_SEQUENCE, -1, 0, entry.last_timestamp)
        rows.append(
            _ENTRY.pack(
                entry.producer_id,
                entry.producer_epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
            )
        )
    body = struct.pack(">i", len(rows)) + b"".join(rows)
    return struct.pack(">hI", _SNAPSHOT_VERSION, crc32c(body)) + body


def decode_snapshot(content: bytes) -> list[ProducerStateEntry]:
    """Decode the producers of a snapshot file. Raises CorruptSnapshotError."""
    if len(content) < _HEAD.size:
        raise CorruptSnapshotError("a producer snapshot is truncated in its header")
    version, crc, count = _HEAD.unpack_from(content)
    if version != _SNAPSHOT_VERSION:
        raise CorruptSnapshotError(f"a producer snapshot has version {version}, expected {_SNAPSHOT_VERSION}")
    if crc != crc32c(memoryview(content)[6:]) or len(content) != _HEAD.size + count * _ENTRY.size:
        raise CorruptSnapshotError("a producer snapshot's CRC or size doesn't fit its content")
    entries = []
    for row in _ENTRY.iter_unpack(memoryview(content)[_HEAD.size :]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, txn_offset = row
        entry = ProducerStateEntry(producer_id, epoch, coordinator_epoch, timestamp, txn_offset)
        if last_sequence != NO_SEQUENCE:
            entry.batches.append(BatchMetadata(last_sequence, last_offset, delta, timestamp))
        entries.append(entry)
    return entries
