"""A log that moves to another of its broker's log directories (AlterReplicaLogDirs).

The files are copied while the broker keeps using them. The rest, which is short by then, is copied under the log's
lock; then the copy takes the log's place. A truncation or compaction in the meantime restarts the copy.
"""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

from .files import PARTITION_METADATA_FILE, sync_directory
from .log import Log
from .log_directory import FUTURE_SUFFIX, LogDirectory
from .segment import LogSegment

#: The most bytes that `finish` copies under the log's lock.
_LAST_BYTES = 4 * 2**20
_CHUNK_BYTES = 2**20


class LogMove:
    """The move of one log. Its steps run on one thread; `offset_lag` and `size_bytes` may be read from any."""

    def __init__(self, log: Log, source: LogDirectory, target: LogDirectory) -> None:
        self.log = log
        self.source = source
        self.target = target
        name = f"{log.topic[:150]}-{log.partition}.{uuid.uuid4().hex}{FUTURE_SUFFIX}"
        self.directory = target.path / name
        self._copied: dict[LogSegment, int] = {}
        self._rewrites = -1
        self._is_abandoned = False
        #: The renamed old directory of the log, once the log is in its new place.
        self.left: Path | None = None

    @property
    def size_bytes(self) -> int:
        """The number of bytes copied."""
        return sum(self._copied.values())

    @property
    def offset_lag(self) -> int:
        """Number of offsets not copied yet, starting with the batch where the copied bytes end."""
        for segment in self.log.segments:
            copied = self._copied.get(segment, 0)
            if copied < segment.size_bytes:
                return max(self.log.end.offset - segment.offset_at(copied), 0)
        return 0

    def copy(self, max_bytes: int) -> int:
        """Copy up to `max_bytes`. Returns the bytes copied, or 0 once the rest is short enough for `finish`. Raises
        OSError, KafkaStorageError."""
        log = self.log
        if self._is_abandoned:
            return 0
        if self._rewrites != log.rewrites:
            self._rewrites = log.rewrites
            self._copied = {}
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory.mkdir(parents=True)
        segments = log.segments
        missing = sum(each.size_bytes - self._copied.get(each, 0) for each in segments)
        if missing <= _LAST_BYTES:
            return 0
        for segment in segments:
            size_bytes = segment.size_bytes
            if self._copied.get(segment, 0) < size_bytes:
                return self._copy_segment(segment, min(size_bytes, self._copied.get(segment, 0) + max_bytes))
        return 0

    def _copy_segment(self, segment: LogSegment, up_to: int) -> int:
        begin = position = self._copied.get(segment, 0)
        with (self.directory / segment.log.path.name).open("ab") as file:
            file.truncate(position)
            while position < up_to:
                chunk = segment.log.read(position, min(_CHUNK_BYTES, up_to - position))
                if not chunk:
                    break
                file.write(chunk)
                position += len(chunk)
            file.flush()
            if position == segment.size_bytes:
                os.fsync(file.fileno())
        self._copied[segment] = position
        return position - begin

    def finish(self) -> bool:
        """Copy the rest and put the log in its new place. False if the copy has to start over. Raises OSError,
        KafkaStorageError."""
        log = self.log
        with log.lock:
            if self._is_abandoned or log.is_closed:
                self.abandon()
                return True
            if self._rewrites != log.rewrites:
                return False
            for segment in log.segments:
                self._copy_segment(segment, segment.size_bytes)
            self._copy_beside()
            place = self.target.path / log.directory.name
            self.directory.rename(place)
            self.target.flush_names()
            old = log.directory
            log.relocate(place)
            key = (log.topic, log.partition)
            self.target.cleaner_offsets[key] = self.source.cleaner_offsets.pop(key, 0)
            self.left = self.source.doom(old, key)
            self.source.flush_names()
        return True

    def _copy_beside(self) -> None:
        """Copy indexes, snapshots, epochs and the topic id."""
        log = self.log
        wanted = {path.name for segment in log.segments for path in segment.paths if path.suffix != ".log"}
        for segment in log.segments:
            segment.offset_index.write_out()
            segment.time_index.write_out()
            segment.transaction_index.write_out()
        log.leader_epochs.write_out()
        logs = {segment.log.path.name for segment in log.segments}
        for path in list(self.directory.iterdir()):
            if path.name not in logs:
                path.unlink()  # retention has deleted its segment
        for path in log.directory.iterdir():
            is_small = path.suffix == ".snapshot" or path.name in (PARTITION_METADATA_FILE, log.leader_epochs.path.name)
            if is_small or path.name in wanted:
                self._copy_file(path)
        sync_directory(self.directory)

    def _copy_file(self, path: Path) -> None:
        with (self.directory / path.name).open("wb") as file:
            file.write(path.read_bytes())
            file.flush()
            os.fsync(file.fileno())

    def abandon(self) -> None:
        """Cancel the move and remove its files."""
        self._is_abandoned = True
        shutil.rmtree(self.directory, ignore_errors=True)
