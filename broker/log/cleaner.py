"""Compaction: keep the last value of each key (Kafka's `LogCleaner`).

A pass reads the segments below the active one from the first offset not yet compacted, to learn each key's last offset.
Then it rewrites all segments below the active one without the records that a later record replaces. Offsets never
change, so a compacted log has gaps. A tombstone (a record without a value) stays for `delete.retention.ms` after the
pass that first saw it, so that a reader who lags still sees the deletion. The batch's delete horizon records that time
(KIP-534). A transaction's marker, too, stays until that time once its transaction has no batch left.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ...network.records.batch import DELETE_HORIZON_MASK, RECORD_BATCH_OVERHEAD, RecordBatch, write_header
from ...network.records.compression import COMPRESSION_MASK, Compression, compress
from ...network.records.record import Record
from .cleaned_transactions import CleanedTransactions
from .files import sync_directory
from .log import Log
from .segment import LogSegment, segment_name
from .transaction_index import AbortedTransaction, finish_index_swap, write_index

_log = logging.getLogger(__name__)

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"


class CleanResult(NamedTuple):
    """The outcome of a pass: sizes before and after, and the first offset not yet compacted."""

    bytes_before: int
    bytes_after: int
    first_dirty_offset: int


class _Retained(NamedTuple):
    """A record that is kept, and whether it is a tombstone."""

    record: Record
    is_tombstone: bool


def clean(
    log: Log, first_dirty_offset: int, *, before_replacing: Callable[[], None] = lambda: None
) -> CleanResult | None:
    """Compact a log. Returns None without compacting if too little of it is dirty. Calls `before_replacing` before it
    rewrites the first segment.

    Runs on the cleaner's thread and holds the log's lock only to swap the result in. Raises OSError,
    KafkaStorageError, CorruptRecordError, and any error of `before_replacing`.
    """
    wall_ms = log.clock.wall_ms()
    segments = _cleanable(log, wall_ms)
    if not segments:
        return None
    following = log.segments[log.segments.index(segments[-1]) + 1].base_offset
    dirty_bytes = sum(each.size_bytes for each in segments if each.base_offset >= first_dirty_offset)
    total_bytes = sum(each.size_bytes for each in segments)
    if not dirty_bytes:
        return None
    if dirty_bytes / total_bytes < log.config.min_cleanable_dirty_ratio and not _is_overdue(
        log, segments, first_dirty_offset, wall_ms
    ):
        return None
    before_replacing()
    # A transaction that begins in these segments may have its marker in the active one.
    aborted = [entry for segment in log.segments for entry in segment.transaction_index.entries]
    rules = _Rules(_last_offsets(segments, first_dirty_offset, aborted), CleanedTransactions(aborted), wall_ms)
    bytes_after = 0
    for group in _groups(segments, log.config.segment_bytes):
        cleaned = _write_group(log, group, rules)
        bytes_after += cleaned.stat().st_size
        _swap(log, group, cleaned)
    return CleanResult(total_bytes, bytes_after, following)


def _cleanable(log: Log, wall_ms: int) -> list[LogSegment]:
    """The segments before the active one that are old enough, and whose transactions have all ended."""
    found = []
    lag_ms = log.config.min_compaction_lag_ms
    last_stable_offset = log.last_stable_offset
    for segment, after in itertools.pairwise(log.segments):
        is_young = lag_ms > 0 and wall_ms - segment.max_timestamp.timestamp < lag_ms
        if after.base_offset > last_stable_offset or is_young:
            break
        found.append(segment)
    return found


def _is_overdue(log: Log, segments: Iterable[LogSegment], first_dirty_offset: int, wall_ms: int) -> bool:
    """Whether a record has been uncompacted for longer than `max.compaction.lag.ms` (KIP-354)."""
    earliest = next(each for each in segments if each.base_offset >= first_dirty_offset)
    return 0 <= earliest.first_timestamp() < wall_ms - log.config.max_compaction_lag_ms


def _batches(segment: LogSegment) -> Iterator[RecordBatch]:
    for found in segment.batches():
        yield RecordBatch(bytearray(segment.read_batch(found)))


def _last_offsets(
    segments: Iterable[LogSegment], first_dirty_offset: int, aborted: Iterable[AbortedTransaction]
) -> dict[bytes, int]:
    """The last offset of each key that occurs at or after `first_dirty_offset`, outside aborted transactions."""
    offsets: dict[bytes, int] = {}
    transactions = CleanedTransactions(aborted)
    for segment in segments:
        if segment.base_offset < first_dirty_offset:
            continue
        for batch in _batches(segment):
            if batch.is_control:
                transactions.is_obsolete(batch)
            elif not transactions.is_aborted(batch):
                offsets.update(
                    (bytes(record.key), record.offset) for record in batch.records() if record.key is not None
                )
    return offsets


def _groups(segments: list[LogSegment], segment_bytes: int) -> Iterator[list[LogSegment]]:
    """Group adjacent segments that together fit in one segment. Each group becomes one segment."""
    group: list[LogSegment] = []
    size_bytes = 0
    for segment in segments:
        if group and (
            size_bytes + segment.size_bytes > segment_bytes
            or not group[0].offset_index.can_append_offset(segment.next_offset())
        ):
            yield group
            group, size_bytes = [], 0
        group.append(segment)
        size_bytes += segment.size_bytes
    if group:
        yield group


class _LastOfProducers(NamedTuple):
    """Each producer with the offset of its last batch, and those without a batch, with their epochs."""

    offsets: set[tuple[int, int]]
    epochs: set[tuple[int, int]]


class _Rules(NamedTuple):
    """What decides about a record: the last offset of each key, the transactions, and the time."""

    last_offsets: dict[bytes, int]
    transactions: CleanedTransactions
    wall_ms: int


def _write_group(log: Log, group: list[LogSegment], rules: _Rules) -> Path:
    """Write the retained records of a group of segments to a file beside them, and their aborted transactions to
    another."""
    with log.lock:
        # The batch with a producer's last sequence stays, even without records: duplicates are detected by it. A
        # producer without one has its epoch from a marker.
        producers = log.producers.producers.values()
        last_of_producers = _LastOfProducers(
            {(each.producer_id, each.last_offset) for each in producers},
            {(each.producer_id, each.producer_epoch) for each in producers if not each.batches},
        )
    stem = segment_name(group[0].base_offset)
    path = log.directory / f"{stem}.log{CLEANED_SUFFIX}"
    rules.transactions.retained = []
    try:
        with path.open("wb") as file:
            for segment in group:
                for batch in _batches(segment):
                    kept = _filter(batch, rules, last_of_producers, log.config.delete_retention_ms)
                    if kept is not None:
                        file.write(kept)
            file.flush()
            os.fsync(file.fileno())
        write_index(log.directory / f"{stem}.txnindex{CLEANED_SUFFIX}", rules.transactions.retained)
    except BaseException:
        # On a full disk, half a segment should not take up space.
        path.unlink(missing_ok=True)
        raise
    return path


def _filter(
    batch: RecordBatch, rules: _Rules, last_of_producers: _LastOfProducers, delete_retention_ms: int
) -> bytes | bytearray | memoryview | None:
    """The batch reduced to its retained records; None if nothing is retained."""
    last_offsets, transactions, wall_ms = rules
    horizon_ms = batch.delete_horizon_ms
    if batch.is_control:
        if not transactions.is_obsolete(batch):
            return batch.buffer
        if batch.count and horizon_ms is None:
            return _rebuild(batch, list(batch.records()), wall_ms + delete_retention_ms)
        if batch.count and horizon_ms is not None and horizon_ms > wall_ms:
            return batch.buffer
        is_last = (batch.producer_id, batch.producer_epoch) in last_of_producers.epochs
        return _rebuild(batch, [], None) if is_last else None
    is_aborted = transactions.is_aborted(batch)
    records = list(batch.records())
    retained = [
        _Retained(record, record.value is None)
        for record in records
        if not is_aborted and record.key is not None and last_offsets.get(bytes(record.key), -1) <= record.offset
    ]
    if horizon_ms is not None and horizon_ms <= wall_ms:
        retained = [each for each in retained if not each.is_tombstone]
    has_tombstones = any(each.is_tombstone for each in retained)
    if horizon_ms is None and has_tombstones:
        horizon_ms = wall_ms + delete_retention_ms
    elif len(retained) == len(records):
        return batch.buffer
    if not retained and (batch.producer_id, batch.last_offset) not in last_of_producers.offsets:
        return None
    return _rebuild(batch, [each.record for each in retained], horizon_ms if has_tombstones else None)


def _rebuild(batch: RecordBatch, records: list[Record], horizon_ms: int | None) -> bytearray:
    """The batch with only these records, at their offsets. The rest of its header is unchanged."""
    base_timestamp = batch.base_timestamp if horizon_ms is None else horizon_ms
    if horizon_ms is None and batch.attributes & DELETE_HORIZON_MASK:
        base_timestamp = records[0].timestamp if records else batch.max_timestamp
    content = bytearray()
    for record in records:
        _encode(content, record, record.offset - batch.base_offset, record.timestamp - base_timestamp)
    attributes = batch.attributes & ~DELETE_HORIZON_MASK
    if horizon_ms is not None:
        attributes |= DELETE_HORIZON_MASK
    packed: bytes | bytearray | memoryview = content
    if batch.compression is not Compression.NONE and content:
        packed = compress(batch.compression, bytes(content))
    buffer = bytearray(RECORD_BATCH_OVERHEAD) + packed
    write_header(
        buffer,
        size=len(buffer),
        base_offset=batch.base_offset,
        partition_leader_epoch=batch.partition_leader_epoch,
        attributes=attributes if content else attributes & ~COMPRESSION_MASK,
        last_offset_delta=batch.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max((record.timestamp for record in records), default=batch.max_timestamp),
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        count=len(records),
    )
    return buffer


def _varint(out: bytearray, value: int) -> None:
    rest = (value << 1) ^ (value >> 63)
    while rest >= 0x80:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)


def _sized(out: bytearray, content: bytes | memoryview | None) -> None:
    if content is None:
        _varint(out, -1)
    else:
        _varint(out, len(content))
        out += content


def _encode(out: bytearray, record: Record, offset_delta: int, timestamp_delta: int) -> None:
    body = bytearray(1)  # the record's attributes, all undefined
    _varint(body, timestamp_delta)
    _varint(body, offset_delta)
    _sized(body, record.key)
    _sized(body, record.value)
    _varint(body, len(record.headers))
    for key, value in record.headers:
        _sized(body, key.encode())
        _sized(body, value)
    _varint(out, len(body))
    out += body


def _swap(log: Log, group: list[LogSegment], cleaned: Path) -> None:
    """Replace the old segments of a group with the new file.

    From the rename to `.swap` on, the new file is authoritative: after a crash, the next start finishes the swap
    (`loader`). Readers of the old segments continue with their open descriptors and loaded indexes.
    """
    first = group[0]
    for segment in group:
        segment.load()
    swap = cleaned.with_name(cleaned.name.replace(CLEANED_SUFFIX, SWAP_SUFFIX))
    cleaned_index = cleaned.with_name(cleaned.name.replace(".log", ".txnindex"))
    index_swap = cleaned_index.with_suffix(SWAP_SUFFIX)
    with log.lock:
        if any(segment not in log.segments for segment in group):
            # Retention or truncation removed a segment first.
            cleaned.unlink()
            cleaned_index.unlink()
            return
        log.rewrites += 1
        cleaned_index.replace(index_swap)
        cleaned.replace(swap)
        # The new name must be on the disk before the names that it replaces are removed.
        sync_directory(log.directory)
        for segment in group:
            segment.delete()
        finish_index_swap(index_swap)
        swap.replace(swap.with_suffix(""))
        sync_directory(log.directory)
        replacement = LogSegment(
            log.directory,
            first.base_offset,
            index_interval_bytes=log.config.index_interval_bytes,
            max_index_bytes=log.config.segment_index_bytes,
            created_ms=first.created_ms,
        )
        replacement.recover(lambda _header: True)
        replacement.load()
        start = log.segments.index(first)
        log.segments = [*log.segments[:start], replacement, *log.segments[start + len(group) :]]
