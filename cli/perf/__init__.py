"""`headrace perf`: send records as fast as possible, or at a rate, and report throughput and latency.

The options and the last line of output are those of Kafka 4.2's kafka-producer-perf-test. The latency is the time from
send to acknowledgement. At high rates a sample of the records is timed, at most 20,000 per second.

Examples:
  headrace perf --topic test --num-records 1000000 --record-size 100
  headrace perf --topic test --num-records 100000 --record-size 1000 --throughput 5000 --html report.html
  headrace perf --topic test --num-records 500000 --payload-file lines.txt --command-property compression.type=zstd
  headrace perf --topic test --num-records 500000 --record-size 100 --transaction-duration-ms 200

The exit code is 0 if every record was acknowledged, 1 if one failed or the cluster can't be reached, 2 for wrong
options, and 130 after Ctrl-C, which reports the measurements so far.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from pathlib import Path

from ...producer.config import ProducerConfig
from ..arguments import add_producer_arguments, producer_keys, servers_text, whole_number
from ..client import Client, add_bootstrap_argument
from ..consent import ask_before_writing
from ..signals import INTERRUPTED
from ..topic_creation import create_missing_topic
from .load import Load, Payloads, TimedSend
from .page import page_of
from .payload_file import values_of_file
from .report import LinesReport, LiveReport, Report, final_line
from .results import Summary

#: Kafka's default.
_TRANSACTION_MS = 3000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_bootstrap_argument(parser)
    parser.add_argument("--topic", required=True, metavar="TOPIC")
    parser.add_argument("--num-records", required=True, type=whole_number(1), metavar="N", help="how many to send")
    payload = parser.add_mutually_exclusive_group(required=True)
    payload.add_argument("--record-size", type=whole_number(0), metavar="BYTES", help="random values of this size")
    payload.add_argument("--payload-file", type=Path, metavar="FILE", help="values picked at random from a file")
    payload.add_argument("--payload-monotonic", action="store_true", help="values that count: 0, 1, 2, ...")
    parser.add_argument(
        "--payload-delimiter", default="\\n", metavar="TEXT", help="what separates the values of a file (default: \\n)"
    )
    parser.add_argument(
        "--throughput", type=float, default=-1.0, metavar="N", help="records per second (default: -1, without a limit)"
    )
    parser.add_argument(
        "--byte-limit", type=whole_number(1), metavar="BYTES", help="stop after this many bytes of values"
    )
    parser.add_argument("--keys", type=whole_number(0), default=0, metavar="N", help="how many different keys, 0: none")
    parser.add_argument(
        "--headers", type=whole_number(0), default=0, metavar="N", help="headers per record (default 0)"
    )
    parser.add_argument(
        "--partitions",
        type=whole_number(1),
        metavar="N",
        help="create the topic with this many partitions if it is missing",
    )
    parser.add_argument(
        "--transactional-id",
        metavar="ID",
        help="send in transactions with this id (default with the next option: performance-producer-<random>)",
    )
    parser.add_argument(
        "--transaction-duration-ms",
        type=whole_number(1),
        metavar="MS",
        help=f"commit each transaction after this time (default with a transactional id: {_TRANSACTION_MS})",
    )
    add_producer_arguments(parser)
    parser.add_argument(
        "--reporting-interval",
        type=whole_number(100),
        default=5000,
        metavar="MS",
        help="between reports (default 5000)",
    )
    parser.add_argument(
        "--warmup-records",
        type=whole_number(0),
        default=0,
        metavar="N",
        help="sent first, not measured (default 0)",
    )
    parser.add_argument("--print-metrics", action="store_true", help="print the producer's metrics at the end")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results as JSON")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with plots of rate and latency")
    parser.add_argument("--yes", action="store_true", help="write to a cluster on other machines without asking")


def run(options: argparse.Namespace) -> int:
    """Send, measure and report. Raises KafkaError."""
    config = _config(options)
    payloads = _payloads(options)
    limit = f"{options.throughput:g} records per second" if options.throughput > 0 else "as fast as possible"
    ask_before_writing(
        config.bootstrap_servers,
        f"{options.num_records + options.warmup_records} records of {payloads.size_text} to {options.topic}, {limit}",
        agreed=options.yes,
    )
    with Client(servers_text(config), security=config) as client:
        create_missing_topic(client, options.topic, options.partitions)
    report: Report = LiveReport(options.num_records) if LiveReport.is_possible(sys.stdout) else LinesReport()
    load = Load(
        {name: config[name] for name in config if config.is_explicit(name)},
        TimedSend(options.topic, payloads, keys=options.keys, headers=options.headers),
        count=options.num_records,
        warmup=options.warmup_records,
        throughput=options.throughput,
        byte_limit=options.byte_limit,
        interval_ms=options.reporting_interval,
        report=report,
        transaction_ms=None if config.transactional_id is None else options.transaction_duration_ms or _TRANSACTION_MS,
    )
    with report:
        summary = load.run()
    _write(summary, config, options)
    print(final_line(summary))
    if summary.first_error is not None:
        print(f"headrace perf: {summary.failed} records failed, the first with: {summary.first_error}", file=sys.stderr)
    if summary.interrupted:
        return INTERRUPTED
    return 1 if summary.failed else 0


def _config(options: argparse.Namespace) -> ProducerConfig:
    """The producer's configuration; with either option of transactions it has a transactional.id."""
    keys = producer_keys(options)
    if options.transactional_id is not None:
        keys.pop("transactional_id", None)
        keys["transactional.id"] = options.transactional_id
    config = ProducerConfig.resolve_from(keys, {}, {})
    if options.transaction_duration_ms is None or config.transactional_id is not None:
        return config
    keys["transactional.id"] = f"performance-producer-{uuid.uuid4()}"
    return ProducerConfig.resolve_from(keys, {}, {})


def _payloads(options: argparse.Namespace) -> Payloads:
    if options.payload_file is None:
        return Payloads.counting() if options.payload_monotonic else Payloads.random(options.record_size)
    return Payloads.picked(values_of_file(options.payload_file, options.payload_delimiter))


def _write(summary: Summary, config: ProducerConfig, options: argparse.Namespace) -> None:
    if options.print_metrics:
        for name, value in sorted(summary.metrics.items()):
            print(f"{name} = {value:g}")
    explicit = [entry for entry in config.entries if config.is_explicit(entry.name)]
    settings = {entry.name: entry.text(config[entry.name]) for entry in explicit}
    if options.json is not None:
        content = {"settings": settings, **summary.as_dict()}
        options.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    if options.html is not None:
        options.html.write_text(page_of(summary, options.topic, settings), encoding="utf-8")
