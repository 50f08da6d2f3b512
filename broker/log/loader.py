"""Load a partition's directory into a `Log`: from its files after a clean stop, otherwise by checking every batch
(Kafka's `LogLoader`)."""

from __future__ import annotations

import logging
from pathlib import Path

from ...network.clock import Clock
from ...network.protocol.errors import CorruptRecordError, KafkaStorageError, UnsupportedForMessageFormatError
from ..config.topic_config import TopicConfig
from .batch_header import HEADER_BYTES, BatchHeader, read_header
from .files import RECOVERY_POINT_FILE
from .index import CorruptIndexError
from .leader_epochs import LeaderEpochs
from .log import Log
from .producer_state import ProducerStateManager
from .replay import recall_batches, replay_producers
from .segment import LogSegment
from .transaction_index import finish_index_swap

_log = logging.getLogger(__name__)

#: Left by a compaction or a deletion that a crash interrupted. The segment itself is intact without them.
_LEFTOVERS = (".deleted", ".cleaned", ".tmp")
_SWAP = ".swap"
_INDEXES = (".index", ".timeindex", ".txnindex")


def load_log(
    directory: Path,
    topic: str,
    partition: int,
    *,
    config: TopicConfig,
    clock: Clock,
    is_clean: bool,
    recovery_point: int,
    log_start_offset: int,
    producer_id_expiration_ms: int,
) -> Log:
    """Open or create the log in `directory`.

    After an unclean stop, or if the files look damaged, nothing above `recovery_point` is trusted, because a power
    failure may have kept any part of it. Every batch is checked, and the log ends before the first batch that is
    incomplete or does not follow the previous one. Later segments, epochs and snapshots are deleted. Indexes that are
    missing or break their invariants are rebuilt. Raises OSError, KafkaStorageError, UnsupportedForMessageFormatError.

    directory: the partition's directory; created if it does not exist.
    config: the topic's configuration.
    is_clean: whether the last stop was clean.
    recovery_point: the offset below which everything is on the disk.
    log_start_offset: the first offset that may be read, from the checkpoint.
    producer_id_expiration_ms: how long a quiet idempotent producer is remembered.
    """

    def load(*, trusts_files: bool) -> Log:
        return _load(
            directory,
            topic,
            partition,
            config=config,
            clock=clock,
            is_clean=trusts_files,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            producer_id_expiration_ms=producer_id_expiration_ms,
        )

    if is_clean:
        try:
            return load(trusts_files=True)
        except (CorruptRecordError, UnsupportedForMessageFormatError) as wrong:
            _log.warning("recovering a log that is damaged despite a clean stop: %s", wrong)
    try:
        return load(trusts_files=False)
    except CorruptRecordError as wrong:
        raise KafkaStorageError(
            f"{wrong}. The damaged part had been flushed; restore the file, or remove {RECOVERY_POINT_FILE} beside "
            f"{directory} to truncate the log before the damage"
        ) from wrong


def _load(
    directory: Path,
    topic: str,
    partition: int,
    *,
    config: TopicConfig,
    clock: Clock,
    is_clean: bool,
    recovery_point: int,
    log_start_offset: int,
    producer_id_expiration_ms: int,
) -> Log:
    directory.mkdir(parents=True, exist_ok=True)
    _tidy(directory)
    epochs = LeaderEpochs(directory)
    epochs_are_lost = not epochs.entries
    producers = ProducerStateManager(directory, expiration_ms=producer_id_expiration_ms)

    def segment(base_offset: int) -> LogSegment:
        return LogSegment(
            directory,
            base_offset,
            index_interval_bytes=config.index_interval_bytes,
            max_index_bytes=config.segment_index_bytes,
            created_ms=clock.wall_ms(),
        )

    bases = sorted(int(path.stem) for path in directory.glob("*.log") if path.stem.isdigit())
    segments = [segment(base) for base in bases] or [segment(log_start_offset)]
    if is_clean:
        segments = _check(segments)
    else:
        segments = _recover(segments, epochs, recovery_point, may_have_gaps=config.is_compacted)
        # A log that was truncated and has grown again may have snapshots of both versions.
        producers.delete_snapshots(after=recovery_point)
    next_offset = segments[-1].next_offset()
    log_start_offset = min(max(log_start_offset, segments[0].base_offset), next_offset)
    if epochs_are_lost:
        _recall_epochs(epochs, segments)
    epochs.truncate_from_end(max(next_offset, 1), write=False)
    epochs.truncate_from_start(log_start_offset)
    try:
        epochs.write_out()
    except OSError as failed:
        # A full disk should not prevent reads from a broker; the next flush writes the file.
        _log.warning("can't write %s yet: %s", epochs.path, failed.strerror)
    producers.delete_snapshots(after=next_offset)
    for each in segments:
        try:
            each.transaction_index  # noqa: B018  (reads the file)
        except CorruptIndexError as wrong:
            _log.warning("rebuilding the index of aborted transactions: %s", wrong)
            each.delete_transaction_index()
            # The replay rebuilds the index from the snapshot that it begins with.
            producers.delete_snapshots(after=each.base_offset)
    producers.load_snapshot(next_offset, log_start_offset, clock.wall_ms())
    try:
        replay_producers(segments, producers, next_offset, takes_snapshots=not is_clean)
    except OSError as failed:
        _log.warning("can't write snapshots of producers in %s: %s", directory, failed.strerror)
        replay_producers(segments, producers, next_offset)
    recall_batches(segments, producers)
    return Log(
        directory,
        topic,
        partition,
        config=config,
        clock=clock,
        segments=segments,
        producers=producers,
        leader_epochs=epochs,
        log_start_offset=log_start_offset,
        next_offset=next_offset,
        recovery_point=next_offset if is_clean else min(recovery_point, next_offset),
        unflushed_directories=set() if is_clean and bases else {directory, directory.parent},
    )


def _tidy(directory: Path) -> None:
    for path in list(directory.iterdir()):
        if path.suffix in _LEFTOVERS:
            path.unlink()
    for swap in list(directory.glob(f"*.log{_SWAP}")):
        _finish_swap(directory, swap)
    for swap in list(directory.glob(f"*{_SWAP}")):
        # The index of a compaction that had not replaced its segments.
        swap.unlink()
    for path in list(directory.iterdir()):
        if path.suffix in _INDEXES and not path.with_suffix(".log").exists():
            # Its segment was deleted or never reached the disk. A new segment of the same name would load it.
            path.unlink()


def _finish_swap(directory: Path, swap: Path) -> None:
    """Finish a compaction's swap. The swap file is complete and replaces every segment that its offsets overlap."""
    base_offset = int(swap.name.partition(".")[0])
    next_offset = base_offset
    content = swap.read_bytes()
    position = 0
    while len(content) - position >= HEADER_BYTES:
        header = read_header(content, position)
        next_offset = header.next_offset
        position += header.size_bytes
    for path in list(directory.glob("*.log")):
        if base_offset <= int(path.stem) < max(next_offset, base_offset + 1):
            for suffix in (".log", ".index", ".timeindex", ".txnindex"):
                path.with_suffix(suffix).unlink(missing_ok=True)
    index_swap = swap.with_name(swap.name.replace(".log", ".txnindex"))
    if index_swap.exists():
        finish_index_swap(index_swap)
    swap.replace(swap.with_suffix(""))


def _check(segments: list[LogSegment]) -> list[LogSegment]:
    """The segments of a cleanly stopped log. Indexes that break their invariants are rebuilt."""
    for number, segment in enumerate(segments):
        if _needs_rebuild(segment) and segment.recover(lambda _header: True):
            _cut(segments, number + 1, "it follows an incomplete batch")
            return segments[: number + 1]
    return segments


def _needs_rebuild(segment: LogSegment) -> bool:
    try:
        segment.sanity_check()
    except CorruptIndexError as wrong:
        _log.warning("rebuilding the indexes of %s: %s", segment.log.path, wrong)
        return True
    return False


def _recover(
    segments: list[LogSegment], epochs: LeaderEpochs, recovery_point: int, *, may_have_gaps: bool
) -> list[LogSegment]:
    """The segments that remain of a log after an unclean stop, at least one.

    `may_have_gaps`: whether offsets may be missing within a segment, as in a compacted log and its copies. Between two
    segments above the recovery point no offset may be missing.
    """
    # A segment that ends at the recovery point may have been truncated there, and still have its old tail.
    flushed = sum(segment.base_offset < recovery_point for segment in segments[1:])
    kept = _check(segments[:flushed])
    if len(kept) < flushed:
        _cut(segments, flushed, "it follows an incomplete batch")
        return kept
    # The checkpoint file may be older or newer than the batches, and each batch carries its epoch.
    epochs.truncate_from_end(segments[flushed].base_offset, write=False)
    next_offset = segments[flushed].base_offset

    def accepts(header: BatchHeader) -> bool:
        nonlocal next_offset
        if header.base_offset > max(next_offset, recovery_point) and not may_have_gaps:
            return False
        if 0 <= header.partition_leader_epoch < epochs.latest_epoch:
            # The old tail of a truncated log, behind the beginning of its replacement.
            return False
        epochs.assign(header.partition_leader_epoch, header.base_offset, write=False)
        next_offset = header.next_offset
        return True

    for number, segment in enumerate(segments[flushed:], flushed):
        if segment.base_offset != next_offset:
            _cut(segments, number, f"the segment before it ends at {next_offset}")
            return segments[:number]
        cut_bytes = segment.recover(accepts)
        if cut_bytes:
            _log.warning("truncated %d bytes that don't continue the log at the end of %s", cut_bytes, segment.log.path)
            _cut(segments, number + 1, "it follows the truncated segment")
            return segments[: number + 1]
    return segments


def _cut(segments: list[LogSegment], number: int, why: str) -> None:
    doomed = segments[number:]
    if doomed:
        _log.warning("deleting %s and %d segments after it: %s", doomed[0].log.path, len(doomed) - 1, why)
    for segment in doomed:
        segment.delete()


def _recall_epochs(epochs: LeaderEpochs, segments: list[LogSegment]) -> None:
    """Rebuild a lost epoch file from the batches' headers."""
    epochs.truncate_from_end(0, write=False)
    for segment in segments:
        for found in segment.batches():
            epochs.assign(found.header.partition_leader_epoch, found.header.base_offset, write=False)
