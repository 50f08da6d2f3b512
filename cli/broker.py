"""`headrace broker`: run a Kafka cluster here, until Ctrl-C or SIGTERM.

Prints bootstrap.servers=HOST:PORT as soon as clients are served, and then the profile that it runs with. Several
brokers are a process each, whose ids follow. Without --data-dir the records go when it ends.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Mapping

from .. import broker
from ..broker.config.profiles import KAFKA, PROFILES
from ..network.protocol.errors import KafkaError
from .arguments import read_configs, whole_number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--brokers", type=whole_number(1), metavar="N", help="how many brokers (default: 1)")
    parser.add_argument(
        "--node-ids",
        type=_numbers,
        metavar="N,N,...",
        help="the brokers' numbers, instead of how many there are (default: counted from 1)",
    )
    parser.add_argument("--host", help="where to listen (default: 127.0.0.1, this machine only)")
    parser.add_argument(
        "--port",
        type=whole_number(0, 65535),
        metavar="P",
        help="port of the first broker, the others take the next ones (default: any free ones)",
    )
    parser.add_argument("--data-dir", metavar="D", help="where the logs are kept (default: a temporary directory)")
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a broker key of Kafka, e.g. num.partitions=3; config.file=server.properties reads a file of them",
    )
    parser.add_argument(
        "--profile",
        choices=tuple(PROFILES),
        default=KAFKA,
        help="defaults of the configuration: those of Apache Kafka, or those that let tests end soon (default: kafka)",
    )


def _numbers(text: str) -> list[int]:
    """For argparse: whole numbers from 0 on, separated by commas."""
    read = whole_number(0)
    return [read(each) for each in text.split(",")]


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. The first line on standard output tells where, once clients are served."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        settings = {
            "node_ids": options.node_ids,
            "data_dir": options.data_dir,
            "host": options.host,
            "port": options.port,
            "profile": options.profile,
            "config": read_configs(options.config),
        }
        count = len(options.node_ids) if options.node_ids else options.brokers or 1
        # One broker needs no second process; several are processes, so that each can be killed. Only one kind is
        # imported: its brokers wait for that.
        if count == 1:
            with broker.EmbeddedCluster(options.brokers, **settings) as cluster:
                _tell(cluster.bootstrap_servers, cluster.profile, {})
                stop.wait()
        else:
            with broker.ProcessCluster(options.brokers, **settings) as cluster:
                _tell(cluster.bootstrap_servers, cluster.profile, cluster.pids)
                stop.wait()
    except KafkaError as failed:
        print(f"headrace broker: {failed}", file=sys.stderr)
        return 1
    return 0


def _tell(bootstrap_servers: str, profile: str, pids: Mapping[int, int]) -> None:
    print(f"bootstrap.servers={bootstrap_servers}", flush=True)
    print(f"profile={profile}", flush=True)
    for node_id, pid in pids.items():
        print(f"broker.{node_id}.pid={pid}", flush=True)
