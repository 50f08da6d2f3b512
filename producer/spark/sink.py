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
from .committer import Committer
from .delivery import Attempt, Delivery
from .interpreted import warn_if_interpreted
from .options import SinkOptions
from .producers import worker_producers
from .report import ReportAccumulatorParam, WriteReport
from .row_types import schema_being_written
from .rows import RowWriter
from .schema import check_schema
from .transactions import (
    micro_batch,
    micro_batch_of_connect,
    new_job,
    transaction_timeout_ms,
    write_in_transaction,
)
from .ui import METRICS, counted, described
from .workers import spare_collections
from .writer import COLUMNS, PartitionWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType
    from typing_extensions import Unpack

    from ..keywords import ProducerKeywords, UnpackedMapping

    _Format = Literal["raw", "string", "json", "msgpack", "avro", "protobuf"] | str
    _Guarantee = Literal["at_least_once", "exactly_once"] | str

_log = logging.getLogger(__name__)

_REPORT_COLUMNS = ", ".join(["report binary", *(f"{name} long" for name in METRICS)])


class KafkaSink:
    """Writes the rows of a DataFrame or RDD to Kafka, at least once or exactly once.

        sink = KafkaSink({"bootstrap.servers": "localhost:9092"}, topic="flights")
        df.foreachPartition(sink)                           # rows, of any DataFrame or RDD
        report = sink.write(df)                             # Arrow batches
        df.writeStream.foreachBatch(sink.write_batch)       # micro-batches

    The columns are those of Spark's own Kafka sink: `value` (required; null is a tombstone), `key`, `headers` (an array
    of structs of key and value), `topic` (overridden by the option) and `partition`; plus `timestamp`. Other columns
    are ignored.

    - `config`: the producer's configuration and the options below, with or without Spark's prefix ``kafka.``.
    - `topic`: the topic of all rows. Without it the column `topic` is required.
    - `value_format`, `key_format`: the encoding of a column. `raw` (strings and binary; the default), `string`, `json`,
      `msgpack`, `avro` or `protobuf`. The last two need ``schema.registry.url`` in `config` (docs/spark.md).
    - `include_headers`: whether the column `headers` is written. True by default.
    - `delivery_guarantee`: `at_least_once` (the default) or `exactly_once`, with which a consumer with
      ``isolation.level=read_committed`` sees each row once. Not for ``foreachPartition``.
    - `delivery_id`: with `exactly_once`, the name of a job, which is written only once under this name; or of a
      sink, if a streaming query has several.
    - `keywords`: further keys of the producer's configuration. Keyword arguments override `config`.

    All options are validated here, on the driver. The sink is pickled to the executors, where all tasks of a Python
    worker share one producer, or with `exactly_once` each attempt has its own. A task flushes its rows before it ends,
    and fails on the first row that can't be delivered. Spark then retries the task, which duplicates the rows that were
    delivered, unless `exactly_once`.

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
        delivery_guarantee: _Guarantee | None = ...,
        delivery_id: str | None = ...,
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
        delivery_guarantee: Any = ...,
        delivery_id: Any = ...,
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
        delivery_guarantee: str | None = None,
        delivery_id: str | None = None,
        **keywords: Any,
    ) -> None:
        own = {
            "topic": topic,
            "value_format": value_format,
            "key_format": key_format,
            "include_headers": include_headers,
            "delivery_guarantee": delivery_guarantee,
            "delivery_id": delivery_id,
        }
        self.options = SinkOptions.resolve(config, {**own, **keywords})
        self._reports = _accumulator()
        self._written = WriteReport()
        # the types of the rows, set in the copies that workers receive
        self._schema: StructType | None = None

    def __call__(self, rows: Iterable[Any]) -> None:
        """Write the rows of one Spark partition. ``foreachPartition`` calls this in a Python worker.

        Raises RowDeliveryError, and KafkaConfigurationError with `exactly_once`, because Spark does not say when all
        tasks have ended.
        """
        if self.options.is_exactly_once:
            raise KafkaConfigurationError(
                "foreachPartition can't write exactly once: use sink.write(df), df.write.format('headrace') or, for a "
                "stream, foreachBatch(sink.write_batch)"
            )
        self._write(functools.partial(RowWriter, schema=self._schema), rows)

    def write(self, df: DataFrame) -> WriteReport:
        """Write a DataFrame as Arrow batches, the fastest way, and return a report. Call on the driver.

        With `exactly_once` and a `delivery_id` that was written before, nothing is written and the report is empty.

        Raises KafkaConfigurationError for a schema that can't be written. Raises Spark's error, whose message has the
        row and the cause, if a task fails on its last attempt. With `exactly_once`, raises DeliveryNotCommittedError if
        nothing was committed, and DeliveryPartlyLostError.
        """
        return self._write_frame(df, new_job(self.options) if self.options.is_exactly_once else None)

    def write_batch(self, df: DataFrame, batch_id: int) -> None:
        """Write a micro-batch and log its report, for ``df.writeStream.foreachBatch(sink.write_batch)``.

        If Spark repeats a micro-batch after a failure or a restart, its rows are written again, unless `exactly_once`:
        then it is committed only once. Raises what `write` raises.
        """
        delivery = None
        if self.options.is_exactly_once:
            if hasattr(df, "_jdf"):
                context = df.sparkSession.sparkContext
                delivery = micro_batch(self.options, batch_id, context.getLocalProperty)
            else:
                delivery = micro_batch_of_connect(self.options, batch_id)
        report = self._write_frame(df, delivery)
        _log.info("micro-batch %d to %s: %s", batch_id, self.options, report)

    def _write_frame(self, df: DataFrame, delivery: Delivery | None) -> WriteReport:
        check_schema(df.schema, self.options)
        if df.isStreaming:
            raise KafkaConfigurationError(
                "this is a streaming DataFrame: write it with df.writeStream.foreachBatch(sink.write_batch), or with "
                "df.writeStream.format('headrace')"
            )
        started_ms = SYSTEM_CLOCK.now_ms()
        report = WriteReport()
        if delivery is None:
            report = WriteReport.merged(each for each, _ in self._run_tasks(df, None, 0))
        else:
            with Committer(self.options) as committer:
                if committer.begin(delivery):
                    report = self._write_once(df, delivery, committer)
        report.elapsed_ms = SYSTEM_CLOCK.now_ms() - started_ms
        self._written.add(report)
        return report

    def _write_once(self, df: DataFrame, delivery: Delivery, committer: Committer) -> WriteReport:
        timeout_ms = transaction_timeout_ms(self.options)
        try:
            written = self._run_tasks(df, delivery, timeout_ms)
        except BaseException:
            committer.abort(delivery, ())
            raise
        committer.commit(delivery, [attempt for _, attempt in written if attempt is not None])
        return WriteReport.merged(each for each, _ in written)

    def _run_tasks(
        self, df: DataFrame, delivery: Delivery | None, timeout_ms: int
    ) -> list[tuple[WriteReport, Attempt | None]]:
        """Write the Arrow batches of each Spark partition in a task, and return the tasks' reports and attempts."""

        def write_batches(batches: Iterator[Any]) -> Iterator[Any]:
            return self._write_batches(batches, delivery, timeout_ms)

        reports = _only_columns(df).mapInArrow(write_batches, _REPORT_COLUMNS)
        with described(df, f"headrace: to {self.options}"):
            return [pickle.loads(row.report) for row in counted(reports).collect()]

    def _write_batches(self, batches: Iterator[Any], delivery: Delivery | None, timeout_ms: int) -> Iterator[Any]:
        """One task of `write`, in a Python worker."""
        yield _reported(*self._write(_batch_writer(), batches, delivery, timeout_ms))

    def _write(
        self,
        writer: Callable[..., PartitionWriter],
        source: Iterable[Any],
        delivery: Delivery | None = None,
        timeout_ms: int = 0,
    ) -> tuple[WriteReport, Attempt | None]:
        report, attempt = write_partition(self.options, writer, source, delivery, timeout_ms)
        if self._reports is not None:
            self._reports.add(report)
        return report, attempt

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


def write_partition(
    options: SinkOptions,
    writer: Callable[..., PartitionWriter],
    source: Iterable[Any],
    delivery: Delivery | None = None,
    timeout_ms: int = 0,
) -> tuple[WriteReport, Attempt | None]:
    """Write one Spark partition: with this worker's producer, or in a transaction of its own if there is a `delivery`.

    `timeout_ms`: that of the transaction. Raises RowDeliveryError, and KafkaError for the transaction.
    """
    warn_if_interpreted()
    spare_collections()
    name, number = _task()
    attempt = None
    if delivery is None:
        with worker_producers().lease(options.digest, options.config) as producer:
            report = writer(producer, options, name).write(source)
    else:
        context = sys.modules["pyspark"].TaskContext.get()
        report, attempt = write_in_transaction(options, delivery, timeout_ms, writer, source, context, name)
    report.slowest_task = (number, report.task_ms)
    return report, attempt


def _reported(report: WriteReport, attempt: Attempt | None) -> Any:
    """What a task returns to the driver, as an Arrow batch."""
    import pyarrow as pa  # noqa: PLC0415  (the row path does not need it)

    pickled = pickle.dumps((report, attempt))
    # from buffers, because pyarrow's constructors import pandas, which takes longer than a small task
    column = pa.Array.from_buffers(
        pa.binary(), 1, [None, pa.py_buffer(array("i", (0, len(pickled)))), pa.py_buffer(pickled)]
    )
    metrics = [
        pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(array("q", (getattr(report, name),)))])
        for name in METRICS
    ]
    return pa.RecordBatch.from_arrays([column, *metrics], names=["report", *METRICS])


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
