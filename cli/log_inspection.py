"""The reading half of `headrace dump-log`: the contents of files in a log directory, and their damage.

It reads Kafka's formats directly, not through the broker's own log, which repairs the files it opens.
"""

from __future__ import annotations

import mmap
import re
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

from ..broker.log.producer_state import CorruptSnapshotError, decode_snapshot
from ..network.protocol.errors import CorruptRecordError, KafkaError
from ..network.records.batch import MAGIC_V2, RECORD_BATCH_OVERHEAD, RecordBatch
from ..network.records.legacy import LegacyBatch
from ..network.records.record import LENGTH_OFFSET, LOG_OVERHEAD, MAGIC_OFFSET, TIMESTAMP_UNKNOWN
from .text import time_text

_SEGMENT_FILE = re.compile(r"(\d{20})\.(log|index|timeindex|txnindex|snapshot)(\.\w+)?")
_CHECKPOINT_COLUMNS = {
    "leader-epoch-checkpoint": ("leader epoch", "start offset"),
    "recovery-point-offset-checkpoint": ("topic", "partition", "recovery point"),
    "log-start-offset-checkpoint": ("topic", "partition", "log start offset"),
    "replication-offset-checkpoint": ("topic", "partition", "high watermark"),
    "cleaner-offset-checkpoint": ("topic", "partition", "cleaned up to"),
}
_PROPERTY_FILES = ("partition.metadata", "meta.properties")

_LENGTH = struct.Struct(">i")
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_TRANSACTION_ENTRY = struct.Struct(">hqqqq")
_V2_LEAST_BYTES = RECORD_BATCH_OVERHEAD - LOG_OVERHEAD

#: The size of an index entry, by the ending of the file.
ENTRY_BYTES = {"index": _OFFSET_ENTRY.size, "timeindex": _TIME_ENTRY.size}

Batch = RecordBatch | LegacyBatch


class Damage(NamedTuple):
    """A defect of a file: the byte (in a text file, the line) at which it begins, and its description."""

    at: int
    what: str


class FoundBatch(NamedTuple):
    """A complete batch and its position. Its CRC and its records are not checked yet."""

    position: int
    batch: Batch


class IndexEntry(NamedTuple):
    """An entry of an offset index (`value` is a position) or of a time index (`value` is a timestamp)."""

    at: int
    offset: int
    value: int


def kind_of(path: Path) -> str | None:
    """The kind of a file: the extension of a segment's file, `checkpoint` or `properties`; None: unknown."""
    match = _SEGMENT_FILE.fullmatch(path.name)
    if match is not None:
        return match[2]
    if path.name in _CHECKPOINT_COLUMNS:
        return "checkpoint"
    return "properties" if path.name in _PROPERTY_FILES else None


def base_offset_of(path: Path) -> int:
    """The base offset in the name of a segment's file."""
    return int(path.name[:20])


def read_file(path: Path) -> memoryview:
    """A file's content, memory-mapped because a segment may have gigabytes. Raises OSError."""
    with path.open("rb") as file:
        # An empty file can't be mapped.
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b"")


# --- Segments ---


def scan_batches(content: memoryview) -> Iterator[FoundBatch | Damage]:
    """The batches of all formats, in file order. Ends at the first damage, after which no batch can be located."""
    position, size = 0, len(content)
    while position < size:
        left = size - position
        length = _LENGTH.unpack_from(content, position + LENGTH_OFFSET)[0] if left >= LOG_OVERHEAD else 0
        if length == 0 or left <= MAGIC_OFFSET:
            yield _end_without_batch(content, position)
            return
        end = position + LOG_OVERHEAD + length
        magic = content[position + MAGIC_OFFSET]
        if magic > MAGIC_V2:
            yield Damage(position, f"no batch begins here: its format would be v{magic}; {left} bytes can't be read")
            return
        if length < (_V2_LEAST_BYTES if magic == MAGIC_V2 else LegacyBatch.MIN_LENGTH):
            yield Damage(position, f"no batch begins here: its length would be {length}; {left} bytes can't be read")
            return
        if end > size:
            yield Damage(
                position, f"the file ends within a batch of {LOG_OVERHEAD + length} bytes: only {left} are present"
            )
            return
        view = content[position:end]
        try:
            yield FoundBatch(position, RecordBatch(view) if magic == MAGIC_V2 else LegacyBatch(view))
        except CorruptRecordError as wrong:
            yield Damage(position, f"{wrong}; {left} bytes can't be read")
            return
        position = end


def _end_without_batch(content: memoryview, position: int) -> Damage:
    left = len(content) - position
    zeros = _zeros(content, position)
    if zeros == left:
        return Damage(position, f"zeros up to the end, {left} bytes: a preallocated file, or a torn write")
    if left > MAGIC_OFFSET:
        return Damage(position, f"no batch begins here, {zeros} zeros do; {left} bytes can't be read")
    return Damage(position, f"the file ends within the header of a batch: only {left} bytes are present")


def _zeros(content: memoryview, position: int) -> int:
    """The number of consecutive zero bytes that start at `position`."""
    step = 1 << 16
    for start in range(position, len(content), step):
        chunk = bytes(content[start : start + step])
        rest = chunk.lstrip(b"\0")
        if rest:
            return start - position + len(chunk) - len(rest)
    return len(content) - position


class OffsetOrder:
    """Checks the order of offsets and leader epochs in a segment."""

    def __init__(self, base_offset: int) -> None:
        self.next_offset = base_offset
        self._leader_epoch = -1

    def problems(self, found: FoundBatch) -> Iterator[Damage]:
        """The defects of a batch's header and position; its records are not read."""
        position, batch = found
        first = batch.base_offset if isinstance(batch, RecordBatch) else batch.last_offset
        if first < self.next_offset:
            yield Damage(position, f"offset {first} after {self.next_offset - 1}: offsets have to ascend")
        if isinstance(batch, RecordBatch):
            if batch.last_offset_delta < 0:
                yield Damage(position, f"the batch's last offset is {batch.last_offset_delta} from its first")
            if 0 <= batch.partition_leader_epoch < self._leader_epoch:
                what = f"leader epoch {batch.partition_leader_epoch} after {self._leader_epoch}"
                yield Damage(position, f"{what}: epochs can't descend")
            self._leader_epoch = max(self._leader_epoch, batch.partition_leader_epoch)
        self.next_offset = max(self.next_offset, batch.last_offset + 1)


class Contents(NamedTuple):
    """The readable contents of a batch, and the damage to its CRC, compressed bytes or records, if any."""

    first_offset: int
    records: int
    damage: Damage | None


def check_batch(found: FoundBatch) -> Contents:
    """Read a whole batch and check it."""
    batch = found.batch
    # The base offset of an old message set is only found in its records; a batch's may precede its first record.
    first = batch.base_offset if isinstance(batch, RecordBatch) else None
    number, previous = 0, -1
    damage = None
    try:
        batch.validate()
        for record in batch.records():
            if record.offset <= previous or record.offset > batch.last_offset:
                damage = Damage(found.position, f"a record has offset {record.offset} after {previous}")
                break
            first = record.offset if first is None else first
            number, previous = number + 1, record.offset
    except KafkaError as wrong:
        damage = Damage(found.position, str(wrong))
    return Contents(batch.last_offset if first is None else first, number, damage)


# --- Indexes ---


def offset_index(content: memoryview, base_offset: int) -> tuple[list[IndexEntry], list[Damage]]:
    """The entries of an `.index` file, without the zeros of a preallocated one, and their defects."""
    entries, damages = _entries(content, _OFFSET_ENTRY, lambda first, second: (base_offset + first, second))
    for before, after in pairwise(entries):
        if after.offset <= before.offset:
            damages.append(Damage(after.at, f"offset {after.offset} after {before.offset}: offsets have to ascend"))
        if after.value <= before.value:
            damages.append(Damage(after.at, f"position {after.value} after {before.value}: positions have to ascend"))
    return entries, damages


def time_index(content: memoryview, base_offset: int) -> tuple[list[IndexEntry], list[Damage]]:
    """The entries of a `.timeindex` file, without the zeros of a preallocated one, and their defects."""
    entries, damages = _entries(content, _TIME_ENTRY, lambda first, second: (base_offset + second, first))
    for before, after in pairwise(entries):
        if after.value <= before.value:
            what = f"{time_text(after.value)} after {time_text(before.value)}"
            damages.append(Damage(after.at, f"{what}: timestamps have to ascend"))
        if after.offset < before.offset:
            damages.append(Damage(after.at, f"offset {after.offset} after {before.offset}: offsets can't descend"))
    return entries, damages


def _entries(
    content: memoryview, layout: struct.Struct, meaning: Callable[[int, int], tuple[int, int]]
) -> tuple[list[IndexEntry], list[Damage]]:
    whole = len(content) - len(content) % layout.size
    rows = list(layout.iter_unpack(content[:whole]))
    while len(rows) > 1 and rows[-1] == (0, 0):
        rows.pop()
    if rows == [(0, 0)] and len(content) > layout.size:
        rows = []
    entries = [IndexEntry(number * layout.size, *meaning(*row)) for number, row in enumerate(rows)]
    damages = []
    if whole < len(content):
        damages.append(Damage(whole, f"{len(content)} bytes are not a multiple of {layout.size}, the size of an entry"))
    return entries, damages


class SegmentMap:
    """The positions, offsets and timestamps of a segment's batches, against which its indexes are checked."""

    def __init__(self, log: Path) -> None:
        """Read the headers of all batches. Raises OSError."""
        self._positions: list[int] = []
        self._first: list[int] = []
        self._last: list[int] = []
        self._times: list[int] = []
        self._content = read_file(log)
        for found in scan_batches(self._content):
            if isinstance(found, FoundBatch):
                batch = found.batch
                self._positions.append(found.position)
                self._first.append(batch.base_offset if isinstance(batch, RecordBatch) else batch.last_offset)
                self._last.append(batch.last_offset)
                self._times.append(batch.max_timestamp)
        self._latest = list(accumulate(self._times, max))

    def check_offset(self, entry: IndexEntry) -> str | None:
        """The defect of an offset index entry: a reader of its offset or a later one starts at its position."""
        slot = bisect_left(self._positions, entry.value)
        if slot == len(self._positions) or self._positions[slot] != entry.value:
            past = entry.value >= len(self._content)
            return f"position {entry.value} is past the end of the log" if past else f"no batch begins at {entry.value}"
        if not self._first[slot] <= entry.offset:
            return f"the batch at {entry.value} begins at offset {self._first[slot]}, after it"
        if slot and self._last[slot - 1] >= entry.offset:
            return f"offset {entry.offset} is in a batch before position {entry.value}"
        if entry.offset > self._last[-1]:
            return f"the log ends at offset {self._last[-1]}"
        return None

    def check_time(self, entry: IndexEntry) -> str | None:
        """The defect of a time index entry: the batch with its offset must have its timestamp as the largest one."""
        slot = bisect_left(self._last, entry.offset)
        if slot == len(self._last):
            return f"the log ends at offset {self._last[-1]}" if self._last else "the log is empty"
        if self._times[slot] != entry.value:
            return f"the largest timestamp of the batch with offset {entry.offset} is {time_text(self._times[slot])}"
        return None

    def missing_time(self, entry: IndexEntry) -> str | None:
        """The defect of a time index entry that earlier records exceed: a search by time would skip them."""
        slot = bisect_right(self._last, entry.offset)
        later = self._latest[slot - 1] if slot else TIMESTAMP_UNKNOWN
        return f"there is a later one, {time_text(later)}, up to that offset" if later > entry.value else None


# --- Small files ---


def aborted_transactions(content: memoryview) -> tuple[list[tuple[int, int, int, int]], list[Damage]]:
    """The rows of a `.txnindex`: producer id, first offset, last offset, last stable offset."""
    whole = len(content) - len(content) % _TRANSACTION_ENTRY.size
    rows, damages = [], []
    for number, (version, *row) in enumerate(_TRANSACTION_ENTRY.iter_unpack(content[:whole])):
        if version != 0:
            at = number * _TRANSACTION_ENTRY.size
            damages.append(Damage(at, f"an entry has version {version}; only version 0 is known"))
        rows.append(tuple(row))
    if whole < len(content):
        damages.append(Damage(whole, f"{len(content)} bytes are not a multiple of {_TRANSACTION_ENTRY.size}"))
    return rows, damages


def producers(content: memoryview) -> tuple[list[tuple[object, ...]], list[Damage]]:
    """The rows of a `.snapshot`: id, epoch, last sequence, last offset, time, open transaction's first offset."""
    try:
        entries = decode_snapshot(bytes(content))
    except CorruptSnapshotError as wrong:
        return [], [Damage(0, str(wrong))]
    rows: list[tuple[object, ...]] = [
        (
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_offset,
            time_text(entry.last_timestamp),
            entry.current_txn_first_offset if entry.current_txn_first_offset >= 0 else "-",
        )
        for entry in entries
    ]
    return rows, []


def checkpoint(path: Path, content: memoryview) -> tuple[tuple[str, ...], list[list[str]], list[Damage]]:
    """The columns and rows of a text checkpoint, and its defects, by line number from 1."""
    columns = _CHECKPOINT_COLUMNS[path.name]
    lines = bytes(content).decode(errors="replace").splitlines()
    damages = []
    if lines[:1] != ["0"]:
        what = f"the format's version should be 0, not {lines[0]!r}" if lines else "the file is empty"
        damages.append(Damage(1, what))
    count = lines[1] if len(lines) > 1 else ""
    rows = []
    for number, line in enumerate(lines[2:], 3):
        row = line.split(" ")
        numbers = row if len(columns) == 2 else row[1:]
        if len(row) != len(columns) or not all(re.fullmatch(r"-?\d+", cell) for cell in numbers):
            damages.append(Damage(number, f"{line!r} is not {', '.join(columns)}"))
        else:
            rows.append(row)
    if not damages and count != str(len(lines) - 2):
        damages.append(Damage(2, f"{count or 'nothing'!r} entries are declared, {max(len(lines) - 2, 0)} are present"))
    if len(columns) == 2 and not damages:
        pairs = [(int(epoch), int(offset)) for epoch, offset in rows]
        for number, (before, after) in enumerate(pairwise(pairs), 4):
            if after[0] <= before[0] or after[1] < before[1]:
                what = f"epoch {after[0]} from {after[1]} after epoch {before[0]} from {before[1]}"
                damages.append(Damage(number, f"{what}: both have to ascend"))
    return columns, rows, damages
