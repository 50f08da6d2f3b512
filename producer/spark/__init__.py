"""Spark DataFrames written through the producer.

from headrace.producer.spark import KafkaSink

df.selectExpr("id AS key", "to_json(struct(*)) AS value").foreachPartition(
    KafkaSink({"bootstrap.servers": "localhost:9092"}, topic="flights")
)

Nothing here needs pyspark before a DataFrame is at hand.
"""

from __future__ import annotations

from ..columns.rows_future import OffsetRange
from .report import WriteReport
from .session import register
from .sink import KafkaSink

__all__ = ["KafkaSink", "OffsetRange", "WriteReport", "register"]
