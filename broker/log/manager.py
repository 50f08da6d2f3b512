"""All logs of one broker (Kafka's `LogManager`)."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from ...network.clock import Clock
from ...network.protocol.errors import CorruptRecordError, InconsistentTopicIdError, KafkaError, KafkaStorageError
from ...network.protocol.other_errors import LogDirNotFoundError
from ...network.repeats import Repeats
from ..config.topic_config import TopicConfig
from ..scheduler import Scheduler
from .cleaner import clean
from .files import (
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    read_topic_id,
    write_topic_id,
)
from .loader import load_log
from .log import Log
from .log_directory import LogDirectory, Partition
from .log_move import LogMove

_log = logging.getLogger(__name__)


class LogManager:
    """Loads, creates, deletes, moves, flushes and checkpoints logs.

    `lock` guards the table of logs, never a log itself. It is acquired before a log's own lock, never after it. Reading
    the table needs no lock.

    directories: the log directories (`log.dirs`).
    clock: the time of appends, flushes, retention and expiration.
    cluster_id, node_id: the owner of the directories, checked against their `meta.properties`.
    config_of: returns a topic's configuration.
    producer_id_expiration_ms: how long a quiet idempotent producer is remembered.
    """

    def __init__(
        self,
        directories: Sequence[Path],
        *,
        clock: Clock,
        cluster_id: str,
        node_id: int,
        config_of: Callable[[str], TopicConfig],
        producer_id_expiration_ms: int,
    ) -> None:
        self.directories = tuple(map(LogDirectory, directories))
        self.clock = clock
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.config_of = config_of
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.lock = threading.RLock()
        #: Changed under the lock. To go over it without the lock, copy it: a list of its items can meet the garbage
        #: collector, and with it other threads, in the middle.
        self.logs: dict[Partition, Log] = {}
        #: Directories chosen for replicas that do not exist yet (AlterReplicaLogDirs).
        self._wanted: dict[Partition, LogDirectory] = {}
        self.moves: dict[Partition, LogMove] = {}
        self._uncleanable: set[Partition] = set()
        self._repeats = Repeats()

    # --- Start and stop ---

    def load(self) -> None:
        """Load every partition directory. Raises InconsistentClusterIdError, KafkaConfigurationError,
        KafkaStorageError.

        The directories stay locked for this broker until `release`, or are released if loading fails.
        """
        try:
            for directory in self.directories:
                self._load_directory(directory)
        except BaseException:
            self.release()
            raise

    def _load_directory(self, directory: LogDirectory) -> None:
        try:
            for partition, path in directory.open(self.cluster_id, self.node_id):
                config = self.config_of(partition[0])
                log = self._load(partition, path, directory, config, is_clean=directory.was_stopped_cleanly)
                known = self.logs.get(partition)
                if known is not None:
                    # A crash interrupted its move between directories; both copies are complete.
                    log = max(known, log, key=lambda each: each.end.offset)
                    other = path if log is known else known.directory
                    _log.warning("%r is also in %s; deleting that copy", log, other)
                    self.directory_of(other).doom(other, partition)
                self.logs[partition] = log
            watermarks = directory.checkpoints[HIGH_WATERMARK_FILE]
            for partition, log in self._logs_in(directory).items():
                log.advance_high_watermark(watermarks.get(partition, 0))
        except OSError as failed:
            raise KafkaStorageError(f"can't load {directory.path}: {failed}; repair the data directory") from failed

    def _load(
        self, partition: Partition, path: Path, directory: LogDirectory, config: TopicConfig, *, is_clean: bool
    ) -> Log:
        topic, number = partition
        log = load_log(
            path,
            topic,
            number,
            config=config,
            clock=self.clock,
            is_clean=is_clean,
            recovery_point=directory.checkpoints[RECOVERY_POINT_FILE].get(partition, 0),
            log_start_offset=directory.checkpoints[LOG_START_OFFSET_FILE].get(partition, 0),
            producer_id_expiration_ms=self.producer_id_expiration_ms,
        )
        # A bound method, not a closure over the log: a cycle would keep a deleted log's files open.
        log.on_recovery_point_lowered = self._checkpoint_recovery_point
        return log

    def release(self) -> None:
        """Close every file and release the directories for other brokers. May be called again.

        Called once all threads that use a log have ended. A broker is a cycle of objects, so without this thousands of
        descriptors would stay open until the garbage collector runs.
        """
        for log in self.logs.values():
            for segment in log.segments:
                segment.log.close()
        for directory in self.directories:
            directory.release()

    def close(self) -> None:
        """Flush and close every log, then leave the markers of a clean stop. Raises KafkaStorageError."""
        with self.lock:
            unclean: set[LogDirectory] = set()
            for log in self.logs.values():
                try:
                    log.flush()
                    log.close()
                except (KafkaError, OSError):
                    _log.exception("%r could not be closed and will be checked at the next start", log)
                    unclean.add(self.directory_of(log.directory))
            self.remove_doomed()
            for directory in self.directories:
                try:
                    self._checkpoint_all(directory)
                    if directory not in unclean:
                        directory.mark_clean_stop()
                except OSError as failed:
                    raise KafkaStorageError(f"can't write to {directory.path}: {failed.strerror}") from failed

    def schedule(
        self,
        scheduler: Scheduler,
        *,
        retention_ms: int,
        flush_ms: int,
        recovery_point_ms: int,
        log_start_ms: int,
        high_watermark_ms: int,
    ) -> None:
        """Schedule the periodic jobs on the broker's scheduler. The periods are Kafka's
        `log.retention.check.interval.ms` etc."""
        for name, job, period_ms in (
            ("log-retention", self.delete_old_segments, retention_ms),
            ("log-flusher", self.flush_dirty, flush_ms),
            ("recovery-points", lambda: self._checkpoint(RECOVERY_POINT_FILE), recovery_point_ms),
            ("log-starts", lambda: self._checkpoint(LOG_START_OFFSET_FILE), log_start_ms),
            ("high-watermarks", lambda: self._checkpoint(HIGH_WATERMARK_FILE), high_watermark_ms),
        ):
            scheduler.schedule(name, job, delay_ms=period_ms, period_ms=period_ms)

    # --- Directories ---

    def directory_of(self, path: Path) -> LogDirectory:
        """The log directory that contains a log's own directory."""
        return next(each for each in self.directories if each.path == path.parent)

    def find_directory(self, path: str) -> LogDirectory:
        """The directory of `log.dirs` with this path. Raises LogDirNotFoundError."""
        for directory in self.directories:
            if str(directory.path) == path or directory.path == Path(path):
                return directory
        known = ", ".join(str(each.path) for each in self.directories)
        raise LogDirNotFoundError(f"broker {self.node_id} has no log directory {path!r}; it has {known}")

    def _logs_in(self, directory: LogDirectory) -> dict[Partition, Log]:
        return {key: log for key, log in self.logs.copy().items() if log.directory.parent == directory.path}

    def _place(self, partition: Partition) -> LogDirectory:
        """The directory for a new log: the one requested for it, or the one with the fewest logs."""
        wanted = self._wanted.pop(partition, None)
        if wanted is not None or len(self.directories) == 1:
            return wanted or self.directories[0]
        return min(self.directories, key=lambda each: len(self._logs_in(each)))

    def move(self, partition: Partition, target: LogDirectory) -> LogMove | None:
        """Move a log to another directory, or create it there if it does not exist yet. Cancels a move to a different
        directory. Returns the new move if there are steps to take, else None."""
        with self.lock:
            log = self.logs.get(partition)
            going = self.moves.get(partition)
            if log is None:
                self._wanted[partition] = target
                return None
            if going is not None:
                if going.target is target:
                    return None
                self._end_move(partition)
            if self.directory_of(log.directory) is target:
                return None
            move = self.moves[partition] = LogMove(log, self.directory_of(log.directory), target)
            return move

    def continue_move(self, partition: Partition, move: LogMove, max_bytes: int) -> int:
        """Copy up to `max_bytes` more, and put the log in its new place once everything is copied. Returns the bytes
        copied; 0 if the move has ended. Raises KafkaStorageError."""
        if self.moves.get(partition) is not move:
            return 0
        try:
            copied = move.copy(max_bytes)
            if copied:
                return copied
            with self.lock:
                if self.moves.get(partition) is not move:
                    return 0
                # The target's checkpoints have the log's bounds before the log is there.
                logs = {**self._logs_in(move.target), partition: move.log}
                for name in (RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, HIGH_WATERMARK_FILE):
                    move.target.write_checkpoint(name, logs)
                if move.finish():
                    del self.moves[partition]
                    return 0
            return 1
        except OSError as failed:
            with self.lock:
                self._end_move(partition)
            raise KafkaStorageError(f"can't move {move.log!r} to {move.target.path}: {failed.strerror}") from failed

    def _end_move(self, partition: Partition) -> None:
        move = self.moves.pop(partition, None)
        if move is not None:
            move.abandon()

    # --- Logs ---

    @property
    def last_producer_id(self) -> int:
        """The largest producer id in any log's producer state; -1 if there is none."""
        return max((each for log in self.logs.copy().values() for each in log.producers.producers), default=-1)

    def get_or_create(self, topic: str, partition: int, topic_id: uuid.UUID, config: TopicConfig) -> Log:
        """The partition's log, created if needed. Raises InconsistentTopicIdError, KafkaStorageError."""
        with self.lock:
            key = (topic, partition)
            log = self.logs.get(key)
            directory = self._place(key) if log is None else self.directory_of(log.directory)
            try:
                if log is None:
                    directory.forget(key, self._logs_in(directory))
                    path = directory.path / f"{topic}-{partition}"
                    log = self.logs[key] = self._load(key, path, directory, config, is_clean=True)
                known = read_topic_id(log.directory)
                if known is None:
                    write_topic_id(log.directory, topic_id)
                elif known != topic_id:
                    raise InconsistentTopicIdError(
                        f"{log.directory} belongs to the topic id {known}, not to {topic_id}"
                    )
            except OSError as failed:
                raise KafkaStorageError(
                    f"can't create {directory.path / f'{topic}-{partition}'}: {failed.strerror}; "
                    "free space or repair the data directory"
                ) from failed
            return log

    def of_topics(self, topic_ids: Collection[uuid.UUID]) -> list[Partition]:
        """The logs of these topics, by the topic ids in their directories. Raises KafkaStorageError, OSError."""
        return [key for key, log in self.logs.copy().items() if topic_ids and read_topic_id(log.directory) in topic_ids]

    def delete(self, topic: str, partition: int) -> Path | None:
        """Remove the partition's log from the table and rename its directory, which is returned for `remove_doomed`.
        Raises KafkaStorageError."""
        key = (topic, partition)
        with self.lock:
            log = self.logs.pop(key, None)
            self._uncleanable.discard(key)
            self._wanted.pop(key, None)
            self._end_move(key)
            if log is None:
                return None
            directory = self.directory_of(log.directory)
            directory.cleaner_offsets.pop(key, None)
            with log.lock:
                log.is_closed = True
                try:
                    return directory.doom(log.directory, key)
                except OSError as failed:
                    raise KafkaStorageError(f"can't delete {log.directory}: {failed.strerror}") from failed

    def flush_deletions(self) -> None:
        """Fsync the directories, so that deletions survive a power failure. Raises KafkaStorageError."""
        for directory in self.directories:
            directory.flush_names()

    def remove_doomed(self, doomed: Iterable[Path] | None = None) -> None:
        """Remove these directories of deleted partitions, or all of them."""
        for directory in self.directories:
            directory.remove_doomed(doomed)

    def delete_old_segments(self) -> int:
        """Apply retention to every log; returns the number of segments deleted."""
        return sum(self._each("its old segments can't be deleted", lambda log: log.delete_old_segments()))

    def _each(self, trouble: str, job: Callable[[Log], int]) -> list[int]:
        """Run a job on every log. A failure is logged and doesn't stop the other logs' jobs."""
        results = []
        for log in self.logs.copy().values():
            try:
                results.append(job(log))
            except (KafkaError, OSError) as failed:
                if not log.is_closed:
                    _log.warning("%r: %s: %s", log, trouble, failed)
        return results

    def clean_logs(self) -> int:
        """Compact the logs of topics with the compact policy. Returns the number compacted. Raises OSError.

        A damaged log is skipped until the broker restarts. Disk errors are retried in the next round.
        """
        cleaned: set[LogDirectory] = set()
        count = 0
        for key, log in self.logs.copy().items():
            if not log.config.is_compacted or key in self._uncleanable:
                continue
            directory = self.directory_of(log.directory)
            try:
                result = clean(
                    log,
                    directory.cleaner_offsets.get(key, 0),
                    before_replacing=lambda key=key, log=log: self._flush_for_cleaning(key, log),
                )
            except (CorruptRecordError, KafkaStorageError, OSError) as failed:
                if log.is_closed:
                    # Deleted in the meantime, so nothing is left to compact.
                    continue
                level = self._repeats.level(key, logging.WARNING, self.clock.now_ms())
                _log.log(level, "%r can't be compacted: %s", log, failed)
                if isinstance(failed, CorruptRecordError):
                    self._uncleanable.add(key)
                continue
            if result is not None:
                _log.info("compacted %r from %d to %d bytes", log, result.bytes_before, result.bytes_after)
                directory.cleaner_offsets[key] = result.first_dirty_offset
                cleaned.add(directory)
                count += 1
        for directory in cleaned:
            directory.write_cleaner_offsets()
        return count

    def _flush_for_cleaning(self, key: Partition, log: Log) -> None:
        """Move the recovery point on the disk past everything that is compacted: above it, a gap in a log means lost
        records. Raises OSError, KafkaStorageError."""
        end = log.segments[-1].base_offset
        if log.recovery_point < end:
            log.flush()
        directory = self.directory_of(log.directory)
        if directory.checkpoints[RECOVERY_POINT_FILE].get(key, 0) < end:
            directory.write_checkpoint(RECOVERY_POINT_FILE, self._logs_in(directory))

    def flush_dirty(self) -> None:
        """Flush the logs whose `flush.ms` has passed."""
        now_ms = self.clock.now_ms()

        def flush(log: Log) -> int:
            is_due = log.recovery_point < log.end.offset and now_ms - log.last_flush_ms >= log.config.flush_ms
            if is_due:
                log.flush()
            return is_due

        self._each("it can't be flushed", flush)

    def expire_producers(self) -> None:
        """Forget idempotent producers that wrote nothing for `producer.id.expiration.ms`."""
        wall_ms = self.clock.wall_ms()
        for log in self.logs.copy().values():
            with log.lock:
                log.producers.expire(wall_ms)

    def checkpoint(self) -> None:
        """Write the recovery point, start offset and high watermark of every log. Raises OSError."""
        for directory in self.directories:
            self._checkpoint_all(directory)

    def _checkpoint_all(self, directory: LogDirectory) -> None:
        logs = self._logs_in(directory)
        for name in (RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, HIGH_WATERMARK_FILE):
            directory.write_checkpoint(name, logs)

    def _checkpoint(self, name: str) -> None:
        for directory in self.directories:
            directory.write_checkpoint(name, self._logs_in(directory))

    def _checkpoint_recovery_point(self, log: Log) -> None:
        """Called by a log, with its lock held. Raises OSError."""
        directory = self.directory_of(log.directory)
        directory.write_checkpoint(RECOVERY_POINT_FILE, self._logs_in(directory))
