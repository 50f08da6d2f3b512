"""Write reports: collected by each task and merged on the driver."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from ..columns.rows_future import OffsetRange


@dataclasses.dataclass
class WriteReport:
    """The acknowledged rows of a write: counts, times, and offsets per partition.

    `bytes` counts keys, values and headers before compression. `retries` counts batches that were sent again.
    `task_ms` is the sum over the tasks; `elapsed_ms` is measured on the driver from the start of the write to its end
    (0: not measured). `slowest_task` is the number of a Spark partition and its time in milliseconds.
    """

    rows: int = 0
    bytes: int = 0
    batches: int = 0
    retries: int = 0
    tasks: int = 0
    task_ms: float = 0.0
    elapsed_ms: float = 0.0
    offsets: dict[tuple[str, int], OffsetRange] = dataclasses.field(default_factory=dict)
    slowest_task: tuple[int, float] | None = None

    @property
    def rows_per_second(self) -> float:
        """Rows per second of elapsed time, or of the tasks' time if the elapsed time was not measured."""
        spent_ms = self.elapsed_ms or self.task_ms
        return self.rows * 1000.0 / spent_ms if spent_ms else 0.0

    def add(self, other: WriteReport) -> WriteReport:
        """Add another report to this one, and return this one."""
        self.rows += other.rows
        self.bytes += other.bytes
        self.batches += other.batches
        self.retries += other.retries
        self.tasks += other.tasks
        self.task_ms += other.task_ms
        for place, found in other.offsets.items():
            self.note(place, found)
        if other.slowest_task is not None and (
            self.slowest_task is None or other.slowest_task[1] > self.slowest_task[1]
        ):
            self.slowest_task = other.slowest_task
        return self

    def note(self, place: tuple[str, int], found: OffsetRange) -> None:
        """Extend the offset range of one partition."""
        known = self.offsets.get(place)
        self.offsets[place] = found if known is None else known.widened(found)

    @classmethod
    def merged(cls, reports: Iterable[WriteReport]) -> WriteReport:
        """The sum of several reports."""
        whole = cls()
        for report in reports:
            whole.add(report)
        return whole

    def lines(self) -> Iterator[str]:
        """The report as text, line by line."""
        yield (
            f"{self.rows} rows, {self.bytes} bytes in {self.batches} batches ({self.retries} sent again), "
            f"{self.tasks} tasks, {self.rows_per_second:,.0f} rows/s"
        )
        for (topic, partition), found in sorted(self.offsets.items()):
            yield f"  {topic}-{partition}: {found.records} records at offsets {found.first} to {found.last}"
        if self.slowest_task is not None:
            yield f"  slowest: Spark partition {self.slowest_task[0]}, {self.slowest_task[1]:.0f} ms"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        """The report as Jupyter shows it."""
        from ...network.notebook import Bars, table  # noqa: PLC0415 - for notebooks

        slowest = (
            ""
            if self.slowest_task is None
            else f"Spark partition {self.slowest_task[0]}, {self.slowest_task[1]:.0f} ms"
        )
        places = sorted(self.offsets.items())
        totals = [
            ("rows", self.rows),
            ("bytes", self.bytes),
            ("batches", self.batches),
            ("batches sent again", self.retries),
            ("tasks", self.tasks),
            ("rows/s", self.rows_per_second),
            ("slowest task", slowest),
            ("records per partition", Bars(found.records for _, found in places)),
        ]
        rows = [(topic, number, found.records, found.first, found.last) for (topic, number), found in places]
        header = ("topic", "partition", "records", "first offset", "last offset")
        return table("Written by KafkaSink", totals) + table("Offsets", rows, header)


class ReportAccumulatorParam:
    """Merges the tasks' reports for Spark. Has the methods of pyspark.accumulators.AccumulatorParam."""

    def zero(self, value: Any) -> WriteReport:
        return WriteReport()

    def addInPlace(self, value1: WriteReport, value2: WriteReport) -> WriteReport:
        return value1.add(value2)
