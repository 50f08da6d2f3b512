"""A partition's log: its segments, its bounds, its producer state and its leader epochs (Kafka's `UnifiedLog`)."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ...network.clock import Clock
from ...network.protocol.errors import KafkaStorageError, MessageSizeTooLargeError
from ...network.protocol.other_errors import OffsetOutOfRangeError
from ...network.records.batch import RecordBatch
from ...network.sockets.transport import FileRegion
from ..config.topic_config import TopicConfig
from .batch_header import BatchHeader, read_header
from .files import sync_directory
from .index import MAX_RELATIVE_OFFSET, NO_TIMESTAMP, TimestampOffset
from .leader_epochs import LeaderEpochs
from .markers import Marker, build_marker, read_marker
from .producer_state import NO_PRODUCER_ID, NOT_REQUIRED, ProducerStateManager, Verification
from .replay import end_transaction, recall_batches, replay_producers
from .segment import LogSegment
from .transaction_index import AbortedTransaction
from .validation import assign, check_replicated_batches


class LogEnd(NamedTuple):
    """A position in the log: an offset, the base offset of its segment, and the byte position in that."""

    offset: int
    segment_base_offset: int
    position: int


class AppendInfo(NamedTuple):
    """The outcome of an append. `log_append_time` is -1 if records keep their own timestamps."""

    first_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int


class LogRead(NamedTuple):
    """The outcome of a read: a region of the segment's file to send; None if nothing is readable yet."""

    region: FileRegion | None
    start: LogEnd

    @property
    def size_bytes(self) -> int:
        return 0 if self.region is None else self.region.size_bytes


class Log:
    """One partition's records on disk.

    Threads: `lock` is the only lock of a log. Every change (append, roll, truncation, retention, flush) holds it. Reads
    don't: they take `end` and `segments` once. Both are replaced as a whole, never changed in place, and `end` is
    replaced only after the bytes it covers are in the file.

    Invariants: log_start_offset <= high_watermark <= end.offset. There is at least one segment; segments ascend by base
    offset, and only the last one is appended to. Everything below `recovery_point` is on the disk. Above it each
    segment begins where the previous one ends, so the loader knows that nothing between them is lost.

    directory, topic, partition: where the log is, and whose.
    config: the topic's configuration. Replaced when the topic is reconfigured.
    clock: the time of appends and flushes.
    segments: the loaded segments, ascending, at least one.
    producers, leader_epochs: the state loaded beside the segments.
    log_start_offset, next_offset, recovery_point: the loaded bounds.
    unflushed_directories: directories whose entries may not be on the disk yet.
    """

    def __init__(
        self,
        directory: Path,
        topic: str,
        partition: int,
        *,
        config: TopicConfig,
        clock: Clock,
        segments: list[LogSegment],
        producers: ProducerStateManager,
        leader_epochs: LeaderEpochs,
        log_start_offset: int,
        next_offset: int,
        recovery_point: int,
        unflushed_directories: set[Path],
    ) -> None:
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.config = config
        self.clock = clock
        self.lock = threading.RLock()
        self.segments = segments
        self.producers = producers
        self.leader_epochs = leader_epochs
        self.log_start_offset = log_start_offset
        self.recovery_point = recovery_point
        self.end = LogEnd(next_offset, segments[-1].base_offset, segments[-1].size_bytes)
        self.high_watermark = log_start_offset
        #: Where the oldest transaction begins that is open or whose marker is not replicated; None without one.
        self.first_unstable_offset = producers.first_unstable_offset()
        self.last_flush_ms = clock.now_ms()
        self.is_closed = False
        #: Number of times the files were rewritten by truncation or compaction.
        self.rewrites = 0
        #: Called with the lock held after `recovery_point` was lowered, to write it to the disk. May raise OSError.
        self.on_recovery_point_lowered: Callable[[Log], None] = lambda _log: None
        #: Directories whose entries may not be on the disk yet.
        self._unflushed_directories = unflushed_directories

    def __repr__(self) -> str:
        return f"Log({self.topic}-{self.partition}, {self.log_start_offset}..{self.end.offset})"

    @property
    def log_end_offset(self) -> int:
        return self.end.offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which a reader of committed records may read: the start of the first open transaction."""
        # In this order: the high watermark passes a batch only after the batch's transaction is known as open.
        high_watermark = self.high_watermark
        unstable = self.first_unstable_offset
        return high_watermark if unstable is None else min(high_watermark, max(unstable, self.log_start_offset))

    # --- Appending ---

    def append_as_leader(
        self,
        batch: memoryview,
        header: BatchHeader,
        leader_epoch: int,
        *,
        is_coordinator: bool = False,
        verification: Verification | None = NOT_REQUIRED,
    ) -> AppendInfo:
        """Append one client batch that passed `validation.check_client_batch`. Sets its offset and epoch.

        A duplicate is not written again: the result has the offsets of the first append. `is_coordinator`: the batch is
        a coordinator's own and has no sequence numbers. `verification`: the one begun for a batch that begins a
        transaction. Raises InvalidProducerEpochError, OutOfOrderSequenceNumberError, InvalidTxnStateError,
        MessageSizeTooLargeError, KafkaStorageError.
        """
        config = self.config
        if len(batch) > config.segment_bytes:
            raise MessageSizeTooLargeError(
                f"a batch of {len(batch)} bytes doesn't fit in a segment of {config.segment_bytes} (segment.bytes)"
            )
        with self.lock:
            if header.producer_id == NO_PRODUCER_ID:
                pass
            elif is_coordinator:
                self.producers.check_coordinator_batch(header, verification)
            else:
                known = self.producers.find_duplicate(header)
                if known is not None:
                    append_time = known.timestamp if config.message_timestamp_type == "LogAppendTime" else NO_TIMESTAMP
                    return AppendInfo(known.base_offset, known.last_offset, append_time, self.log_start_offset)
                self.producers.check(header, verification)
            return self._append_batch(batch, header, leader_epoch)

    def append_marker(
        self, producer_id: int, producer_epoch: int, marker: Marker, level: int, leader_epoch: int
    ) -> AppendInfo:
        """Append the marker that ends a producer's transaction.

        `level` is that of `transaction.version` (see `ProducerStateManager.check_marker`). Raises
        InvalidProducerEpochError, TransactionCoordinatorFencedError, KafkaStorageError.
        """
        with self.lock:
            self.producers.check_marker(producer_id, producer_epoch, marker.coordinator_epoch, level)
            batch = build_marker(producer_id, producer_epoch, marker, self.clock.wall_ms())
            return self._append_batch(batch, read_header(batch), leader_epoch)

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, starts_at_zero: bool
    ) -> Verification | None:
        """See `ProducerStateManager.begin_verification`."""
        with self.lock:
            return self.producers.begin_verification(
                producer_id, producer_epoch, base_sequence, starts_at_zero=starts_at_zero
            )

    def _append_batch(self, batch: memoryview, header: BatchHeader, leader_epoch: int) -> AppendInfo:
        config = self.config
        first_offset = self.end.offset
        append_time = self.clock.wall_ms() if config.message_timestamp_type == "LogAppendTime" else NO_TIMESTAMP
        header = assign(batch, header, first_offset, leader_epoch, append_time)
        try:
            self.leader_epochs.assign(leader_epoch, first_offset)
            self._append([header], batch)
        except OSError as failed:
            raise KafkaStorageError(
                f"can't append to {self.topic}-{self.partition}: {failed.strerror}; free space or repair the "
                "data directory"
            ) from failed
        return AppendInfo(first_offset, header.last_offset, append_time, self.log_start_offset)

    def append_as_follower(self, records: memoryview) -> AppendInfo | None:
        """Append a leader's batches unchanged, offsets and epochs included, with one write.

        A partial batch at the end is dropped. Returns None if there is no whole batch. Raises CorruptRecordError,
        OffsetOutOfRangeError if the batches don't continue this log, KafkaStorageError.
        """
        with self.lock:
            headers, size_bytes = check_replicated_batches(records)
            if not headers:
                return None
            first = headers[0]
            if first.base_offset < self.end.offset == self.log_start_offset <= first.last_offset:
                # This log has to begin in the middle of a batch (DeleteRecords), but only whole ones can be copied.
                self.truncate_fully_and_start_at(first.base_offset)
            if first.base_offset < self.end.offset:
                raise OffsetOutOfRangeError(
                    f"{self.topic}-{self.partition} ends at {self.end.offset}; a batch at "
                    f"{first.base_offset} doesn't continue it"
                )
            for header in headers:
                self.leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
            self._append(headers, records[:size_bytes])
            return AppendInfo(first.base_offset, headers[-1].last_offset, NO_TIMESTAMP, self.log_start_offset)

    def _append(self, headers: list[BatchHeader], records: memoryview) -> None:
        if self.is_closed:
            raise KafkaStorageError(f"the log of {self.topic}-{self.partition} is closed; its broker is stopping")
        last = headers[-1]
        size_bytes = len(records)
        config = self.config
        max_timestamp = last.max_timestamp if len(headers) == 1 else max(header.max_timestamp for header in headers)
        segment = self.segments[-1]
        now_ms = self.clock.wall_ms()
        if segment.should_roll(size_bytes, last.last_offset, max_timestamp, now_ms, limits=config.segment_limits):
            # At the log's end even if the batches begin later (in a compacted log); see the invariants.
            segment = self.roll(last.last_offset - MAX_RELATIVE_OFFSET)
        segment.append([records], size_bytes, last.last_offset, max_timestamp)
        position = 0
        for header in headers:
            if header.producer_id != NO_PRODUCER_ID:
                self._update_producers(segment, header, records[position:])
            position += header.size_bytes
        end_offset = last.next_offset
        self.producers.end_offset = end_offset
        self.end = LogEnd(end_offset, segment.base_offset, segment.size_bytes)
        if end_offset - self.recovery_point >= config.flush_messages:
            self.flush()

    def _update_producers(self, segment: LogSegment, header: BatchHeader, batch: memoryview) -> None:
        if header.is_control:
            end_transaction(segment, header, read_marker(RecordBatch(batch)), self.producers)
        else:
            self.producers.update(header)
        if header.is_transactional:
            self.first_unstable_offset = self.producers.first_unstable_offset()

    def roll(self, base_offset: int | None = None) -> LogSegment:
        """Begin a new segment at the log's end, or at a later `base_offset`. Raises KafkaStorageError."""
        with self.lock:
            base_offset = self.end.offset if base_offset is None else max(base_offset, self.end.offset)
            try:
                old = self.segments[-1]
                if old.base_offset == base_offset and old.size_bytes == 0:
                    # An empty segment whose index is full: recreate it.
                    old.delete()
                    kept = self.segments[:-1]
                else:
                    old.close_for_appends()
                    kept = self.segments
                    self.producers.take_snapshot()
            except OSError as failed:
                raise KafkaStorageError(
                    f"can't begin a segment in {self.directory}: {failed.strerror}; free space or "
                    "repair the data directory"
                ) from failed
            return self._begin_segment(base_offset, kept)

    def _begin_segment(self, base_offset: int, kept: list[LogSegment]) -> LogSegment:
        segment = self._new_segment(base_offset)
        # The segment's name alone preserves the log's end if all earlier segments are deleted or compacted away.
        segment.log.fileno()
        self.segments = [*kept, segment]
        self.end = LogEnd(self.end.offset, base_offset, 0)
        self._unflushed_directories.add(self.directory)
        return segment

    def _new_segment(self, base_offset: int, created_ms: int | None = None) -> LogSegment:
        return LogSegment(
            self.directory,
            base_offset,
            index_interval_bytes=self.config.index_interval_bytes,
            max_index_bytes=self.config.segment_index_bytes,
            created_ms=self.clock.wall_ms() if created_ms is None else created_ms,
        )

    # --- Reading ---

    def read(self, offset: int, max_bytes: int, *, up_to: int, min_one_batch: bool) -> LogRead:
        """Locate the records from the batch with `offset` up to the offset `up_to` (high watermark or log end).

        The region has at most `max_bytes`, which may cut off the last batch; with `min_one_batch` it has at least the
        whole first batch. Raises OffsetOutOfRangeError, KafkaStorageError. Needs no lock.
        """
        end = self.end
        if not self.log_start_offset <= offset <= end.offset:
            raise OffsetOutOfRangeError(
                f"{self.topic}-{self.partition} has offsets {self.log_start_offset} to {end.offset}, not {offset}"
            )
        if offset >= up_to:
            return LogRead(None, end if offset == end.offset else LogEnd(offset, -1, -1))
        segments = self.segments
        slot = max(bisect_right(segments, offset, key=_base_offset) - 1, 0)
        while slot < len(segments):
            segment = segments[slot]
            found = segment.find(offset)
            if found is not None:
                break
            slot += 1
        else:
            return LogRead(None, end)
        limit = self._position_limit(segment, segments, slot, up_to, end)
        first_bytes = found.header.size_bytes
        size_bytes = min(limit - found.position, max(max_bytes, first_bytes) if min_one_batch else max_bytes)
        start = LogEnd(offset, segment.base_offset, found.position)
        if size_bytes <= 0:
            return LogRead(None, start)
        return LogRead(FileRegion(segment.log, found.position, size_bytes), start)

    @staticmethod
    def _position_limit(segment: LogSegment, segments: list[LogSegment], slot: int, up_to: int, end: LogEnd) -> int:
        """The byte position in `segment` before which every batch is below `up_to`."""
        if up_to >= end.offset:
            return end.position if segment.base_offset == end.segment_base_offset else segment.size_bytes
        if slot + 1 < len(segments) and segments[slot + 1].base_offset <= up_to:
            return segment.size_bytes
        bound = segment.find(up_to)
        return segment.size_bytes if bound is None else bound.position

    def aborted_transactions(self, offset: int, read: LogRead) -> list[AbortedTransaction]:
        """The aborted transactions with records in what `read(offset, ...)` returned. Needs no lock. Raises
        CorruptIndexError."""
        if read.region is None:
            return []
        segments = self.segments
        slot = max(bisect_right(segments, read.start.segment_base_offset, key=_base_offset) - 1, 0)
        next_base = segments[slot + 1].base_offset if slot + 1 < len(segments) else self.end.offset
        up_to = segments[slot].offset_index.offset_after_position(read.start.position + read.size_bytes) or next_base
        found: list[AbortedTransaction] = []
        for segment in segments[slot:]:
            entries, is_all = segment.transaction_index.aborted(offset, up_to)
            found += entries
            if is_all:
                break
        return found

    def batches(self, offset: int, up_to: int) -> Iterator[RecordBatch]:
        """The batches from the one with `offset` up to `up_to`, read one at a time: for tools, not for fetches."""
        for segment in list(self.segments):
            for found in segment.batches():
                if found.header.base_offset >= up_to:
                    return
                if found.header.last_offset >= offset:
                    yield RecordBatch(segment.read_batch(found))

    def offset_for_timestamp(self, timestamp: int) -> tuple[TimestampOffset, int] | None:
        """The first record at or after `timestamp` and its batch's leader epoch; None if all are older."""
        start = self.log_start_offset
        for segment in list(self.segments):
            if segment.max_timestamp.timestamp < timestamp:
                continue
            for found in segment.find_timestamp(timestamp, start):
                for record in RecordBatch(segment.read_batch(found)).records():
                    if record.timestamp >= timestamp and record.offset >= start:
                        return TimestampOffset(record.timestamp, record.offset), found.header.partition_leader_epoch
        return None

    def offset_of_max_timestamp(self) -> tuple[TimestampOffset, int] | None:
        """The first record with the largest timestamp, and its leader epoch; None in an empty log."""
        largest = max((segment.max_timestamp for segment in self.segments), key=lambda entry: entry.timestamp)
        return None if largest.timestamp == NO_TIMESTAMP else self.offset_for_timestamp(largest.timestamp)

    # --- Moving the bounds ---

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark to `offset`, but not past the log's end. True if it advanced."""
        offset = min(offset, self.end.offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self.producers.high_watermark_advanced(offset):
            self.first_unstable_offset = self.producers.first_unstable_offset()
        return True

    def advance_log_start_offset(self, offset: int) -> None:
        """Hide the records before `offset` (DeleteRecords). The next retention run deletes whole segments of them."""
        with self.lock:
            if offset > self.high_watermark:
                raise OffsetOutOfRangeError(
                    f"{self.topic}-{self.partition} has its high watermark at {self.high_watermark}, before {offset}"
                )
            if offset > self.log_start_offset:
                self.log_start_offset = offset
                self.leader_epochs.truncate_from_start(offset)

    def truncate_to(self, offset: int) -> None:
        """Drop the records at and after `offset`, where a follower's log diverges from its leader's. Raises OSError."""
        with self.lock:
            if offset >= self.end.offset:
                # An epoch in which this broker led without appending: its current leader doesn't have it.
                self.leader_epochs.truncate_from_end(offset)
                return
            kept = [segment for segment in self.segments if segment.base_offset <= offset]
            if not kept or offset < self.log_start_offset:
                self.truncate_fully_and_start_at(offset)
                return
            cut = kept[-1].find(offset)
            self._before_truncation(offset if cut is None else min(offset, cut.header.base_offset))
            for segment in self.segments[len(kept) :]:
                segment.delete()
            kept[-1].truncate_to(offset)
            next_offset = min(offset, kept[-1].next_offset())
            if next_offset < self.log_start_offset:
                # The truncated batch began before the log's start, so no readable record is left.
                self.truncate_fully_and_start_at(self.log_start_offset)
                return
            self.segments = kept
            self._after_truncation(next_offset)
            self.leader_epochs.truncate_from_end(next_offset)
            self._rebuild_producers()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop all records and restart at `offset`, for a follower too far behind its leader. Raises OSError."""
        with self.lock:
            self._before_truncation(offset)
            for segment in self.segments:
                segment.delete()
            self.producers.clear()
            self.first_unstable_offset = None
            self.producers.delete_snapshots(before=2**63)
            self.leader_epochs.clear()
            self.log_start_offset = offset
            self.segments = [self._new_segment(offset)]
            self.segments[0].log.fileno()
            self._after_truncation(offset)

    def _before_truncation(self, offset: int) -> None:
        """Lower the recovery point on the disk first: what replaces the truncated part is not flushed, so it must be
        checked after a crash. Raises OSError."""
        self._unflushed_directories.add(self.directory)
        self.rewrites += 1
        if offset < self.recovery_point:
            self.recovery_point = offset
            self.on_recovery_point_lowered(self)

    def _after_truncation(self, offset: int) -> None:
        self.end = LogEnd(offset, self.segments[-1].base_offset, self.segments[-1].size_bytes)
        self.high_watermark = min(self.high_watermark, offset)
        self.high_watermark = max(self.high_watermark, self.log_start_offset)
        self.producers.end_offset = offset

    def _rebuild_producers(self) -> None:
        end = self.end.offset
        self.producers.delete_snapshots(after=end)
        self.producers.load_snapshot(end, self.log_start_offset, self.clock.wall_ms())
        replay_producers(self.segments, self.producers, end)
        recall_batches(self.segments, self.producers)
        self.producers.high_watermark_advanced(self.high_watermark)
        self.first_unstable_offset = self.producers.first_unstable_offset()

    # --- Retention and flushing ---

    def delete_old_segments(self) -> int:
        """Delete segments by age, size and log start (`retention.ms`, `retention.bytes`). Returns the number deleted.

        Keeps the segments that reach past the high watermark. Raises KafkaStorageError.
        """
        with self.lock:
            doomed = self._segments_past_retention()
            if not doomed:
                return 0
            is_all = len(doomed) == len(self.segments)
            if is_all:
                # Without a roll: closing a segment takes disk space, which may be what is lacking.
                self._begin_segment(self.end.offset, self.segments)
            kept = self.segments[len(doomed) :]
            # Raise the start first. Otherwise a reader would find the first remaining segment instead of a deleted one.
            self.log_start_offset = max(self.log_start_offset, kept[0].base_offset)
            self.segments = kept
            self.leader_epochs.truncate_from_start(self.log_start_offset)
            try:
                self._unflushed_directories.add(self.directory)
                for segment in doomed:
                    segment.delete()
                if is_all:
                    self.producers.take_snapshot()
                self.producers.delete_snapshots(before=self.log_start_offset)
            except OSError as failed:
                raise KafkaStorageError(f"can't delete a segment in {self.directory}: {failed.strerror}") from failed
            return len(doomed)

    def _segments_past_retention(self) -> list[LogSegment]:
        config = self.config
        wall_ms = self.clock.wall_ms()
        by_policy = "delete" in config.cleanup_policy
        excess = self.size_bytes - config.retention_bytes if by_policy and config.retention_bytes >= 0 else -1
        doomed: list[LogSegment] = []
        for number, segment in enumerate(self.segments):
            is_active = number + 1 == len(self.segments)
            next_base = self.end.offset if is_active else self.segments[number + 1].base_offset
            if next_base > self.high_watermark or (is_active and segment.size_bytes == 0):
                break
            newest_ms = segment.max_timestamp.timestamp
            # Records without a timestamp are as old as their segment.
            age_ms = wall_ms - (newest_ms if newest_ms >= 0 else segment.created_ms)
            if by_policy and config.retention_ms >= 0 and age_ms > config.retention_ms:
                pass
            elif excess - segment.size_bytes >= 0 or (next_base <= self.log_start_offset and not is_active):
                excess -= segment.size_bytes
            else:
                break
            doomed.append(segment)
        return doomed

    def flush(self) -> None:
        """Force everything appended so far to the disk, then advance `recovery_point`. Raises KafkaStorageError."""
        with self.lock:
            end = self.end.offset
            # Starting with the segment that ends at the recovery point: it may have grown or been truncated there
            # before the next one began.
            first = max(bisect_right(self.segments, self.recovery_point - 1, key=_base_offset) - 1, 0)
            try:
                for segment in self.segments[first:]:
                    segment.flush()
                self.leader_epochs.write_out(sync=True)
                for directory in tuple(self._unflushed_directories):
                    sync_directory(directory)
                    self._unflushed_directories.remove(directory)
            except OSError as failed:
                raise KafkaStorageError(f"can't flush {self.directory}: {failed.strerror}") from failed
            self.recovery_point = end
            self.last_flush_ms = self.clock.now_ms()

    def relocate(self, directory: Path) -> None:
        """Continue in another directory, which has copies of all files. Called with the lock held."""
        for segment in self.segments:
            segment.load()
        self._unflushed_directories.discard(self.directory)
        self.directory = directory
        self.segments = [self._new_segment(each.base_offset, each.created_ms) for each in self.segments]
        self.producers.directory = directory
        self.leader_epochs.relocate(directory)
        self._unflushed_directories.add(directory)

    def close(self) -> None:
        """Write what is only in memory. Later appends fail. Raises OSError."""
        with self.lock:
            if self.is_closed:
                return
            self.is_closed = True
            self.segments[-1].close_for_appends()
            self.producers.take_snapshot()
            self.leader_epochs.write_out()


def _base_offset(segment: LogSegment) -> int:
    return segment.base_offset
