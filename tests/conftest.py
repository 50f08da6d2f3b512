"""Fixtures for all kinds of tests, the Hypothesis profile, and the header of a run."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings
from support.apache_kafka import fixtures
from support.apache_kafka.fixtures import apache_kafka, apache_kafka_cluster, old_apache_kafka

from headrace.network import _build

__all__ = [
    "apache_kafka",
    "apache_kafka_cluster",
    "no_producer_of_spark_is_left",
    "old_apache_kafka",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_enter_pdb",
    "pytest_report_header",
    "pytest_runtest_call",
    "pytest_runtest_setup",
    "pytest_runtest_teardown",
]

#: pytest-timeout raises once, in the main thread, and not at all in the teardown of a failed test. A test that is still
#: stuck this long after its timeout (in a `with` that it leaves, in a loop of compiled code) ends the process with a
#: dump of every thread's stack.
GRACE_S = 60.0
_stderr = -1

# Examples have no deadline: a busy machine is slow. With CI set, Hypothesis's own profile "ci" runs the same examples
# each time, so that a failure there is due to the change; other runs draw new ones.
settings.register_profile("desk", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


def pytest_configure() -> None:
    """Keep the real standard error, which pytest's capture doesn't replace, and let Ctrl-C reach programs."""
    global _stderr  # noqa: PLW0603  (hooks have nowhere else to keep it)
    _stderr = os.dup(2)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # started in the background by a shell: the commands that tests interrupt would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _bounded(item: pytest.Item) -> Generator[None, object, object]:
    marker = item.get_closest_marker("timeout")
    timeout_s = float(item.config.getini("timeout") if marker is None else marker.args[0])
    faulthandler.dump_traceback_later(timeout_s + GRACE_S, exit=True, file=_stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


pytest_runtest_setup = pytest_runtest_call = pytest_runtest_teardown = pytest.hookimpl(wrapper=True)(_bounded)


@pytest.fixture(scope="module", autouse=True)
def no_producer_of_spark_is_left() -> Iterator[None]:
    """Close the producers that a Python worker, here the tests' process, keeps for later tasks.

    Their brokers are gone, and other tests would meet their log lines and sockets.
    """
    yield
    loaded = sys.modules.get("headrace.producer.spark.producers")
    if loaded is not None:
        loaded.worker_producers().close()


def pytest_enter_pdb() -> None:
    """No timeout applies while a test is in the debugger."""
    faulthandler.cancel_dump_traceback_later()


def pytest_report_header() -> str:
    """Report which of Headrace's modules are compiled."""
    return f"headrace: {_build.describe()}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file that share brokers or a Spark session on one xdist worker."""
    fixtures.pytest_collection_modifyitems(items)
    for item in items:
        if "unit" not in item.path.parts and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.name))
