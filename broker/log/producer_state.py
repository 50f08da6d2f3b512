"""A partition's state of its idempotent and transactional producers, to detect duplicates, gaps and fenced producers,
and to know the open transactions (KIP-98, Kafka's `ProducerStateManager`).

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

from ...network.protocol.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
)
from ...network.records.batch import NO_SEQUENCE, increment_sequence
from ...network.records.crc import crc32c
from .files import replace_file
from .markers import Marker

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
#: The number of recent batches remembered per producer to detect duplicates: as many as may be in flight.
BATCHES_KEPT = 5
#: The first level of `transaction.version` at which each transaction has its own epoch (KIP-890).
FIRST_LEVEL_WITH_EPOCH_BUMP = 2

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


class CompletedTransaction(NamedTuple):
    """A transaction that a marker has just ended in one partition. `last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class Verification:
    """A check, begun and maybe not finished, that a partition is in a producer's transaction (KIP-890).

    The batch that begins the transaction in the partition must come with this object. A marker removes it, so a batch
    whose transaction has ended during the check is rejected.
    """

    __slots__ = ("lowest_sequence", "producer_epoch", "starts_at_zero")

    def __init__(self, producer_epoch: int, lowest_sequence: int, *, starts_at_zero: bool) -> None:
        """`starts_at_zero`: whether each transaction has its own epoch, so that an unknown producer begins at 0."""
        self.producer_epoch = producer_epoch
        self.lowest_sequence = lowest_sequence
        self.starts_at_zero = starts_at_zero

    def outlives(self, marker_epoch: int) -> bool:
        """Whether a marker ends an earlier transaction. Where each transaction has its own epoch, the marker has that
        of the next one, whose first batch may have come before the marker."""
        return self.starts_at_zero and self.producer_epoch >= marker_epoch


class _NotVerified(Verification):
    """The type of `NOT_REQUIRED`."""


#: In place of a `Verification`: the batch needs none.
NOT_REQUIRED = _NotVerified(NO_PRODUCER_EPOCH, 0, starts_at_zero=False)


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

    def check_epoch(self, epoch: int) -> None:
        """Raise InvalidProducerEpochError for a fenced producer."""
        if epoch < self.producer_epoch:
            raise InvalidProducerEpochError(
                f"producer {self.producer_id} wrote with epoch {epoch}, but its epoch is now "
                f"{self.producer_epoch}: a newer "
                "producer has taken over; start a new one"
            )

    def check(self, batch: IdempotentBatch) -> None:
        """Raise InvalidProducerEpochError for a fenced producer, OutOfOrderSequenceNumberError for a gap."""
        epoch = batch.producer_epoch
        self.check_epoch(epoch)
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
                # Offsets committed in a transaction are written without sequence numbers.
                NO_SEQUENCE
                if batch.base_sequence == NO_SEQUENCE
                else increment_sequence(batch.base_sequence, batch.last_offset_delta),
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

    Invariants: it reflects exactly the batches below `end_offset`. `_open` has the first offset of each open
    transaction, ascending, because a transaction begins at the log's end. A transaction whose marker is not replicated
    yet is in `_unreplicated`: until then its end may be lost with the leader.
    """

    def __init__(self, directory: Path, *, expiration_ms: int) -> None:
        self.directory = directory
        self.expiration_ms = expiration_ms
        self.producers: dict[int, ProducerStateEntry] = {}
        self.end_offset = 0
        self._open: dict[int, int] = {}
        self._unreplicated: deque[CompletedTransaction] = deque()
        self._verifications: dict[int, Verification] = {}

    def find_duplicate(self, batch: IdempotentBatch) -> BatchMetadata | None:
        entry = self.producers.get(batch.producer_id)
        return None if entry is None else entry.find_duplicate(batch)

    def check(self, batch: IdempotentBatch, verification: Verification | None = NOT_REQUIRED) -> None:
        """Raise unless a client's batch continues its producer's sequence (see `ProducerStateEntry.check`) and, if it
        begins a transaction, comes with the `verification` that was begun for it (InvalidTxnStateError)."""
        entry = self.producers.get(batch.producer_id)
        if batch.is_transactional and verification is not NOT_REQUIRED:
            self._check_verification(batch, entry, verification)
        if entry is not None:
            entry.check(batch)

    def update(self, batch: IdempotentBatch) -> None:
        """Record a batch that is in the log."""
        producer_id = batch.producer_id
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerStateEntry(producer_id)
        entry.add(batch)
        if batch.is_transactional:
            self._open.setdefault(producer_id, entry.current_txn_first_offset)
            self._verifications.pop(producer_id, None)

    # --- Transactions ---

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer has an open transaction in this epoch."""
        entry = self.producers.get(producer_id)
        return entry is not None and entry.current_txn_first_offset >= 0 and entry.producer_epoch == producer_epoch

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, starts_at_zero: bool
    ) -> Verification | None:
        """The verification that a batch needs to begin a transaction; None if the transaction is open already."""
        if self.has_open_transaction(producer_id, producer_epoch):
            return None
        known = self._verifications.get(producer_id)
        if known is None or known.producer_epoch < producer_epoch:
            known = Verification(producer_epoch, base_sequence, starts_at_zero=starts_at_zero)
            self._verifications[producer_id] = known
        elif known.producer_epoch == producer_epoch:
            known.lowest_sequence = min(known.lowest_sequence, base_sequence)
        return known

    def _check_verification(
        self, batch: IdempotentBatch, entry: ProducerStateEntry | None, verification: Verification | None
    ) -> None:
        producer_id = batch.producer_id
        if self.has_open_transaction(producer_id, batch.producer_epoch):
            return
        known = self._verifications.get(producer_id)
        if known is None or known is not verification:
            raise InvalidTxnStateError(f"the batch of producer {producer_id} is not part of an open transaction")
        expected = 0 if known.starts_at_zero and (entry is None or not entry.batches) else known.lowest_sequence
        if batch.base_sequence > expected:
            raise OutOfOrderSequenceNumberError(
                f"producer {producer_id} (epoch {batch.producer_epoch}) begins a transaction at sequence "
                f"{batch.base_sequence}, but sequence {expected} is missing"
            )

    def check_coordinator_batch(self, batch: IdempotentBatch, verification: Verification | None) -> None:
        """Check a batch that the group coordinator writes in a producer's transaction. Raises
        InvalidProducerEpochError, InvalidTxnStateError."""
        entry = self.producers.get(batch.producer_id)
        if verification is not NOT_REQUIRED:
            self._check_verification(batch, entry, verification)
        if entry is not None:
            entry.check_epoch(batch.producer_epoch)

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int, level: int) -> None:
        """Check a marker that a transaction coordinator sends.

        level: the level of `transaction.version` that the transaction had. Since level 2 a marker has an epoch of its
        own, so a late one can't end a newer transaction (KIP-890, KIP-1228); one that is sent again is written again,
        which changes nothing. Raises InvalidProducerEpochError, TransactionCoordinatorFencedError.
        """
        entry = self.producers.get(producer_id)
        if entry is None:
            return
        if coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFencedError(
                f"the marker of producer {producer_id} is from coordinator epoch {coordinator_epoch}, but epoch "
                f"{entry.coordinator_epoch} has written a later one"
            )
        entry.check_epoch(producer_epoch)
        has_written = entry.current_txn_first_offset >= 0 or bool(entry.batches)
        if level >= FIRST_LEVEL_WITH_EPOCH_BUMP and producer_epoch == entry.producer_epoch and has_written:
            raise InvalidProducerEpochError(
                f"the marker of producer {producer_id} has epoch {producer_epoch}, in which the producer has already "
                "written; the transaction that it ends is over"
            )

    def end_transaction(
        self, producer_id: int, producer_epoch: int, marker: Marker, offset: int, timestamp: int
    ) -> CompletedTransaction | None:
        """Record a marker at `offset`. Returns the transaction that it ends; None if the producer has none here."""
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerStateEntry(producer_id)
        if producer_epoch > entry.producer_epoch:
            entry.batches.clear()
            entry.producer_epoch = producer_epoch
        entry.coordinator_epoch = max(entry.coordinator_epoch, marker.coordinator_epoch)
        entry.current_txn_first_offset = -1
        entry.last_timestamp = timestamp
        verification = self._verifications.get(producer_id)
        if verification is not None and not verification.outlives(producer_epoch):
            del self._verifications[producer_id]
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return None
        completed = CompletedTransaction(producer_id, first_offset, offset, not marker.is_commit)
        self._unreplicated.append(completed)
        return completed

    def first_open_offset(self) -> int | None:
        """The offset at which the oldest open transaction began; None if there is none."""
        return next(iter(self._open.values()), None)

    def first_unstable_offset(self) -> int | None:
        """The offset at which the oldest transaction began that is open, or whose marker is not replicated yet."""
        first = self.first_open_offset()
        for completed in self._unreplicated:
            if first is None or completed.first_offset < first:
                first = completed.first_offset
        return first

    def high_watermark_advanced(self, high_watermark: int) -> bool:
        """Forget the transactions whose markers are replicated now. True if there were any."""
        unreplicated = self._unreplicated
        count = len(unreplicated)
        while unreplicated and unreplicated[0].last_offset < high_watermark:
            unreplicated.popleft()
        return len(unreplicated) < count

    def clear(self) -> None:
        """Forget all producers."""
        self._replace([])

    def _replace(self, entries: Iterable[ProducerStateEntry]) -> None:
        self.producers = {entry.producer_id: entry for entry in entries}
        in_transaction = [entry for entry in self.producers.values() if entry.current_txn_first_offset >= 0]
        in_transaction.sort(key=lambda entry: entry.current_txn_first_offset)
        self._open = {entry.producer_id: entry.current_txn_first_offset for entry in in_transaction}
        self._unreplicated.clear()
        self._verifications.clear()

    def expire(self, wall_ms: int) -> None:
        """Forget producers that wrote nothing for `producer.id.expiration.ms`."""
        oldest = wall_ms - self.expiration_ms
        for producer_id in [
            entry.producer_id
            for entry in self.producers.values()
            if entry.last_timestamp <= oldest and entry.current_txn_first_offset < 0
        ]:
            del self.producers[producer_id]
            self._verifications.pop(producer_id, None)

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
        self.clear()
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
            self._replace(entries)
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
        if last_offset >= 0:
            entry.batches.append(BatchMetadata(last_sequence, last_offset, delta, timestamp))
        entries.append(entry)
    return entries
