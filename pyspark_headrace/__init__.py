"""By this module's name PySpark finds ``format("headrace")``: it needs no `headrace.producer.spark.register`.

PySpark 4.0 and later looks for data sources once per driver, when the first one is asked for by a name that Spark does
not know: it imports every installed module whose name begins with ``pyspark_`` and takes its `DefaultSource`. A module
that raises there takes all other data sources along, so this one imports nothing but the base class, which PySpark has
loaded by then, and `DefaultSource` imports Headrace when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

try:
    from pyspark.sql.datasource import DataSource
except Exception:  # PySpark before 4.0, or none, or a broken one: then there is nothing to find
    pass
else:

    class DefaultSource(DataSource):
        """`headrace.producer.spark.datasource.HeadraceDataSource`, which is imported when a DataFrame is written.

        In the processes of the driver that PySpark starts for it.
        """

        @classmethod
        def name(cls) -> str:
            """What stands in ``format``."""
            return "headrace"

        def writer(self, schema: StructType, overwrite: bool) -> Any:
            """For a batch write. Raises KafkaConfigurationError, and ImportError where Headrace can't be imported."""
            return self._headrace().writer(schema, overwrite)

        def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # Spark's name
            """For a streaming write. Raises KafkaConfigurationError, ImportError."""
            return self._headrace().streamWriter(schema, overwrite)

        def _headrace(self) -> DataSource:
            from headrace.producer.spark.datasource import HeadraceDataSource  # noqa: PLC0415

            return HeadraceDataSource(self.options)
