"""`headrace tune`: find settings of the producer for a cluster and a payload, by measuring.

Measures candidates for batch.size, batch.max.size, linger.ms, compression.type, max.in.flight.requests.per.connection
and buffer.memory against the given configuration, and recommends those that differ from it by more than the noise. The
search starts from the keys of --command-config. A key of --command-property stays as it is.

Goals: throughput (records per second), latency (p99 at --at-rate, or at half of what the given configuration reaches),
balanced (records per second by the square root of the p50).

It writes to --topic, or to a topic of its own that it deletes at the end. Ctrl-C ends it with what is known.

Examples:
  headrace tune --record-size 200 --goal throughput
  headrace tune --payload-file lines.txt --goal latency --at-rate 5000 --output tuned.properties
  headrace tune --from-topic orders --limit-p99-ms 50 --picture tuned.svg
"""

from __future__ import annotations

import argparse
import contextlib
import math
import secrets
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ...network.protocol.errors import KafkaConfigurationError
from ...network.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ...network.protocol.types import ZERO_UUID
from ...producer.config import ProducerConfig
from ..arguments import add_producer_arguments, producer_keys, read_configs, servers_text, whole_number
from ..client import Client, add_bootstrap_argument
from ..consent import ask_before_writing
from ..consume import Reader
from ..perf.load import Load, Payloads, TimedSend
from ..perf.payload_file import values_of_file
from ..perf.results import Window
from ..signals import INTERRUPTED
from ..topic_creation import create_topic
from .picture import svg_picture, terminal_picture
from .search import (
    GRID,
    Goal,
    Outcome,
    Point,
    Search,
    Settings,
    Stopped,
    balanced_goal,
    latency_goal,
    throughput_goal,
)

_SAMPLE_RECORDS = 5000
_NO_LIMIT = 10**12
#: Each measures the given configuration for twice as long as the one before, if no record is acknowledged in time.
_ATTEMPTS = 5
_GOALS = ("throughput", "latency", "balanced")
#: The units that a search takes about: the planned time is divided by it.
_UNITS = 75


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_bootstrap_argument(parser)
    parser.add_argument("--topic", metavar="TOPIC", help="default: a new topic, deleted at the end")
    parser.add_argument(
        "--partitions", type=whole_number(1), default=6, metavar="N", help="of the new topic (default: 6)"
    )
    payload = parser.add_mutually_exclusive_group(required=True)
    payload.add_argument("--record-size", type=whole_number(0), metavar="BYTES", help="random values of this size")
    payload.add_argument("--payload-file", type=Path, metavar="FILE", help="values picked at random, one per line")
    payload.add_argument("--from-topic", metavar="TOPIC", help="values taken from this topic, which is only read")
    parser.add_argument("--keys", type=whole_number(0), default=0, metavar="N", help="how many different keys, 0: none")
    parser.add_argument("--goal", choices=_GOALS, default="throughput", help="default: throughput")
    parser.add_argument("--limit-p99-ms", type=float, metavar="MS", help="prefer settings with at most this p99")
    parser.add_argument("--at-rate", type=float, metavar="N", help="measure at this many records per second")
    parser.add_argument("--throughput", type=float, metavar="N", help="never send more records per second than this")
    parser.add_argument(
        "--byte-limit", type=whole_number(1), metavar="BYTES", help="never write more than this in total"
    )
    parser.add_argument(
        "--seconds", type=whole_number(5), default=90, metavar="N", help="about how long to measure (default: 90)"
    )
    add_producer_arguments(parser)
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the settings as properties, with reasons")
    parser.add_argument("--picture", type=Path, metavar="FILE.svg|FILE.html", help="plot throughput against latency")
    parser.add_argument("--yes", action="store_true", help="write to a cluster on other machines without asking")


def run(options: argparse.Namespace) -> int:
    """Search and report. Raises KafkaError."""
    given = producer_keys(options)
    config = ProducerConfig.resolve_from(given, {}, {})
    if options.picture is not None and options.picture.suffix not in {".svg", ".html"}:
        raise KafkaConfigurationError(f"--picture {options.picture} must end in .svg or .html")
    limit = (
        "as fast as possible" if options.throughput is None else f"at most {options.throughput:g} records per second"
    )
    ask_before_writing(
        config.bootstrap_servers,
        f"for about {options.seconds} seconds to {options.topic or 'a new topic'}, {limit}",
        agreed=options.yes,
    )
    with Client(servers_text(config), security=config) as client:
        values = _values(client, options)
        with _topic(client, options) as topic:
            measuring = _Measuring(given, topic, values, options)
            if options.goal == "latency" and measuring.rate is None:
                measuring.find_rate(options.seconds / _UNITS * 2)
            search = Search(
                _goal(options),
                measuring.measure,
                fixed=read_configs(options.command_property),
                given={key: str(config[key]) for key in GRID},
                unit_s=options.seconds / _UNITS,
            )
            measuring.search = search
            outcome = search.run()
    measuring.clear_line()
    _report(outcome, options)
    return INTERRUPTED if outcome.stopped and not measuring.is_out_of_bytes else 0


def _goal(options: argparse.Namespace) -> Goal:
    if options.goal == "latency":
        return latency_goal()
    return (throughput_goal if options.goal == "throughput" else balanced_goal)(options.limit_p99_ms)


def _values(client: Client, options: argparse.Namespace) -> Payloads:
    if options.record_size is not None:
        return Payloads.random(options.record_size)
    if options.payload_file is not None:
        return Payloads.picked(values_of_file(options.payload_file, "\\n"))
    reader = Reader(client, options.from_topic, None)
    reader.begin("beginning")
    values = [record.value or b"" for _, record in islice(reader.records(follow=False), _SAMPLE_RECORDS)]
    if not values:
        raise KafkaConfigurationError(f"--from-topic {options.from_topic} has no records; name a topic that has some")
    return Payloads.picked(values)


@contextlib.contextmanager
def _topic(client: Client, options: argparse.Namespace) -> Iterator[str]:
    if options.topic is not None:
        yield options.topic
        return
    name = f"headrace-tune-{secrets.token_hex(4)}"
    create_topic(client, name, partitions=options.partitions, configs={})
    try:
        yield name
    finally:
        state = DeleteTopicState(name=name, topic_id=ZERO_UUID)
        client.ask(DeleteTopicsRequest(topics=[state], topic_names=[], timeout_ms=30_000), client.controller())


class _NoReport:
    """Shows nothing of a single measurement."""

    def __enter__(self) -> _NoReport:
        return self

    def __exit__(self, *_: object) -> None: ...

    def window(self, window: Window, *, is_due: bool) -> None: ...


class _Measuring:
    """Runs the load with settings, and shows the progress."""

    def __init__(self, given: dict[str, str], topic: str, values: Payloads, options: argparse.Namespace) -> None:
        self.search: Search | None = None
        self.rate: float | None = options.at_rate if options.goal != "throughput" else None
        self.is_out_of_bytes = False
        self._given = given
        self._topic = topic
        self._values = values
        self._keys = options.keys
        self._most: float = options.throughput or math.inf
        self._bytes_left: float = options.byte_limit or math.inf
        self._shows = sys.stderr.isatty()

    def find_rate(self, seconds: float) -> None:
        """Measure at half of what the given configuration reaches."""
        self.rate = max(1.0, self.measure({}, seconds).rate / 2)

    def measure(self, settings: Settings, seconds: float) -> Point:
        """Raises Stopped, KafkaError."""
        for attempt in range(_ATTEMPTS):
            point = self._measure_once(settings, seconds * 2**attempt)
            # without a measurement of the given configuration there is nothing to compare with
            if point.rate or settings:
                return point
        raise KafkaConfigurationError(
            f"no record was acknowledged within {seconds * 2 ** (_ATTEMPTS - 1):.1f} s; is the cluster well? "
            "Otherwise give more --seconds"
        )

    def _measure_once(self, settings: Settings, seconds: float) -> Point:
        if self._bytes_left <= 0:
            self.is_out_of_bytes = True
            raise Stopped
        rate = min(self._most, math.inf if self.rate is None else self.rate)
        load = Load(
            {**self._given, **settings},
            TimedSend(self._topic, self._values, keys=self._keys, headers=0),
            count=_NO_LIMIT,
            warmup=1,  # connects first
            throughput=-1.0 if math.isinf(rate) else rate,
            byte_limit=None if math.isinf(self._bytes_left) else int(self._bytes_left),
            report=_NoReport(),
            seconds=seconds,
            drain=False,
        )
        try:
            summary = load.run()
        except KeyboardInterrupt:
            raise Stopped from None
        self._bytes_left -= summary.enqueued_bytes
        if summary.interrupted:
            raise Stopped
        if not summary.acknowledged:
            return Point(0.0, seconds * 1000.0, seconds * 1000.0, 0.0, summary.failed)
        self._show(settings)
        return Point(
            rate=summary.acknowledged / summary.elapsed_s,
            p50_ms=summary.latency_ms(50),
            p99_ms=summary.latency_ms(99),
            cpu_us=summary.cpu_s * 1e6 / summary.sent,
            failed=summary.failed,
        )

    def _show(self, settings: Settings) -> None:
        if self._shows and self.search is not None:
            left = max(self.search.planned_s - self.search.spent_s, 0.0)
            text = " ".join(f"{key}={value}" for key, value in settings.items()) or "the given configuration"
            print(f"\r\x1b[K{left:.0f} s left; measured {text}"[:110], end="", file=sys.stderr, flush=True)

    def clear_line(self) -> None:
        if self._shows:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _report(outcome: Outcome, options: argparse.Namespace) -> None:
    print(terminal_picture(outcome))
    if outcome.stopped:
        print("The search ended early; these are the measurements so far.")
    text = _properties(outcome, options.goal)
    print(text, end="")
    if options.output is not None:
        options.output.write_text(text, encoding="utf-8")
    if options.picture is not None:
        picture = svg_picture(outcome)
        if options.picture.suffix == ".html":
            picture = f'<!DOCTYPE html><meta charset="utf-8"><title>headrace tune</title>\n{picture}'
        options.picture.write_text(picture, encoding="utf-8")


def _properties(outcome: Outcome, goal: str) -> str:
    lines = [f"# headrace tune --goal {goal}; the noise of the measurements was {100 * outcome.noise:.0f} %"]
    if outcome.base.points:
        lines.append(f"# the given settings: {_summary(outcome.base.middle())}")
    if not outcome.reasons:
        lines.append("# nothing that was tried is better than that beyond the noise")
    elif outcome.best.points:
        lines.append(f"# these settings: {_summary(outcome.best.middle())}")
    for key, reason in outcome.reasons.items():
        lines += [f"# {reason}", f"{key}={outcome.best.settings[key]}"]
    return "\n".join(lines) + "\n"


def _summary(point: Point) -> str:
    return (
        f"{point.rate:,.0f} records/s, p50 {point.p50_ms:,.1f} ms, p99 {point.p99_ms:,.1f} ms, "
        f"{point.cpu_us:,.1f} µs of CPU per record"
    )
