"""The pytest side of the fixture, for `tests/conftest.py`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from .cluster import ApacheKafka
from .jars import ApacheKafkaUnavailable

REQUIRE = "HEADRACE_REQUIRE_APACHE_KAFKA"


def start_or_skip(release: type[ApacheKafka] = ApacheKafka, **options) -> ApacheKafka:
    """Start a cluster of that release. If it is unavailable, skip the test and name the missing part, or fail if Apache
    Kafka is required."""
    try:
        return release(**options).__enter__()
    except ApacheKafkaUnavailable as unavailable:
        if os.environ.get(REQUIRE) == "1":
            pytest.fail(f"{REQUIRE}=1, but Apache Kafka is not available: {unavailable}")
        pytest.skip(f"Apache Kafka is not available: {unavailable}")


@pytest.fixture(scope="session")
def apache_kafka() -> Iterator[ApacheKafka]:
    """One Apache Kafka broker for the whole session. Tests share it: each creates its own topics, and kills nothing."""
    kafka = start_or_skip()
    try:
        yield kafka
    finally:
        kafka.__exit__()


@pytest.fixture(scope="module")
def old_apache_kafka(request: pytest.FixtureRequest) -> Iterator[ApacheKafka]:
    """One broker of an older release: the class of `releases.py` that parametrizes the module."""
    kafka = start_or_skip(request.param)
    try:
        yield kafka
    finally:
        kafka.__exit__()


@pytest.fixture
def apache_kafka_cluster() -> Iterator[ApacheKafka]:
    """Three Apache Kafka brokers for one test, which may stop and kill them."""
    kafka = start_or_skip(brokers=3)
    try:
        yield kafka
    finally:
        kafka.__exit__()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give these tests more time and one xdist worker: the first use may download jars, and a JVM is slow to start."""
    for item in items:
        if {"apache_kafka", "apache_kafka_cluster", "old_apache_kafka"}.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.timeout(600))
            item.add_marker(pytest.mark.xdist_group("apache_kafka"))
