"""`headrace watch`: show the metrics of running producers, read from the page that their program serves.

A program serves the page with two lines, and pip install 'headrace[prometheus]':
  producer = KafkaProducer(..., metric_reporters="prometheus")
  prometheus_client.start_http_server(9400)

The rates are those since the reading before. "packed to" is the compressed size of batches, "buffer" how much of the
buffer memory is in use, and "blocked" the number of threads that wait for some. In a terminal the tables are redrawn;
in a pipe every reading is printed.

Examples:
  headrace watch
  headrace watch http://app-1:9400/metrics app-2:9400 --interval 5
  headrace watch localhost:9400 --count 1

The exit code is 0 after --count readings, 1 if no page can be read at the start, 2 for wrong options, and 130 after
Ctrl-C.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

from ...network.clock import SYSTEM_CLOCK
from ...network.protocol.errors import KafkaConnectionError, KafkaError
from ...network.text import counted, table
from ..arguments import whole_number
from ..parallel import run_all
from ..text import time_text
from .page import ProducerSample, page_address, read_page
from .view import Section, sections_of

_DEFAULT_URL = "http://localhost:9400/metrics"
_TIMEOUT_S = 5.0
_FIRST_PAUSE_S = 1.0
_MOST_ROWS = 1000
#: Lines of a terminal that are not rows of a table: titles, heads and space.
_OTHER_LINES = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "urls", nargs="*", default=[_DEFAULT_URL], metavar="URL", help=f"pages, or HOST:PORT (default: {_DEFAULT_URL})"
    )
    parser.add_argument(
        "--interval", type=_seconds, default=2.0, metavar="S", help="seconds between readings (default 2)"
    )
    parser.add_argument("--count", type=whole_number(1), metavar="N", help="end after N readings")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0.1 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError(f"{text}, where 0.1 to 86400 is allowed")
    return seconds


def run(options: argparse.Namespace) -> int:
    """Show the metrics until interrupted. Raises KafkaError."""
    pages = Pages([page_address(text) for text in options.urls])
    pages.read()
    if not pages.was_read:
        raise KafkaConnectionError("; ".join(pages.errors.values()))
    is_live = sys.stdout.isatty() and find_spec("rich") is not None
    with LiveScreen(whole=options.count is None) if is_live else PlainLines() as screen:
        shown = 0
        # rates need a second reading
        pause_s = min(options.interval, _FIRST_PAUSE_S)
        while shown != options.count:
            SYSTEM_CLOCK.sleep(pause_s * 1000.0)
            pages.read()
            screen.show(pages)
            shown += 1
            pause_s = options.interval
    return 0


class Pages:
    """The last two readings of the pages, and the errors of the last one."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = list(dict.fromkeys(urls))
        self.samples: list[ProducerSample] = []
        self.before: list[ProducerSample] = []
        #: The error of each page that could not be read.
        self.errors: dict[str, str] = {}
        self.was_read = False

    def read(self) -> None:
        """Read all pages at the same time."""
        self.before, self.samples, self.errors = self.samples, [], {}
        for url, found in zip(self.urls, run_all([partial(self._read, url) for url in self.urls]), strict=True):
            if isinstance(found, KafkaError):
                self.errors[url] = str(found)
            else:
                self.was_read = True
                self.samples += found

    @staticmethod
    def _read(url: str) -> list[ProducerSample] | KafkaError:
        try:
            return read_page(url, _TIMEOUT_S)
        except KafkaError as failed:
            return failed

    def headline(self) -> str:
        """The time, and the number of producers."""
        now = time_text(SYSTEM_CLOCK.wall_ms()).partition(".")[0]
        return f"{now} UTC, {counted(len(self.samples), 'producer')}"

    def notes(self) -> list[str]:
        """What is wrong with the pages."""
        found = list(self.errors.values())
        if not self.samples and not found:
            found.append('no producer reports there; create it with metric_reporters="prometheus"')
        return found

    def sections(self, most_rows: int) -> list[Section]:
        """The tables that have rows."""
        made = sections_of(self.samples, self.before, SYSTEM_CLOCK.wall_ms(), most_rows)
        return [section for section in made if section.rows]


class PlainLines:
    """Prints each reading."""

    def __enter__(self) -> PlainLines:
        return self

    def __exit__(self, *_: object) -> None: ...

    def show(self, pages: Pages) -> None:
        parts = [pages.headline(), *pages.notes()]
        parts += [f"{section.title}\n{table(section.head, section.rows)}" for section in pages.sections(_MOST_ROWS)]
        print("\n".join(parts) + "\n", flush=True)


class LiveScreen:
    """Redraws the tables in a terminal, on the `whole` screen or where the cursor is. Needs the package rich."""

    def __init__(self, *, whole: bool) -> None:
        from rich.live import Live  # noqa: PLC0415 - of the extra cli

        self._whole = whole
        self._live = Live(auto_refresh=False, screen=whole)
        self._last: Any = ""

    def __enter__(self) -> LiveScreen:
        self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._live.__exit__(*error)
        if self._whole:
            # the terminal shows its former content again; leave what was seen last there
            self._live.console.print(self._last)

    def show(self, pages: Pages) -> None:
        from rich.console import Group  # noqa: PLC0415 - of the extra cli
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        rows = max(3, (shutil.get_terminal_size().lines - _OTHER_LINES) // 4)
        parts: list[Any] = [Text(pages.headline(), "bold"), *(Text(note, "red") for note in pages.notes())]
        for section in pages.sections(rows):
            grid = Table(title=section.title, title_justify="left", box=None, padding=(0, 1, 0, 0), header_style="dim")
            for number, name in enumerate(section.head):
                # the first column, and the second of topics and brokers, have names
                is_name = number == 0 or name in {"topic", "broker"}
                grid.add_column(name, justify="left" if is_name else "right", no_wrap=True)
            for row in section.rows:
                grid.add_row(*map(Text, row))
            parts.append(grid)
        self._last = Group(*parts)
        self._live.update(self._last, refresh=True)
