"""`register`, for cases in which PySpark does not find ``format("headrace")`` by itself.

Spark looks up Python data sources in two tables: one per process, filled once from the installed modules named
``pyspark_*``, and one per session, filled by registration. It reaches both through the active session of the JVM
thread, and each Python thread has its own JVM thread. The session is active only in the thread that created it. A new
thread has no active session, nor has a thread whose connection to the JVM was broken by an interrupt.
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
    """Register ``format("headrace")`` with a session, and make the session active in the calling thread.

    PySpark finds an installed Headrace by itself in the thread that created the session. Call this

    - in any other thread, once per thread, for example as the `initializer` of a thread pool;
    - after an interrupt (Ctrl-C, a notebook's stop button);
    - if the session searched for data sources before Headrace was installed, or if Python imports Headrace without a
      regular installation.

    May be called any number of times, in any thread of the driver. Raises KafkaConfigurationError if pyspark or pyarrow
    is missing or too old.
    """
    try:
        from pyspark.errors import AnalysisException  # noqa: PLC0415  (pyspark is optional)

        from .datasource import HeadraceDataSource  # noqa: PLC0415
    except ImportError as missing:
        raise KafkaConfigurationError(
            f"format('headrace') needs PySpark 4.0 or later with pyarrow ({missing}): pip install 'headrace[spark]'"
        ) from missing
    if spark not in _registered:
        try:
            spark.dataSource.register(HeadraceDataSource)
        except AnalysisException as known:
            # PySpark found the data source itself, and does not allow replacing it
            if known.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
        _registered.add(spark)
    _activate(spark)


def _activate(spark: Any) -> None:
    """Make a session active in the calling thread. A Spark Connect server does this itself for each request."""
    if hasattr(spark, "_jsparkSession"):
        spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
