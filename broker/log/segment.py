"""One segment of a log: `.log`, `.index` and `.timeindex`, named by the offset it begins at (Kafka's `LogSegment`)."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ...network.protocol.errors import CorruptRecordError, UnsupportedForMessageFormatError
from ...network.records.batch import ATTRIBUTES_OFFSET
from ...network.records.crc import crc32c
from ...network.records.legacy import LegacyBatch
from ..config.topic_config import SegmentLimits
from .batch_header import HEADER_BYTES, BatchHeader, read_header
from .files import SegmentFile
from .index import NO_TIMESTAMP, CorruptIndexError, OffsetIndex, OffsetPosition, TimeIndex, TimestampOffset

MAX_SEGMENT_BYTES = 2**31 - 1


class FoundBatch(NamedTuple):
    """Where a batch stands in its segment."""

    position: int
    header: BatchHeader


def segment_name(base_offset: int) -> str:
    """An offset as it stands in file names: 20 digits."""
    return f"{base_offset:020d}"


class LogSegment:
    """A run of batches from `base_offset` on.

    Changed only under its log's lock; reads need none (the file is read by position, and what a reader may see is
    bounded by the log's end, which moves only after the bytes are there). The indexes of a segment are loaded at
    their first use.
    """

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        *,
        index_interval_bytes: int,
        max_index_bytes: int,
        created_ms: int,
    ) -> None:
        self.base_offset = base_offset
        self.directory = directory
        self.index_interval_bytes = index_interval_bytes
        self.max_index_bytes = max_index_bytes
        self.created_ms = created_ms
        self.log = SegmentFile(directory / f"{segment_name(base_offset)}.log")
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._bytes_since_index_entry = 0
        # Of `segment.jitter.ms`: segments that begin together shouldn't end together.
        self._jitter = random.random()
        self._first_timestamp: int | None = None
        self._max_timestamp: TimestampOffset | None = None

    @property
    def size_bytes(self) -> int:
        return self.log.size_bytes

    @property
    def offset_index(self) -> OffsetIndex:
        """Raises CorruptIndexError at the first use of a broken file."""
        if self._offset_index is None:
            path = self.directory / f"{segment_name(self.base_offset)}.index"
            self._offset_index = OffsetIndex(path, self.base_offset, self.max_index_bytes)
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        """Raises CorruptIndexError at the first use of a broken file."""
        if self._time_index is None:
            path = self.directory / f"{segment_name(self.base_offset)}.timeindex"
            self._time_index = TimeIndex(path, self.base_offset, self.max_index_bytes)
        return self._time_index

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp so far, and the last offset of the batch that has it; (-1, base offset) when empty."""
        if self._max_timestamp is None:
            self._max_timestamp = self._scan_max_timestamp()
        return self._max_timestamp

    def _scan_max_timestamp(self) -> TimestampOffset:
        largest = self.time_index.last_entry
        for found in self.batches(self.offset_index.lookup(largest.offset).position):
            if found.header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(found.header.max_timestamp, found.header.last_offset)
        return largest

    # --- Writing ---

    def should_roll(
        self, size_bytes: int, last_offset: int, max_timestamp: int, now_ms: int, *, limits: SegmentLimits
    ) -> bool:
        """Whether the next append of `size_bytes` belongs into a new segment: by size, age, full index or offset
        range."""
        size = self.log.size_bytes
        if size == 0:
            return not self.offset_index.can_append_offset(last_offset)
        if size > min(limits.segment_bytes, MAX_SEGMENT_BYTES) - size_bytes:
            return True
        if self.offset_index.is_full or self.time_index.is_full or not self.offset_index.can_append_offset(last_offset):
            return True
        first = self.first_timestamp()
        # By the records' own time where they have one, so that replicas roll alike (KIP-33).
        age_ms = max_timestamp - first if first >= 0 and max_timestamp >= 0 else now_ms - self.created_ms
        return age_ms > limits.segment_ms - self._jitter * min(limits.segment_jitter_ms, limits.segment_ms)

    def first_timestamp(self) -> int:
        """The max timestamp of the first batch; -1 while there is none."""
        if self._first_timestamp is None:
            first = next(self.batches(0), None)
            if first is None:
                return NO_TIMESTAMP
            self._first_timestamp = first.header.max_timestamp
        return self._first_timestamp

    def append(self, buffers: list, size_bytes: int, last_offset: int, max_timestamp: int) -> None:
        """Write whole batches at the end. Raises KafkaStorageError or OSError, nothing then written."""
        position = self.log.size_bytes
        self.offset_index.write_behind()
        self.time_index.write_behind()
        self.log.append(buffers, size_bytes)
        if position == 0:
            self._first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp.timestamp:
            self._max_timestamp = TimestampOffset(max_timestamp, last_offset)
        if self._bytes_since_index_entry > self.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(*self.max_timestamp)
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += size_bytes

    def truncate_to(self, offset: int) -> int:
        """Cut the batch that holds `offset` and all after it; returns the bytes cut. Raises OSError."""
        found = self.find(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        cut = 0
        if found is not None:
            cut = self.log.size_bytes - found.position
            self.log.truncate(found.position)
        if self.log.size_bytes == 0:
            self._first_timestamp = None
        self._bytes_since_index_entry = 0
        self._max_timestamp = None
        return cut

    def close_for_appends(self) -> None:
        """Give the time index its last entry and write both indexes out: at a roll and at a clean stop. Raises
        OSError."""
        if self.log.size_bytes:
            self.time_index.maybe_append(*self.max_timestamp)
        self.offset_index.write_out()
        self.time_index.write_out()

    def flush(self) -> None:
        """Have records and indexes on the disk. Raises OSError."""
        self.log.sync()
        self.offset_index.write_out(sync=True)
        self.time_index.write_out(sync=True)

    # --- Reading ---

    def batches(self, position: int = 0, end: int | None = None) -> Iterator[FoundBatch]:
        """The headers from `position` on, up to a partial one. Raises CorruptRecordError, KafkaStorageError."""
        end = self.log.size_bytes if end is None else end
        read = self.log.read
        while end - position >= HEADER_BYTES:
            content = read(position, HEADER_BYTES)
            if len(content) < HEADER_BYTES:
                return
            try:
                header = read_header(content)
            except (CorruptRecordError, UnsupportedForMessageFormatError) as wrong:
                raise type(wrong)(f"{self.log.path}, byte {position}: {wrong}") from None
            if position + header.size_bytes > end:
                return
            yield FoundBatch(position, header)
            position += header.size_bytes

    def position_before(self, position: int) -> int:
        """Where some batch begins, at or before a position, as near as the index knows."""
        return self.offset_index.entry_before_position(position)

    def offset_at(self, position: int) -> int:
        """The offset of the first batch that begins at or after a position; the next offset where there is none."""
        next_offset = self.base_offset
        for found in self.batches(self.position_before(position)):
            if found.position >= position:
                return found.header.base_offset
            next_offset = found.header.next_offset
        return next_offset

    def find(self, offset: int) -> FoundBatch | None:
        """The first batch whose last offset is at least `offset`; None past the end."""
        for found in self.batches(self.offset_index.lookup(offset).position):
            if found.header.last_offset >= offset:
                return found
        return None

    def find_timestamp(self, timestamp: int, start_offset: int) -> Iterator[FoundBatch]:
        """The batches that may hold the first record at or after both `timestamp` and `start_offset`, in order."""
        hint = self.time_index.lookup(timestamp)
        for found in self.batches(self.offset_index.lookup(max(hint.offset, start_offset)).position):
            if found.header.max_timestamp >= timestamp and found.header.last_offset >= start_offset:
                yield found

    def read_batch(self, found: FoundBatch) -> bytes:
        """One whole batch. Raises KafkaStorageError."""
        return self.log.read(found.position, found.header.size_bytes)

    def next_offset(self) -> int:
        """The offset after the last batch; the base offset where there is none."""
        next_offset = self.base_offset
        for found in self.batches(self.offset_index.last_entry.position):
            next_offset = found.header.next_offset
        return next_offset

    # --- Recovery ---

    def sanity_check(self) -> None:
        """Raise CorruptIndexError unless both index files are there and keep their rules."""
        for index in (self.offset_index, self.time_index):
            if self.log.size_bytes and not index.path.exists():
                raise CorruptIndexError(f"{index.path} is missing")
            index.sanity_check()
        if len(self.offset_index):
            self._check_entry(self.offset_index.last_entry)

    def _check_entry(self, entry: OffsetPosition) -> None:
        """Raise CorruptIndexError unless there is a batch where an entry points, and not one after the entry's.

        It may be one before it: of several batches that are appended at once, Kafka before 4.0 notes the first one's
        position and the last one's offset.
        """
        try:
            found = next(self.batches(entry.position), None)
        except (CorruptRecordError, UnsupportedForMessageFormatError):
            found = None
        if found is None or found.header.base_offset > entry.offset:
            raise CorruptIndexError(
                f"{self.offset_index.path} has offset {entry.offset} at byte {entry.position}, {self.log.path} hasn't"
            )

    def recover(self, accepts: Callable[[BatchHeader], bool]) -> int:
        """Check every batch (CRC too), cut the file after the last good one, rebuild both indexes.

        Calls `accepts` with each batch that is whole, in order; the first one that it refuses is cut off, too. Returns
        the bytes cut. Raises OSError, KafkaStorageError.
        """
        self._reset_indexes()
        position, last_indexed, next_offset = 0, 0, self.base_offset
        largest = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        size = self.log.size_bytes
        try:
            for found in self.batches(0, size):
                content = self.read_batch(found)
                header = found.header
                if header.base_offset < next_offset or header.crc != crc32c(memoryview(content)[ATTRIBUTES_OFFSET:]):
                    break
                if not self.offset_index.can_append_offset(header.last_offset) or not accepts(header):
                    break
                if header.max_timestamp > largest.timestamp:
                    largest = TimestampOffset(header.max_timestamp, header.last_offset)
                if position - last_indexed > self.index_interval_bytes:
                    self.offset_index.append(header.last_offset, position)
                    self.time_index.maybe_append(*largest)
                    last_indexed = position
                if position == 0:
                    self._first_timestamp = header.max_timestamp
                position += header.size_bytes
                next_offset = header.next_offset
        except CorruptRecordError:
            # The torn tail of a write that was cut short: what is good ends at `position`.
            pass
        except UnsupportedForMessageFormatError:
            if self._is_legacy_message(position):
                raise
        self._max_timestamp = largest
        self._bytes_since_index_entry = position - last_indexed
        if position < size:
            self.log.truncate(position)
        # On a full disk the indexes stay in memory; the next flush or roll writes them.
        with contextlib.suppress(OSError):
            self.close_for_appends()
        return size - position

    def _is_legacy_message(self, position: int) -> bool:
        """Whether there is a whole message of format v0 or v1, not garbage that looks like one."""
        try:
            LegacyBatch(self.log.read(position, self.log.size_bytes - position)).validate()
        except CorruptRecordError:
            return False
        return True

    def _reset_indexes(self) -> None:
        stem = self.directory / segment_name(self.base_offset)
        for suffix in (".index", ".timeindex"):
            stem.with_suffix(suffix).unlink(missing_ok=True)
        self._offset_index = self._time_index = None

    # --- Files ---

    def load(self) -> None:
        """Open the file and read the indexes, for those who go on reading when others take their place. Raises
        KafkaStorageError, CorruptIndexError."""
        self.log.fileno()
        assert self.offset_index is not None
        assert self.time_index is not None

    @property
    def paths(self) -> list[Path]:
        stem = segment_name(self.base_offset)
        return [self.directory / (stem + suffix) for suffix in (".log", ".index", ".timeindex", ".txnindex")]

    def delete(self) -> None:
        """Remove the files; a fetch answer that is being sent keeps reading from its open descriptor. Raises
        OSError."""
        for path in self.paths:
            path.unlink(missing_ok=True)
