"""The rows of the table: each shape of work is one declaration.

Both sides have their defaults unless `config` says otherwise. The number of records is chosen so that a run of a fast
client takes one to two seconds.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: Records are sent in passes over this many prepared values.
BLOCK = 1000
#: The records of a transaction, in the mode TRANSACTIONS.
IN_TRANSACTION = 10


class ShapeError(ValueError):
    """A shape that is unknown or can't be measured; the message says why."""


class Mode(enum.Enum):
    """What a run does with its records, and therefore what it measures."""

    THROUGHPUT = "throughput"
    #: send, wait for the acknowledgement, send the next: p50, p99 and p99.9 of the round trips
    ONE_BY_ONE = "one by one"
    #: a steady rate: p50, p99 and p99.9 from `send` to the callback
    PACED = "paced"
    #: one call per list of values: `send_many` and its peers
    LISTS = "lists"
    #: one call per Arrow table: `send_arrow`; for other clients the rows of the same table
    ARROW = "arrow"
    #: `send_and_wait` and its peers under `asyncio.gather`, BLOCK records at a time
    GATHER = "gather"
    #: IN_TRANSACTION records in each transaction, one transaction after the other
    TRANSACTIONS = "transactions"
    #: import and construction in a new interpreter
    COLD_START = "cold start"


LATENCY_MODES = frozenset({Mode.ONE_BY_ONE, Mode.PACED, Mode.COLD_START})


class ValueKind(enum.Enum):
    """The content of the values."""

    RANDOM = "random bytes"
    JSON = "JSON"


@dataclass(frozen=True)
class Shape:
    """A shape of work. Raises ShapeError for a combination that no adapter measures.

    `name`: what SHAPES= selects. `title`: the row's heading. `records`: per run of a fast client, or the starts in the
    mode COLD_START. `goal`: the wanted ratio to confluent-kafka, None without one. `config`: Kafka's keys, the same for
    every client.
    `rate`: records per second, of the mode PACED. `tls`: over TLS 1.3, with the cipher suite that both sides prefer.
    """

    name: str
    title: str
    records: int
    goal: float | None = None
    value_bytes: int = 100
    value_kind: ValueKind = ValueKind.RANDOM
    keyed: bool = False
    headers: bool = False
    callback: bool = False
    partitions: int = 6
    threads: int = 1
    config: Mapping[str, str | int] = field(default_factory=lambda: types.MappingProxyType({}))
    mode: Mode = Mode.THROUGHPUT
    rate: int = 0
    tls: bool = False

    def __post_init__(self) -> None:
        for name in ("records", "value_bytes", "partitions", "threads"):
            if getattr(self, name) < 1:
                raise ShapeError(f"{self.name}: {name} is {getattr(self, name)}; expected at least 1")
        if self.mode is not Mode.COLD_START and self.records % self.step:
            raise ShapeError(f"{self.name}: records is {self.records}; expected a multiple of {self.step}")
        if self.keyed + self.headers + self.callback > 1:
            raise ShapeError(f"{self.name}: choose one of keyed, headers and callback")
        if self.mode is not Mode.THROUGHPUT and (self.threads > 1 or self.callback):
            raise ShapeError(f"{self.name}: threads and callback belong to the mode {Mode.THROUGHPUT.value!r}")
        if self.mode not in (Mode.THROUGHPUT, Mode.GATHER) and self.headers:
            raise ShapeError(f"{self.name}: the mode {self.mode.value!r} has no headers")
        if self.keyed and self.mode not in (Mode.THROUGHPUT, Mode.LISTS):
            raise ShapeError(f"{self.name}: the mode {self.mode.value!r} has no keys")
        if (self.rate > 0) != (self.mode is Mode.PACED):
            raise ShapeError(f"{self.name}: rate is {self.rate}; only the mode {Mode.PACED.value!r} has one, above 0")

    @property
    def step(self) -> int:
        """The number of records of a run is a multiple of this."""
        return BLOCK * self.threads

    @property
    def is_latency(self) -> bool:
        """Whether less is better: the row compares milliseconds instead of records per second."""
        return self.mode in LATENCY_MODES

    def records_at(self, share: float) -> int:
        """The records of a run at `share` of the declared number, rounded to whole steps and at least one."""
        if self.mode is Mode.COLD_START:
            return self.records
        return max(round(self.records * share / self.step), 1) * self.step


BIG_BATCHES = {"batch.size": 131_072}

SHAPES: tuple[Shape, ...] = (
    Shape("100b", "100 B, 6 partitions", 1_000_000, 2.0),
    Shape("1kb", "1 KB", 300_000, 1.5, value_bytes=1_000),
    Shape("tls", "TLS 1.3, 100 B", 1_000_000, 1.3, tls=True),
    Shape("tls-1kb", "TLS 1.3, 1 KB", 300_000, 1.0, value_bytes=1_000, tls=True),
    Shape("10kb", "10 KB", 40_000, 1.5, value_bytes=10_000),
    Shape("one-partition", "1 partition, keyed, 100 B", 600_000, 1.7, keyed=True, partitions=1),
    Shape("100-partitions", "100 partitions, keyed", 600_000, 2.0, keyed=True, partitions=100),
    # enough to fill `buffer.memory`, which the open batches alone half fill
    Shape("1000-partitions", "1,000 partitions, keyed", 1_000_000, 1.5, keyed=True, partitions=1000),
    Shape("headers", "two headers per record", 300_000, 2.5, headers=True),
    Shape("callback", "a callback per record", 500_000, 1.8, callback=True),
    Shape(
        *("json-lz4", "200-byte JSON, lz4", 600_000, 1.6),
        value_bytes=200,
        value_kind=ValueKind.JSON,
        config={"compression.type": "lz4"},
    ),
    Shape(
        *("json-zstd", "200-byte JSON, zstd", 500_000, 1.5),
        value_bytes=200,
        value_kind=ValueKind.JSON,
        config={"compression.type": "zstd"},
    ),
    Shape("16-threads", "16 threads", 640_000, 2.0, threads=16),
    Shape("128k", "batch.size 128 KiB, 100 B", 1_200_000, 2.0, config=BIG_BATCHES),
    Shape("128k-keyed", "batch.size 128 KiB, keyed", 1_000_000, 1.8, keyed=True, config=BIG_BATCHES),
    Shape("128k-1kb", "batch.size 128 KiB, 1 KB", 300_000, 1.6, value_bytes=1_000, config=BIG_BATCHES),
    Shape("one-by-one", "one by one, linger.ms=0, p50", 2_000, 1.0, mode=Mode.ONE_BY_ONE, config={"linger.ms": 0}),
    Shape("paced", "paced 5,000/s, p50", 10_000, 1.0, mode=Mode.PACED, rate=5_000),
    Shape(
        *("paced-linger-0", "paced 5,000/s, linger.ms=0, p50", 10_000, 1.0),
        mode=Mode.PACED,
        rate=5_000,
        config={"linger.ms": 0},
    ),
    Shape("cold-start", "cold start: import, construct", 5, 0.9, mode=Mode.COLD_START),
    Shape("send-many", "send_many, lists of 1,000", 1_000_000, 2.5, mode=Mode.LISTS),
    Shape("send-many-keyed", "send_many, keyed", 1_000_000, 2.5, keyed=True, mode=Mode.LISTS),
    Shape("arrow", "send_arrow, tables of 1,000 rows", 1_000_000, mode=Mode.ARROW),
    Shape("transactions", "transactions of 10 records", 4_000, 1.0, mode=Mode.TRANSACTIONS),
    # for the clients of asyncio, which run the first shapes too
    Shape("gather", "send_and_wait, gathers of 1,000", 200_000, mode=Mode.GATHER, config={"linger.ms": 0}),
    Shape(
        *("gather-headers", "gathers of 1,000, two headers", 200_000),
        headers=True,
        mode=Mode.GATHER,
        config={"linger.ms": 0},
    ),
)


def select_shapes(names: Sequence[str]) -> list[Shape]:
    """The named shapes in the table's order, all of them for no names. Raises ShapeError for an unknown name."""
    known = [shape.name for shape in SHAPES]
    for name in names:
        if name not in known:
            raise ShapeError(f"unknown shape {name!r}; expected one of {', '.join(known)}")
    return [shape for shape in SHAPES if not names or shape.name in names]
