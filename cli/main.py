"""Entry point of the terminal command ``headrace``."""

from __future__ import annotations

import argparse
from importlib import metadata

from ..network import _build


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="headrace", description="The Kafka producer for Python, and its broker.")
    parser.add_argument(
        "--version", action="version", version=f"headrace {metadata.version('headrace')} ({_build.describe()})"
    )
    parser.parse_args(arguments)
    parser.print_help()
    return 0
