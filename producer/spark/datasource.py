"""``format("headrace")``: the sink as a Python Data Source, for batch and streaming writes.

Undocumented behavior of Spark's worker code that this module relies on (PySpark 4.0 to 4.3):

- The writer is created on the driver and pickled to the tasks, so it holds only options.
- `write` must return a message.
- A streaming writer is created on the driver for each micro-batch, and again for its commit, in another process.
- A task has the local properties of its query; the driver's processes have not. Commit messages bring them there.
- Spark never calls `abort` in a task, so `write` cleans up by itself.
- Options are strings with lower-case names.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from ...network.clock import SYSTEM_CLOCK
from ...network.protocol.errors import KafkaConfigurationError
from .batches import BatchWriter
from .committer import Committer
from .delivery import Attempt, Delivery
from .options import SinkOptions
from .report import WriteReport
from .rows import RowWriter
from .schema import check_schema, check_transport
from .sink import write_partition
from .transactions import BATCH_ID, micro_batch, new_job, transaction_timeout_ms
from .workers import spare_collections
from .writer import PartitionWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import Row, StructType

_log = logging.getLogger(__name__)

#: PySpark 4.0 streams rows only.
_HAS_STREAM_ARROW_WRITER = hasattr(datasource, "DataSourceStreamArrowWriter")


class HeadraceDataSource(DataSource):
    """``df.write.format("headrace").option("kafka.bootstrap.servers", ...).option("topic", ...).mode("append").save()``

    and ``df.writeStream.format("headrace")`` with the same options. Columns, options and guarantees are `KafkaSink`'s.
    """

    @classmethod
    def name(cls) -> str:
        """The name to pass to ``format``."""
        return "headrace"

    def writer(self, schema: StructType, overwrite: bool) -> BatchDataSourceWriter:
        """The writer of a batch write. Runs on the driver. Raises KafkaConfigurationError."""
        return BatchDataSourceWriter(self._options(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # Spark's name
        """The writer of a streaming write. Runs on the driver, and again for each commit.

        Raises KafkaConfigurationError.
        """
        # in output mode complete Spark sets `overwrite` for its result table; a topic gets each version of the table
        options = self._options(schema, overwrite=False)
        return StreamArrowWriter(options) if _HAS_STREAM_ARROW_WRITER else StreamRowWriter(options, schema)

    def _options(self, schema: StructType, overwrite: bool) -> SinkOptions:
        if overwrite:
            raise KafkaConfigurationError('a topic can\'t be overwritten: write with .mode("append")')
        options = SinkOptions.resolve(dict(self.options), {})
        check_schema(schema, options)
        check_transport(schema)
        spare_collections()
        return options


@dataclass
class Delivered(WriterCommitMessage):
    """The commit message of a task that has delivered all of its rows; with exactly_once, in a transaction."""

    report: WriteReport
    delivery: Delivery | None = None
    attempt: Attempt | None = None


class BatchDataSourceWriter(DataSourceArrowWriter):
    """Writes Arrow batches. Holds only options, and the name of the job with exactly_once."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self._started_ms = SYSTEM_CLOCK.now_ms()
        self._delivery = new_job(options) if options.is_exactly_once else None
        self._is_skipped = False
        self._timeout_ms = 0
        if self._delivery is not None:
            with Committer(options) as committer:
                self._is_skipped = not committer.begin(self._delivery)
            if not self._is_skipped:
                self._timeout_ms = transaction_timeout_ms(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Delivered:
        """Write the rows of one task. Raises RowDeliveryError."""
        if self._is_skipped:
            return Delivered(WriteReport())
        report, attempt = write_partition(self.options, BatchWriter, iterator, self._delivery, self._timeout_ms)
        return Delivered(report, self._delivery, attempt)

    def commit(self, messages: list[Any]) -> None:
        """Commit what the tasks have written, and log the report. Runs in a separate process on the driver."""
        if self._delivery is not None and not self._is_skipped:
            with Committer(self.options) as committer:
                committer.commit(self._delivery, _attempts(messages))
        report = _merged(messages)
        report.elapsed_ms = SYSTEM_CLOCK.now_ms() - self._started_ms
        if self._is_skipped:
            _log_on_driver("nothing written to %s: %s was committed before", self.options, self._delivery)
        else:
            _log_on_driver("written to %s: %s", self.options, report)

    def abort(self, messages: list[Any]) -> None:
        """Abort transactions, or log a warning, after a task has failed for the last time. Runs on the driver."""
        if self._delivery is not None:
            with Committer(self.options) as committer:
                committer.abort(self._delivery, _attempts(messages))
        _log_abort(self.options, messages)


class _StreamWriter:
    """What is common to both streaming writers: the tasks' part of exactly_once, and the end of a micro-batch."""

    options: SinkOptions
    timeout_ms: int

    def _prepare(self, options: SinkOptions) -> None:
        self.options = options
        self.timeout_ms = transaction_timeout_ms(options) if options.is_exactly_once else 0

    def _write(self, writer: Callable[..., PartitionWriter], source: Iterator[Any]) -> Delivered:
        delivery = None
        if self.options.is_exactly_once:
            context: Any = TaskContext.get()
            batch = context.getLocalProperty(BATCH_ID)
            delivery = micro_batch(self.options, -1 if batch is None else int(batch), context.getLocalProperty)
        report, attempt = write_partition(self.options, writer, source, delivery, self.timeout_ms)
        return Delivered(report, delivery, attempt)

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Commit what the tasks have written, and log the report. Runs in a separate process on the driver."""
        delivery = next((message.delivery for message in messages if message is not None), None)
        if delivery is not None:
            with Committer(self.options) as committer:
                attempts = _attempts(messages)
                try:
                    is_new = committer.begin(delivery, attempts)
                except BaseException:
                    committer.abort(delivery, attempts)
                    raise
                if is_new:
                    committer.commit(delivery, attempts)
                else:
                    committer.abort(delivery, attempts)
                    _log_on_driver("micro-batch %d to %s was committed before", batchId, self.options)
                    return
        _log_on_driver("micro-batch %d to %s: %s", batchId, self.options, _merged(messages))

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Abort transactions, or log a warning, after a task has failed for the last time.

        Spark repeats the micro-batch on a restart.
        """
        delivery = next((message.delivery for message in messages if message is not None), None)
        if delivery is not None:
            with Committer(self.options) as committer:
                committer.abort(delivery, _attempts(messages))
        _log_abort(self.options, messages)


if _HAS_STREAM_ARROW_WRITER:

    class StreamArrowWriter(_StreamWriter, datasource.DataSourceStreamArrowWriter):
        """Writes the micro-batches of a streaming query as Arrow batches. Holds only options."""

        def __init__(self, options: SinkOptions) -> None:
            self._prepare(options)

        def write(self, iterator: Iterator[pa.RecordBatch]) -> Delivered:
            """Write the rows of one task. Raises RowDeliveryError."""
            return self._write(BatchWriter, iterator)


class StreamRowWriter(_StreamWriter, DataSourceStreamWriter):
    """Writes the micro-batches of a streaming query row by row, for PySpark 4.0. Holds only options and types."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._prepare(options)
        self.schema = schema

    def write(self, iterator: Iterator[Row]) -> Delivered:
        """Write the rows of one task. Raises RowDeliveryError."""
        return self._write(functools.partial(RowWriter, schema=self.schema), iterator)


def _attempts(messages: list[Any]) -> list[Attempt]:
    return [message.attempt for message in messages if message is not None and message.attempt is not None]


def _merged(messages: list[Any]) -> WriteReport:
    return WriteReport.merged(message.report for message in messages if message is not None)


def _log_on_driver(text: str, *parts: object) -> None:
    """Log on Spark's driver. The calls come from processes that Spark starts, in which logging is not configured."""
    if not _log.hasHandlers():
        _log.addHandler(logging.StreamHandler(sys.stderr))
        _log.setLevel(logging.INFO)
    _log.info(text, *parts)


def _log_abort(options: SinkOptions, messages: list[Any]) -> None:
    if options.is_exactly_once:
        _log.warning("a write to %s failed; nothing of it takes effect, unless its commit was recorded before", options)
        return
    rows = _merged(messages).rows
    _log.warning(
        "a write to %s failed; at least %d of its rows are already in Kafka and will be duplicated if it is repeated",
        options,
        rows,
    )
