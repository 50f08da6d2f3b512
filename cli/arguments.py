"""Parsers for the options of the commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

from ..network.protocol.errors import KafkaConfigurationError


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
