"""``format("headrace")``: the sink as a Python Data Source, for batch and streaming writes.

Undocumented behavior of Spark's worker code that this module relies on (PySpark 4.0 to 4.3):

- The writer is created on the driver and pickled to the tasks, so it holds only options.
- `write` must return a message.
- A streaming writer is created again for each commit, in another process.
- Spark never calls `abort` in a task, so `write` cleans up by itself.
- Options are strings with lower-case names.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from ...network.clock import SYSTEM_CLOCK
from ...network.protocol.errors import KafkaConfigurationError
from .batches import BatchWriter
from .options import SinkOptions
from .report import WriteReport
from .rows import RowWriter
from .schema import check_schema, check_transport
from .sink import write_partition
from .workers import spare_collections

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
    """The commit message of a task that has delivered all of its rows."""

    report: WriteReport


class BatchDataSourceWriter(DataSourceArrowWriter):
    """Writes Arrow batches. Holds only options."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self._started_ms = SYSTEM_CLOCK.now_ms()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Delivered:
        """Write the rows of one task. Raises RowDeliveryError."""
        return Delivered(write_partition(self.options, BatchWriter, iterator))

    def commit(self, messages: list[Any]) -> None:
        """Log the report after every task has delivered its rows. Runs on the driver."""
        report = _merged(messages)
        report.elapsed_ms = SYSTEM_CLOCK.now_ms() - self._started_ms
        _tell("written to %s: %s", self.options, report)

    def abort(self, messages: list[Any]) -> None:
        """Log a warning after a task has failed for the last time. Runs on the driver."""
        _tell_of_abort(self.options, messages)


class _StreamWriter:
    """The end of a micro-batch, common to both streaming writers."""

    options: SinkOptions

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Log the report of a delivered micro-batch. Runs in a separate process on the driver."""
        _tell("micro-batch %d to %s: %s", batchId, self.options, _merged(messages))

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Log a warning after a task has failed for the last time. Spark repeats the micro-batch on a restart."""
        _tell_of_abort(self.options, messages)


if _HAS_STREAM_ARROW_WRITER:

    class StreamArrowWriter(_StreamWriter, datasource.DataSourceStreamArrowWriter):
        """Writes the micro-batches of a streaming query as Arrow batches. Holds only options."""

        def __init__(self, options: SinkOptions) -> None:
            self.options = options

        def write(self, iterator: Iterator[pa.RecordBatch]) -> Delivered:
            """Write the rows of one task. Raises RowDeliveryError."""
            return Delivered(write_partition(self.options, BatchWriter, iterator))


class StreamRowWriter(_StreamWriter, DataSourceStreamWriter):
    """Writes the micro-batches of a streaming query row by row, for PySpark 4.0. Holds only options and types."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema

    def write(self, iterator: Iterator[Row]) -> Delivered:
        """Write the rows of one task. Raises RowDeliveryError."""
        return Delivered(write_partition(self.options, functools.partial(RowWriter, schema=self.schema), iterator))


def _merged(messages: list[Any]) -> WriteReport:
    return WriteReport.merged(message.report for message in messages if message is not None)


def _tell(text: str, *parts: object) -> None:
    """Log on Spark's driver. The calls come from processes that Spark starts, in which logging is not configured."""
    if not _log.hasHandlers():
        _log.addHandler(logging.StreamHandler(sys.stderr))
        _log.setLevel(logging.INFO)
    _log.info(text, *parts)


def _tell_of_abort(options: SinkOptions, messages: list[Any]) -> None:
    rows = _merged(messages).rows
    _log.warning(
        "a write to %s failed; at least %d of its rows are already in Kafka and will be duplicated if it is repeated",
        options,
        rows,
    )
