"""Small files of a log directory, in Kafka's text formats, and the file with a segment's records.

Text files are replaced as a whole (write beside, fsync, rename), so a crash leaves either the old or the new one.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import os
import threading
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from ...network.protocol.errors import KafkaStorageError

LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
META_PROPERTIES_FILE = "meta.properties"
PARTITION_METADATA_FILE = "partition.metadata"
LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_FILE = "log-start-offset-checkpoint"
CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"

_TOPIC_ID_HEAD = b"version: 0\ntopic_id: "
_TOPIC_ID_LENGTH = 22


class CorruptCheckpointError(ValueError):
    """A checkpoint file isn't in Kafka's format. Its reader falls back to the log itself."""


def replace_file(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Make `path` hold `content`, or leave it unchanged. Raises OSError."""
    beside = path.with_name(path.name + ".tmp")
    # Through a file object: on a nearly full disk a bare `os.write` may write only a part and report success.
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        # On a full disk, half a file should not take up space.
        beside.unlink(missing_ok=True)
        raise
    if sync:
        sync_directory(path.parent)


def replace_file_over_spare(path: Path, content: bytes) -> None:
    """Make `path` hold `content`, or leave it unchanged. Succeeds even on a full disk, unless the content is longer
    than the previous one. Raises OSError.

    The replaced file stays beside `path` as the spare, and the next content reuses its disk space. `path` is intact
    after a crash of the process or a power failure at any point, and on the disk when this returns.
    """
    spare, old = path.with_name(path.name + ".spare"), path.with_name(path.name + ".old")
    if old.exists() and not spare.exists():
        old.replace(spare)  # the process died before this step
    with open(os.open(spare, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+b") as file:
        file.write(content)
        file.flush()
        file.truncate()
        os.fsync(file.fileno())
    # On a file system without hard links there is no spare.
    with contextlib.suppress(OSError):
        old.unlink(missing_ok=True)
        os.link(path, old)
    spare.replace(path)
    sync_directory(path.parent)
    with contextlib.suppress(OSError):
        old.replace(spare)
        with spare.open("ab") as file:
            file.write(b"\n" * (len(content) - file.tell()))


def sync_directory(directory: Path) -> None:
    """Fsync a directory, so that the names of new files are on the disk. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_checkpoint(path: Path, entries: Iterable[tuple], *, sync: bool = True) -> None:
    """Write a checkpoint: format version 0, the entry count, then one entry per line (Kafka's `CheckpointFile`)."""
    lines = [" ".join(map(str, entry)) for entry in entries]
    replace_file(path, "\n".join(["0", str(len(lines)), *lines, ""]).encode(), sync=sync)


def read_checkpoint(path: Path, columns: int) -> list[list[str]]:
    """Read a checkpoint's entries; an empty list if there is no file. Raises CorruptCheckpointError."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as wrong:
        raise CorruptCheckpointError(f"{path} is not text") from wrong
    if not text.endswith("\n"):
        raise CorruptCheckpointError(f"{path} is truncated: its last line has no line end")
    lines = text.splitlines()
    try:
        if int(lines[0]) != 0:
            raise CorruptCheckpointError(f"{path} has version {lines[0]}, expected version 0")
        entries = [line.split(" ") for line in lines[2:] if line]
        if len(entries) != int(lines[1]) or any(len(entry) != columns for entry in entries):
            raise CorruptCheckpointError(f"{path} doesn't have {lines[1]} entries of {columns} columns")
    except (IndexError, ValueError) as wrong:
        raise CorruptCheckpointError(f"{path} is not a checkpoint file") from wrong
    return entries


def write_offsets(path: Path, offsets: dict[tuple[str, int], int]) -> None:
    """Write a checkpoint of `topic partition offset` lines."""
    write_checkpoint(path, ((topic, partition, offset) for (topic, partition), offset in sorted(offsets.items())))


def read_offsets(path: Path) -> dict[tuple[str, int], int]:
    """Read a checkpoint of `topic partition offset` lines. Raises CorruptCheckpointError."""
    try:
        return {(topic, int(partition)): int(offset) for topic, partition, offset in read_checkpoint(path, 3)}
    except ValueError as wrong:
        raise CorruptCheckpointError(f"{path} has an entry that is not a topic, a partition and an offset") from wrong


def read_properties(path: Path) -> dict[str, str] | None:
    """Read `meta.properties` as Kafka writes it (no escapes beyond a backslash before `:` and `=`). None if there is no
    file. Raises KafkaStorageError, OSError."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return None
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    properties = {key.strip(): value.strip().replace("\\", "") for key, _, value in pairs}
    if not properties.get("version", "").isdigit():
        raise KafkaStorageError(f"{path} is damaged: it has no version; restore it, or remove it to create a new one")
    return properties


def write_properties(path: Path, properties: dict[str, str]) -> None:
    replace_file(path, "".join(f"{key}={value}\n" for key, value in properties.items()).encode())


def encode_uuid(value: uuid.UUID) -> str:
    """Encode a UUID as Kafka's 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> uuid.UUID:
    """Decode a UUID from Kafka's 22 characters of URL-safe base64. Raises ValueError."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def write_topic_id(directory: Path, topic_id: uuid.UUID) -> None:
    """Write a partition's `partition.metadata`."""
    replace_file(
        directory / PARTITION_METADATA_FILE, f"version: 0\ntopic_id: {encode_uuid(topic_id)}\n".encode(), sync=False
    )


def read_topic_id(directory: Path) -> uuid.UUID | None:
    """Read a partition's `partition.metadata`. None if there is no file (logs of Kafka before 2.8), or only its
    beginning, left by a power failure. Raises KafkaStorageError."""
    try:
        content = (directory / PARTITION_METADATA_FILE).read_bytes()
    except FileNotFoundError:
        return None
    kept = content.rstrip(b"\0")
    if len(kept) < len(_TOPIC_ID_HEAD) + _TOPIC_ID_LENGTH and _TOPIC_ID_HEAD.startswith(kept[: len(_TOPIC_ID_HEAD)]):
        return None
    lines = kept.decode(errors="replace").splitlines()
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    try:
        return decode_uuid(fields["topic_id"])
    except (KeyError, ValueError) as wrong:
        raise KafkaStorageError(
            f"{directory / PARTITION_METADATA_FILE} has no valid topic_id; restore it, or remove it"
        ) from wrong


class DirectoryLock:
    """Reserves a data directory for one broker (Kafka's `FileLock`, also against Apache Kafka). The owner's thread
    acquires and releases it. The system releases it when the process ends."""

    #: System locks belong to a process, so they don't keep two clusters of one process apart.
    _taken_here: ClassVar[set[Path]] = set()

    def __init__(self, directory: Path) -> None:
        """Raises KafkaStorageError if another broker holds the lock, and OSError."""
        self._directory = directory.resolve()
        if self._directory in self._taken_here:
            raise self._refusal()
        self._descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as failed:
            os.close(self._descriptor)
            if failed.errno in (errno.EACCES, errno.EAGAIN):
                raise self._refusal() from failed
            raise
        self._taken_here.add(self._directory)

    def _refusal(self) -> KafkaStorageError:
        return KafkaStorageError(f"another broker uses {self._directory}; stop it, or choose another data directory")

    def release(self) -> None:
        self._taken_here.discard(self._directory)
        os.close(self._descriptor)


class SegmentFile:
    """The `.log` file of a segment: opened at the first use, closed by `close` or when it is no longer referenced.

    A fetch response in flight references it, so a segment may be deleted while it is being sent. Appends happen under
    the log's lock; reads are positional and need none. Invariant: the bytes up to `size_bytes` are whole appends.
    """

    #: Shared by all files: opening is rare, and two readers opening one file concurrently would leak a descriptor.
    _opening = threading.Lock()

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        self.size_bytes = path.stat().st_size if path.exists() else 0

    def fileno(self) -> int:
        """The descriptor, also for `os.sendfile`. Raises KafkaStorageError if the file can't be opened."""
        if self._descriptor < 0:
            with self._opening:
                if self._descriptor < 0:
                    try:
                        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                    except OSError as failed:
                        raise KafkaStorageError(
                            f"can't open {self.path}: {failed.strerror}; check the data directory"
                        ) from failed
        return self._descriptor

    def append(self, buffers: list, size_bytes: int) -> None:
        """Append the buffers with one system call. On KafkaStorageError the file is unchanged."""
        descriptor = self.fileno()
        try:
            written = os.pwritev(descriptor, buffers, self.size_bytes)
            while written < size_bytes:
                rest = b"".join(buffers)[written:]
                written += os.pwrite(descriptor, rest, self.size_bytes + written)
        except OSError as failed:
            # Only to save space: bytes past `size_bytes` are overwritten by the next append anyway.
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, self.size_bytes)
            raise KafkaStorageError(
                f"can't append to {self.path}: {failed.strerror}; free space or repair the data directory"
            ) from failed
        self.size_bytes += size_bytes

    def read(self, position: int, size_bytes: int) -> bytes:
        """Read up to `size_bytes` bytes at `position`; fewer only at the end of the file. Raises KafkaStorageError."""
        try:
            return os.pread(self.fileno(), size_bytes, position)
        except OSError as failed:
            raise KafkaStorageError(f"can't read {self.path}: {failed.strerror}; check the data directory") from failed

    def truncate(self, size_bytes: int) -> None:
        """Truncate the file. Raises OSError."""
        os.ftruncate(self.fileno(), size_bytes)
        self.size_bytes = size_bytes

    def sync(self) -> None:
        """Force the file's content to the disk. Raises OSError."""
        if self._descriptor >= 0:
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the descriptor. Only after the last read and write: another file may reuse its number at once."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()
