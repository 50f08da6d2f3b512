"""All logs of one broker's data directory (Kafka's `LogManager`)."""

from __future__ import annotations

import logging
import shutil
import threading
import uuid
from collections.abc import Callable, Collection
from pathlib import Path

from ...network.clock import Clock
from ...network.protocol.errors import (
    CorruptRecordError,
    InconsistentClusterIdError,
    InconsistentTopicIdError,
    KafkaConfigurationError,
    KafkaError,
    KafkaStorageError,
)
from ...network.repeats import Repeats
from ..config.topic_config import TopicConfig
from ..scheduler import Scheduler
from .cleaner import clean
from .files import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    META_PROPERTIES_FILE,
    RECOVERY_POINT_FILE,
    CorruptCheckpointError,
    DirectoryLock,
    encode_uuid,
    read_offsets,
    read_properties,
    read_topic_id,
    replace_file,
    sync_directory,
    write_offsets,
    write_properties,
    write_topic_id,
)
from .loader import load_log
from .log import Log

_log = logging.getLogger(__name__)

DELETE_SUFFIX = "-delete"
#: Kafka's own metadata log, which is not a topic of this broker.
_NOT_TOPICS = ("__cluster_metadata",)

Partition = tuple[str, int]


class LogManager:
    """Loads, makes, deletes, flushes and checkpoints logs; writes the clean shutdown marker.

    `lock` guards the table of logs, never a log itself; it is taken before a log's own lock, not after. Reading the
    table needs no lock. `_checkpoint_lock` is for the writing of checkpoints, and taken last.

    Invariant: no checkpoint file tells of a log that was deleted, once there is another of that name. It would hide
    the new one's records after a crash, or have them pass unchecked.
    """

    def __init__(
        self,
        directory: Path,
        *,
        clock: Clock,
        cluster_id: str,
        node_id: int,
        config_of: Callable[[str], TopicConfig],
        producer_id_expiration_ms: int,
    ) -> None:
        self.directory = directory
        self.clock = clock
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.config_of = config_of
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.lock = threading.RLock()
        self.logs: dict[Partition, Log] = {}
        self.directory_id = ""
        self._checkpoint_lock = threading.Lock()
        #: What the checkpoint files say, by file.
        self._checkpoints: dict[str, dict[Partition, int]] = {}
        self._doomed: list[Path] = []
        self._cleaner_offsets: dict[Partition, int] = {}
        self._uncleanable: set[Partition] = set()
        self._repeats = Repeats()
        self._is_clean = False
        self._directory_lock: DirectoryLock | None = None

    # Start and stop

    def load(self) -> None:
        """Load every partition directory. Raises InconsistentClusterIdError, KafkaStorageError.

        The directory is this broker's until `release`, unless that fails.
        """
        try:
            self._load_all()
        except BaseException:
            self.release()
            raise

    def _load_all(self) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._directory_lock = DirectoryLock(self.directory)
            self._check_meta_properties()
            for name in (RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, HIGH_WATERMARK_FILE):
                self._checkpoints[name] = self._read_offsets(name)
            self._cleaner_offsets = self._read_offsets(CLEANER_OFFSET_FILE)
            marker = self.directory / CLEAN_SHUTDOWN_FILE
            self._is_clean = marker.exists()
            if self._is_clean:
                # From here on a crash must not look like a clean stop.
                marker.unlink()
                sync_directory(self.directory)
            for path in sorted(self.directory.iterdir()):
                if not path.is_dir():
                    continue
                if path.name.endswith(DELETE_SUFFIX):
                    shutil.rmtree(path)
                    continue
                partition = parse_directory_name(path.name)
                if partition is not None:
                    self._load(partition, self.config_of(partition[0]))
        except OSError as failed:
            raise KafkaStorageError(f"can't load {self.directory}: {failed}; repair the data directory") from failed
        for partition, offset in self._checkpoints[HIGH_WATERMARK_FILE].items():
            log = self.logs.get(partition)
            if log is not None:
                log.advance_high_watermark(offset)

    def _load(self, partition: Partition, config: TopicConfig) -> Log:
        topic, number = partition
        log = load_log(
            self.directory / f"{topic}-{number}",
            topic,
            number,
            config=config,
            clock=self.clock,
            is_clean=self._is_clean,
            recovery_point=self._checkpoints[RECOVERY_POINT_FILE].get(partition, 0),
            log_start_offset=self._checkpoints[LOG_START_OFFSET_FILE].get(partition, 0),
            producer_id_expiration_ms=self.producer_id_expiration_ms,
        )
        log.on_recovery_point_lowered = self.checkpoint
        self.logs[partition] = log
        return log

    def _check_meta_properties(self) -> None:
        path = self.directory / META_PROPERTIES_FILE
        known = read_properties(path)
        if known is not None:
            if known.get("cluster.id", self.cluster_id) != self.cluster_id:
                raise InconsistentClusterIdError(
                    f"{self.directory} belongs to the cluster {known['cluster.id']}, not to {self.cluster_id}"
                )
            if known.get("node.id", str(self.node_id)) != str(self.node_id):
                raise KafkaConfigurationError(
                    f"{self.directory} belongs to the broker {known['node.id']}, not to "
                    f"{self.node_id}; set node.id to it"
                )
            self.directory_id = known.get("directory.id", "")
            return
        self.directory_id = encode_uuid(uuid.uuid4())
        write_properties(
            path,
            {
                "version": "1",
                "cluster.id": self.cluster_id,
                "node.id": str(self.node_id),
                "directory.id": self.directory_id,
            },
        )

    def _read_offsets(self, name: str) -> dict[Partition, int]:
        try:
            return read_offsets(self.directory / name)
        except CorruptCheckpointError as wrong:
            _log.warning("%s; every log is checked from its start", wrong)
            return {}

    def release(self) -> None:
        """Let another broker have the directory. Any number of times."""
        lock, self._directory_lock = self._directory_lock, None
        if lock is not None:
            lock.release()

    def close(self) -> None:
        """Flush and close every log, then leave the marker that says so. Raises KafkaStorageError."""
        is_clean = True
        with self.lock:
            for log in self.logs.values():
                try:
                    log.flush()
                    log.close()
                except (KafkaError, OSError):
                    _log.exception("%r could not be closed; it is checked at the next start", log)
                    is_clean = False
            self.delete_doomed()
            try:
                self.checkpoint()
                if is_clean:
                    replace_file(self.directory / CLEAN_SHUTDOWN_FILE, b'{"version":1}')
            except OSError as failed:
                raise KafkaStorageError(f"can't write to {self.directory}: {failed.strerror}") from failed

    def schedule(self, scheduler: Scheduler, *, retention_ms: int, flush_ms: int, checkpoint_ms: int) -> None:
        """Hand the periodic jobs to the broker's scheduler; the periods are Kafka's log.retention.check.interval.ms
        etc."""
        scheduler.schedule("log-retention", self.delete_old_segments, delay_ms=retention_ms, period_ms=retention_ms)
        scheduler.schedule("log-flusher", self.flush_dirty, delay_ms=flush_ms, period_ms=flush_ms)
        scheduler.schedule(
            "recovery-point-checkpoint", self.checkpoint, delay_ms=checkpoint_ms, period_ms=checkpoint_ms
        )

    # Logs

    @property
    def last_producer_id(self) -> int:
        """The largest id of any producer that a log remembers; -1: none."""
        return max((each for log in self.logs.values() for each in log.producers.producers), default=-1)

    def get_or_create(self, topic: str, partition: int, topic_id: uuid.UUID, config: TopicConfig) -> Log:
        """The partition's log, made where there is none. Raises InconsistentTopicIdError, KafkaStorageError."""
        with self.lock:
            log = self.logs.get((topic, partition))
            try:
                if log is None:
                    self._is_clean = True
                    self._forget_checkpoints((topic, partition))
                    log = self._load((topic, partition), config)
                known = read_topic_id(log.directory)
                if known is None:
                    write_topic_id(log.directory, topic_id)
                elif known != topic_id:
                    raise InconsistentTopicIdError(
                        f"{log.directory} belongs to the topic id {known}, not to {topic_id}"
                    )
            except OSError as failed:
                raise KafkaStorageError(
                    f"can't make {self.directory / f'{topic}-{partition}'}: {failed.strerror}; "
                    "free space or repair the data directory"
                ) from failed
            return log

    def of_topics(self, topic_ids: Collection[uuid.UUID]) -> list[Partition]:
        """The logs of these topics, by the ids that their directories have. Raises KafkaStorageError, OSError."""
        return [key for key, log in self.logs.items() if topic_ids and read_topic_id(log.directory) in topic_ids]

    def delete(self, topic: str, partition: int) -> Path | None:
        """Take the partition's log away at once; its directory, renamed, is removed by `delete_doomed`."""
        with self.lock:
            log = self.logs.pop((topic, partition), None)
            self._cleaner_offsets.pop((topic, partition), None)
            self._uncleanable.discard((topic, partition))
            if log is None:
                return None
            with log.lock:
                log.is_closed = True
                doomed = self.directory / f"{topic[:150]}-{partition}.{uuid.uuid4().hex}{DELETE_SUFFIX}"
                try:
                    log.directory.rename(doomed)
                except OSError as failed:
                    raise KafkaStorageError(f"can't delete {log.directory}: {failed.strerror}") from failed
            self._doomed.append(doomed)
            return doomed

    def flush_deletions(self) -> None:
        """Have it on the disk that logs were deleted, or one whose machine loses its power would come back. Raises
        KafkaStorageError."""
        try:
            sync_directory(self.directory)
        except OSError as failed:
            raise KafkaStorageError(f"can't flush {self.directory}: {failed.strerror}") from failed

    def delete_doomed(self) -> None:
        """Remove the directories of deleted partitions. Raises OSError."""
        with self.lock:
            doomed, self._doomed = self._doomed, []
        for path in doomed:
            shutil.rmtree(path, ignore_errors=True)

    def delete_old_segments(self) -> int:
        """Apply retention to every log; returns the number of segments deleted."""
        return sum(self._each("its old segments can't be deleted", lambda log: log.delete_old_segments()))

    def _each(self, trouble: str, job: Callable[[Log], int]) -> list[int]:
        """Do a job to every log: one that fails is told of, and doesn't keep the others from theirs."""
        results = []
        for log in list(self.logs.values()):
            try:
                results.append(job(log))
            except (KafkaError, OSError) as failed:
                if not log.is_closed:
                    _log.warning("%r: %s: %s", log, trouble, failed)
        return results

    def clean_logs(self) -> int:
        """Compact the logs whose topics ask for it; returns how many were. Raises OSError.

        One that is damaged is left alone until the broker is started again; what the disk refuses is tried again.
        """
        cleaned = 0
        for key, log in list(self.logs.items()):
            if not log.config.is_compacted or key in self._uncleanable:
                continue
            try:
                result = clean(
                    log,
                    self._cleaner_offsets.get(key, 0),
                    before_replacing=lambda key=key, log=log: self._flush_for_cleaning(key, log),
                )
            except (CorruptRecordError, KafkaStorageError, OSError) as failed:
                if log.is_closed:
                    # Deleted in the meantime, so there is nothing left to compact.
                    continue
                level = self._repeats.level(key, logging.WARNING, self.clock.now_ms())
                _log.log(level, "%r can't be compacted: %s", log, failed)
                if isinstance(failed, CorruptRecordError):
                    self._uncleanable.add(key)
                continue
            if result is not None:
                _log.info("compacted %r from %d to %d bytes", log, result.bytes_before, result.bytes_after)
                self._cleaner_offsets[key] = result.first_dirty_offset
                cleaned += 1
        if cleaned:
            write_offsets(self.directory / CLEANER_OFFSET_FILE, self._cleaner_offsets)
        return cleaned

    def _flush_for_cleaning(self, key: Partition, log: Log) -> None:
        """Have the recovery point on the disk past all that is compacted: above it a gap in a log means that something
        was lost. Raises OSError, KafkaStorageError."""
        end = log.active_segment.base_offset
        if log.recovery_point < end:
            log.flush()
        if self._checkpoints[RECOVERY_POINT_FILE].get(key, 0) < end:
            self.checkpoint()

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
        """Forget idempotent producers that have been quiet for long."""
        wall_ms = self.clock.wall_ms()
        for log in list(self.logs.values()):
            with log.lock:
                log.producers.expire(wall_ms)

    def checkpoint(self) -> None:
        """Write where each log is flushed up to, where it starts, and its high watermark. Raises OSError."""
        with self._checkpoint_lock:
            self._write_checkpoints()

    def _write_checkpoints(self) -> None:
        logs = dict(self.logs)
        starts = {
            key: log.log_start_offset for key, log in logs.items() if log.log_start_offset > log.segments[0].base_offset
        }
        for name, offsets in (
            (RECOVERY_POINT_FILE, {key: log.recovery_point for key, log in logs.items()}),
            (LOG_START_OFFSET_FILE, starts),
            (HIGH_WATERMARK_FILE, {key: log.high_watermark for key, log in logs.items()}),
        ):
            write_offsets(self.directory / name, offsets)
            self._checkpoints[name] = offsets

    def _forget_checkpoints(self, partition: Partition) -> None:
        """Before a log is made: what is known of a deleted one of that name doesn't hold for it. Raises OSError."""
        with self._checkpoint_lock:
            if any(partition in offsets for offsets in self._checkpoints.values()):
                self._write_checkpoints()


def parse_directory_name(name: str) -> Partition | None:
    """The topic and partition that a directory is named for; None for any other directory."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isdigit() or topic in _NOT_TOPICS:
        return None
    return topic, int(number)
