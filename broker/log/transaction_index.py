"""The index of a segment's aborted transactions, in Kafka's `.txnindex` format (Kafka's `TransactionIndex`).

34 bytes per entry, big-endian: version (int16, 0), producer id, first offset, last offset (the marker's), last stable
offset after the marker (int64 each). Entries ascend by last offset. An entry is in the segment of its marker.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from .index import CorruptIndexError

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    """The part of an aborted transaction in one partition. `last_offset` is the offset of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions whose markers are in one segment.

    The file exists only if there are entries. The segment owns the index and changes it only under the log's lock.
    Readers need no lock: an entry is added at the end, and truncation replaces the list. An entry is in memory even if
    the file could not be written; the next flush writes it.
    """

    def __init__(self, path: Path, base_offset: int) -> None:
        """Read the file, if there is one. Raises CorruptIndexError."""
        self.path = path
        self.base_offset = base_offset
        self.entries: list[AbortedTransaction] = _read(path, base_offset)
        self._written = len(self.entries)

    def append(self, entry: AbortedTransaction) -> None:
        """Add the transaction that a marker has just aborted. Never fails: see `write_out`."""
        self.entries.append(entry)
        # The marker is in the log already. On a full disk the entry stays in memory and a recovery rebuilds it.
        with contextlib.suppress(OSError):
            self.write_out()

    def write_out(self, *, sync: bool = False) -> None:
        """Write the entries that are not in the file yet, and with `sync` force them to the disk. Raises OSError."""
        if self._written == len(self.entries) and not (sync and self.entries):
            return
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            content = _encode(self.entries[self._written :])
            at = self._written * _ENTRY.size
            while content:
                count = os.pwrite(descriptor, content, at)
                content, at = content[count:], at + count
            self._written = len(self.entries)
            if sync:
                os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose markers are at or after `offset`. Raises OSError."""
        kept = [entry for entry in self.entries if entry.last_offset < offset]
        if len(kept) == len(self.entries):
            return
        self.entries = kept
        self._written = min(self._written, len(kept))
        if kept and self.path.exists():
            os.truncate(self.path, self._written * _ENTRY.size)
        else:
            self.path.unlink(missing_ok=True)

    def aborted(self, offset: int, up_to: int) -> tuple[list[AbortedTransaction], bool]:
        """The transactions with records from `offset` to before `up_to`, and whether later segments can't have more."""
        found = []
        for entry in self.entries:
            if entry.last_offset >= offset and entry.first_offset < up_to:
                found.append(entry)
            if entry.last_stable_offset >= up_to:
                return found, True
        return found, False


def write_index(path: Path, entries: Iterable[AbortedTransaction]) -> None:
    """Write a whole index file and force it to the disk. Raises OSError."""
    with path.open("wb") as file:
        file.write(_encode(entries))
        file.flush()
        os.fsync(file.fileno())


def finish_index_swap(swap: Path) -> None:
    """Put the index that a compaction has written in its place; an empty one has no file. Raises OSError."""
    place = swap.with_suffix("")
    swap.replace(place)
    if not place.stat().st_size:
        place.unlink()


def _encode(entries: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


def _read(path: Path, base_offset: int) -> list[AbortedTransaction]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    if len(content) % _ENTRY.size:
        raise CorruptIndexError(f"{path} has {len(content)} bytes, not a multiple of {_ENTRY.size}")
    entries: list[AbortedTransaction] = []
    last_offset = base_offset - 1
    for version, *fields in _ENTRY.iter_unpack(content):
        entry = AbortedTransaction(*fields)
        if version != _VERSION or not last_offset < entry.last_offset > entry.first_offset:
            raise CorruptIndexError(f"{path} has a wrong entry: version {version}, {entry}")
        last_offset = entry.last_offset
        entries.append(entry)
    return entries
