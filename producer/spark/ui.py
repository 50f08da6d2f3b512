"""What a write shows in Spark's web UI: its name, and what it delivered as named accumulators.

PySpark's own accumulators have no names, and the UI shows none without ("not yet supported in Python", says Spark's
documentation). So the tasks' figures go back to the JVM as columns, and an expression there adds them to accumulators
of Spark's own, which the page of the stage lists, in all and for each task.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)

#: The columns, of whole numbers, and what the UI calls them.
FIGURES = {
    "rows": "headrace: rows",
    "bytes": "headrace: bytes",
    "batches": "headrace: batches",
    "retries": "headrace: batches sent again",
}


def counted(reports: DataFrame) -> DataFrame:
    """The same rows; Spark's tasks add their columns `FIGURES` to accumulators that the UI shows. Driver.

    In Spark Connect, whose driver is elsewhere, and where Spark has changed inside, the rows are as they were.
    """
    if not hasattr(reports, "_jdf"):
        return reports
    from py4j.protocol import Py4JError  # noqa: PLC0415  (only who needs it needs pyspark)

    try:
        return reports.select("report", *(_added_up(reports, name, label) for name, label in FIGURES.items()))
    except (Py4JError, TypeError) as unknown:
        _log.info("What this write delivers is not shown in Spark's UI: this version of Spark has no way (%s)", unknown)
        return reports


def _added_up(reports: DataFrame, name: str, label: str) -> Any:
    """A column that, when it is computed, adds another to an accumulator, as a setter of a Java bean would take it."""
    from pyspark.sql.classic.column import Column  # noqa: PLC0415  (only who needs it needs pyspark)

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
    """Name the jobs of the block in the UI, unless the user (or a streaming query) has named them. Driver."""
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
        # None takes the property away; the type says less
        context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
