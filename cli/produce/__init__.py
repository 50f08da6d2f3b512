"""`headrace produce`: send the rows of files, or of standard input, to a topic.

FILE is a path, a glob pattern or - for standard input. The format follows from the name: .csv (with a header line),
.jsonl or .ndjson, .avro, .parquet, .arrow or .feather; anything else is read as lines. Files that end in .gz or .zst
are decompressed. A TEMPLATE is text with {column}: lines have the column {line}, other rows those of their file.

A row's value is the line itself, or a JSON object of all columns, unless --value says otherwise.

Examples:
  headrace produce --topic words words.txt
  headrace produce --topic flights --key '{carrier}-{flight}' flights.csv.gz
  headrace produce --topic 'orders-{country}' --key '{id}' --timestamp '{created}' --on-error bad.jsonl 'orders/*.jsonl'
  headrace produce --topic events --value '{payload}' --resume state.json events.parquet

The exit code is 0 if every good row was acknowledged, 1 if not or if a file can't be read, 2 for wrong options, and 130
after Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ...network.protocol.errors import KafkaConfigurationError
from ...network.text import counted
from ...producer import KafkaProducer
from ...producer.config import ProducerConfig
from ..arguments import add_producer_arguments, producer_keys
from ..client import add_bootstrap_argument
from .bad_rows import FAIL, SKIP, BadRows
from .progress import Progress
from .sending import Resume, Sending
from .sources import FORMATS, STANDARD_INPUT, sources_of
from .templates import RecordTemplate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_bootstrap_argument(parser)
    parser.add_argument("files", nargs="*", default=[STANDARD_INPUT], metavar="FILE", help="default: standard input")
    parser.add_argument("--topic", required=True, metavar="TEMPLATE")
    parser.add_argument("--format", choices=tuple(FORMATS), help="the format of all files, whatever their names")
    parser.add_argument("--value", metavar="TEMPLATE", help="default: the line, or a JSON object of all columns")
    parser.add_argument("--key", metavar="TEMPLATE", help="default: no key")
    parser.add_argument("--header", action="append", default=[], metavar="NAME=TEMPLATE", help="may be repeated")
    parser.add_argument("--partition", metavar="TEMPLATE", help="a number (default: the producer chooses)")
    parser.add_argument("--timestamp", metavar="TEMPLATE", help="milliseconds since 1970, or ISO 8601 (default: now)")
    parser.add_argument(
        "--on-error",
        default=FAIL,
        metavar="fail|skip|FILE",
        help="what to do with a bad row: stop (default), leave it out, or write it to FILE with its place and reason",
    )
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="keep in FILE how far each file was sent, and go on from there"
    )
    add_producer_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Send the rows. Raises KafkaError."""
    template = RecordTemplate(
        topic=options.topic,
        value=options.value,
        key=options.key,
        headers=options.header,
        partition=options.partition,
        timestamp=options.timestamp,
    )
    sources = sources_of(options.files, options.format)
    if options.resume is not None and any(source.name == STANDARD_INPUT for source in sources):
        raise KafkaConfigurationError("--resume needs files: standard input can't be read again")
    resume = Resume(options.resume)
    config = ProducerConfig.resolve_from(producer_keys(options), {}, {})
    with BadRows(options.on_error) as bad_rows, KafkaProducer(config) as producer:
        sending = Sending(producer, template, bad_rows, resume, Progress(sources, sys.stderr))
        sending.send(sources)
    print(f"{counted(sending.acknowledged, 'record')} acknowledged, {counted(bad_rows.count, 'bad row')}", flush=True)
    if bad_rows.count and options.on_error == SKIP:
        print(f"headrace produce: the first bad row: {bad_rows.first}", file=sys.stderr)
    return 0
