"""Entry point of the terminal command ``headrace``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ..network import _build
from ..network.protocol.errors import KafkaError
from .signals import INTERRUPTED

# Command -> its description in one line. Each is in the module of that name.
COMMANDS = {
    "demo": "a broker and a producer with live metrics, for ten seconds",
    "broker": "run Kafka brokers on this machine",
    "registry": "run a schema registry for tests on this machine",
    "topics": "list, describe, create and delete the topics of a cluster",
    "consume": "print the records of a topic",
    "produce": "send the rows of files to a topic",
    "perf": "send records and report throughput and latency",
    "tune": "find settings of the producer by measuring",
    "watch": "show the metrics of running producers",
    "doctor": "find out why a cluster or a topic can't be used from here",
    "config": "explain, check, compare and convert configurations of the producer",
    "dump-log": "print the contents of files in a log directory, and where they are damaged",
}


class _Version(argparse.Action):
    """Prints the version. Computed only on request, because it looks for every compiled module."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"headrace {_build.VERSION} ({_build.describe()})")
        parser.exit()


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the process's exit code."""
    try:
        try:
            return _run(sys.argv[1:] if arguments is None else arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # the reader of the output (`| head`) has closed it
        _write_no_more()
        return 0
    except OSError as failed:
        _write_no_more()
        print(f"headrace: {failed}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="headrace", description="The Kafka producer for Python, and its broker.")
    parser.add_argument("--version", action=_Version, help="print the installed version, and whether it is compiled")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    command = parser
    for name, description in COMMANDS.items():
        if arguments[:1] != [name]:
            commands.add_parser(name, help=description)
            continue
        # Only the command that runs is imported: `headrace topics` needs no broker, for example.
        module = import_module(f".{name.replace('-', '_')}", __package__)
        command = commands.add_parser(
            name,
            help=description,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        # argparse itself would show the usage of `headrace`, not of the command
        command.error(f"unrecognized arguments: {' '.join(unknown)}")
    if options.command is None:
        parser.print_help()
        return 0
    try:
        return options.run(options)
    except KafkaError as failed:
        print(f"headrace {options.command}: {failed}", file=sys.stderr)
        return 1


def _write_no_more() -> None:
    """Discard all further output, including the flush at the interpreter's exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
