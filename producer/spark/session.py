"""`register`: where PySpark does not find ``format("headrace")`` by itself.

Spark knows a Python data source by two tables: one of the process, filled once from the installed modules named
``pyspark_*``, and one of each session, filled by registering. It looks into either through the session that is active
in the thread, which in a Python program is a thread of the JVM for each thread of Python. Only the one that made the
session has it active; a thread begins without, and so does one whose connection to the JVM was broken by an interrupt.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from ...network.protocol.errors import KafkaConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Spark logs a warning each time a name is registered again.
_registered: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def register(spark: SparkSession) -> None:
    """Make ``format("headrace")`` known to a session, for ``df.write`` and ``df.writeStream``, in the calling thread.

    PySpark finds an installed Headrace by itself, in the thread that made the session. Call this

    - in any other thread, once per thread: it is the `initializer` of a thread pool;
    - after an interrupt (Ctrl-C, a notebook's stop button);
    - where the session looked for data sources before Headrace was installed, or Python finds it by another way than
      an installation.

    Any number of times, in any thread of the driver. Raises KafkaConfigurationError where pyspark or pyarrow is
    missing or too old.
    """
    try:
        from pyspark.errors import AnalysisException  # noqa: PLC0415  (the one place that needs pyspark)

        from .datasource import HeadraceDataSource  # noqa: PLC0415
    except ImportError as missing:
        raise KafkaConfigurationError(
            f"format('headrace') needs PySpark 4.0 or later with pyarrow ({missing}): pip install 'headrace[spark]'"
        ) from missing
    if spark not in _registered:
        try:
            spark.dataSource.register(HeadraceDataSource)
        except AnalysisException as known:
            # found by itself, and such a data source can't be replaced
            if known.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
        _registered.add(spark)
    _activate(spark)


def _activate(spark: Any) -> None:
    """Make a session the active one of the calling thread. In Spark Connect the server does so for each request."""
    if hasattr(spark, "_jsparkSession"):
        spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
