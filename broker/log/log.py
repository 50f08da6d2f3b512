"""A partition's log: its segments, its end, what it remembers of producers and leader epochs (Kafka's `UnifiedLog`)."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ...network.clock import Clock
from ...network.protocol.errors import KafkaStorageError, MessageSizeTooLargeError, OffsetOutOfRangeError
from ...network.records.batch import RecordBatch
from ...network.sockets.transport import FileRegion
from ..config.topic_config import TopicConfig
from .batch_header import BatchHeader
from .files import sync_directory
from .index import MAX_RELATIVE_OFFSET, NO_TIMESTAMP, TimestampOffset
from .leader_epochs import LeaderEpochs
from .producer_state import NO_PRODUCER_ID, ProducerStateEntry, ProducerStateManager
from .segment import LogSegment
from .validation import assign, check_replicated_batches

_RECALLED_BYTES = 4 * 2**20


class LogEnd(NamedTuple):
    """A place in the log: an offset, the segment that it lies in, the byte position there."""

    offset: int
    segment_base_offset: int
    position: int


class AppendInfo(NamedTuple):
    """What an append did. `log_append_time` is -1 where records keep their own time."""

    first_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int


class LogRead(NamedTuple):
    """What a read found: a region of the segment's file, sent from there; None where nothing is readable yet."""

    region: FileRegion | None
    start: LogEnd

    @property
    def size_bytes(self) -> int:
        return 0 if self.region is None else self.region.size_bytes


class Log:
    """One partition's records on disk.

    Threads: `lock` is the one lock of a log. Whatever changes it (append, roll, truncation, retention, flush) holds it.
    Reads don't: they take `end` and `segments` once, both replaced as a whole (never changed in place), `end` only
    after the bytes it covers are in the file.

    Invariants: log_start_offset <= high_watermark <= end.offset; segments are never empty as a list, ascend by base
    offset, and the last one is the only one appended to; everything below `recovery_point` is on the disk. Above it
    each segment begins where the one before ends, which is how the loader knows that nothing between them is lost.
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
        self.last_flush_ms = clock.now_ms()
        self.is_closed = False
        #: How often its files were written anew, by truncation or compaction.
        self.rewrites = 0
        #: Called with the lock held after `recovery_point` was lowered, to have that on the disk. May raise OSError.
        self.on_recovery_point_lowered: Callable[[Log], None] = lambda _log: None
        #: Those whose names may not be on the disk yet.
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
        """Up to where a reader of committed records may read: below the first open transaction."""
        unstable = self.producers.first_unstable_offset()
        return self.high_watermark if unstable is None else min(self.high_watermark, unstable)

    # --- Appending ---

    def append_as_leader(self, batch: memoryview, header: BatchHeader, leader_epoch: int) -> AppendInfo:
        """Append one batch of a client that `validation.check_client_batch` let pass; offset and epoch are set in it.

        A batch that its producer already wrote is not written again: the answer tells where it is. Raises
        InvalidProducerEpochError, OutOfOrderSequenceNumberError, InvalidTxnStateError, KafkaStorageError.
        """
        config = self.config
        if len(batch) > config.segment_bytes:
            raise MessageSizeTooLargeError(
                f"a batch of {len(batch)} bytes doesn't fit in a segment of {config.segment_bytes} (segment.bytes)"
            )
        with self.lock:
            if header.producer_id != NO_PRODUCER_ID and not header.is_control:
                known = self.producers.find_duplicate(header)
                if known is not None:
                    append_time = known.timestamp if config.message_timestamp_type == "LogAppendTime" else NO_TIMESTAMP
                    return AppendInfo(known.base_offset, known.last_offset, append_time, self.log_start_offset)
                self.producers.check(header)
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
        """Append batches as the leader has them, offsets and epochs included, with one write.

        A partial batch at the end is left out; None where no whole batch is there. Raises CorruptRecordError,
        OffsetOutOfRangeError where the batches don't continue this log, KafkaStorageError.
        """
        with self.lock:
            headers, size_bytes = check_replicated_batches(records)
            if not headers:
                return None
            first = headers[0]
            if first.base_offset < self.end.offset == self.log_start_offset <= first.last_offset:
                # This log is to begin amid a batch (DeleteRecords), but only whole ones can be copied.
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
            # At the log's end even where the batches begin later (in a compacted log), see the invariants.
            segment = self.roll(last.last_offset - MAX_RELATIVE_OFFSET)
        segment.append([records], size_bytes, last.last_offset, max_timestamp)
        for header in headers:
            if header.producer_id != NO_PRODUCER_ID:
                self._update_producers(header, records)
        end_offset = last.next_offset
        self.producers.end_offset = end_offset
        self.end = LogEnd(end_offset, segment.base_offset, segment.size_bytes)
        if end_offset - self.recovery_point >= config.flush_messages:
            self.flush()

    def _update_producers(self, header: BatchHeader, records: memoryview) -> None:
        if not header.is_control:
            self.producers.update(header)
            return
        self.producers.end_transaction(header.producer_id, header.producer_epoch, -1, header.max_timestamp)

    def roll(self, base_offset: int | None = None) -> LogSegment:
        """Begin a new segment at the log's end (or at `base_offset`, which is not before it). Raises
        KafkaStorageError."""
        with self.lock:
            base_offset = self.end.offset if base_offset is None else max(base_offset, self.end.offset)
            try:
                old = self.segments[-1]
                if old.base_offset == base_offset and old.size_bytes == 0:
                    # An empty segment whose index is full of nothing: make it anew.
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
        # Its name alone tells where the log ends, should all before it be deleted or compacted away.
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
        """Find what stands from the batch with `offset` on, up to the offset `up_to` (high watermark or log end).

        At most `max_bytes`, which may cut the last batch, but the whole first one where `min_one_batch`. Raises
        OffsetOutOfRangeError, KafkaStorageError. Needs no lock.
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
        """The byte position in `segment` before which everything has an offset below `up_to`."""
        if up_to >= end.offset:
            return end.position if segment.base_offset == end.segment_base_offset else segment.size_bytes
        if slot + 1 < len(segments) and segments[slot + 1].base_offset <= up_to:
            return segment.size_bytes
        bound = segment.find(up_to)
        return segment.size_bytes if bound is None else bound.position

    def batches(self, offset: int, up_to: int) -> Iterator[RecordBatch]:
        """The batches from the one with `offset` to below `up_to`, read one at a time: for tools, not for fetches."""
        for segment in list(self.segments):
            for found in segment.batches():
                if found.header.base_offset >= up_to:
                    return
                if found.header.last_offset >= offset:
                    yield RecordBatch(segment.read_batch(found))

    def offset_for_timestamp(self, timestamp: int) -> tuple[TimestampOffset, int] | None:
        """The first record at or after `timestamp` and its batch's leader epoch; None where all are older."""
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
        """The record with the largest timestamp (the first such) and its leader epoch; None in an empty log."""
        largest = max((segment.max_timestamp for segment in self.segments), key=lambda entry: entry.timestamp)
        return None if largest.timestamp == NO_TIMESTAMP else self.offset_for_timestamp(largest.timestamp)

    # --- Moving the bounds ---

    def advance_high_watermark(self, offset: int) -> bool:
        """Move the high watermark up to `offset` (never down, never past the end). True if it moved."""
        offset = min(offset, self.end.offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def advance_log_start_offset(self, offset: int) -> None:
        """Hide what is before `offset` (DeleteRecords); whole segments of it go with the next retention run."""
        with self.lock:
            if offset > self.high_watermark:
                raise OffsetOutOfRangeError(
                    f"{self.topic}-{self.partition} has its high watermark at {self.high_watermark}, before {offset}"
                )
            if offset > self.log_start_offset:
                self.log_start_offset = offset
                self.leader_epochs.truncate_from_start(offset)

    def truncate_to(self, offset: int) -> None:
        """Drop `offset` and everything after it: the log of a follower that differs from its leader's. Raises
        OSError."""
        with self.lock:
            if offset >= self.end.offset:
                # an epoch in which this broker led without writing anything: its present leader doesn't know it
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
                # The batch that was cut began before the log's start, so nothing that can be read is left.
                self.truncate_fully_and_start_at(self.log_start_offset)
                return
            self.segments = kept
            self._after_truncation(next_offset)
            self.leader_epochs.truncate_from_end(next_offset)
            self._rebuild_producers()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and begin again at `offset`: a follower too far behind its leader. Raises OSError."""
        with self.lock:
            self._before_truncation(offset)
            for segment in self.segments:
                segment.delete()
            self.producers.producers.clear()
            self.producers.delete_snapshots(before=2**63)
            self.leader_epochs.clear()
            self.log_start_offset = offset
            self.segments = [self._new_segment(offset)]
            self.segments[0].log.fileno()
            self._after_truncation(offset)

    def _before_truncation(self, offset: int) -> None:
        """Lower the recovery point on the disk first: what replaces the part that is cut off is not flushed, and must
        be checked after a crash. Raises OSError."""
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

    # --- Retention and flushing ---

    def delete_old_segments(self) -> int:
        """Delete segments by age, size and log start (`retention.ms`, `retention.bytes`); returns how many.

        Never the active one nor one that reaches past the high watermark. Raises KafkaStorageError.
        """
        with self.lock:
            doomed = self._segments_past_retention()
            if not doomed:
                return 0
            is_all = len(doomed) == len(self.segments)
            if is_all:
                # Not rolled: what goes isn't closed first, for that takes space, which may be what is missing.
                self._begin_segment(self.end.offset, self.segments)
            kept = self.segments[len(doomed) :]
            # First what may be read, or a reader would find the first segment left in the place of one that is gone.
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
            # Records without a time are as old as their segment.
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
        """Have everything appended so far on the disk, and say so in `recovery_point`. Raises KafkaStorageError."""
        with self.lock:
            end = self.end.offset
            # From the segment on that ends at the recovery point: it may have grown, or been cut there, before the next
            # one began.
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
        """Go on in another directory, which has copies of all files. Called with the lock held."""
        for segment in self.segments:
            segment.load()
        self._unflushed_directories.discard(self.directory)
        self.directory = directory
        self.segments = [self._new_segment(each.base_offset, each.created_ms) for each in self.segments]
        self.producers.directory = directory
        self.leader_epochs.relocate(directory)
        self._unflushed_directories.add(directory)

    def close(self) -> None:
        """Write out what is only in memory; appends fail from now on. Raises OSError."""
        with self.lock:
            if self.is_closed:
                return
            self.is_closed = True
            self.segments[-1].close_for_appends()
            self.producers.take_snapshot()
            self.leader_epochs.write_out()


def _base_offset(segment: LogSegment) -> int:
    return segment.base_offset


def recall_batches(segments: list[LogSegment], producers: ProducerStateManager) -> None:
    """Give producers of whom a snapshot knows the last batch only their batches before that again.

    Kafka's format has no place for them, so with a restart Kafka forgets them. Here the end of the log
    (`_RECALLED_BYTES` of it) is asked, for a batch that is sent again across a restart should not be taken for a gap.
    """
    found: dict[int, ProducerStateEntry] = {}
    for segment, position in _tail(segments):
        for each in segment.batches(position):
            header = each.header
            if header.producer_id == NO_PRODUCER_ID or header.is_control:
                continue
            entry = found.get(header.producer_id)
            if entry is None:
                entry = found[header.producer_id] = ProducerStateEntry(header.producer_id)
            entry.add(header)
    for producer_id, recalled in found.items():
        known = producers.producers.get(producer_id)
        if (
            known is not None
            and len(known.batches) < len(recalled.batches)
            and known.producer_epoch == recalled.producer_epoch
            and known.last_offset == recalled.last_offset
        ):
            known.batches = recalled.batches


def _tail(segments: list[LogSegment]) -> list[tuple[LogSegment, int]]:
    """The segments that the last `_RECALLED_BYTES` lie in, in order, and where to begin in each."""
    tail: list[tuple[LogSegment, int]] = []
    left = _RECALLED_BYTES
    for segment in reversed(segments):
        if left <= 0:
            break
        tail.append((segment, segment.position_before(segment.size_bytes - left)))
        left -= segment.size_bytes
    return tail[::-1]


def replay_producers(
    segments: list[LogSegment], producers: ProducerStateManager, end_offset: int, *, takes_snapshots: bool = False
) -> None:
    """Bring a restored producer state from its `end_offset` up to `end_offset`, from the batches' headers; with
    `takes_snapshots`, one where each segment begins, as rolling does. Raises CorruptRecordError, KafkaStorageError,
    OSError."""
    for number, segment in enumerate(segments):
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        if next_base <= producers.end_offset:
            continue
        if takes_snapshots and number and producers.end_offset <= segment.base_offset:
            producers.end_offset = segment.base_offset
            producers.take_snapshot()
        for found in segment.batches(segment.offset_index.lookup(producers.end_offset).position):
            header = found.header
            if header.base_offset < producers.end_offset or header.producer_id == NO_PRODUCER_ID:
                continue
            if header.is_control:
                producers.end_transaction(header.producer_id, header.producer_epoch, -1, header.max_timestamp)
            else:
                producers.update(header)
            producers.end_offset = header.next_offset
    producers.end_offset = end_offset
