"""One segment of a log: `.log` and its three indexes, named for its first offset (Kafka's `LogSegment`)."""

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
from .transaction_index import TransactionIndex

MAX_SEGMENT_BYTES = 2**31 - 1


class FoundBatch(NamedTuple):
    """A batch's header and its byte position in the segment."""

    position: int
    header: BatchHeader


def segment_name(base_offset: int) -> str:
    """Format an offset for file names: 20 digits."""
    return f"{base_offset:020d}"


class LogSegment:
    """A run of batches from `base_offset` on.

    Changed only under its log's lock. Reads need no lock: they read the file by position, and never past the log's end,
    which moves only after the bytes are in the file. The indexes are loaded at their first use.

    directory: the log's directory.
    base_offset: the offset that names the segment. No batch is below it.
    index_interval_bytes: bytes of log between two index entries.
    max_index_bytes: the size at which an index is full.
    created_ms: wall-clock time of creation, from which records without a timestamp age.
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
        self._transaction_index: TransactionIndex | None = None
        self._bytes_since_index_entry = 0
        # The fraction of `segment.jitter.ms` used: segments that begin together should not all roll together.
        self._jitter = random.random()
        self._first_timestamp: int | None = None
        self._max_timestamp: TimestampOffset | None = None

    @property
    def size_bytes(self) -> int:
        return self.log.size_bytes

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index. Raises CorruptIndexError at the first use if the file is damaged."""
        if self._offset_index is None:
            path = self.directory / f"{segment_name(self.base_offset)}.index"
            self._offset_index = OffsetIndex(path, self.base_offset, self.max_index_bytes)
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        """The time index. Raises CorruptIndexError at the first use if the file is damaged."""
        if self._time_index is None:
            path = self.directory / f"{segment_name(self.base_offset)}.timeindex"
            self._time_index = TimeIndex(path, self.base_offset, self.max_index_bytes)
        return self._time_index

    @property
    def transaction_index(self) -> TransactionIndex:
        """The index of aborted transactions. Raises CorruptIndexError at the first use if the file is damaged."""
        if self._transaction_index is None:
            path = self.directory / f"{segment_name(self.base_offset)}.txnindex"
            self._transaction_index = TransactionIndex(path, self.base_offset)
        return self._transaction_index

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp so far and the last offset of its batch; (-1, base offset) if the segment is empty."""
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
        """Whether an append of `size_bytes` needs a new segment: by size, age, full index or offset range."""
        size = self.log.size_bytes
        if size == 0:
            return not self.offset_index.can_append_offset(last_offset)
        if size > min(limits.segment_bytes, MAX_SEGMENT_BYTES) - size_bytes:
            return True
        if self.offset_index.is_full or self.time_index.is_full or not self.offset_index.can_append_offset(last_offset):
            return True
        first = self.first_timestamp()
        # By the records' timestamps if they have any, so that replicas roll at the same batch (KIP-33).
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
        """Append whole batches. On KafkaStorageError or OSError nothing is written."""
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
        """Truncate the segment before the batch with `offset`. Returns the bytes removed. Raises OSError."""
        found = self.find(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
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
        """Append the time index's last entry and write both indexes to their files: at a roll and at a clean stop.
        Raises OSError."""
        if self.log.size_bytes:
            self.time_index.maybe_append(*self.max_timestamp)
        self.offset_index.write_out()
        self.time_index.write_out()
        self.transaction_index.write_out()

    def flush(self) -> None:
        """Force records and indexes to the disk. Raises OSError."""
        self.log.sync()
        self.offset_index.write_out(sync=True)
        self.time_index.write_out(sync=True)
        self.transaction_index.write_out(sync=True)

    # --- Reading ---

    def batches(self, position: int = 0, end: int | None = None) -> Iterator[FoundBatch]:
        """The headers from `position` up to the first incomplete batch. Raises CorruptRecordError,
        KafkaStorageError."""
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
        """The start of a batch at or before `position`, the closest one in the index."""
        return self.offset_index.entry_before_position(position)

    def offset_at(self, position: int) -> int:
        """The offset of the first batch that begins at or after a position; the next offset if there is none."""
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
        """The batches that may contain the first record at or after both `timestamp` and `start_offset`, in order."""
        hint = self.time_index.lookup(timestamp)
        for found in self.batches(self.offset_index.lookup(max(hint.offset, start_offset)).position):
            if found.header.max_timestamp >= timestamp and found.header.last_offset >= start_offset:
                yield found

    def read_batch(self, found: FoundBatch) -> bytes:
        """Read one whole batch. Raises KafkaStorageError."""
        return self.log.read(found.position, found.header.size_bytes)

    def next_offset(self) -> int:
        """The offset after the last batch; the base offset if there is none."""
        next_offset = self.base_offset
        for found in self.batches(self.offset_index.last_entry.position):
            next_offset = found.header.next_offset
        return next_offset

    # --- Recovery ---

    def sanity_check(self) -> None:
        """Raise CorruptIndexError unless both index files exist and keep their invariants."""
        for index in (self.offset_index, self.time_index):
            if self.log.size_bytes and not index.path.exists():
                raise CorruptIndexError(f"{index.path} is missing")
            index.sanity_check()
        if len(self.offset_index):
            self._check_entry(self.offset_index.last_entry)

    def _check_entry(self, entry: OffsetPosition) -> None:
        """Raise CorruptIndexError unless an entry points at a batch that does not begin after the entry's offset.

        The batch may be before the entry's offset: for several batches in one append, Kafka before 4.0 records the
        position of the first and the offset of the last.
        """
        try:
            found = next(self.batches(entry.position), None)
        except (CorruptRecordError, UnsupportedForMessageFormatError):
            found = None
        if found is None or found.header.base_offset > entry.offset:
            raise CorruptIndexError(
                f"{self.offset_index.path} has offset {entry.offset} at byte {entry.position}, but {self.log.path} "
                "doesn't"
            )

    def recover(self, accepts: Callable[[BatchHeader], bool]) -> int:
        """Check every batch including its CRC, truncate the file after the last good one, and rebuild both indexes.

        Calls `accepts` with each whole batch, in order. The file is truncated before the first one it rejects. Returns
        the bytes removed. Raises OSError, KafkaStorageError.
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
            # The torn tail of an interrupted write: the good batches end at `position`.
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
        """Whether there is a whole message of format v0 or v1 at `position`, not just garbage that resembles one."""
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

    def delete_transaction_index(self) -> None:
        """Delete the file of aborted transactions; the index is empty then. Raises OSError."""
        (self.directory / f"{segment_name(self.base_offset)}.txnindex").unlink(missing_ok=True)
        self._transaction_index = None

    # --- Files ---

    def load(self) -> None:
        """Open the file and read the indexes, for readers that keep this segment after it is replaced. Raises
        KafkaStorageError, CorruptIndexError."""
        self.log.fileno()
        assert self.offset_index is not None
        assert self.time_index is not None
        assert self.transaction_index is not None

    @property
    def paths(self) -> list[Path]:
        stem = segment_name(self.base_offset)
        return [self.directory / (stem + suffix) for suffix in (".log", ".index", ".timeindex", ".txnindex")]

    def delete(self) -> None:
        """Remove the files. A fetch response in flight keeps reading from its open descriptor. Raises OSError."""
        for path in self.paths:
            path.unlink(missing_ok=True)
