"""The pytest plugin: a Kafka cluster for every test that asks for one.

    def test_orders(kafka_cluster, kafka_topic):
        send_order(kafka_cluster.bootstrap_servers, kafka_topic)
        assert [record.value for record in kafka_cluster.records(kafka_topic, 0)] == [b"order"]

pytest imports this module in every run, also where no test needs Kafka: the broker is imported by the first fixture.
What the fixtures and the marker do is told in docs/testing.md.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..network.clock import MockClock
    from .cluster.embedded import EmbeddedCluster
    from .group.group import Group

_MARKER = (
    "kafka(brokers=1, config=None, racks=None, topic_partitions=1, topic_config=None): "
    "how the test's cluster and topic are made; with brokers, config or racks it is a cluster of the test's own"
)
#: What calls for a cluster of the test's own; the rest is about its topic.
_OF_CLUSTER = ("brokers", "config", "racks")
_OF_TOPIC = ("topic_partitions", "topic_config")
_MAX_REPLICAS = 3
_ONLY_BROKER = 1
_LONGEST_NAME = 80
_RESET_TIMEOUT_S = 10.0

_topic_numbers = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


def _settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the markers on a test, its class and its module say; the closest one decides, a setting at a time."""
    settings: dict[str, Any] = {}
    for marker in request.node.iter_markers("kafka"):
        unknown = sorted(set(marker.kwargs) - {*_OF_CLUSTER, *_OF_TOPIC})
        if marker.args or unknown:
            what = ", ".join(unknown) or "an argument without a name"
            pytest.fail(f"@pytest.mark.kafka doesn't take {what}; it takes {', '.join(_OF_CLUSTER + _OF_TOPIC)}", False)
        kwargs = dict(marker.kwargs)
        if "brokers" in settings:
            # Racks are those of the brokers that they were given with.
            kwargs.pop("racks", None)
        settings = {**kwargs, **settings}
    return settings


@pytest.fixture(scope="session")
def kafka_session_cluster() -> Iterator[EmbeddedCluster]:
    """One broker for the whole session, started when first asked for. It is the `kafka_cluster` of every test that
    doesn't call for one of its own, and for fixtures that live longer than a test. Its settings are the defaults, but
    that it deletes nothing for its age: it may see the fifth minute, and with it the first check of that, in the middle
    of a test whose records have times of long ago."""
    from .cluster.embedded import EmbeddedCluster  # noqa: PLC0415 - see the module's docstring

    with EmbeddedCluster(log_retention_ms=-1) as cluster:
        yield cluster


@pytest.fixture
def kafka_clock() -> MockClock:
    """Virtual time: a test that asks for it has a cluster of its own whose clock stands still until
    `kafka_clock.advance(milliseconds)`."""
    from ..network.clock import SYSTEM_CLOCK, MockClock  # noqa: PLC0415

    # Clients stamp records by the real time, and a broker refuses records from its own far future.
    return MockClock(wall_ms=SYSTEM_CLOCK.wall_ms())


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """A running cluster: the session's, which is as new for every test, or one of the test's own where its marker or
    `kafka_clock` calls for that."""
    settings = _settings(request)
    wanted = {key: settings[key] for key in _OF_CLUSTER if key in settings}
    if not wanted and "kafka_clock" not in request.fixturenames:
        cluster: EmbeddedCluster = request.getfixturevalue("kafka_session_cluster")
        kept = set(cluster.controller.image.topics)
        try:
            yield cluster
        finally:
            _make_as_new(cluster, kept)
        return
    from .cluster.embedded import EmbeddedCluster  # noqa: PLC0415

    if "kafka_clock" in request.fixturenames:
        wanted["clock"] = request.getfixturevalue("kafka_clock")
    with EmbeddedCluster(**wanted) as cluster:
        yield cluster


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_cluster: EmbeddedCluster) -> str:
    """The name of a new, empty topic that no other test has, on up to three brokers of the cluster."""
    settings = _settings(request)
    configs: Mapping[str, Any] = settings.get("topic_config") or {}
    name = f"{re.sub(r'[^a-zA-Z0-9-]+', '-', request.node.name)[:_LONGEST_NAME].strip('-')}-{next(_topic_numbers)}"
    kafka_cluster.create_topic(
        name,
        num_partitions=settings.get("topic_partitions", 1),
        replication_factor=min(len(kafka_cluster.brokers), _MAX_REPLICAS),
        configs={key.replace("_", "."): str(value) for key, value in configs.items()},
    )
    return name


def _make_as_new(cluster: EmbeddedCluster, kept_topics: set[str]) -> None:
    """Undo what a test did to the session's cluster: faults, a stopped broker, topics, groups."""
    from .requests.faults import Fault  # noqa: PLC0415

    cluster.control.clear()
    cluster.act_as(None)
    cluster.heal_links()
    # A client that the test left open would rejoin its group, or create its topic again, while they are deleted.
    with cluster.inject(None, Fault(close=True), times=None):
        if _ONLY_BROKER not in cluster.brokers:
            cluster.start_broker(_ONLY_BROKER)
        _settle(cluster)
        for topic in list(cluster.controller.image.topics.values()):
            if topic.name not in kept_topics and not topic.is_internal:
                cluster.controller.delete_topic(topic.name)
        for group in cluster.broker(_ONLY_BROKER).offsets.groups():
            _delete_group(cluster, group)
    cluster.control.requests.clear()
    cluster.control.counts.clear()


def _settle(cluster: EmbeddedCluster) -> None:
    """Wait until the broker has handled what its clients sent before, and has loaded the groups it keeps."""
    broker = cluster.broker(_ONLY_BROKER)
    cluster.close_connections(_ONLY_BROKER)
    # Both threads run their jobs in order: requests that a network thread has handed over, the loading of groups.
    for what, submit in (
        ("answer its last requests", broker.request_thread.submit),
        ("load its groups", lambda job: broker.after(0, job)),
    ):
        is_done = threading.Event()
        submit(is_done.set)
        if not is_done.wait(_RESET_TIMEOUT_S):
            raise TimeoutError(f"the broker didn't {what} in {_RESET_TIMEOUT_S:.0f} s")


def _delete_group(cluster: EmbeddedCluster, group: Group) -> None:
    """Put the members out of a group and forget it, committed offsets and all."""
    broker = cluster.broker(_ONLY_BROKER)
    with group.lock:
        members = [(member.member_id, member.instance_id) for member in group.members.values()]
        members += [(member_id, None) for member_id in group.pending_members]
    broker.groups.leave(group.group_id, members)
    forgotten = threading.Event()
    broker.offsets.delete_group(group.group_id, lambda _: forgotten.set())
    if not forgotten.wait(_RESET_TIMEOUT_S):
        raise TimeoutError(f"the group {group.group_id!r} was not forgotten in {_RESET_TIMEOUT_S:.0f} s")
