"""The drawings of the documentation: boxes on a grid and arrows between them, written as SVG by `docs/generate.py`.

The SVG files are text without scripts, fonts or anything to download, so they work offline and in diffs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import NamedTuple

_COLUMN, _ROW = 190, 96
_WIDTH, _HEIGHT = 150, 56
_MARGIN = 24
_LINE = 15
_HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="{title}">
<title>{title}</title>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">\
<path d="M0 0 8 4 0 8z" fill="#44546a"/></marker></defs>
<style>text {{ font: 12px system-ui, sans-serif; fill: #1d2733; text-anchor: middle }}
.label {{ font-size: 11px; fill: #44546a; paint-order: stroke; stroke: #fbfcfd; stroke-width: 4px }}
.lane {{ font-weight: 600; fill: #44546a; text-anchor: start }}
.user {{ fill: #e3f1ee; stroke: #2f8574 }} .ours {{ fill: #fff; stroke: #44546a }}
.other {{ fill: #f3eadb; stroke: #a9762b }} .end {{ fill: #e8e6f3; stroke: #5f5599 }}
.arrow {{ fill: none; stroke: #44546a; stroke-width: 1.4; marker-end: url(#head) }}
.area {{ fill: #eef2f6; stroke: none }}</style>
<rect width="{width}" height="{height}" rx="8" fill="#fbfcfd"/>
"""


class Box(NamedTuple):
    """A box with lines of text. `kind`: user (the program), ours, other (another process), end (an end state)."""

    column: float
    row: float
    text: str
    kind: str = "ours"

    @property
    def center(self) -> tuple[float, float]:
        return _MARGIN + self.column * _COLUMN + _WIDTH / 2, _MARGIN + self.row * _ROW + _HEIGHT / 2


class Lane(NamedTuple):
    """A labelled band behind rows `first` to `last`, such as those of one thread."""

    first: float
    last: float
    text: str


class Drawing(NamedTuple):
    """Boxes by name, arrows as (from, to, label), and lanes."""

    title: str
    boxes: Mapping[str, Box]
    arrows: tuple[tuple[str, str, str], ...]
    lanes: tuple[Lane, ...] = ()

    def svg(self) -> str:
        """The drawing. Raises KeyError for an arrow whose box is missing."""
        columns = max(box.column for box in self.boxes.values()) + 1
        rows = max(box.row for box in self.boxes.values()) + 1
        width = round(2 * _MARGIN + columns * _COLUMN - (_COLUMN - _WIDTH))
        height = round(2 * _MARGIN + rows * _ROW - (_ROW - _HEIGHT))
        parts = [_HEAD.format(width=width, height=height, title=escape(self.title))]
        for lane in self.lanes:
            top = _MARGIN + lane.first * _ROW - 20
            tall = (lane.last - lane.first) * _ROW + _HEIGHT + 30
            parts.append(f'<rect class="area" x="6" y="{top:g}" width="{width - 12}" height="{tall:g}" rx="6"/>\n')
            parts.append(f'<text class="lane" x="14" y="{top + 13:g}">{escape(lane.text)}</text>\n')
        for start, end, _ in self.arrows:
            (x1, y1), (x2, y2) = _ends(self.boxes[start], self.boxes[end])
            parts.append(f'<path class="arrow" d="M{x1:g} {y1:g}L{x2:g} {y2:g}"/>\n')
        for box in self.boxes.values():
            parts.extend(_box(box))
        for start, end, label in self.arrows:
            (x1, y1), (x2, y2) = _ends(self.boxes[start], self.boxes[end])
            lines = label.split("\n") if label else []
            # beside a steep arrow, above a flat one
            x, y = (x1 + x2) / 2, (y1 + y2) / 2 - (6 if abs(y2 - y1) < 10 else -4) - (len(lines) - 1) * _LINE / 2
            parts.extend(_text(lines, x, y, "label"))
        return "".join(parts) + "</svg>\n"


def _box(box: Box) -> Iterator[str]:
    x, y = box.center
    yield (
        f'<rect class="{box.kind}" x="{x - _WIDTH / 2:g}" y="{y - _HEIGHT / 2:g}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" rx="6"/>\n'
    )
    lines = box.text.split("\n")
    yield from _text(lines, x, y + 4 - (len(lines) - 1) * _LINE / 2, "")


def _text(lines: list[str], x: float, y: float, kind: str) -> Iterator[str]:
    for number, line in enumerate(lines):
        css = f' class="{kind}"' if kind else ""
        yield f'<text{css} x="{x:g}" y="{y + number * _LINE:g}">{escape(line)}</text>\n'


def _ends(start: Box, end: Box) -> tuple[tuple[float, float], tuple[float, float]]:
    """Where an arrow leaves one box and enters the other: on the line between their centers."""
    return _edge(start, end), _edge(end, start)


def _edge(box: Box, other: Box) -> tuple[float, float]:
    (x, y), (ox, oy) = box.center, other.center
    dx, dy = ox - x, oy - y
    if dx == dy == 0:
        return x, y
    scale = min(
        (_WIDTH / 2 + 3) / abs(dx) if dx else float("inf"),
        (_HEIGHT / 2 + 3) / abs(dy) if dy else float("inf"),
    )
    return round(x + dx * scale, 1), round(y + dy * scale, 1)


RECORD = Drawing(
    "The way of a record",
    {
        "send": Box(0, 0, "send(topic, value)", "user"),
        "serialize": Box(1, 0, "interceptors\nserializers"),
        "partition": Box(2, 0, "partition: named,\nby key, or sticky"),
        "batch": Box(3, 0, "encoded into the\npartition's batch"),
        "pool": Box(1.6, 1, "BufferPool\n(buffer.memory)"),
        "ready": Box(3, 2.2, "ready: full,\nlingered, flushed"),
        "drain": Box(2, 2.2, "drain: one batch per\npartition, sequences"),
        "seal": Box(1, 2.2, "seal: compress,\nCRC"),
        "request": Box(0, 2.2, "one ProduceRequest\nper broker"),
        "broker": Box(0, 3.4, "broker: leader of\nthe partition", "other"),
        "answer": Box(1, 3.4, "response"),
        "action": Box(2, 3.4, "complete, retry,\nsplit or fail"),
        "future": Box(3, 3.4, "future, await", "user"),
        "callback": Box(3, 4.6, "callback(metadata,\nexception)", "user"),
    },
    (
        ("send", "serialize", ""),
        ("serialize", "partition", ""),
        ("partition", "batch", ""),
        ("batch", "pool", "needs memory"),
        ("batch", "ready", ""),
        ("ready", "drain", ""),
        ("drain", "seal", ""),
        ("seal", "request", ""),
        ("request", "broker", "socket"),
        ("broker", "answer", ""),
        ("answer", "action", ""),
        ("action", "future", ""),
        ("action", "callback", ""),
    ),
    (
        Lane(0, 1, "the caller's thread"),
        Lane(2.2, 3.4, "headrace-sender: one thread per producer"),
        Lane(4.6, 4.6, "headrace-callbacks"),
    ),
)

THREADS = Drawing(
    "Threads and locks of a producer",
    {
        "one": Box(0, 0, "caller's thread", "user"),
        "two": Box(1, 0, "caller's thread", "user"),
        "loop": Box(2, 0, "event loop:\nAsyncKafkaProducer", "user"),
        "names": Box(3.2, 0, "headrace-names\n(getaddrinfo)"),
        "update": Box(0, 1.2, "lock of a topic's\nqueues"),
        "pool": Box(1, 1.2, "lock of the\nBufferPool"),
        "queue": Box(2, 1.2, "lock of one\npartition's queue"),
        "completion": Box(2, 2.4, "_completion: one for\nall batches"),
        "sender": Box(3.2, 1.8, "headrace-sender:\nselector, sequences,\nrequests in flight"),
        "callbacks": Box(3.2, 3, "headrace-callbacks:\nuser code", "user"),
        "compressors": Box(4.4, 3, "headrace-compressor:\nup to three"),
        "broker": Box(4.4, 1.8, "brokers", "other"),
    },
    (
        ("one", "update", "new topic"),
        ("two", "pool", "new batch"),
        ("two", "queue", ""),
        ("loop", "queue", "append"),
        ("update", "pool", "before"),
        ("pool", "queue", "before"),
        ("queue", "completion", "before"),
        ("sender", "queue", "drain"),
        ("sender", "completion", "complete"),
        ("sender", "callbacks", "batches"),
        ("sender", "compressors", ""),
        ("sender", "names", "look up"),
        ("sender", "broker", "sockets"),
    ),
)

BATCH = Drawing(
    "The life of a batch",
    {
        "open": Box(0, 0, "open: takes records,\nlingers"),
        "full": Box(1.4, 0, "full (batch.size):\nsendable, still grows"),
        "drained": Box(2.8, 0, "drained: sequence\nnumbers, sealed"),
        "flight": Box(2.8, 1.4, "in flight"),
        "retry": Box(1.4, 1.4, "at the front of its\nqueue, backing off"),
        "split": Box(2.8, 2.8, "split in two,\nqueued again"),
        "failed": Box(1.4, 2.8, "failed:\nfutures raise", "end"),
        "dropped": Box(0, 1.4, "dropped: abort()\nor close(0)", "end"),
        "done": Box(4.2, 1.4, "written:\nfutures complete", "end"),
    },
    (
        ("open", "full", "records"),
        ("full", "drained", "broker is free"),
        ("drained", "flight", "sent"),
        ("flight", "done", "acknow-\nledged"),
        ("flight", "retry", "retriable\nerror"),
        ("retry", "drained", "same sequence"),
        ("flight", "failed", "fatal error"),
        ("retry", "failed", "delivery.timeout.ms"),
        ("flight", "split", "too large"),
        ("open", "dropped", "not in flight"),
    ),
)

FILES = {
    "docs/drawings/record.svg": RECORD,
    "docs/drawings/threads.svg": THREADS,
    "docs/drawings/batch.svg": BATCH,
}
