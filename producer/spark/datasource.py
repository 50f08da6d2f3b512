"""``format("headrace")``: the sink as a Python Data Source, for batch and streaming writes.

What Spark's worker code makes of it, beyond its documentation (PySpark 4.0 to 4.3): the writer is made on the driver
and pickled into the tasks, so that it holds nothing but options; `write` has to return a message; a streaming writer is
made anew for each commit, in another process; a task is never told to abort, so that `write` cleans up by itself;
options come in lower case, as texts.
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
        """What stands in ``format``."""
        return "headrace"

    def writer(self, schema: StructType, overwrite: bool) -> BatchDataSourceWriter:
        """For a batch write. Raises KafkaConfigurationError. Driver."""
        return BatchDataSourceWriter(self._options(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # Spark's name
        """For a streaming write. Raises KafkaConfigurationError. Driver, and once more for each commit."""
        # what is overwritten in the output mode complete is the sink's result table; a topic takes each version of it
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
    """What a task tells of itself when it has delivered everything."""

    report: WriteReport


class BatchDataSourceWriter(DataSourceArrowWriter):
    """Writes Arrow batches. Holds options only."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self._started_ms = SYSTEM_CLOCK.now_ms()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Delivered:
        """One task. Raises RowDeliveryError."""
        return Delivered(write_partition(self.options, BatchWriter, iterator))

    def commit(self, messages: list[Any]) -> None:
        """Every task has delivered what it had. Driver."""
        report = _merged(messages)
        report.elapsed_ms = SYSTEM_CLOCK.now_ms() - self._started_ms
        _tell("written to %s: %s", self.options, report)

    def abort(self, messages: list[Any]) -> None:
        """A task failed for good. Driver."""
        _tell_of_abort(self.options, messages)


class _StreamWriter:
    """What both streaming writers do when a micro-batch ends."""

    options: SinkOptions

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Every task of the micro-batch has delivered what it had. Driver, in a process of its own."""
        _tell("micro-batch %d to %s: %s", batchId, self.options, _merged(messages))

    def abort(self, messages: list[Any], batchId: int) -> None:
        """A task failed for good; Spark runs the micro-batch again when the query is started again."""
        _tell_of_abort(self.options, messages)


if _HAS_STREAM_ARROW_WRITER:

    class StreamArrowWriter(_StreamWriter, datasource.DataSourceStreamArrowWriter):
        """Writes the micro-batches of a streaming query as Arrow batches. Holds options only."""

        def __init__(self, options: SinkOptions) -> None:
            self.options = options

        def write(self, iterator: Iterator[pa.RecordBatch]) -> Delivered:
            """One task. Raises RowDeliveryError."""
            return Delivered(write_partition(self.options, BatchWriter, iterator))


class StreamRowWriter(_StreamWriter, DataSourceStreamWriter):
    """Writes the micro-batches of a streaming query row by row, for PySpark 4.0. Holds options and types only."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema

    def write(self, iterator: Iterator[Row]) -> Delivered:
        """One task. Raises RowDeliveryError."""
        return Delivered(write_partition(self.options, functools.partial(RowWriter, schema=self.schema), iterator))


def _merged(messages: list[Any]) -> WriteReport:
    return WriteReport.merged(message.report for message in messages if message is not None)


def _tell(text: str, *parts: object) -> None:
    """Log on Spark's driver. It calls from processes of its own, in which nobody has set logging up."""
    if not _log.hasHandlers():
        _log.addHandler(logging.StreamHandler(sys.stderr))
        _log.setLevel(logging.INFO)
    _log.info(text, *parts)


def _tell_of_abort(options: SinkOptions, messages: list[Any]) -> None:
    rows = _merged(messages).rows
    _log.warning(
        "a write to %s failed; at least %d of its rows are in Kafka already and will be there twice if it is repeated",
        options,
        rows,
    )
