"""`headrace broker`: run a Kafka cluster on this machine until Ctrl-C or SIGTERM.

Once clients are served it prints bootstrap.servers=HOST:PORT, then the profile, and with --security the keys that a
client needs. With several brokers each runs in its own process, and the process ids follow. With --console the last
line is console=URL, the address of a page to look into the cluster. Without --data-dir all records are deleted at the
end.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from .. import broker
from ..broker.config.profiles import KAFKA, PROFILES
from .arguments import read_configs, whole_number
from .signals import stop_event


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--brokers", type=whole_number(1), metavar="N", help="how many brokers (default: 1)")
    parser.add_argument(
        "--node-ids",
        type=_numbers,
        metavar="N,N,...",
        help="the brokers' ids, instead of --brokers (default: counted from 1)",
    )
    parser.add_argument("--host", help="where to listen (default: 127.0.0.1, this machine only)")
    parser.add_argument(
        "--port",
        type=whole_number(0, 65535),
        metavar="P",
        help="port of the first broker; the others take the next ones (default: any free ports)",
    )
    parser.add_argument(
        "--security",
        metavar="PROTOCOL",
        help="SSL, SASL_PLAINTEXT or SASL_SSL, with throw-away certificates and users; prints what clients need",
    )
    parser.add_argument("--data-dir", metavar="D", help="where the logs are kept (default: a temporary directory)")
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="one of Kafka's broker keys, e.g. num.partitions=3; config.file=server.properties reads keys from a file",
    )
    parser.add_argument(
        "--console",
        nargs="?",
        const=True,
        default=False,
        type=whole_number(1, 65535),
        metavar="PORT",
        help="serve a page to look into the cluster, to this machine only; prints its address (default port: any free)",
    )
    parser.add_argument(
        "--schema-registry", metavar="URL", help="the registry with whose schemas the console decodes records"
    )
    parser.add_argument(
        "--profile",
        choices=tuple(PROFILES),
        default=KAFKA,
        help="the configuration's defaults: those of Apache Kafka, or shorter ones for tests (default: kafka)",
    )


def _numbers(text: str) -> list[int]:
    """A type for argparse: whole numbers, 0 or more, separated by commas."""
    read = whole_number(0)
    return [read(each) for each in text.split(",")]


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. The first line on standard output is the address. Raises KafkaError."""
    stop = stop_event()
    settings = {
        "node_ids": options.node_ids,
        "data_dir": options.data_dir,
        "host": options.host,
        "port": options.port,
        "security": options.security,
        "console": options.console,
        "schema_registry": options.schema_registry,
        "profile": options.profile,
        "config": read_configs(options.config),
    }
    count = len(options.node_ids) if options.node_ids else options.brokers or 1
    # A single broker runs in this process; several run in one process each, so that each can be killed. Only the
    # class in use is imported, which makes the start faster.
    if count == 1:
        with broker.EmbeddedCluster(options.brokers, **settings) as cluster:
            _print_facts(cluster, options, {})
            stop.wait()
    else:
        with broker.ProcessCluster(options.brokers, **settings) as cluster:
            _print_facts(cluster, options, cluster.pids)
            stop.wait()
    return 0


def _print_facts(cluster: Any, options: argparse.Namespace, pids: Mapping[int, int]) -> None:
    print(f"bootstrap.servers={cluster.bootstrap_servers}", flush=True)
    print(f"profile={cluster.profile}", flush=True)
    for node_id, pid in pids.items():
        print(f"broker.{node_id}.pid={pid}", flush=True)
    if options.security is not None:
        for key, value in cluster.client_config().items():
            if key != "bootstrap.servers":
                print(f"{key}={value}", flush=True)
    if options.console:
        print(f"console={cluster.console_url}", flush=True)
