"""Shows a write in Spark's web UI: the name of its job, and its metrics as named accumulators.

PySpark's accumulators are unnamed, and the UI hides those ("not yet supported in Python", says Spark's documentation).
So the tasks return their metrics to the JVM as columns, and a Catalyst expression adds them to named accumulators. The
stage page lists these as totals and per task.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)

#: The integer columns with the metrics, and the names of their accumulators in the UI.
METRICS = {
    "rows": "headrace: rows",
    "bytes": "headrace: bytes",
    "batches": "headrace: batches",
    "retries": "headrace: batches sent again",
}


def counted(reports: DataFrame) -> DataFrame:
    """Return the same rows, whose columns `METRICS` Spark's tasks add to accumulators in the UI. Runs on the driver.

    In Spark Connect, whose driver is another process, and in versions of Spark with different internals, the DataFrame
    is returned unchanged.
    """
    if not hasattr(reports, "_jdf"):
        return reports
    from py4j.protocol import Py4JError  # noqa: PLC0415  (pyspark is optional)

    try:
        return reports.select("report", *(_added_up(reports, name, label) for name, label in METRICS.items()))
    except (Py4JError, TypeError) as unknown:
        _log.info("Spark's UI does not show the metrics of this write: not supported by this Spark (%s)", unknown)
        return reports


def _added_up(reports: DataFrame, name: str, label: str) -> Any:
    """A column that adds another to an accumulator when evaluated. It calls `add` like the setter of a Java bean."""
    from pyspark.sql.classic.column import Column  # noqa: PLC0415  (pyspark is optional)

    context: Any = reports.sparkSession.sparkContext
    jvm: Any = context._jvm
    expressions = jvm.org.apache.spark.sql.catalyst.expressions
    types = jvm.org.apache.spark.sql.types
    convert = jvm.org.apache.spark.sql.classic.ExpressionUtils
    scala = jvm.org.apache.spark.api.python.PythonUtils
    accumulator = context._jsc.sc().longAccumulator(label)
    itself = expressions.Literal(accumulator, types.ObjectType(accumulator.getClass()))
    added: Any = reports[name]
    setters = scala.toScalaMap({"add": convert.expression(added._jc)})
    bean = expressions.objects.InitializeJavaBean(itself, setters)
    nothing = scala.toSeq([])
    total = expressions.objects.Invoke(bean, "sum", types.DataTypes.LongType, nothing, nothing, True, True, False)
    return Column(convert.column(total)).alias(name)


@contextlib.contextmanager
def described(df: DataFrame, description: str) -> Iterator[None]:
    """Name the block's jobs in the UI, unless the user or a streaming query has named them. Runs on the driver."""
    if not hasattr(df, "_jdf"):
        yield
        return
    context = df.sparkSession.sparkContext
    if context.getLocalProperty("spark.job.description") is not None:
        yield
        return
    context.setJobDescription(description)
    try:
        yield
    finally:
        # None removes the property, although the annotation does not allow it
        context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
