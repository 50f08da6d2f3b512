"""Entry point of the terminal command ``headrace``."""

from __future__ import annotations

import argparse
from importlib import import_module, metadata

from ..network import _build

# Command -> what it does, in a line. Each stands in a module of its name.
COMMANDS = {
    "broker": "run Kafka brokers here",
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="headrace", description="The Kafka producer for Python, and its broker.")
    parser.add_argument(
        "--version", action="version", version=f"headrace {metadata.version('headrace')} ({_build.describe()})"
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, description in COMMANDS.items():
        module = import_module(f".{name.replace('-', '_')}", __package__)
        command = commands.add_parser(name, help=description, description=module.__doc__)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    return options.run(options)
