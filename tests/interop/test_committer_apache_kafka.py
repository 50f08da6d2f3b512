"""The driver's part of exactly-once delivery on Apache Kafka: 4.x with TV2, and 3.9 with the classic protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from integration.spark.committer_cases import *  # noqa: F403
from support.apache_kafka import ApacheKafka
from support.apache_kafka.fixtures import start_or_skip
from support.apache_kafka.releases import ApacheKafka39

PROPERTIES = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}


@pytest.fixture(scope="module", params=[ApacheKafka, ApacheKafka39], ids=["4.x", "3.9"])
def old_apache_kafka(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Under the name of the fixture for older releases, whose tests run on one worker and have more time."""
    kafka = start_or_skip(request.param, properties=PROPERTIES)
    try:
        yield kafka
    finally:
        kafka.__exit__()


@pytest.fixture
def servers(old_apache_kafka: Any) -> str:
    return old_apache_kafka.bootstrap_servers
