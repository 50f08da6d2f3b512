"""A telemetry subscription's configuration, with Kafka's names (KIP-714)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ...network.config import Config, key
from ...network.protocol.errors import InvalidConfigurationError
from .topic_config import parse_list

#: What a subscription can match. Kafka matches the port of a client, too.
MATCHED = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
)


class ClientMetricsConfig(Config, listed_in="docs/broker-configuration.md"):
    """The keys of a telemetry subscription, a resource of type 16 (CLIENT_METRICS)."""

    metrics: tuple[str, ...] = key(
        default=(),
        parse=parse_list,
        allowed="prefixes of metric names, separated by commas",
        show=",".join,
        doc="The metrics that clients push: prefixes of names, such as `org.apache.kafka.producer.`; `*` for all.",
    )
    interval_ms: int = key(
        default=300_000, at_least=100, at_most=3_600_000, doc="How often a client pushes, in milliseconds."
    )
    match: tuple[str, ...] = key(
        default=(),
        parse=parse_list,
        allowed="name=pattern, separated by commas",
        show=",".join,
        doc="Which clients push: all that match each `name=pattern`, where the pattern is a regular expression and the "
        "name is one of " + ", ".join(f"`{name}`" for name in MATCHED) + ". Without it, every client.",
    )


def parse_patterns(match: Iterable[str]) -> Mapping[str, re.Pattern[str]]:
    """The patterns of `match`, by name. Raises InvalidConfigurationError."""
    patterns = {}
    for each in match:
        name, equals, pattern = (part.strip() for part in each.partition("="))
        if not equals or not pattern or name not in MATCHED:
            raise InvalidConfigurationError(
                f"match has {each!r}, not name=pattern, where the name is one of {', '.join(MATCHED)}"
            )
        try:
            patterns[name] = re.compile(pattern)
        except re.error as wrong:
            raise InvalidConfigurationError(f"the pattern of {each!r} is not a regular expression: {wrong}") from wrong
    return patterns
