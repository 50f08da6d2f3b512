"""Fixtures that every kind of test may use, how Hypothesis looks for examples, and what the header of a run says."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings
from support.apache_kafka import fixtures
from support.apache_kafka.fixtures import apache_kafka, apache_kafka_cluster, old_apache_kafka

from headrace.network import _build

__all__ = [
    "apache_kafka",
    "apache_kafka_cluster",
    "old_apache_kafka",
    "pytest_collection_modifyitems",
    "pytest_report_header",
]

# On a busy machine an example takes as long as it takes. With CI set the examples are the same ones each time
# (Hypothesis's own profile "ci"), so that a failure there is about the change; at a desk they are new ones.
settings.register_profile("desk", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


def pytest_report_header() -> str:
    """Which modules these tests are about to run."""
    return f"headrace: {_build.describe()}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where tests run in parallel, those of a file that share brokers or a Spark stay together."""
    fixtures.pytest_collection_modifyitems(items)
    for item in items:
        if "unit" not in item.path.parts and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.name))
