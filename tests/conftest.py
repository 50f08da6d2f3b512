"""Fixtures that every kind of test may use, how Hypothesis looks for examples, and what the header of a run says."""

from __future__ import annotations

import os

from headrace.network import _build
from hypothesis import settings
from support.apache_kafka.fixtures import apache_kafka, apache_kafka_cluster, pytest_collection_modifyitems

__all__ = ["apache_kafka", "apache_kafka_cluster", "pytest_collection_modifyitems", "pytest_report_header"]

# On a busy machine an example takes as long as it takes. With CI set the examples are the same ones each time
# (Hypothesis's own profile "ci"), so that a failure there is about the change; at a desk they are new ones.
settings.register_profile("desk", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


def pytest_report_header() -> str:
    """Which modules these tests are about to run."""
    return f"headrace: {_build.describe()}"
