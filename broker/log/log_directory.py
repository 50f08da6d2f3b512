"""One directory of logs: its owner, and the checkpoint files beside the logs."""

from __future__ import annotations

import logging
import shutil
import threading
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from ...network.protocol.errors import KafkaConfigurationError, KafkaStorageError
from ...network.protocol.other_errors import InconsistentClusterIdError
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
    replace_file,
    sync_directory,
    write_offsets,
    write_properties,
)
from .log import Log

_log = logging.getLogger(__name__)

DELETE_SUFFIX = "-delete"
FUTURE_SUFFIX = "-future"
#: Kafka's own metadata log, which is not a topic of this broker.
_NOT_TOPICS = ("__cluster_metadata",)

Partition = tuple[str, int]


class LogDirectory:
    """A directory of `log.dirs`.

    `lock` serialises the writing of checkpoints and is acquired last. Invariant: once a new log has the name of a
    deleted one, no checkpoint file has an entry of the deleted log. Such an entry would hide the new log's records
    after a crash, or let them pass unchecked.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.directory_id = ""
        self.was_stopped_cleanly = False
        self.lock = threading.Lock()
        #: The content of the checkpoint files, by file name.
        self.checkpoints: dict[str, dict[Partition, int]] = {}
        self.cleaner_offsets: dict[Partition, int] = {}
        self._doomed: set[Path] = set()
        self._directory_lock: DirectoryLock | None = None

    def open(self, cluster_id: str, node_id: int) -> list[tuple[Partition, Path]]:
        """Lock the directory for this broker and read the files beside its logs. Returns the logs' directories.

        The lock lasts until `release`. Raises InconsistentClusterIdError, KafkaConfigurationError, KafkaStorageError,
        OSError.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self._directory_lock = DirectoryLock(self.path)
        self._check_meta_properties(cluster_id, node_id)
        for name in (RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, HIGH_WATERMARK_FILE):
            self.checkpoints[name] = self._read_offsets(name)
        self.cleaner_offsets = self._read_offsets(CLEANER_OFFSET_FILE)
        marker = self.path / CLEAN_SHUTDOWN_FILE
        self.was_stopped_cleanly = marker.exists()
        if self.was_stopped_cleanly:
            # From now on a crash must not look like a clean stop.
            marker.unlink()
            sync_directory(self.path)
        found = []
        for path in sorted(self.path.iterdir()):
            if not path.is_dir():
                continue
            if path.name.endswith((DELETE_SUFFIX, FUTURE_SUFFIX)):
                shutil.rmtree(path)
                continue
            partition = parse_directory_name(path.name)
            if partition is not None:
                found.append((partition, path))
        return found

    def _check_meta_properties(self, cluster_id: str, node_id: int) -> None:
        path = self.path / META_PROPERTIES_FILE
        known = read_properties(path)
        if known is not None:
            if known.get("cluster.id", cluster_id) != cluster_id:
                raise InconsistentClusterIdError(
                    f"{self.path} belongs to the cluster {known['cluster.id']}, not to {cluster_id}"
                )
            if known.get("node.id", str(node_id)) != str(node_id):
                raise KafkaConfigurationError(
                    f"{self.path} belongs to the broker {known['node.id']}, not to {node_id}; set node.id to "
                    f"{known['node.id']}"
                )
            self.directory_id = known.get("directory.id", "")
            return
        self.directory_id = encode_uuid(uuid.uuid4())
        write_properties(
            path,
            {
                "version": "1",
                "cluster.id": cluster_id,
                "node.id": str(node_id),
                "directory.id": self.directory_id,
            },
        )

    def _read_offsets(self, name: str) -> dict[Partition, int]:
        try:
            return read_offsets(self.path / name)
        except CorruptCheckpointError as wrong:
            _log.warning("%s; every log will be checked from its start", wrong)
            return {}

    def release(self) -> None:
        """Release the directory for other brokers. May be called again."""
        lock, self._directory_lock = self._directory_lock, None
        if lock is not None:
            lock.release()

    def mark_clean_stop(self) -> None:
        """Leave the marker of a clean stop. Raises OSError."""
        replace_file(self.path / CLEAN_SHUTDOWN_FILE, b'{"version":1}')

    # --- Checkpoints ---

    def write_checkpoint(self, name: str, logs: Mapping[Partition, Log]) -> None:
        """Write one checkpoint file for the logs in this directory. Raises OSError."""
        with self.lock:
            self._write(name, logs)

    def _write(self, name: str, logs: Mapping[Partition, Log]) -> None:
        offsets = {}
        for key, log in logs.items():
            if name == RECOVERY_POINT_FILE:
                offsets[key] = log.recovery_point
            elif name == HIGH_WATERMARK_FILE:
                offsets[key] = log.high_watermark
            elif log.log_start_offset > log.segments[0].base_offset:
                offsets[key] = log.log_start_offset
        write_offsets(self.path / name, offsets)
        self.checkpoints[name] = offsets

    def forget(self, partition: Partition, logs: Mapping[Partition, Log]) -> None:
        """Drop the checkpoints of a deleted log before a new log of its name is created. Raises OSError."""
        with self.lock:
            if any(partition in offsets for offsets in self.checkpoints.values()):
                for name in self.checkpoints:
                    self._write(name, logs)

    def write_cleaner_offsets(self) -> None:
        """Write the checkpoint of the compacted offsets. Raises OSError."""
        write_offsets(self.path / CLEANER_OFFSET_FILE, self.cleaner_offsets)

    # --- Deleted logs ---

    def doom(self, directory: Path, partition: Partition) -> Path:
        """Rename a log's directory, so that it no longer looks like a log. `remove_doomed` removes it. Raises
        OSError."""
        topic, index = partition
        doomed = self.path / f"{topic[:150]}-{index}.{uuid.uuid4().hex}{DELETE_SUFFIX}"
        directory.rename(doomed)
        self._doomed.add(doomed)
        return doomed

    def remove_doomed(self, doomed: Iterable[Path] | None = None) -> None:
        """Remove those of the given directories that are here, or all renamed ones."""
        for path in list(self._doomed) if doomed is None else doomed:
            if path in self._doomed:
                shutil.rmtree(path, ignore_errors=True)
                self._doomed.remove(path)

    def flush_names(self) -> None:
        """Fsync the directory's entries, so that a deleted log does not come back after a power failure. Raises
        KafkaStorageError."""
        try:
            sync_directory(self.path)
        except OSError as failed:
            raise KafkaStorageError(f"can't flush {self.path}: {failed.strerror}") from failed


def parse_directory_name(name: str) -> Partition | None:
    """Parse a directory name into topic and partition; None for any other directory."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isdigit() or topic in _NOT_TOPICS:
        return None
    return topic, int(number)
