"""The row door: from Spark's rows, one Python object each, to the producer.

Rows are taken a chunk at a time and turned into columns, so that what has to be decided (which column is which, how a
value becomes bytes) is decided once a chunk and not once a row.
"""

from __future__ import annotations

import datetime
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, repeat
from typing import Any

from ...network.clock import SYSTEM_CLOCK, Clock
from ...network.protocol.errors import KafkaError, RowDeliveryError, SerializationError
from ..batch_cy import RecordFuture
from ..kafka_producer import KafkaProducer
from .formats import UnfitValueError, encoder
from .options import SinkOptions
from .report import OffsetRange, WriteReport

COLUMNS = ("value", "key", "headers", "topic", "partition", "timestamp")

CHUNK_ROWS = 256

#: So many chunks may be on the way before the oldest is waited for: it bounds the memory of futures, where the
#: producer's buffer.memory bounds that of records.
MAX_PENDING_CHUNKS = 256

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MILLISECOND = datetime.timedelta(milliseconds=1)


class RowWriter:
    """Sends the rows of one Spark partition, in the thread of its task.

    Invariant: rows are sent in order, and `_pending` holds the futures of those whose fate was not looked at yet.
    """

    def __init__(self, producer: KafkaProducer, options: SinkOptions, where: str, clock: Clock = SYSTEM_CLOCK) -> None:
        """`where` names the Spark partition in messages."""
        self._producer = producer
        self._options = options
        self._where = where
        self._clock = clock
        self._pending: deque[tuple[int, list[RecordFuture]]] = deque()
        self._report = WriteReport(tasks=1)

    def write(self, rows: Iterable[Any]) -> WriteReport:
        """Send every row, and return when each has been acknowledged.

        Raises RowDeliveryError for the first row that can't be sent or was not delivered.
        """
        started_ms = self._clock.now_ms()
        remaining = iter(rows)
        first_row = 0
        while chunk := list(islice(remaining, CHUNK_ROWS)):
            self._pending.append((first_row, self._send(first_row, chunk)))
            first_row += len(chunk)
            while len(self._pending) > MAX_PENDING_CHUNKS or (self._pending and self._pending[0][1][-1].done()):
                self._settle(*self._pending.popleft())
        self._producer.flush()
        while self._pending:
            self._settle(*self._pending.popleft())
        self._report.task_ms = self._clock.now_ms() - started_ms
        return self._report

    def _send(self, first_row: int, chunk: list[Any]) -> list[RecordFuture]:
        columns = dict(self._columns(first_row, chunk))
        topics = self._topics(first_row, columns)
        options = self._options
        values = self._encoded(first_row, "value", columns["value"], options.value_format)
        keys = columns.get("key")
        keys = repeat(None) if keys is None else self._encoded(first_row, "key", keys, options.key_format)
        headers = columns.get("headers") if options.include_headers else None
        headers = repeat(None) if headers is None else [_header_pairs(item) for item in headers]
        partitions = columns.get("partition") or repeat(None)
        timestamps = columns.get("timestamp")
        timestamps = repeat(None) if timestamps is None else [_milliseconds(item) for item in timestamps]
        send = self._producer.send
        futures: list[RecordFuture] = []
        try:
            for topic, value, key, header, partition, timestamp in zip(
                topics, values, keys, headers, partitions, timestamps, strict=False
            ):
                futures.append(send(topic, value, key, header, partition, timestamp))
                self._report.bytes += (len(value) if value else 0) + (len(key) if key else 0)
        except Exception as error:
            # what was sent before it may have failed too, and came first
            self._settle_all(first_row, futures)
            index = len(futures)
            partition = columns["partition"][index] if "partition" in columns else None
            raise self._failure(first_row + index, self._topic_at(columns, index), partition, error) from error
        return futures

    def _columns(self, first_row: int, chunk: list[Any]) -> Iterator[tuple[str, Sequence[Any]]]:
        """The chunk's columns by name, those that Kafka has no use for left out."""
        fields = _fields_of(chunk[0])
        if fields is None:
            for index, row in enumerate(chunk):
                if not isinstance(row, (bytes, bytearray, str, type(None))):
                    raise self._failure(first_row + index, None, None, _not_a_row(row))
            yield "value", chunk
            return
        if isinstance(chunk[0], dict):
            chunk = [tuple(map(row.get, fields)) if isinstance(row, dict) else row for row in chunk]
        else:
            for index, row in enumerate(chunk):
                if _fields_of(row) != fields:
                    raise self._failure(
                        first_row + index,
                        None,
                        None,
                        SerializationError(f"the rows have different columns: {fields} at first, then another kind"),
                    )
        if "value" not in fields:
            raise self._failure(first_row, None, None, missing_value(fields))
        for name, column in zip(fields, zip(*chunk, strict=True), strict=True):
            if name in COLUMNS:
                yield name, column

    def _topics(self, first_row: int, columns: dict[str, Sequence[Any]]) -> Iterable[str]:
        if self._options.topic is not None:
            return repeat(self._options.topic)
        topics = columns.get("topic")
        if topics is None:
            raise self._failure(first_row, None, None, no_topic())
        for index, topic in enumerate(topics):
            if topic is None:
                raise self._failure(
                    first_row + index,
                    None,
                    None,
                    SerializationError("the column 'topic' is null, and the sink has no topic option"),
                )
        return topics

    def _topic_at(self, columns: dict[str, Sequence[Any]], index: int) -> str | None:
        return self._options.topic or (columns["topic"][index] if "topic" in columns else None)

    def _encoded(self, first_row: int, name: str, column: Sequence[Any], form: str) -> Sequence[Any]:
        if form == "serializer":
            return column
        try:
            return encoder(form)(column)
        except UnfitValueError as unfit:
            error = SerializationError(f"the column {name!r}: {unfit}")
            raise self._failure(first_row + unfit.index, self._options.topic, None, error) from unfit

    def _settle_all(self, first_row: int, futures: list[RecordFuture]) -> None:
        while self._pending:
            self._settle(*self._pending.popleft())
        self._settle(first_row, futures)

    def _settle(self, first_row: int, futures: list[RecordFuture]) -> None:
        """Wait for the fate of these rows. Raises RowDeliveryError for the first that failed."""
        note = self._report.note
        for index, future in enumerate(futures):
            error = future.exception()
            if error is not None:
                topic, partition = future.topic_partition
                raise self._failure(first_row + index, topic, partition, error) from error
            metadata = future.get()
            note((metadata.topic, metadata.partition), OffsetRange(metadata.offset, metadata.offset, 1))
        self._report.rows += len(futures)

    def _failure(self, row: int, topic: str | None, partition: int | None, cause: BaseException) -> RowDeliveryError:
        return row_failure(self._where, row, topic, -1 if partition is None else partition, cause)


def row_failure(where: str, row: int, topic: str | None, partition: int, cause: BaseException) -> RowDeliveryError:
    """The error of a task: which row, where it was going, and why it did not arrive. Never what is in the row."""
    going = "" if topic is None else f" for {topic}" + (f"-{partition}" if partition >= 0 else "")
    name = "" if isinstance(cause, SerializationError) else f"{type(cause).__name__}: "
    error = RowDeliveryError(
        f"row {row} of {where}{going} was not delivered: {name}{cause}", topic=topic, partition=partition, row=row
    )
    error.__cause__ = cause
    return error


def missing_value(names: Iterable[str]) -> KafkaError:
    """There is no column to send."""
    return SerializationError(
        f"there is no column 'value' among {', '.join(names)}: select one AS value (for all columns, "
        f"to_json(struct(*)) AS value, or struct(*) AS value with value_format='json')"
    )


def no_topic() -> KafkaError:
    """Nothing says where to send."""
    return SerializationError("no topic: give the sink topic='...', or the DataFrame a column 'topic'")


def _not_a_row(row: Any) -> KafkaError:
    return SerializationError(
        f"a {type(row).__name__} is no row: the elements of an RDD are Rows, named tuples, dicts, or just values "
        f"(bytes or strings)"
    )


def _fields_of(row: Any) -> Sequence[str] | None:
    """The names of a row's columns; None for a value by itself."""
    fields = getattr(row, "__fields__", None)
    if fields is None:
        fields = getattr(row, "_fields", None)
        if fields is None and isinstance(row, dict):
            return COLUMNS if "value" in row else tuple(row)
    return fields


def _header_pairs(headers: Any) -> list[tuple[str, bytes | None]] | None:
    """Headers as the producer takes them, from an array of structs of a key and a value."""
    if headers is None:
        return None
    return [(key, bytes(value) if isinstance(value, bytearray) else value) for key, value in headers]


def _milliseconds(value: Any) -> Any:
    """A timestamp column's value as milliseconds since 1970; whole numbers are such milliseconds already."""
    if isinstance(value, datetime.datetime):
        return (value.astimezone(datetime.timezone.utc) - _EPOCH) // _MILLISECOND
    return value
