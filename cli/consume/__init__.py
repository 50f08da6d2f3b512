"""`headrace consume`: print the records of a topic from any Kafka cluster, one per line.

Without --follow it prints the records that exist at the start, and ends. A line has the partition and offset, the
record's time (UTC), key, value and headers. Records of aborted transactions are printed, too.

With --group it goes on where the group stopped, and commits how far it came, once per second and at the end. It reads
all partitions and is not a member of the group, so the group must have no members.

Examples:
  headrace consume orders --from=-10 --follow
  headrace consume orders --json --where customer.country=DE --max 5
  headrace consume orders --since 2026-11-23T09:00 --until 2026-11-23T10:00 --key '^42-' --header trace-id
  headrace consume orders --group nightly-report --json >> orders.jsonl

The exit code is 0 if everything was read, 1 if not, 2 for wrong options, and 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from typing import Any

from ...network.protocol.errors import KafkaConfigurationError, KafkaError
from ...network.records.record import Record
from ..arguments import whole_number
from ..client import Client, add_bootstrap_argument
from ..parallel import within
from ..text import bytes_text, time_text
from .filters import Filters, add_filter_arguments
from .group_offsets import GroupOffsets
from .reader import Reader

__all__ = ["Reader", "add_arguments", "run"]

_BEGINNING = "beginning"
#: Seconds for the last commit after Ctrl-C.
_COMMIT_TIMEOUT_S = 0.7


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("topic", metavar="TOPIC")
    add_bootstrap_argument(parser)
    parser.add_argument(
        "--partition",
        "-p",
        type=whole_number(0),
        action="append",
        metavar="N",
        help="only this partition; may be given several times",
    )
    parser.add_argument(
        "--from",
        dest="start",
        metavar="WHERE",
        help="beginning, end, an offset, or -N for the last N of each partition (as in --from=-10); default: "
        "beginning, or where the --group stopped",
    )
    parser.add_argument("--group", "-g", metavar="GROUP", help="go on where this group stopped, and commit the offsets")
    parser.add_argument("--max", "-n", type=whole_number(0), metavar="N", help="end after N printed records")
    parser.add_argument("--follow", "-f", action="store_true", help="keep printing new records until interrupted")
    parser.add_argument("--width", type=whole_number(1), metavar="N", help="cut keys and values after N characters")
    parser.add_argument(
        "--json", action="store_true", help="one JSON object per line; bytes that are not UTF-8 as {'base64': ...}"
    )
    add_filter_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Print the records. Raises KafkaError."""
    filters = Filters(options)
    if options.start is not None and filters.since_ms is not None:
        raise KafkaConfigurationError("--from and --since both say where to begin; give one of them")
    if options.max == 0:
        return 0
    with Client(options.bootstrap_server, options.command_config) as client:
        reader = Reader(client, options.topic, options.partition)
        group = None
        committed = None
        if options.group is not None:
            group = GroupOffsets(client, options.group, options.topic, reader.topic_id)
            committed = group.fetch(list(reader.next_offsets))
        for note in reader.begin(options.start or _BEGINNING, since_ms=filters.since_ms, committed=committed):
            print(f"headrace consume: {note}", file=sys.stderr)
        printed = Consumption(options, reader, filters, group).run()
        if not printed and not options.follow and options.start != "end":
            print(
                f"headrace consume: {options.topic} has no records{_where(options, filters, committed)}",
                file=sys.stderr,
            )
    return 0


def _where(options: argparse.Namespace, filters: Filters, committed: dict[int, int] | None) -> str:
    if filters:
        return " that pass the filters"
    if committed:
        return f" after those that group {options.group} has read"
    return "" if options.start in {None, _BEGINNING} else f" from {options.start} onward"


class Consumption:
    """Prints the records, and commits the offsets of those printed or left out."""

    def __init__(
        self, options: argparse.Namespace, reader: Reader, filters: Filters, group: GroupOffsets | None
    ) -> None:
        self._options = options
        self._reader = reader
        self._filters = filters
        self._group = group
        #: The next offset of each partition with a record that was printed or left out.
        self._positions: dict[int, int] = {}

    def run(self) -> int:
        """The number of printed records."""
        try:
            printed = self._print()
            sys.stdout.flush()
        except KeyboardInterrupt:
            self._commit_at_once()
            raise
        if self._group is not None:
            self._group.commit(self._positions)
        return printed

    def _print(self) -> int:
        options = self._options
        printed = 0
        for partition, record in self._reader.records(follow=options.follow, after_round=self._end_round):
            if self._filters.pass_(record):
                line = _json(partition, record) if options.json else _line(partition, record, options.width)
                print(line, flush=options.follow)
                printed += 1
            self._positions[partition] = record.offset + 1
            if printed == options.max:
                break
        return printed

    def _end_round(self) -> None:
        if self._group is not None and self._positions:
            # what the reader of the output has not got must not be committed
            sys.stdout.flush()
            self._group.commit_soon(self._positions)

    def _commit_at_once(self) -> None:
        """Commit after Ctrl-C, which must not wait for a broker that does not answer."""
        group = self._group
        if group is None:
            return
        try:
            sys.stdout.flush()
            within(lambda: group.commit(self._positions), _COMMIT_TIMEOUT_S)
        except (TimeoutError, KafkaError) as failed:
            why = str(failed) or "the coordinator did not answer"
            print(f"headrace consume: the last offsets were not committed: {why}", file=sys.stderr)


def _line(partition: int, record: Record, width: int | None) -> str:
    parts = [f"{partition}:{record.offset}", time_text(record.timestamp)]
    parts += [bytes_text(record.key, width), bytes_text(record.value, width)]
    if record.headers:
        parts.append("{" + ", ".join(f"{name}: {bytes_text(value, width)}" for name, value in record.headers) + "}")
    return "  ".join(parts)


def _json(partition: int, record: Record) -> str:
    return json.dumps(
        {
            "partition": partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": _json_value(record.key),
            "value": _json_value(record.value),
            "headers": [[name, _json_value(value)] for name, value in record.headers],
        },
        ensure_ascii=False,
    )


def _json_value(content: bytes | None) -> Any:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
