"""The profiles of a cluster's defaults: Apache Kafka's, or defaults for fast tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...network.protocol.errors import KafkaConfigurationError

KAFKA = "kafka"
TEST = "test"

#: Profile -> its differences from Apache Kafka's defaults.
PROFILES: Mapping[str, Mapping[str, Any]] = {
    KAFKA: {},
    TEST: {
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.num.partitions": 4,
        "replica.fetch.backoff.ms": 50,
        "auto.leader.rebalance.enable": False,
    },
}


def check_profile(profile: object) -> str:
    """Return a profile's name unchanged. Raises KafkaConfigurationError if there is no such profile."""
    if not isinstance(profile, str) or profile not in PROFILES:
        raise KafkaConfigurationError(f"there is no profile {profile!r}; choose {' or '.join(PROFILES)}")
    return profile
