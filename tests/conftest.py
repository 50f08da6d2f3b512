"""Fixtures that every kind of test may use, how Hypothesis looks for examples, and what the header of a run says."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator

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
    "pytest_configure",
    "pytest_enter_pdb",
    "pytest_report_header",
    "pytest_runtest_call",
    "pytest_runtest_setup",
    "pytest_runtest_teardown",
]

#: pytest-timeout raises once, in the main thread, and not at all in the teardown of a test that has failed. What is
#: still stuck so long after its time (in a `with` that it leaves, in a loop of compiled code) ends the process, and the
#: stacks of all threads are told.
GRACE_S = 60.0
_stderr = -1

# On a busy machine an example takes as long as it takes. With CI set the examples are the same ones each time
# (Hypothesis's own profile "ci"), so that a failure there is about the change; at a desk they are new ones.
settings.register_profile("desk", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


def pytest_configure() -> None:
    """Keep the standard error that tests don't capture."""
    global _stderr  # noqa: PLW0603  (hooks have nowhere else to keep it)
    _stderr = os.dup(2)


def _bounded(item: pytest.Item) -> Generator[None, object, object]:
    marker = item.get_closest_marker("timeout")
    timeout_s = float(item.config.getini("timeout") if marker is None else marker.args[0])
    faulthandler.dump_traceback_later(timeout_s + GRACE_S, exit=True, file=_stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


pytest_runtest_setup = pytest_runtest_call = pytest_runtest_teardown = pytest.hookimpl(wrapper=True)(_bounded)


def pytest_enter_pdb() -> None:
    """Who looks at a test in the debugger has time."""
    faulthandler.cancel_dump_traceback_later()


def pytest_report_header() -> str:
    """Which modules these tests are about to run."""
    return f"headrace: {_build.describe()}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where tests run in parallel, those of a file that share brokers or a Spark stay together."""
    fixtures.pytest_collection_modifyitems(items)
    for item in items:
        if "unit" not in item.path.parts and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.name))
