"""The progress bar of `headrace produce`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from types import TracebackType
from typing import Any, TextIO

from .sources import Source


class Progress:
    """A bar with rate and time left, if `stream` is a terminal and rich is installed; otherwise nothing."""

    def __init__(self, sources: Sequence[Source], stream: TextIO) -> None:
        """`sources` are the files in the order in which they are read."""
        self._before: dict[str, int] = {}
        total = 0
        for source in sources:
            self._before[source.name] = total
            total += source.size_bytes
        self._bar: Any = None
        if stream.isatty() and find_spec("rich") is not None:
            from rich.console import Console  # noqa: PLC0415 - of the extra cli
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415
            from rich.progress import Progress as Bar  # noqa: PLC0415

            self._bar = Bar(
                BarColumn(),
                TextColumn("{task.percentage:>3.0f} %  {task.description}"),
                TimeRemainingColumn(),
                console=Console(file=stream),
                transient=True,
            )
            self._task = self._bar.add_task("", total=total or None)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, source: Source, position: int, acknowledged: int, bad: int) -> None:
        """Show how many bytes of a file have been read, and the records so far."""
        if self._bar is None:
            return
        seconds = max(self._bar.tasks[0].elapsed or 0.0, 1e-9)
        text = f"{acknowledged:,} records, {acknowledged / seconds:,.0f}/s" + (f", {bad:,} bad rows" if bad else "")
        self._bar.update(self._task, completed=self._before[source.name] + position, description=text)
