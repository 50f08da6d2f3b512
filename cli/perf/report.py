"""What `headrace perf` prints while it runs: Kafka's lines, or a live table in a terminal."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Protocol, TextIO

from ...network.text import size_text
from .results import Summary, Window


class Report(Protocol):
    """Shows windows as they end. Entered before the first and left after the last; one thread."""

    def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def window(self, window: Window, *, is_due: bool) -> None:
        """Show a window. `is_due` says that the reporting interval is over."""
        ...


class LinesReport:
    """One line per reporting interval, in the format of Kafka's tool."""

    def __init__(self) -> None:
        self._since: list[Window] = []

    def __enter__(self) -> LinesReport:
        return self

    def __exit__(self, *_: object) -> None: ...

    def window(self, window: Window, *, is_due: bool) -> None:
        self._since.append(window)
        if is_due:
            print(_line(self._since), flush=True)
            self._since = []


def _line(windows: list[Window]) -> str:
    records = sum(each.records for each in windows)
    seconds = max(sum(each.seconds for each in windows), 1e-9)
    mean_ms = sum(each.latency_avg_ms * each.records for each in windows) / max(records, 1)
    return (
        f"{records} records sent, {records / seconds:.1f} records/sec "
        f"({sum(each.size_bytes for each in windows) / seconds / 2**20:.2f} MB/sec), {mean_ms:.1f} ms avg latency, "
        f"{max(each.latency_max_ms for each in windows):.1f} ms max latency."
    )


def final_line(summary: Summary) -> str:
    """The last line, exactly as Kafka's tool formats it."""
    seconds = max(summary.elapsed_s, 1e-9)
    histogram = summary.latencies
    return (
        f"{summary.acknowledged} records sent, {summary.acknowledged / seconds:.1f} records/sec "
        f"({summary.size_bytes / seconds / 2**20:.2f} MB/sec), "
        f"{histogram.get_mean_value() / 1000.0:.2f} ms avg latency, "
        f"{histogram.get_max_value() / 1000.0:.2f} ms max latency, {summary.latency_ms(50):.0f} ms 50th, "
        f"{summary.latency_ms(95):.0f} ms 95th, {summary.latency_ms(99):.0f} ms 99th, "
        f"{summary.latency_ms(99.9):.0f} ms 99.9th."
    )


class LiveReport:
    """A table in the terminal that is redrawn each second. Needs the package rich."""

    def __init__(self, count: int) -> None:
        """`count` is the number of records that will be sent."""
        from rich.live import Live  # noqa: PLC0415 - of the extra cli

        self._count = count
        self._live = Live(refresh_per_second=4)

    @staticmethod
    def is_possible(stream: TextIO) -> bool:
        """Whether `stream` is a terminal and rich is installed."""
        return stream.isatty() and find_spec("rich") is not None and stream is sys.stdout

    def __enter__(self) -> LiveReport:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def window(self, window: Window, *, is_due: bool) -> None:
        from rich.table import Table  # noqa: PLC0415 - of the extra cli

        seconds = max(window.seconds, 1e-9)
        grid = Table(box=None, show_header=False, pad_edge=False)
        for label, text in (
            ("sent", f"{window.sent:,} of {self._count:,} ({100 * window.sent / self._count:.0f} %)"),
            ("rate", f"{window.records / seconds:,.0f} records/s, {window.size_bytes / seconds / 2**20:.1f} MB/s"),
            ("latency", ", ".join(f"{name} {value:.1f} ms" for name, value in window.latency_ms.items())),
            ("queue", f"{size_text(window.queue_bytes)}, {window.in_flight} requests in flight"),
            (
                "batches",
                f"{size_text(int(window.batch_bytes))} each, compressed to {window.compression_ratio:.2f}",
            ),
            ("trouble", f"{window.retries} retries, {window.failed} records failed"),
        ):
            grid.add_row(label, text)
        self._live.update(grid)
