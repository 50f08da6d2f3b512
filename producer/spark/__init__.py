"""Write Spark DataFrames to Kafka.

from headrace.producer.spark import KafkaSink

df.selectExpr("id AS key", "to_json(struct(*)) AS value").foreachPartition(
    KafkaSink({"bootstrap.servers": "localhost:9092"}, topic="flights")
)

Importing this package does not import pyspark.
"""

from __future__ import annotations

from ..columns.rows_future import OffsetRange
from .report import WriteReport
from .session import register
from .sink import KafkaSink

__all__ = ["KafkaSink", "OffsetRange", "WriteReport", "register"]
