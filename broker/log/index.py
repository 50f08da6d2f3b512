"""The two sparse indexes of a log segment, in Kafka's binary formats.

`OffsetIndex` (`.index`): 8 bytes per entry, offset relative to the segment's base (int32) and position in the `.log`
file (int32). `TimeIndex` (`.timeindex`): 12 bytes per entry, largest timestamp so far (int64) and the relative offset
of its batch (int32). Both are big-endian, ascending, and only a hint: every lookup is checked against the log, and both
can be rebuilt from it (Kafka's `OffsetIndex`, `TimeIndex`).

Kafka maps a preallocated file. Here the entries are two typed arrays that `bisect` searches at C speed, and the file is
written later: an append to the log costs no index system call, and a crash loses only what recovery rebuilds anyway.
"""

from __future__ import annotations

import errno
import os
import struct
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import NamedTuple

NO_TIMESTAMP = -1
MAX_RELATIVE_OFFSET = 2**31 - 1

# Entries buffered before the file is appended to: 512 entries cover 2 MiB of log at the default interval.
_WRITE_BEHIND_ENTRIES = 512


class CorruptIndexError(ValueError):
    """An index file breaks its invariants. Clients never see this error: the index is rebuilt from its log."""


class OffsetPosition(NamedTuple):
    """An absolute offset, and the byte position in the segment's `.log` file at or before which its batch begins."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """A timestamp in milliseconds, and the offset of the batch in which it was the largest so far."""

    timestamp: int
    offset: int


class _SparseIndex:
    """Two parallel ascending columns. The file is ordered by `first`.

    Invariant: the file holds the first `_written` entries. The segment owns the index and changes it only under the
    log's lock. Lookups need no lock, because an append only extends the columns, `second` before `first`, and readers
    search `first`.
    """

    _first_type: str
    _layout: struct.Struct
    ENTRY_BYTES: int

    def __init__(self, path: Path, base_offset: int, max_bytes: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max(max_bytes // self.ENTRY_BYTES, 1)
        self._first = array(self._first_type)
        self._second = array("i")
        self._written = 0
        if path.exists():
            self._load(path.read_bytes())

    def _load(self, content: bytes) -> None:
        if len(content) % self.ENTRY_BYTES:
            raise CorruptIndexError(f"{self.path} has {len(content)} bytes, not a multiple of {self.ENTRY_BYTES}")
        entries = list(self._layout.iter_unpack(content))
        stored = len(entries)
        # A killed Kafka leaves its files at their preallocated size, with zeros after the last entry.
        while entries and entries[-1] == (0, 0):
            entries.pop()
        self._first.extend(entry[0] for entry in entries)
        self._second.extend(entry[1] for entry in entries)
        self._written = stored if stored == len(entries) else 0

    def __len__(self) -> int:
        return len(self._first)

    @property
    def is_full(self) -> bool:
        return len(self._first) >= self.max_entries

    @property
    def size_bytes(self) -> int:
        return len(self._first) * self.ENTRY_BYTES

    def can_append_offset(self, offset: int) -> bool:
        """Whether the offset relative to the base fits in 31 bits."""
        return 0 <= offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def _push(self, first: int, second: int) -> None:
        self._second.append(second)
        self._first.append(first)

    def _encode(self, start: int) -> bytes:
        pack = self._layout.pack
        return b"".join(pack(*entry) for entry in zip(self._first[start:], self._second[start:], strict=True))

    def write_behind(self) -> None:
        """Write the entries to the file if many are buffered. Called before an append to the log, so that a failure
        leaves the log unchanged. Raises OSError."""
        if len(self._first) - self._written >= _WRITE_BEHIND_ENTRIES:
            self.write_out()

    def write_out(self, *, sync: bool = False) -> None:
        """Bring the file up to date with the entries; with `sync`, also fsync it. Raises OSError."""
        if self._written == len(self._first) and not sync and self.path.exists():
            return
        mode = os.O_WRONLY | os.O_CREAT | (0 if self._written else os.O_TRUNC)
        descriptor = os.open(self.path, mode, 0o644)
        try:
            if self._written < len(self._first):
                content = self._encode(self._written)
                if os.pwrite(descriptor, content, self._written * self.ENTRY_BYTES) < len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self._written = len(self._first)
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def truncate_to_entries(self, entries: int) -> None:
        """Keep the first `entries` entries. Raises OSError."""
        del self._first[entries:]
        del self._second[entries:]
        if self._written > entries:
            os.truncate(self.path, entries * self.ENTRY_BYTES)
            self._written = entries

    def delete(self) -> None:
        self.path.unlink(missing_ok=True)


class OffsetIndex(_SparseIndex):
    """Offset -> position. An entry has the last offset of its batch and the position of the batch's first byte."""

    _first_type = "i"
    _layout = struct.Struct(">ii")
    ENTRY_BYTES = 8

    @property
    def last_entry(self) -> OffsetPosition:
        if not self._first:
            return OffsetPosition(self.base_offset, 0)
        return self.entry(len(self._first) - 1)

    def entry(self, index: int) -> OffsetPosition:
        return OffsetPosition(self.base_offset + self._first[index], self._second[index])

    def append(self, offset: int, position: int) -> None:
        """Add an entry. Raises ValueError unless its offset is above the last one and fits in 31 bits."""
        relative = offset - self.base_offset
        if not 0 <= relative <= MAX_RELATIVE_OFFSET or (self._first and relative <= self._first[-1]):
            raise ValueError(f"offset {offset} doesn't follow {self.last_entry.offset} in {self.path}")
        self._push(relative, position)

    def lookup(self, offset: int) -> OffsetPosition:
        """The last entry whose offset is at most `offset`; the segment's start if there is none."""
        slot = bisect_right(self._first, offset - self.base_offset) - 1
        return OffsetPosition(self.base_offset, 0) if slot < 0 else self.entry(slot)

    def entry_before_position(self, position: int) -> int:
        """The last indexed position that is at most `position`; 0 if there is none."""
        slot = bisect_right(self._second, position) - 1
        return 0 if slot < 0 else self._second[slot]

    def offset_after_position(self, position: int) -> int | None:
        """The first indexed offset whose position is at least `position`; None if there is none."""
        slot = bisect_left(self._second, position, hi=len(self._first))
        return self.base_offset + self._first[slot] if slot < len(self._first) else None

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at and after `offset`."""
        self.truncate_to_entries(bisect_left(self._first, offset - self.base_offset))

    def sanity_check(self) -> None:
        """Raise CorruptIndexError unless the entries ascend within the segment."""
        if self._first and (
            self._first[0] < 0 or any(a >= b for a, b in zip(self._first, self._first[1:], strict=False))
        ):
            raise CorruptIndexError(f"the offsets in {self.path} don't ascend")
        if self._second and (
            self._second[0] < 0 or any(a >= b for a, b in zip(self._second, self._second[1:], strict=False))
        ):
            raise CorruptIndexError(f"the positions in {self.path} don't ascend")


class TimeIndex(_SparseIndex):
    """Timestamp -> offset: no record before the entry's offset has a larger timestamp than the entry's."""

    _first_type = "q"
    _layout = struct.Struct(">qi")
    ENTRY_BYTES = 12

    @property
    def is_full(self) -> bool:
        # One slot stays free for the entry that is appended at a roll or a close.
        return len(self._first) >= self.max_entries - 1

    @property
    def last_entry(self) -> TimestampOffset:
        if not self._first:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return self.entry(len(self._first) - 1)

    def entry(self, index: int) -> TimestampOffset:
        return TimestampOffset(self._first[index], self.base_offset + self._second[index])

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if its timestamp is larger than the last one."""
        if timestamp > (self._first[-1] if self._first else NO_TIMESTAMP):
            self._push(timestamp, offset - self.base_offset)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry whose timestamp is at most `timestamp`; (-1, base offset) if there is none."""
        slot = bisect_right(self._first, timestamp) - 1
        return TimestampOffset(NO_TIMESTAMP, self.base_offset) if slot < 0 else self.entry(slot)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at and after `offset`."""
        self.truncate_to_entries(bisect_left(self._second, offset - self.base_offset))

    def sanity_check(self) -> None:
        """Raise CorruptIndexError unless timestamps ascend strictly and offsets don't descend."""
        if any(a >= b for a, b in zip(self._first, self._first[1:], strict=False)):
            raise CorruptIndexError(f"the timestamps in {self.path} don't ascend")
        if self._second and (
            self._second[0] < 0 or any(a > b for a, b in zip(self._second, self._second[1:], strict=False))
        ):
            raise CorruptIndexError(f"the offsets in {self.path} don't ascend")
