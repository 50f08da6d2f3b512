"""The pytest plugin: a Kafka cluster and a schema registry for every test that asks for one.

    def test_orders(kafka_cluster, kafka_topic):
        send_order(kafka_cluster.bootstrap_servers, kafka_topic)
        assert [record.value for record in kafka_cluster.records(kafka_topic, 0)] == [b"order"]

pytest imports this module in every run, even if no test needs Kafka, so the broker is imported by the first fixture.
docs/testing.md describes the fixtures and the marker.
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
    from ..registry.embedded import EmbeddedRegistry
    from .cluster.embedded import EmbeddedCluster
    from .group.group import Group
    from .metadata import ClusterImage

_MARKER = (
    "kafka(brokers=1, config=None, racks=None, security=None, topic_partitions=1, topic_config=None): settings of the "
    "test's cluster and topic; with brokers, config, racks or security the test gets a cluster of its own"
)
#: Settings that give the test a cluster of its own; the others are for its topic.
_OF_CLUSTER = ("brokers", "config", "racks", "security")
_OF_TOPIC = ("topic_partitions", "topic_config")
_MAX_REPLICAS = 3
_ONLY_BROKER = 1
_LONGEST_NAME = 80
_RESET_TIMEOUT_S = 10.0

_topic_numbers = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


def _settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The settings from the markers of a test, its class and its module; for each setting the closest marker wins."""
    settings: dict[str, Any] = {}
    for marker in request.node.iter_markers("kafka"):
        unknown = sorted(set(marker.kwargs) - {*_OF_CLUSTER, *_OF_TOPIC})
        if marker.args or unknown:
            what = ", ".join(unknown) or "an argument without a name"
            pytest.fail(f"@pytest.mark.kafka doesn't take {what}; it takes {', '.join(_OF_CLUSTER + _OF_TOPIC)}", False)
        kwargs = dict(marker.kwargs)
        if "brokers" in settings:
            # Racks apply to the brokers of the same marker only.
            kwargs.pop("racks", None)
        settings = {**kwargs, **settings}
    return settings


@pytest.fixture(scope="session")
def kafka_session_cluster() -> Iterator[EmbeddedCluster]:
    """One broker for the whole session, started on first use.

    It is the `kafka_cluster` of every test that doesn't need its own, and serves fixtures that outlive a test. Its
    settings are the defaults, except that retention by age is off: the first retention check comes after five minutes
    and could delete old-dated records in the middle of a test.
    """
    from .cluster.embedded import EmbeddedCluster  # noqa: PLC0415 - see the module's docstring

    with EmbeddedCluster(log_retention_ms=-1) as cluster:
        yield cluster


@pytest.fixture
def kafka_clock() -> MockClock:
    """Virtual time. A test that uses it has a cluster of its own, whose clock only moves with
    `kafka_clock.advance(milliseconds)`."""
    from ..network.clock import SYSTEM_CLOCK, MockClock  # noqa: PLC0415

    # Clients stamp records with real time, and a broker rejects timestamps far ahead of its own clock.
    return MockClock(wall_ms=SYSTEM_CLOCK.wall_ms())


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """A running cluster: the session's, reset after each test, or the test's own if its marker or `kafka_clock` needs
    one."""
    settings = _settings(request)
    wanted = {key: settings[key] for key in _OF_CLUSTER if key in settings}
    if not wanted and "kafka_clock" not in request.fixturenames:
        cluster: EmbeddedCluster = request.getfixturevalue("kafka_session_cluster")
        before = cluster.controller.image
        try:
            yield cluster
        finally:
            _make_as_new(cluster, before)
        return
    from .cluster.embedded import EmbeddedCluster  # noqa: PLC0415

    if "kafka_clock" in request.fixturenames:
        wanted["clock"] = request.getfixturevalue("kafka_clock")
    with EmbeddedCluster(**wanted) as cluster:
        yield cluster


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_cluster: EmbeddedCluster) -> str:
    """The name of a new, empty topic of this test only, replicated on up to three brokers."""
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


@pytest.fixture
def schema_registry() -> Iterator[EmbeddedRegistry]:
    """A running, empty schema registry of this test only; `schema_registry.url` is its address."""
    from ..registry.embedded import EmbeddedRegistry  # noqa: PLC0415

    with EmbeddedRegistry() as registry:
        yield registry


def _make_as_new(cluster: EmbeddedCluster, before: ClusterImage) -> None:
    """Undo a test's changes to the session's cluster: faults, a stopped broker, topics, groups, and the rest of the
    image. `before`: the image before the test."""
    from .requests.faults import Fault  # noqa: PLC0415

    cluster.control.clear()
    cluster.act_as(None)
    cluster.heal_links()
    # A client left open by the test would otherwise rejoin its group or recreate its topic during the cleanup.
    with cluster.inject(None, Fault(close=True), times=None):
        if _ONLY_BROKER not in cluster.brokers:
            cluster.start_broker(_ONLY_BROKER)
        _settle(cluster)
        for topic in list(cluster.controller.image.topics.values()):
            if topic.name not in before.topics and not topic.is_internal:
                cluster.controller.delete_topic(topic.name)
        for group in cluster.broker(_ONLY_BROKER).offsets.groups():
            _delete_group(cluster, group)
        _restore_settings(cluster, before)
    cluster.broker(_ONLY_BROKER).telemetry.clear()
    cluster.control.requests.clear()
    cluster.control.counts.clear()


def _restore_settings(cluster: EmbeddedCluster, before: ClusterImage) -> None:
    """Undo changes of dynamic configurations, telemetry subscriptions and features, and remove new users."""
    controller, image = cluster.controller, cluster.controller.image
    for resource in image.configs.keys() | before.configs.keys():
        configs = before.configs.get(resource, {})
        if configs != image.configs.get(resource, {}):
            controller.set_resource_configs(*resource, configs)
    if image.features != before.features:
        controller.update_features(before.features)
    new_users = image.users.names - before.users.names
    if new_users:
        controller.set_passwords(dict.fromkeys(new_users))


def _settle(cluster: EmbeddedCluster) -> None:
    """Wait until the broker has handled its clients' earlier requests and has loaded its groups."""
    broker = cluster.broker(_ONLY_BROKER)
    cluster.close_connections(_ONLY_BROKER)
    # Both threads run their jobs in order: one the requests handed over by network threads, one the loading of groups.
    for what, submit in (
        ("answer its last requests", broker.request_thread.submit),
        ("load its groups", lambda job: broker.after(0, job)),
    ):
        is_done = threading.Event()
        submit(is_done.set)
        if not is_done.wait(_RESET_TIMEOUT_S):
            raise TimeoutError(f"the broker didn't {what} in {_RESET_TIMEOUT_S:.0f} s")


def _delete_group(cluster: EmbeddedCluster, group: Group) -> None:
    """Remove the members of a group, then delete the group and its committed offsets."""
    broker = cluster.broker(_ONLY_BROKER)
    with group.lock:
        members = [(member.member_id, member.instance_id) for member in group.members.values()]
        members += [(member_id, None) for member_id in group.pending_members]
    broker.groups.leave(group.group_id, members)
    forgotten = threading.Event()
    broker.offsets.delete_group(group.group_id, lambda _: forgotten.set())
    if not forgotten.wait(_RESET_TIMEOUT_S):
        raise TimeoutError(f"the group {group.group_id!r} was not deleted in {_RESET_TIMEOUT_S:.0f} s")
