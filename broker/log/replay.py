"""Restores the state of a log's producers, and its segments' indexes of aborted transactions, from the batches."""

from __future__ import annotations

from ...network.records.batch import RecordBatch
from .batch_header import BatchHeader
from .markers import Marker, read_marker
from .producer_state import NO_PRODUCER_ID, ProducerStateEntry, ProducerStateManager
from .segment import FoundBatch, LogSegment
from .transaction_index import AbortedTransaction

_RECALLED_BYTES = 4 * 2**20


def end_transaction(
    segment: LogSegment, header: BatchHeader, marker: Marker | None, producers: ProducerStateManager
) -> None:
    """Record a control batch of `segment`: in the producer's state and, if it aborts a transaction, in the index.

    None stands for a batch without a marker, which changes nothing.
    """
    if marker is None:
        return
    completed = producers.end_transaction(
        header.producer_id, header.producer_epoch, marker, header.base_offset, header.max_timestamp
    )
    if completed is None or not completed.is_aborted:
        return
    first_open = producers.first_open_offset()
    last_stable_offset = completed.last_offset + 1 if first_open is None else first_open
    segment.transaction_index.append(
        AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset)
    )


def recall_batches(segments: list[LogSegment], producers: ProducerStateManager) -> None:
    """Restore the batches before the last one of each producer, of which a snapshot has only the last.

    Kafka's format has no place for them, so Kafka forgets them at a restart. Here they are read from the end of the log
    (`_RECALLED_BYTES` of it), so that a batch retried across a restart is not mistaken for a gap.
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
    """The segments that contain the last `_RECALLED_BYTES`, in order, and the start position in each."""
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
    """Bring a restored producer state from its `end_offset` up to `end_offset`, from the batches' headers, and rebuild
    the indexes of aborted transactions from there on. With `takes_snapshots`, take a snapshot where each segment
    begins, as a roll does. Raises CorruptRecordError, CorruptIndexError, KafkaStorageError, OSError."""
    for segment in segments:
        segment.transaction_index.truncate_to(producers.end_offset)
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
                end_transaction(segment, header, _marker(segment, found), producers)
            else:
                producers.update(header)
            producers.end_offset = header.next_offset
    producers.end_offset = end_offset


def _marker(segment: LogSegment, found: FoundBatch) -> Marker | None:
    return read_marker(RecordBatch(segment.read_batch(found)))
