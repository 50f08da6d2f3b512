"""`headrace consume`: print the records of a topic from any Kafka cluster, one per line.

Without --follow it prints the records that exist at the start, and ends. A line has the partition and offset, the
record's time (UTC), key, value and headers. Records of aborted transactions are printed, too.

With --group it joins the group, as Kafka's consumers do: the members share the partitions. It goes on where the group
stopped, and commits how far it came, once per second, before a rebalance and at the end. With --partition it reads
those partitions without becoming a member, so the group must have none.

Examples:
  headrace consume orders --from=-10 --follow
  headrace consume orders --json --where customer.country=DE --max 5
  headrace consume orders --since 2026-11-23T09:00 --until 2026-11-23T10:00 --key '^42-' --header trace-id
  headrace consume orders --group nightly-report --json >> orders.jsonl
  headrace consume orders --group workers --follow     (in two terminals: each reads half of the partitions)

The exit code is 0 if everything was read, 1 if not, 2 for wrong options, and 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack

from ...network.protocol.errors import KafkaConfigurationError
from ..arguments import whole_number
from ..client import Client, add_bootstrap_argument
from .consumption import Consumption
from .coordinator import Coordinator
from .filters import Filters, add_filter_arguments
from .reader import Reader

__all__ = ["Reader", "add_arguments", "run"]


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
    parser.add_argument(
        "--group", "-g", metavar="GROUP", help="join this group, go on where it stopped, and commit the offsets"
    )
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
    with ExitStack() as stack:
        client = stack.enter_context(Client(options.bootstrap_server, options.command_config))
        coordinator = None
        if options.group is not None:
            # heartbeats don't wait for a fetch
            of_group = stack.enter_context(Client(options.bootstrap_server, options.command_config))
            coordinator = Coordinator(of_group, options.group)
        Consumption(options, client, filters, coordinator).run()
    return 0
