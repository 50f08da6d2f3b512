"""The rows of files, by format, with their numbers."""

from __future__ import annotations

import csv
import glob
import gzip
import io
import json
import os
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from typing import Any, BinaryIO, NamedTuple

from ...network.protocol.errors import KafkaConfigurationError
from .templates import LINE, Row

STANDARD_INPUT = "-"
_ARROW_ROWS = 4096


class FoundRow(NamedTuple):
    """A row, or the reason why it is none.

    `number` counts from 1: the line where the row ends in text formats, the row in others. `raw` is its text if that is
    its value by default.
    """

    number: int
    row: Row
    raw: bytes | None = None
    problem: str | None = None


class Source(NamedTuple):
    """A file or standard input, and how it is read."""

    name: str
    size_bytes: int
    format: str

    @contextmanager
    def open(self) -> Iterator[tuple[Iterator[FoundRow], Callable[[], int]]]:
        """The rows, and a function that returns how many bytes of the file have been read.

        Raises KafkaConfigurationError if the file can't be read or is not of its format.
        """
        try:
            with sys.stdin.buffer if self.name == STANDARD_INPUT else open(self.name, "rb") as file:
                position = file.tell if self.name != STANDARD_INPUT else lambda: 0
                with closing(self._checked(FORMATS[self.format](_decompressed(self.name, file)))) as rows:
                    yield rows, position
        except OSError as failed:
            raise KafkaConfigurationError(f"{self.name}: {failed.strerror or failed}") from failed

    def _checked(self, rows: Iterator[FoundRow]) -> Generator[FoundRow, None, None]:
        """The rows, with the errors of the libraries that read them as errors of ours."""
        try:
            yield from rows
        except (ValueError, EOFError, csv.Error) as wrong:
            raise KafkaConfigurationError(f"{self.name} can't be read as {self.format}: {wrong}") from wrong


def sources_of(files: Sequence[str], form: str | None) -> list[Source]:
    """The files, with patterns expanded. Raises KafkaConfigurationError if there is none."""
    sources = []
    for file in files:
        found = sorted(glob.glob(file, recursive=True)) if glob.has_magic(file) and not os.path.exists(file) else [file]
        if not found:
            raise KafkaConfigurationError(f"no file matches {file!r}")
        for name in found:
            if name != STANDARD_INPUT and os.path.isdir(name):
                raise KafkaConfigurationError(f"{name} is a directory; name its files, as in '{name}/*'")
            size = 0 if name == STANDARD_INPUT or not os.path.exists(name) else os.path.getsize(name)
            sources.append(Source(name, size, form or _format_of(name)))
    return sources


def _format_of(name: str) -> str:
    ending = os.path.splitext(name.lower().removesuffix(".gz").removesuffix(".zst"))[1]
    return _ENDINGS.get(ending, "lines")


def _decompressed(name: str, file: BinaryIO) -> BinaryIO:
    if name.lower().endswith(".gz"):
        return io.BufferedReader(gzip.GzipFile(fileobj=file))  # type: ignore[arg-type]
    if name.lower().endswith(".zst"):
        return io.BufferedReader(_package("zstandard").ZstdDecompressor().stream_reader(file))
    return file


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        extra = "spark" if name.startswith("pyarrow") else "cli"
        raise KafkaConfigurationError(
            f"this file needs the package {name.partition('.')[0]}; install it with: pip install 'headrace[{extra}]'"
        ) from None


def _lines(file: BinaryIO) -> Iterator[FoundRow]:
    for number, line in enumerate(file, start=1):
        raw = line.removesuffix(b"\n").removesuffix(b"\r")
        yield FoundRow(number, {LINE: raw}, raw)


def _csv(file: BinaryIO) -> Iterator[FoundRow]:
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
    try:
        yield from _csv_rows(csv.reader(text, strict=True))
    finally:
        text.detach()  # the caller closes the file


def _csv_rows(reader: Any) -> Iterator[FoundRow]:
    head = next(reader, None)
    if head is None:
        return
    if len(set(head)) < len(head):
        raise ValueError(f"the header names a column twice: {', '.join(head)}")
    for cells in reader:
        if not cells:
            continue
        row = dict(zip(head, cells, strict=False))
        problem = None if len(cells) == len(head) else f"{len(cells)} cells, but the header names {len(head)} columns"
        if any(not each.isascii() and _has_surrogate(each) for each in cells):
            problem = "it is not UTF-8"
            row = {name: cell.encode("utf-8", "surrogateescape") for name, cell in row.items()}
        yield FoundRow(reader.line_num, row, None, problem)


def _has_surrogate(text: str) -> bool:
    return any("\udc80" <= character <= "\udcff" for character in text)


def _json_lines(file: BinaryIO) -> Iterator[FoundRow]:
    for number, line in enumerate(file, start=1):
        raw = line.strip()
        if not raw:
            continue
        try:
            row = json.loads(raw)
        except ValueError as wrong:
            yield FoundRow(number, {LINE: raw}, raw, f"not JSON: {wrong}")
            continue
        if isinstance(row, dict):
            yield FoundRow(number, row, raw)
        else:
            yield FoundRow(number, {LINE: raw}, raw, f"not a JSON object but {type(row).__name__}")


def _avro(file: BinaryIO) -> Iterator[FoundRow]:
    for number, row in enumerate(_package("fastavro").reader(file), start=1):
        yield FoundRow(number, row if isinstance(row, dict) else {LINE: row})


def _parquet(file: BinaryIO) -> Iterator[FoundRow]:
    yield from _arrow_rows(_package("pyarrow.parquet").ParquetFile(file).iter_batches(batch_size=_ARROW_ROWS))


def _arrow(file: BinaryIO) -> Iterator[FoundRow]:
    arrow = _package("pyarrow")
    magic = file.read(6)
    file.seek(0)
    if magic == b"ARROW1":
        reader = arrow.ipc.open_file(file)
        yield from _arrow_rows(reader.get_batch(index) for index in range(reader.num_record_batches))
    else:
        yield from _arrow_rows(arrow.ipc.open_stream(file))


def _arrow_rows(batches: Any) -> Iterator[FoundRow]:
    number = 0
    for batch in batches:
        for row in batch.to_pylist():
            number += 1
            yield FoundRow(number, row)


FORMATS: dict[str, Callable[[BinaryIO], Iterator[FoundRow]]] = {
    "lines": _lines,
    "csv": _csv,
    "jsonl": _json_lines,
    "avro": _avro,
    "parquet": _parquet,
    "arrow": _arrow,
}
_ENDINGS = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".avro": "avro",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
}
