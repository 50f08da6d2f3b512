"""The part of a task common to the row path and the Arrow path: send the rows, flush, and check each delivery."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...network.clock import SYSTEM_CLOCK, Clock
from ...network.protocol.errors import KafkaError, RowDeliveryError, SerializationError
from ..columns.rows_future import RowsFuture
from ..kafka_producer import KafkaProducer
from ..record_errors import row_error
from .formats import UnfitValueError
from .options import SinkOptions
from .report import WriteReport

COLUMNS = ("value", "key", "headers", "topic", "partition", "timestamp")

#: The number of chunks in flight before the task waits for the oldest. The producer's buffer.memory bounds the records;
#: this bounds their futures.
MAX_PENDING_CHUNKS = 1024


class PartitionWriter:
    """Writes the rows of one Spark partition in the thread of its task. Subclasses make the chunks and send them.

    Invariant: chunks are sent in order, and `_pending` holds the futures whose results have not been checked yet.
    """

    def __init__(self, producer: KafkaProducer, options: SinkOptions, where: str, clock: Clock = SYSTEM_CLOCK) -> None:
        """`where` names the Spark partition in messages."""
        self._producer = producer
        self._options = options
        self._where = where
        self._clock = clock
        self._pending: deque[tuple[int, RowsFuture]] = deque()
        self._report = WriteReport(tasks=1)

    def write(self, source: Iterable[Any]) -> WriteReport:
        """Send all rows, and return when each has been acknowledged.

        Raises RowDeliveryError for the first row that can't be sent or was not delivered. All rows before it were.
        """
        started_ms = self._clock.now_ms()
        first_row = 0
        for chunk in self._chunks(source):
            try:
                future = self._send(chunk)
            except KafkaError as error:
                # a chunk sent earlier may have failed too, and its error comes first
                self._settle_all()
                raise self._failure(first_row, error) from error
            self._pending.append((first_row, future))
            first_row += len(chunk)
            while self._pending and (len(self._pending) > MAX_PENDING_CHUNKS or self._pending[0][1].done()):
                self._settle(*self._pending.popleft())
        self._settle_all()
        self._report.task_ms = self._clock.now_ms() - started_ms
        return self._report

    def _chunks(self, source: Iterable[Any]) -> Iterator[Any]:
        """Divide the source into chunks, each with a length in rows."""
        raise TypeError("a subclass must implement _chunks")

    def _send(self, chunk: Any) -> RowsFuture:
        """Send a chunk. Raises KafkaError; its `row`, if any, is relative to the chunk."""
        raise TypeError("a subclass must implement _send")

    def _settle_all(self) -> None:
        if self._pending:
            # no more rows will come, so don't wait for linger.ms
            self._producer.flush()
        while self._pending:
            self._settle(*self._pending.popleft())

    def _settle(self, first_row: int, future: RowsFuture) -> None:
        """Wait for a chunk's delivery. Raises RowDeliveryError for its first row that failed."""
        error = future.exception()
        if error is not None:
            raise self._failure(first_row, error) from error.__cause__
        delivered = future.metadata
        report = self._report
        report.rows += delivered.rows
        report.bytes += delivered.bytes
        report.batches += delivered.batches
        report.retries += delivered.retries
        for (topic, partition), found in delivered.offsets.items():
            report.note((topic, partition), found)

    def _failure(self, first_row: int, error: KafkaError) -> RowDeliveryError:
        """The error of the task, with the row of the Spark partition, its topic and partition, and the cause."""
        row, topic, partition, cause = first_row, self._options.topic, -1, error
        if isinstance(error, RowDeliveryError):
            row += error.row
            topic = error.topic or topic
            partition = error.partition
            cause = error.__cause__ or error
        return row_error(row, topic, partition, cause, f" of {self._where}")


@contextlib.contextmanager
def naming(column: str) -> Iterator[None]:
    """Add the column's name to the error for a value that a format can't express."""
    try:
        yield
    except UnfitValueError as unfit:
        cause = SerializationError(f"the column {column!r}: {unfit}")
        raise row_error(unfit.index, None, -1, cause) from cause


def missing_value(names: Iterable[str]) -> SerializationError:
    """The error for a missing column `value`."""
    return SerializationError(
        f"there is no column 'value' among {', '.join(names)}: select one AS value (for all columns, "
        f"to_json(struct(*)) AS value, or struct(*) AS value with value_format='json')"
    )


def check_doubled(names: Sequence[str]) -> None:
    """Raises SerializationError if a column that is written to Kafka appears twice."""
    for name in COLUMNS:
        if names.count(name) > 1:
            raise SerializationError(f"there are {names.count(name)} columns {name!r}; keep one")


def no_topic() -> SerializationError:
    """The error for rows without a topic, in a column or in the options."""
    return SerializationError("no topic: give the sink topic='...', or the DataFrame a column 'topic'")


def null_topic() -> SerializationError:
    """The error for a row whose topic is null when the sink has no option topic."""
    return SerializationError("the column 'topic' is null, and the sink has no option topic")
