"""Spark DataFrames written through the producer.

from headrace.producer.spark import KafkaSink

df.selectExpr("id AS key", "to_json(struct(*)) AS value").foreachPartition(
    KafkaSink({"bootstrap.servers": "localhost:9092"}, topic="flights")
)

Nothing here needs pyspark before a DataFrame is at hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...network.protocol.errors import KafkaConfigurationError
from ..columns.rows_future import OffsetRange
from .report import WriteReport
from .sink import KafkaSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["KafkaSink", "OffsetRange", "WriteReport", "register"]


def register(spark: SparkSession) -> None:
    """Make ``format("headrace")`` known to a session, for ``df.write`` and ``df.writeStream``. Driver.

    Raises KafkaConfigurationError where pyspark or pyarrow is missing or too old.
    """
    try:
        from .datasource import HeadraceDataSource  # noqa: PLC0415  (the one place that needs pyspark)
    except ImportError as missing:
        raise KafkaConfigurationError(
            f"format('headrace') needs PySpark 4.0 or later with pyarrow ({missing}): pip install 'headrace[spark]'"
        ) from missing
    spark.dataSource.register(HeadraceDataSource)
