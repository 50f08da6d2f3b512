"""`KafkaSink`, which writes the rows of DataFrames and RDDs to Kafka."""

from __future__ import annotations

import functools
import logging
import pickle
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from ...network.clock import SYSTEM_CLOCK
from ...network.protocol.errors import KafkaConfigurationError
from ..config import ProducerConfig
from .interpreted import warn_if_interpreted
from .options import SinkOptions
from .producers import worker_producers
from .report import ReportAccumulatorParam, WriteReport
from .row_types import schema_being_written
from .rows import RowWriter
from .schema import check_schema
from .ui import METRICS, counted, described
from .workers import spare_collections
from .writer import COLUMNS, PartitionWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType
    from typing_extensions import Unpack

    from ..keywords import ProducerKeywords, UnpackedMapping

    _Format = Literal["raw", "string", "json", "msgpack"] | str

_log = logging.getLogger(__name__)

_REPORT_COLUMNS = ", ".join(["report binary", *(f"{name} long" for name in METRICS)])


class KafkaSink:
    """Writes the rows of a DataFrame or RDD to Kafka, at least once.

        sink = KafkaSink({"bootstrap.servers": "localhost:9092"}, topic="flights")
        df.foreachPartition(sink)                           # rows, of any DataFrame or RDD
        report = sink.write(df)                             # Arrow batches
        df.writeStream.foreachBatch(sink.write_batch)       # micro-batches

    The columns are those of Spark's own Kafka sink: `value` (required; null is a tombstone), `key`, `headers` (an array
    of structs of key and value), `topic` (overridden by the option) and `partition`; plus `timestamp`. Other columns
    are ignored.

    - `config`: the producer's configuration and the options below, with or without Spark's prefix ``kafka.``.
    - `topic`: the topic of all rows. Without it the column `topic` is required.
    - `value_format`, `key_format`: the encoding of a column. `raw` (strings and binary; the default), `string`, `json`
      or `msgpack`.
    - `include_headers`: whether the column `headers` is written. True by default.
    - `keywords`: further keys of the producer's configuration. Keyword arguments override `config`.

    All options are validated here, on the driver. The sink is pickled to the executors, where all tasks of a Python
    worker share one producer. A task flushes its rows before it ends, and fails on the first row that can't be
    delivered. Spark then retries the task, which duplicates the rows that were delivered.

    Raises KafkaConfigurationError.
    """

    @overload
    def __init__(
        self,
        config: Mapping[str, Any] | ProducerConfig | None = None,
        /,
        *,
        topic: str | None = ...,
        value_format: _Format | None = ...,
        key_format: _Format | None = ...,
        include_headers: bool | None = ...,
        **keywords: Unpack[ProducerKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self,
        config: Mapping[str, Any] | ProducerConfig | None = None,
        /,
        *,
        topic: Any = ...,
        value_format: Any = ...,
        key_format: Any = ...,
        include_headers: Any = ...,
        **keywords: Unpack[UnpackedMapping],
    ) -> None: ...
    def __init__(
        self,
        config: Mapping[str, Any] | ProducerConfig | None = None,
        /,
        *,
        topic: str | None = None,
        value_format: str | None = None,
        key_format: str | None = None,
        include_headers: bool | None = None,
        **keywords: Any,
    ) -> None:
        own = {
            "topic": topic,
            "value_format": value_format,
            "key_format": key_format,
            "include_headers": include_headers,
        }
        self.options = SinkOptions.resolve(config, {**own, **keywords})
        self._reports = _accumulator()
        self._written = WriteReport()
        # the types of the rows, set in the copies that workers receive
        self._schema: StructType | None = None

    def __call__(self, rows: Iterable[Any]) -> None:
        """Write the rows of one Spark partition. ``foreachPartition`` calls this in a Python worker.

        Raises RowDeliveryError.
        """
        self._write(functools.partial(RowWriter, schema=self._schema), rows)

    def write(self, df: DataFrame) -> WriteReport:
        """Write a DataFrame as Arrow batches, the fastest way, and return a report. Call on the driver.

        Raises KafkaConfigurationError for a schema that can't be written. Raises Spark's error, whose message has the
        row and the cause, if a task fails on its last attempt.
        """
        check_schema(df.schema, self.options)
        if df.isStreaming:
            raise KafkaConfigurationError(
                "this is a streaming DataFrame: write it with df.writeStream.foreachBatch(sink.write_batch), or with "
                "df.writeStream.format('headrace')"
            )
        started_ms = SYSTEM_CLOCK.now_ms()
        reports = _only_columns(df).mapInArrow(self._write_batches, _REPORT_COLUMNS)
        with described(df, f"headrace: to {self.options}"):
            reports = counted(reports).collect()
        report = WriteReport.merged(pickle.loads(row.report) for row in reports)
        report.elapsed_ms = SYSTEM_CLOCK.now_ms() - started_ms
        self._written.add(report)
        return report

    def write_batch(self, df: DataFrame, batch_id: int) -> None:
        """Write a micro-batch and log its report, for ``df.writeStream.foreachBatch(sink.write_batch)``.

        If Spark repeats a micro-batch after a failure or a restart, its rows are written again.
        """
        report = self.write(df)
        _log.info("micro-batch %d to %s: %s", batch_id, self.options, report)

    def _write_batches(self, batches: Iterator[Any]) -> Iterator[Any]:
        """One task of `write`, in a Python worker."""
        import pyarrow as pa  # noqa: PLC0415  (the row path does not need it)

        report = self._write(_batch_writer(), batches)
        pickled = pickle.dumps(report)
        # from buffers, because pyarrow's constructors import pandas, which takes longer than a small task
        column = pa.Array.from_buffers(
            pa.binary(), 1, [None, pa.py_buffer(array("i", (0, len(pickled)))), pa.py_buffer(pickled)]
        )
        metrics = [
            pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(array("q", (getattr(report, name),)))])
            for name in METRICS
        ]
        yield pa.RecordBatch.from_arrays([column, *metrics], names=["report", *METRICS])

    def _write(self, writer: Callable[..., PartitionWriter], source: Iterable[Any]) -> WriteReport:
        report = write_partition(self.options, writer, source)
        if self._reports is not None:
            self._reports.add(report)
        return report

    @property
    def report(self) -> WriteReport:
        """The total of this sink's finished tasks so far, from a Spark accumulator. Read on the driver.

        Spark Connect has no accumulators; there it is the total of `write` and `write_batch`.
        """
        return self._written if self._reports is None else self._reports.value

    def __getstate__(self) -> dict[str, Any]:
        """The state sent to the workers."""
        # the sink may be older than the session, and then has no accumulator yet
        if self._reports is None:
            self._reports = _accumulator()
        return {**self.__dict__, "_written": WriteReport(), "_schema": schema_being_written(self)}

    def __repr__(self) -> str:
        return f"KafkaSink({self.options})"


def write_partition(options: SinkOptions, writer: Callable[..., PartitionWriter], source: Iterable[Any]) -> WriteReport:
    """Write one Spark partition with this worker's producer. Raises RowDeliveryError."""
    warn_if_interpreted()
    spare_collections()
    name, number = _task()
    with worker_producers().lease(options.digest, options.config) as producer:
        report = writer(producer, options, name).write(source)
    report.slowest_task = (number, report.task_ms)
    return report


def _only_columns(df: DataFrame) -> DataFrame:
    """Drop the columns that are not written to Kafka."""
    if any(name.lower() in COLUMNS and name not in COLUMNS for name in df.columns):
        # Spark ignores case, so that `value` would select both `value` and `VALUE`
        df = df.toDF(*(name if name in COLUMNS else f"other {place}" for place, name in enumerate(df.columns)))
    return df.select(*(name for name in df.columns if name in COLUMNS))


def _batch_writer() -> type[PartitionWriter]:
    from .batches import BatchWriter  # noqa: PLC0415  (needs pyarrow)

    return BatchWriter


def _task() -> tuple[str, int]:
    """The name of this task's Spark partition in messages, and its number."""
    pyspark = sys.modules.get("pyspark")
    context = pyspark.TaskContext.get() if pyspark is not None else None
    if context is None:
        return "the rows", 0
    return f"Spark partition {context.partitionId()} (attempt {context.attemptNumber()})", context.partitionId()


def _accumulator() -> Any:
    """An accumulator for the tasks' reports, or None if this driver has no classic Spark session yet."""
    pyspark = sys.modules.get("pyspark")
    context = getattr(getattr(pyspark, "SparkContext", None), "_active_spark_context", None)
    if context is None:
        return None
    from pyspark.sql.utils import is_remote  # noqa: PLC0415  (pyspark is optional)

    # a Spark Connect server that PySpark runs in this process has a context, but it does not belong to the session
    return None if is_remote() else context.accumulator(WriteReport(), ReportAccumulatorParam())
