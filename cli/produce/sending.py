"""Sends rows in chunks, and remembers how far each file was acknowledged."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...network.protocol.errors import KafkaConfigurationError, RowDeliveryError
from ...producer import KafkaProducer, RowsFuture
from .bad_rows import BadRow, BadRows
from .progress import Progress
from .sources import FoundRow, Source
from .templates import Part, RecordTemplate

CHUNK_ROWS = 2000
_MAX_CHUNKS = 16


class Resume:
    """The number of rows of each file that are acknowledged or bad, kept in a file of JSON."""

    def __init__(self, path: Path | None) -> None:
        """None keeps nothing. Raises KafkaConfigurationError if the file can't be read."""
        self._path = path
        self._rows: dict[str, int] = {}
        if path is None or not path.exists():
            return
        try:
            self._rows = {str(name): int(rows) for name, rows in json.loads(path.read_text()).items()}
        except (OSError, ValueError, AttributeError, TypeError) as wrong:
            raise KafkaConfigurationError(
                f"--resume {path} can't be read ({wrong}); remove it to send everything again"
            ) from wrong

    def rows_of(self, name: str) -> int:
        """The number of the last row of the file that need not be sent again; 0 if none."""
        return self._rows.get(os.path.abspath(name), 0)

    def note(self, name: str, row: int) -> None:
        """Keep how far the file was sent. The file of JSON is replaced at once, so that a crash leaves the old one."""
        if self._path is None:
            return
        self._rows[os.path.abspath(name)] = row
        written = self._path.with_name(self._path.name + ".new")
        written.write_text(json.dumps(self._rows, indent=1))
        os.replace(written, self._path)


@dataclass
class _Chunk:
    """Rows of one file that are sent together, and the futures of their records."""

    source: Source
    numbers: list[int] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    futures: list[tuple[RowsFuture, list[int]]] = field(default_factory=list)
    last_row: int = 0


class Sending:
    """Sends the rows of files. One thread. Up to 16 chunks of 2000 rows wait for their acknowledgements."""

    def __init__(
        self, producer: KafkaProducer, template: RecordTemplate, bad_rows: BadRows, resume: Resume, progress: Progress
    ) -> None:
        self.acknowledged = 0
        self._producer = producer
        self._template = template
        self._bad_rows = bad_rows
        self._resume = resume
        self._progress = progress
        self._waiting: deque[_Chunk] = deque()

    def send(self, sources: Sequence[Source]) -> None:
        """Send everything and wait for the acknowledgements. Raises KafkaError."""
        with self._progress:
            try:
                for source in sources:
                    self._send_source(source)
            finally:
                # what was sent before a bad row or Ctrl-C is acknowledged, and so it is noted
                while self._waiting:
                    self._finish_oldest()

    def _send_source(self, source: Source) -> None:
        skipped = self._resume.rows_of(source.name)
        chunk = _Chunk(source)
        with source.open() as (rows, position):
            for found in rows:
                if found.number <= skipped:
                    continue
                self._take(chunk, found)
                if len(chunk.parts) >= CHUNK_ROWS:
                    self._send_chunk(chunk)
                    chunk = _Chunk(source)
                    self._progress.show(source, position(), self.acknowledged, self._bad_rows.count)
        self._send_chunk(chunk)

    def _take(self, chunk: _Chunk, found: FoundRow) -> None:
        chunk.last_row = found.number
        try:
            if found.problem is not None:
                raise BadRow(found.problem)
            part = self._template.part_of(found.row, found.raw)
        except BadRow as bad:
            self._send_before(chunk, found.number, str(bad), found.row)
        else:
            chunk.parts.append(part)
            chunk.numbers.append(found.number)

    def _send_before(self, chunk: _Chunk, number: int, reason: str, content: object) -> None:
        """Note a bad row. If that ends the command, the rows before it are sent."""
        try:
            self._bad_rows.add(chunk.source.name, number, reason, content)
        except BaseException:
            chunk.last_row = number - 1
            self._send_chunk(chunk)
            raise

    def _send_chunk(self, chunk: _Chunk) -> None:
        by_topic: dict[str, list[int]] = {}
        for index, part in enumerate(chunk.parts):
            by_topic.setdefault(part.topic, []).append(index)
        for topic, indexes in by_topic.items():
            self._send_to_topic(chunk, topic, indexes)
        if chunk.last_row:
            self._waiting.append(chunk)
        while len(self._waiting) > _MAX_CHUNKS:
            self._finish_oldest()

    def _send_to_topic(self, chunk: _Chunk, topic: str, indexes: list[int]) -> None:
        while indexes:
            parts = [chunk.parts[index] for index in indexes]
            try:
                future = self._producer.send_many(
                    topic,
                    [part.value for part in parts],
                    [part.key for part in parts],
                    [part.headers for part in parts],
                    [part.partition for part in parts],
                    [part.timestamp_ms for part in parts],
                )
            except RowDeliveryError as wrong:
                # nothing was sent: leave the row out, and try again
                bad = indexes.pop(wrong.row)
                self._bad_rows.add(
                    chunk.source.name, chunk.numbers[bad], str(wrong.__cause__ or wrong), chunk.parts[bad].value
                )
            else:
                chunk.futures.append((future, indexes))
                return

    def _finish_oldest(self) -> None:
        chunk = self._waiting.popleft()
        for future, indexes in chunk.futures:
            try:
                self.acknowledged += future.get().rows
            except RowDeliveryError as failed:
                number = chunk.numbers[indexes[failed.row]]
                raise type(failed.__cause__ or failed)(
                    f"{chunk.source.name}:{number} was not acknowledged: {failed.__cause__ or failed}"
                ) from failed
        self._resume.note(chunk.source.name, chunk.last_row)
