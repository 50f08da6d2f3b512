"""The start offset of each leader epoch in a log (KIP-101, Kafka's `LeaderEpochFileCache`). Truncation after a failover
is based on it."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

from .files import LEADER_EPOCH_FILE, CorruptCheckpointError, read_checkpoint, write_checkpoint

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """The (epoch, start offset) pairs of one log, both ascending, stored in `leader-epoch-checkpoint`.

    The log owns them and changes them only under its lock. Readers need no lock, because a change replaces the lists.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / LEADER_EPOCH_FILE
        self._epochs: list[int] = []
        self._offsets: list[int] = []
        self._is_written = True
        self._is_synced = False
        try:
            entries = sorted((int(epoch), int(offset)) for epoch, offset in read_checkpoint(self.path, 2))
        except (CorruptCheckpointError, ValueError):
            # Every batch carries its epoch, so the entries are rebuilt from the log (`loader`).
            entries = []
        for epoch, offset in entries:
            if not self._offsets or offset >= self._offsets[-1]:
                self._epochs.append(epoch)
                self._offsets.append(offset)

    @property
    def latest_epoch(self) -> int:
        return self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._offsets, strict=True))

    def assign(self, epoch: int, start_offset: int, *, write: bool = True) -> None:
        """Record that `epoch` begins at `start_offset`, unless it or a later one is known. Raises OSError.

        Without `write` the file is written at the next flush, which suffices if the log's batches imply the entry.
        """
        if epoch < 0 or epoch <= self.latest_epoch:
            return
        # An epoch without records is replaced by the one that begins at the same offset.
        kept = [entry for entry in self.entries if entry[1] < start_offset]
        self._replace([*kept, (epoch, start_offset)], write=write)

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch in which the record at `offset` was written; -1 if unknown."""
        slot = bisect_right(self._offsets, offset) - 1
        return self._epochs[slot] if slot >= 0 else UNDEFINED_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch that is at most `epoch`, and its end offset; (-1, -1) if unknown.

        The answer to OffsetForLeaderEpoch: the current epoch ends at the log's end, an older one where the next began.
        """
        epochs, offsets = self._epochs, self._offsets
        if epoch < 0 or not epochs or epoch > epochs[-1]:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        slot = bisect_right(epochs, epoch) - 1
        if slot == len(epochs) - 1:
            return epochs[slot], log_end_offset
        if slot < 0:
            # Kafka answers the requested epoch and the start of the first later one: everything before is deleted.
            return epoch, offsets[0]
        return epochs[slot], offsets[slot + 1]

    def truncate_from_end(self, offset: int, *, write: bool = True) -> None:
        """Drop the epochs that begin at or after `offset`, where the log was truncated. Raises OSError."""
        kept = [entry for entry in self.entries if entry[1] < offset]
        if len(kept) < len(self._epochs):
            self._replace(kept, write=write)

    def truncate_from_start(self, offset: int) -> None:
        """Move the start of the epoch that contains `offset` to `offset`, the log's new start.

        The file is written at the next flush: the old one is still right for the remaining records, and an operation
        that frees space must not need any.
        """
        slot = bisect_right(self._offsets, offset) - 1
        if slot > 0 or (slot == 0 and self._offsets[0] < offset):
            later = self.entries[slot + 1 :]
            self._replace([(self._epochs[slot], offset), *later], write=False)

    def clear(self) -> None:
        self._replace([])

    def relocate(self, directory: Path) -> None:
        """Continue with the file in another directory."""
        self.path = directory / LEADER_EPOCH_FILE
        self._is_written = self._is_synced = False

    def write_out(self, *, sync: bool = False) -> None:
        """Bring the checkpoint up to date; with `sync`, also fsync it. Raises OSError."""
        if not self._is_written or (sync and not self._is_synced):
            write_checkpoint(self.path, self.entries, sync=sync)
            self._is_written = True
            self._is_synced = sync

    def _replace(self, entries: list[tuple[int, int]], *, write: bool = True) -> None:
        self._epochs = [epoch for epoch, _ in entries]
        self._offsets = [offset for _, offset in entries]
        self._is_written = self._is_synced = False
        if write:
            self.write_out()
