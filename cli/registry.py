"""`headrace registry`: run a schema registry for tests on this machine until Ctrl-C or SIGTERM.

Once clients are served it prints schema.registry.url=http://HOST:PORT. All schemas are in memory and are gone at the
end.
"""

from __future__ import annotations

import argparse

from ..registry.embedded import EmbeddedRegistry
from .arguments import whole_number
from .signals import stop_event

_DEFAULT_PORT = 8081


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1, this machine only)")
    parser.add_argument(
        "--port",
        type=whole_number(0, 65535),
        default=_DEFAULT_PORT,
        metavar="P",
        help="the port; 0 takes any free one (default: 8081)",
    )


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. The first line on standard output is the address."""
    stop = stop_event()
    with EmbeddedRegistry(options.host, options.port) as registry:
        print(f"schema.registry.url={registry.url}", flush=True)
        stop.wait()
    return 0
