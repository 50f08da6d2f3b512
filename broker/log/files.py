"""Small files of a log directory, in Kafka's text formats, and the file that holds a segment's records.

Text files are replaced as a whole (write beside, fsync, rename), so that a crash leaves the old one or the new one.
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
    """A checkpoint file isn't in Kafka's format; its reader falls back to what the log itself tells."""


def replace_file(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Make `path` hold `content`, or leave it as it was. Raises OSError."""
    beside = path.with_name(path.name + ".tmp")
    # Through a file object: where the disk is nearly full, the system's own `write` may write a part and be content.
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        # A full disk shouldn't keep half a file, too.
        beside.unlink(missing_ok=True)
        raise
    if sync:
        sync_directory(path.parent)


def replace_file_over_spare(path: Path, content: bytes) -> None:
    """Make `path` hold `content`, or leave it as it was; on a full disk, too, unless the content is longer than the one
    before. Raises OSError.

    What is replaced stays beside as the spare, whose place on the disk the next content takes. Whole after the death of
    the process or the loss of power at any point, and on the disk when this returns.
    """
    spare, old = path.with_name(path.name + ".spare"), path.with_name(path.name + ".old")
    if old.exists() and not spare.exists():
        old.replace(spare)  # the process died before it came to that
    with open(os.open(spare, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+b") as file:
        file.write(content)
        file.flush()
        file.truncate()
        os.fsync(file.fileno())
    # A file system without links keeps no spare.
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
    """Have the names of new files on the disk, too. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_checkpoint(path: Path, entries: Iterable[tuple], *, sync: bool = True) -> None:
    """Write a checkpoint: format version 0, the number of entries, then one entry a line (Kafka's `CheckpointFile`)."""
    lines = [" ".join(map(str, entry)) for entry in entries]
    replace_file(path, "\n".join(["0", str(len(lines)), *lines, ""]).encode(), sync=sync)


def read_checkpoint(path: Path, columns: int) -> list[list[str]]:
    """Read a checkpoint's entries; none where there is no file. Raises CorruptCheckpointError."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as wrong:
        raise CorruptCheckpointError(f"{path} is not text") from wrong
    if not text.endswith("\n"):
        raise CorruptCheckpointError(f"{path} is cut off: its last line doesn't end")
    lines = text.splitlines()
    try:
        if int(lines[0]) != 0:
            raise CorruptCheckpointError(f"{path} has version {lines[0]}, known is version 0")
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
    """Read `meta.properties` as Kafka writes it (no escapes beyond a backslash before `:` and `=`); None where there is
    none. Raises KafkaStorageError, OSError."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return None
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    properties = {key.strip(): value.strip().replace("\\", "") for key, _, value in pairs}
    if not properties.get("version", "").isdigit():
        raise KafkaStorageError(f"{path} is damaged: it has no version; restore it, or remove it to have a new one")
    return properties


def write_properties(path: Path, properties: dict[str, str]) -> None:
    replace_file(path, "".join(f"{key}={value}\n" for key, value in properties.items()).encode())


def encode_uuid(value: uuid.UUID) -> str:
    """A UUID in Kafka's 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> uuid.UUID:
    """The UUID that Kafka's 22 characters of URL-safe base64 stand for. Raises ValueError."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def write_topic_id(directory: Path, topic_id: uuid.UUID) -> None:
    """Write a partition's `partition.metadata`."""
    replace_file(
        directory / PARTITION_METADATA_FILE, f"version: 0\ntopic_id: {encode_uuid(topic_id)}\n".encode(), sync=False
    )


def read_topic_id(directory: Path) -> uuid.UUID | None:
    """Read a partition's `partition.metadata`; None where there is none (logs of Kafka before 2.8), or only the
    beginning of one, from before the machine lost its power. Raises KafkaStorageError."""
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
    """A data directory is one broker's (Kafka's `FileLock`, also against Apache Kafka). The owner's thread takes it and
    lets it go; it ends with the process."""

    #: The system's locks are a process's: it doesn't keep two clusters of one process apart.
    _taken_here: ClassVar[set[Path]] = set()

    def __init__(self, directory: Path) -> None:
        """Raises KafkaStorageError where another broker has it, OSError."""
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
    """The `.log` file of a segment: opened at the first use, closed by `close` or when nobody refers to it any more.

    A fetch answer in flight refers to it, so a segment may be deleted while it is being sent. Appends happen under the
    log's lock; reads are positional and need none. Invariant: bytes up to `size_bytes` are whole appends.
    """

    #: For all files: opening is rare, and two readers that open one at once would leave a descriptor behind.
    _opening = threading.Lock()

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        self.size_bytes = path.stat().st_size if path.exists() else 0

    def fileno(self) -> int:
        """The descriptor, for `os.sendfile` too. Raises KafkaStorageError where the file can't be opened."""
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
        """Write the buffers at the end with one system call. Raises KafkaStorageError, the file then as before."""
        descriptor = self.fileno()
        try:
            written = os.pwritev(descriptor, buffers, self.size_bytes)
            while written < size_bytes:
                rest = b"".join(buffers)[written:]
                written += os.pwrite(descriptor, rest, self.size_bytes + written)
        except OSError as failed:
            # Tidy only: whatever was written is past `size_bytes`, so the next append writes over it.
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, self.size_bytes)
            raise KafkaStorageError(
                f"can't append to {self.path}: {failed.strerror}; free space or repair the data directory"
            ) from failed
        self.size_bytes += size_bytes

    def read(self, position: int, size_bytes: int) -> bytes:
        """Up to `size_bytes` bytes from `position`, fewer only at the end. Raises KafkaStorageError."""
        try:
            return os.pread(self.fileno(), size_bytes, position)
        except OSError as failed:
            raise KafkaStorageError(f"can't read {self.path}: {failed.strerror}; check the data directory") from failed

    def truncate(self, size_bytes: int) -> None:
        """Cut the file. Raises OSError."""
        os.ftruncate(self.fileno(), size_bytes)
        self.size_bytes = size_bytes

    def sync(self) -> None:
        """Have the file on the disk when this returns. Raises OSError."""
        if self._descriptor >= 0:
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the descriptor. Only once nobody reads or writes any more: its number may be another file's at once."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()
