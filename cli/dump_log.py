"""`headrace dump-log`: print the contents of files in a log directory, and where they are damaged.

Takes files (.log of all message formats, .index, .timeindex, .txnindex, .snapshot, leader-epoch-checkpoint and the
other checkpoints) and directories: a partition's, or one with many of them. An index is checked against the .log beside
it. The exit code is 1 if a file is damaged, and 2 if a path can't be read or is not a log.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from ..network.protocol.errors import KafkaError, UnsupportedCompressionTypeError
from ..network.records.compression import COMPRESSION_MASK, Compression
from ..network.text import size_text, table
from . import log_inspection as inspection
from .arguments import whole_number
from .log_inspection import Batch, Contents, Damage, FoundBatch, IndexEntry
from .text import bytes_text, time_text

_LOG_APPEND_TIME = 1
_CONTROL_KEY = struct.Struct(">hh")
_CONTROL_TYPES = {0: "abort", 1: "commit", 2: "leader change", 3: "snapshot header", 4: "snapshot footer"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE|DIRECTORY")
    parser.add_argument("--records", "-r", action="store_true", help="print the records of each batch, too")
    parser.add_argument("--width", type=whole_number(1), metavar="N", help="cut keys and values after N characters")
    parser.add_argument("--quiet", "-q", action="store_true", help="print only the damage, and one line per file")


def run(options: argparse.Namespace) -> int:
    """Print the files. Returns 1 if one is damaged, 2 if a path can't be read or is not a log."""
    dump = _Dump(options)
    for path in options.paths:
        if path.is_file() and inspection.kind_of(path) is None:
            print(
                f"headrace dump-log: {path} is not a log file; those are named 00000000000000000000.log (or .index, "
                ".timeindex, .txnindex, .snapshot), leader-epoch-checkpoint, partition.metadata and so on",
                file=sys.stderr,
            )
            return 2
    for path in options.paths:
        files = sorted(_files_of(path), key=_in_order) if path.is_dir() else [path]
        if not files:
            print(f"headrace dump-log: {path} has no files of a log", file=sys.stderr)
            return 2
        for file in files:
            try:
                content = inspection.read_file(file)
            except OSError as failed:
                print(f"headrace dump-log: can't read {file}: {failed.strerror}", file=sys.stderr)
                return 2
            dump.file(file, content)
    if dump.damaged:
        print(f"\n{len(dump.damaged)} of {dump.files} files are damaged: {', '.join(map(str, dump.damaged))}")
    return 1 if dump.damaged else 0


def _files_of(directory: Path) -> Iterator[Path]:
    for path in directory.iterdir():
        if path.is_dir():
            yield from _files_of(path)
        elif inspection.kind_of(path) is not None:
            yield path


def _in_order(path: Path) -> tuple[Path, str, bool, str]:
    """The sort key of a file: a segment's log comes before its indexes."""
    return path.parent, path.stem, path.suffix != ".log", path.suffix


class _Dump:
    """Prints files and remembers which are damaged."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._problems = 0
        self._segment: tuple[Path, inspection.SegmentMap] | None = None
        self.files = 0
        self.damaged: list[Path] = []

    def _say(self, text: str) -> None:
        if not self._options.quiet:
            print(text)

    def _wrong(self, damage: Damage, place: str = "byte") -> None:
        self._problems += 1
        print(f"  WRONG at {place} {damage.at}: {damage.what}")

    def file(self, path: Path, content: memoryview) -> None:
        """Print one file. Raises OSError if an index can't be checked because its log can't be read."""
        kind = inspection.kind_of(path)
        if self.files:
            self._say("")
        print(f"{path} ({size_text(len(content))})")
        self.files += 1
        self._problems = 0
        if kind == "log":
            self._log(path, content)
        elif kind in {"index", "timeindex"}:
            self._index(path, content, kind)
        elif kind == "txnindex":
            rows, damages = inspection.aborted_transactions(content)
            self._rows(("producer", "first offset", "last offset", "last stable offset"), rows, damages)
        elif kind == "snapshot":
            head = ("producer", "epoch", "last sequence", "last offset", "last time", "open transaction from")
            self._rows(head, *inspection.producers(content))
        elif kind == "checkpoint":
            columns, rows, damages = inspection.checkpoint(path, content)
            self._rows(columns, rows, damages, place="line")
        elif kind == "properties":
            self._say("".join(f"  {line}\n" for line in bytes(content).decode(errors="replace").splitlines()).rstrip())
        if self._problems:
            self.damaged.append(path)

    def _rows(self, head: tuple[str, ...], rows: list, damages: list[Damage], place: str = "byte") -> None:
        if rows:
            self._say("  " + table(head, rows).replace("\n", "\n  "))
        elif not damages:
            self._say("  empty")
        for damage in damages:
            self._wrong(damage, place)

    # --- Segments ---

    def _log(self, path: Path, content: memoryview) -> None:
        base_offset = inspection.base_offset_of(path)
        order = inspection.OffsetOrder(base_offset)
        batches = records = 0
        first = None
        for found in inspection.scan_batches(content):
            if isinstance(found, Damage):
                self._wrong(found)
                break
            batches += 1
            contents = inspection.check_batch(found)
            first = contents.first_offset if first is None else first
            records += contents.records
            self._say(f"  byte {found.position}: {_describe(found.batch, contents)}")
            for damage in order.problems(found):
                self._wrong(damage)
            if contents.damage is not None:
                self._wrong(contents.damage)
            if self._options.records:
                self._records(found)
        if batches:
            print(f"  {batches} batches, {records} records, offsets {first} to {order.next_offset - 1}")
        elif not len(content):
            print("  empty")

    def _records(self, found: FoundBatch) -> None:
        try:
            for record in found.batch.records():
                parts = [str(record.offset), time_text(record.timestamp)]
                if found.batch.is_control:
                    parts.append(_control(record.key))
                else:
                    parts += [
                        bytes_text(record.key, self._options.width),
                        bytes_text(record.value, self._options.width),
                    ]
                if record.headers:
                    headers = (f"{name}: {bytes_text(value, self._options.width)}" for name, value in record.headers)
                    parts.append("{" + ", ".join(headers) + "}")
                self._say("    " + "  ".join(parts))
        except KafkaError:
            # The check of the batch has reported it.
            return

    # --- Indexes ---

    def _index(self, path: Path, content: memoryview, kind: str) -> None:
        base_offset = inspection.base_offset_of(path)
        read = inspection.offset_index if kind == "index" else inspection.time_index
        entries, damages = read(content, base_offset)
        segment = self._segment_of(path)
        for entry in entries:
            self._say(f"  {_describe_entry(entry, kind)}")
        for damage in damages:
            self._wrong(damage)
        if segment is not None:
            for entry in entries:
                for what in _against(segment, entry, kind):
                    self._wrong(Damage(entry.at, what))
        held = "" if segment is not None else "; there is no .log beside it to check it against"
        spare = len(content) // inspection.ENTRY_BYTES[kind] - len(entries)
        print(f"  {len(entries)} entries" + (f" and room for {spare}" if spare > 0 else "") + held)

    def _segment_of(self, path: Path) -> inspection.SegmentMap | None:
        log = path.with_name(path.name[:20] + ".log")
        if not log.exists():
            return None
        if self._segment is None or self._segment[0] != log:
            self._segment = log, inspection.SegmentMap(log)
        return self._segment[1]


def _against(segment: inspection.SegmentMap, entry: IndexEntry, kind: str) -> Iterator[str]:
    checks = [segment.check_offset] if kind == "index" else [segment.check_time, segment.missing_time]
    for check in checks:
        what = check(entry)
        if what is not None:
            yield f"{_describe_entry(entry, kind)}: {what}"


def _describe_entry(entry: IndexEntry, kind: str) -> str:
    if kind == "index":
        return f"offset {entry.offset} -> byte {entry.value}"
    return f"{time_text(entry.value)} ({entry.value}) -> offset {entry.offset}"


def _describe(batch: Batch, contents: Contents) -> str:
    """The description of a batch in one line."""
    first, last = contents.first_offset, batch.last_offset
    offsets = f"offset {first}" if first == last else f"offsets {first} to {last}"
    count = "1 record" if contents.records == 1 else f"{contents.records} records"
    parts = [offsets, count, f"{batch.size_bytes} bytes", f"v{batch.magic} {_codec(batch)}"]
    time = time_text(batch.max_timestamp)
    parts.append(f"{time} by the broker" if batch.timestamp_type == _LOG_APPEND_TIME else time)
    if batch.partition_leader_epoch >= 0:
        parts.append(f"leader epoch {batch.partition_leader_epoch}")
    if batch.producer_id >= 0:
        sequence = "" if batch.base_sequence < 0 else f" sequence {batch.base_sequence}"
        if batch.last_sequence != batch.base_sequence:
            sequence += f" to {batch.last_sequence}"
        parts.append(f"producer {batch.producer_id} epoch {batch.producer_epoch}{sequence}")
    if batch.is_transactional:
        parts.append("transactional")
    if batch.is_control:
        parts.append("control")
    if batch.delete_horizon_ms is not None:
        parts.append(f"tombstones until {time_text(batch.delete_horizon_ms)}")
    return ", ".join(parts)


def _codec(batch: Batch) -> str:
    try:
        return Compression.of_attributes(batch.attributes).label
    except UnsupportedCompressionTypeError:
        return f"codec {batch.attributes & COMPRESSION_MASK}"


def _control(key: bytes | None) -> str:
    if key is None or len(key) < _CONTROL_KEY.size:
        return f"control record with the key {bytes_text(key)}"
    _, kind = _CONTROL_KEY.unpack_from(key)
    return _CONTROL_TYPES.get(kind, f"control record of type {kind}")
