"""Lets PySpark find ``format("headrace")`` by this module's name, without `headrace.producer.spark.register`.

PySpark 4.0 and later searches for data sources once per driver, on the first use of a format that Spark does not know.
It imports every installed module whose name begins with ``pyspark_`` and registers its `DefaultSource`. A module that
raises makes the whole search fail. This one therefore imports only the base class, which PySpark has already loaded;
`DefaultSource` imports Headrace when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

try:
    from pyspark.sql.datasource import DataSource
except Exception:  # PySpark is missing, broken or older than 4.0, and does not search
    pass
else:

    class DefaultSource(DataSource):
        """Delegates to `headrace.producer.spark.datasource.HeadraceDataSource`, imported when a DataFrame is written.

        Runs in processes that PySpark starts on the driver.
        """

        @classmethod
        def name(cls) -> str:
            """The name to pass to ``format``."""
            return "headrace"

        def writer(self, schema: StructType, overwrite: bool) -> Any:
            """The writer of a batch write. Raises KafkaConfigurationError, or ImportError without Headrace."""
            return self._headrace().writer(schema, overwrite)

        def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # Spark's name
            """The writer of a streaming write. Raises KafkaConfigurationError, or ImportError without Headrace."""
            return self._headrace().streamWriter(schema, overwrite)

        def _headrace(self) -> DataSource:
            from headrace.producer.spark.datasource import HeadraceDataSource  # noqa: PLC0415

            return HeadraceDataSource(self.options)
