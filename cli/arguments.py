"""Parsers for the options of the commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..network.addresses import DEFAULT_PORT
from ..network.config_files import read_config_file
from ..network.protocol.errors import KafkaConfigurationError

if TYPE_CHECKING:
    from ..producer.config import ProducerConfig

DEFAULT_SERVER = f"localhost:{DEFAULT_PORT}"


def whole_number(at_least: int, at_most: int | None = None) -> Callable[[str], int]:
    """A type for argparse: a whole number within bounds, both inclusive."""
    allowed = f"at least {at_least}" if at_most is None else f"{at_least} to {at_most}"

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if number < at_least or (at_most is not None and number > at_most):
            raise argparse.ArgumentTypeError(f"{number}, where {allowed} is allowed")
        return number

    return read


def read_configs(entries: Iterable[str], option: str = "--config") -> dict[str, str]:
    """The keys and values of all `--config KEY=VALUE` options. Raises KafkaConfigurationError."""
    configs: dict[str, str] = {}
    for entry in entries:
        key, equals, value = entry.partition("=")
        if not equals or not key:
            raise KafkaConfigurationError(f"{option} takes KEY=VALUE, not {entry!r}")
        if key in configs:
            raise KafkaConfigurationError(f"{option} names {key} twice, as {configs[key]!r} and {value!r}; keep one")
        configs[key] = value
    return configs


def add_producer_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the option for keys of a producer. --command-config, declared with --bootstrap-server, takes them too."""
    parser.add_argument(
        "--command-property", action="append", default=[], metavar="KEY=VALUE", help="a key of the producer"
    )


def producer_keys(options: argparse.Namespace) -> dict[str, str]:
    """The keys of the options of `add_producer_arguments` and of --bootstrap-server. Raises KafkaConfigurationError."""
    keys = read_configs(options.command_property, option="--command-property")
    names = list(keys)
    if options.command_config is not None:
        keys["config.file"] = options.command_config
        names += [name for name, _, _ in read_config_file(options.command_config)]
    # a key or the file may name the servers itself
    if options.bootstrap_server != DEFAULT_SERVER or not any(map(_names_servers, names)):
        keys.setdefault("bootstrap.servers", options.bootstrap_server)
    return keys


def _names_servers(name: str) -> bool:
    from ..producer.config import ProducerConfig  # noqa: PLC0415 - few commands need the producer

    entry = ProducerConfig.find(name)
    return entry is not None and entry.name == "bootstrap.servers"


def servers_text(config: ProducerConfig) -> str:
    """The `bootstrap.servers` of a producer as text."""
    return ",".join(map(str, config.bootstrap_servers))
