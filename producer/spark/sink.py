"""`KafkaSink`: what a Spark user gives a DataFrame to."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from ..config import ProducerConfig
from .options import SinkOptions
from .producers import worker_producers
from .report import ReportAccumulatorParam, WriteReport
from .rows import RowWriter


class KafkaSink:
    """Writes the rows of a DataFrame or RDD to Kafka, each at least once.

        df.foreachPartition(KafkaSink({"bootstrap.servers": "localhost:9092"}, topic="flights"))

    Columns, as in Spark's own Kafka sink: `value` (required; null is a tombstone), `key`, `headers` (an array of
    structs of key and value), `topic` (the option overrides it), `partition`; and `timestamp`. Others are ignored.
    `value_format` and `key_format` say how a column becomes bytes: `raw` (strings and binary), `string`, `json`,
    `msgpack`. The rest of the options is the producer's configuration, with or without Spark's prefix ``kafka.``.

    Everything is checked here, on the driver. It pickles to the executors, where all tasks of a Python worker share
    one producer. A task flushes what it sent before it ends and fails on the first row that can't be delivered; Spark
    then runs it again, and rows that had arrived arrive twice.

    Raises KafkaConfigurationError.
    """

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

    def __call__(self, rows: Iterable[Any]) -> None:
        """Write the rows of one Spark partition: what ``foreachPartition`` calls in a Python worker.

        Raises RowDeliveryError.
        """
        options = self.options
        with worker_producers().lease(options.digest, options.config) as producer:
            report = RowWriter(producer, options, task_name()).write(rows)
        if self._reports is not None:
            self._reports.add(report)

    @property
    def report(self) -> WriteReport:
        """What the finished tasks of ``foreachPartition`` delivered so far, on the driver.

        Empty in Spark Connect, which has no accumulators.
        """
        return WriteReport() if self._reports is None else self._reports.value

    def __repr__(self) -> str:
        return f"KafkaSink({self.options})"


def task_name() -> str:
    """The Spark partition this process works on, as messages name it."""
    pyspark = sys.modules.get("pyspark")
    context = pyspark.TaskContext.get() if pyspark is not None else None
    if context is None:
        return "the rows"
    return f"Spark partition {context.partitionId()} (attempt {context.attemptNumber()})"


def _accumulator() -> Any:
    """Where tasks leave their reports, if there is a classic Spark session on this driver by now."""
    pyspark = sys.modules.get("pyspark")
    context = getattr(getattr(pyspark, "SparkContext", None), "_active_spark_context", None)
    return None if context is None else context.accumulator(WriteReport(), ReportAccumulatorParam())
