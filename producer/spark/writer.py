"""What a task does with its rows, whichever door they came through: send, flush, and answer for each."""

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

#: So many chunks may be on the way before the oldest is waited for. The producer's buffer.memory bounds the records;
#: this bounds what is kept to answer for them.
MAX_PENDING_CHUNKS = 1024


class PartitionWriter:
    """Writes the rows of one Spark partition, in the thread of its task; a door says what a chunk is and sends it.

    Invariant: chunks are sent in order, and `_pending` holds the futures of those whose fate was not looked at yet.
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
        """Send everything, and return when each row has been acknowledged.

        Raises RowDeliveryError for the first row that can't be sent or was not delivered; the rows before it were.
        """
        started_ms = self._clock.now_ms()
        first_row = 0
        for chunk in self._chunks(source):
            try:
                future = self._send(chunk)
            except KafkaError as error:
                # what was sent before it may have failed as well, and came first
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
        """Cut what the door gives into chunks that have a length."""
        raise TypeError("a door has to say what its chunks are")

    def _send(self, chunk: Any) -> RowsFuture:
        """Send a chunk. Raises KafkaError, whose `row` (if it has one) counts within the chunk."""
        raise TypeError("a door has to say how its chunks are sent")

    def _settle_all(self) -> None:
        if self._pending:
            # nobody waits for linger.ms any more
            self._producer.flush()
        while self._pending:
            self._settle(*self._pending.popleft())

    def _settle(self, first_row: int, future: RowsFuture) -> None:
        """Wait for the fate of a chunk. Raises RowDeliveryError for its first row that failed."""
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
        """The error of the task: which row of the Spark partition, where it was going, and why it did not arrive."""
        row, topic, partition, cause = first_row, self._options.topic, -1, error
        if isinstance(error, RowDeliveryError):
            row += error.row
            topic = error.topic or topic
            partition = error.partition
            cause = error.__cause__ or error
        return row_error(row, topic, partition, cause, f" of {self._where}")


@contextlib.contextmanager
def naming(column: str) -> Iterator[None]:
    """Say which column a value is in that a format can't express."""
    try:
        yield
    except UnfitValueError as unfit:
        cause = SerializationError(f"the column {column!r}: {unfit}")
        raise row_error(unfit.index, None, -1, cause) from cause


def missing_value(names: Iterable[str]) -> SerializationError:
    """There is no column to send."""
    return SerializationError(
        f"there is no column 'value' among {', '.join(names)}: select one AS value (for all columns, "
        f"to_json(struct(*)) AS value, or struct(*) AS value with value_format='json')"
    )


def check_doubled(names: Sequence[str]) -> None:
    """Raises SerializationError where a column that Kafka has a use for is there twice."""
    for name in COLUMNS:
        if names.count(name) > 1:
            raise SerializationError(f"there are {names.count(name)} columns {name!r}; keep one")


def no_topic() -> SerializationError:
    """Nothing says where to send."""
    return SerializationError("no topic: give the sink topic='...', or the DataFrame a column 'topic'")


def null_topic() -> SerializationError:
    """A row doesn't say where to send it, and nothing else does."""
    return SerializationError("the column 'topic' is null, and the sink has no option topic")
