"""Replica moves, elections, and configurations of brokers and groups, over the wire, in one process and in several."""

from __future__ import annotations

import uuid

import pytest
from support.waiting import wait_until

from headrace.broker import EmbeddedCluster, ProcessCluster
from headrace.broker.config.group_config import GroupConfig
from headrace.network.addresses import Address
from headrace.network.client.blocking_connection import BlockingConnection
from headrace.network.protocol.errors import (
    InvalidConfigurationError,
    InvalidRequestError,
    ReplicaNotAvailableError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from headrace.network.protocol.messages.cluster.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from headrace.network.protocol.messages.cluster.describe_log_dirs import DescribeLogDirsRequest
from headrace.network.protocol.messages.cluster.describe_quorum import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from headrace.network.protocol.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.network.protocol.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.network.protocol.messages.configs.list_config_resources import ListConfigResourcesRequest
from headrace.network.protocol.messages.topics.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.network.protocol.messages.topics.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from headrace.network.protocol.messages.topics.elect_leaders import ElectLeadersRequest, TopicPartitions
from headrace.network.protocol.messages.topics.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from headrace.network.protocol.other_errors import (
    ElectionNotNeededError,
    LogDirNotFoundError,
    NoReassignmentInProgressError,
    PreferredLeaderNotAvailableError,
)
from headrace.producer import KafkaProducer

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture(scope="module", params=[EmbeddedCluster, ProcessCluster])
def cluster(request, tmp_path_factory):
    directories = [str(tmp_path_factory.mktemp("a")), str(tmp_path_factory.mktemp("b"))]
    config = {"log.dirs": ",".join(directories), "max.request.partition.size.limit": 4}
    with request.param(3, config=config) as cluster:
        cluster.directories = directories
        yield cluster


@pytest.fixture
def topic():
    return f"topic-{uuid.uuid4()}"


def ask(cluster, message, node_id=1, version=None):
    address = cluster.bootstrap_servers.split(",")[node_id - 1]
    host, port = address.split(":")
    connection = BlockingConnection(
        Address(host, int(port)), client_id="test", timeout_ms=20_000, max_response_bytes=2**20
    )
    try:
        return connection.request(message, version)
    finally:
        connection.close()


def make(cluster, topic, assignments):
    cluster.controller.create_topic(topic, assignments=assignments)
    cluster._await_brokers()


def fill(cluster, topic, count, size=10):
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for _ in range(count):
            producer.send(topic, value=b"v" * size, partition=0)


# --- Reassignment ---


def reassign(cluster, topic, replicas):
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=[partition])])
    (response,) = ask(cluster, request).responses
    return response.partitions[0]


def moving(cluster, topics=None):
    response = ask(cluster, ListPartitionReassignmentsRequest(topics=topics))
    return {
        (topic.name, each.partition_index): (each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in response.topics
        for each in topic.partitions
    }


def test_records_move_with_their_replicas(cluster, topic):
    make(cluster, topic, {0: [1, 2]})
    fill(cluster, topic, 100)
    assert reassign(cluster, topic, [3]).error_code == 0
    wait_until(lambda: cluster.controller.image.partition(topic, 0).replicas == (3,))
    assert cluster.leader_of(topic, 0) == 3
    assert len(cluster.records(topic, 0)) == 100
    assert moving(cluster) == {}
    fill(cluster, topic, 5)
    assert len(cluster.records(topic, 0)) == 105


def test_a_move_that_lasts_is_listed_and_cancelled(cluster, topic):
    make(cluster, topic, {0: [1, 2]})
    fill(cluster, topic, 10)
    cluster.cut_link(1, 3)
    try:
        assert reassign(cluster, topic, [3, 2]).error_code == 0
        wait_until(lambda: moving(cluster) == {(topic, 0): ([3, 2, 1], [3], [1])})
        asked = ListPartitionReassignmentsTopics(name=topic, partition_indexes=[1])
        assert moving(cluster, [asked]) == {}
        assert reassign(cluster, topic, None).error_code == 0
        assert reassign(cluster, topic, None).error_code == NoReassignmentInProgressError.code
    finally:
        cluster.heal_links()
    assert cluster.controller.image.partition(topic, 0).replicas == (2, 1)
    assert reassign(cluster, "none", [1]).error_code == UnknownTopicOrPartitionError.code


# --- Elections ---


def elect(cluster, topic, kind=0):
    asked = [TopicPartitions(topic=topic, partitions=[0])]
    (result,) = ask(cluster, ElectLeadersRequest(election_type=kind, topic_partitions=asked)).replica_election_results
    return result.partition_result[0].error_code


def test_leaders_are_elected(cluster, topic):
    make(cluster, topic, {0: [1, 2]})
    cluster.move_leader(topic, 0, 2)
    assert elect(cluster, topic) == 0
    assert cluster.leader_of(topic, 0) == 1
    assert elect(cluster, topic) == ElectionNotNeededError.code
    assert elect(cluster, topic, kind=1) == ElectionNotNeededError.code
    assert elect(cluster, "none") == UnknownTopicOrPartitionError.code
    wrong = ask(cluster, ElectLeadersRequest(election_type=2, topic_partitions=[]))
    assert wrong.error_code == InvalidRequestError.code


def test_a_first_replica_that_is_away_is_not_elected(topic):
    with EmbeddedCluster(2) as cluster:
        make(cluster, topic, {0: [2, 1]})
        cluster.stop_broker(2)
        assert elect(cluster, topic) == PreferredLeaderNotAvailableError.code
        cluster.start_broker(2)
        wait_until(lambda: 2 in cluster.controller.image.partition(topic, 0).isr)
        results = ask(cluster, ElectLeadersRequest(topic_partitions=None)).replica_election_results
        assert topic in {each.topic for each in results}
        assert cluster.leader_of(topic, 0) == 2


def test_first_replicas_lead_again_by_themselves(topic):
    config = {"auto.leader.rebalance.enable": True, "leader.imbalance.check.interval.seconds": 1}
    with EmbeddedCluster(2, config=config) as cluster:
        make(cluster, topic, {0: [2, 1]})
        cluster.move_leader(topic, 0, 1)
        wait_until(lambda: cluster.leader_of(topic, 0) == 2)


# --- Log directories ---


def move_to(cluster, topic, directory, index=0, node_id=1):
    topics = [AlterReplicaLogDirTopic(name=topic, partitions=[index])]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=directory, topics=topics)])
    (result,) = ask(cluster, request, node_id).results
    return result.partitions[0].error_code


def directory_of(cluster, topic, node_id=1):
    """The replica's current directory and the one that it moves to."""
    places = {}
    for each in ask(cluster, DescribeLogDirsRequest(topics=None), node_id).results:
        for described in each.topics:
            if described.name == topic:
                places[described.partitions[0].is_future_key] = each.log_dir
    return places


def test_a_replica_moves_to_another_directory(cluster, topic):
    make(cluster, topic, {0: [1, 2]})
    fill(cluster, topic, 1000, size=10_000)
    here = directory_of(cluster, topic)[False]
    (there,) = {each.log_dir for each in ask(cluster, DescribeLogDirsRequest(topics=None)).results} - {here}
    assert move_to(cluster, topic, there) == 0
    wait_until(lambda: directory_of(cluster, topic) == {False: there})
    assert len(cluster.records(topic, 0)) == 1000
    fill(cluster, topic, 10)
    assert len(cluster.records(topic, 0)) == 1010
    assert move_to(cluster, topic, there) == 0


def test_a_moved_log_leaves_nothing_and_closes_cleanly(tmp_path, topic):
    directories = [tmp_path / "a", tmp_path / "b"]
    config = {"log.dirs": ",".join(map(str, directories)), "log.segment.delete.delay.ms": 0}
    with EmbeddedCluster(config=config) as cluster:
        cluster.create_topic(topic)
        fill(cluster, topic, 10)
        here = next(each for each in directories if (each / f"{topic}-0").exists())
        (there,) = set(directories) - {here}
        assert move_to(cluster, topic, str(there)) == 0
        wait_until(lambda: not [each for each in here.iterdir() if each.name.startswith(topic)])
        fill(cluster, topic, 10)
    assert {each.name for each in here.iterdir()} >= {".kafka_cleanshutdown"}
    with EmbeddedCluster(config=config) as cluster:
        assert len(cluster.records(topic, 0)) == 20


def test_moves_to_directories_that_can_not_be(cluster, topic):
    make(cluster, topic, {0: [2]})
    assert move_to(cluster, topic, "/nowhere") == LogDirNotFoundError.code
    own = [each.log_dir for each in ask(cluster, DescribeLogDirsRequest(topics=None)).results]
    assert move_to(cluster, topic, own[0]) == ReplicaNotAvailableError.code
    assert move_to(cluster, "none", own[0]) == UnknownTopicOrPartitionError.code


def test_a_replica_is_made_where_it_was_asked_to_be(cluster, topic):
    make(cluster, topic, {0: [2]})
    for directory in sorted({each.log_dir for each in ask(cluster, DescribeLogDirsRequest(topics=None)).results}):
        assert move_to(cluster, topic, directory) == ReplicaNotAvailableError.code
        reassign(cluster, topic, [1])
        wait_until(lambda: cluster.controller.image.partition(topic, 0).replicas == (1,))
        assert directory_of(cluster, topic) == {False: directory}
        reassign(cluster, topic, [2])
        wait_until(lambda: cluster.controller.image.partition(topic, 0).replicas == (2,))


# --- Paged topic descriptions, the quorum ---


def page(cluster, names, limit=2000, cursor=None):
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
    )
    response = ask(cluster, request)
    return [(each.name, [part.partition_index for part in each.partitions]) for each in response.topics], (
        response.next_cursor
    )


def test_topics_are_described_page_by_page(cluster, topic):
    first, second = f"{topic}-a", f"{topic}-b"
    make(cluster, first, {0: [1], 1: [2], 2: [3]})
    make(cluster, second, {0: [1, 2], 1: [2, 3], 2: [3, 1]})
    at = Cursor(topic_name=second, partition_index=1)
    assert page(cluster, [second, first]) == ([(first, [0, 1, 2]), (second, [0])], at)
    assert page(cluster, [second, first], cursor=at) == ([(second, [1, 2])], None)
    assert page(cluster, [second, first], limit=3)[1] == Cursor(topic_name=second, partition_index=0)
    assert page(cluster, [second, first], limit=0) == ([(first, [0])], Cursor(topic_name=first, partition_index=1))
    refused = ask(cluster, DescribeTopicPartitionsRequest(topics=[TopicRequest(name=first)], cursor=at)).topics
    assert [each.error_code for each in refused] == [InvalidRequestError.code]
    everything, _ = page(cluster, [], cursor=Cursor(topic_name=first, partition_index=2))
    assert everything[0] == (first, [2])


def test_topics_that_are_missing_are_told_of_and_not_made(cluster, topic):
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic), TopicRequest(name="a b")])
    told = ask(cluster, request).topics
    assert [(each.name, each.error_code) for each in told] == [("a b", 17), (topic, 3)]
    assert topic not in cluster.controller.image.topics


def test_the_quorum_is_the_controller(cluster):
    topics = [TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    response = ask(cluster, DescribeQuorumRequest(topics=topics))
    (partition,) = response.topics[0].partitions
    assert partition.leader_id == 1
    assert [each.replica_id for each in partition.current_voters] == [1]
    assert sorted(each.replica_id for each in partition.observers) == [2, 3]
    host, port = cluster.bootstrap_servers.split(",")[0].split(":")
    assert [(each.name, each.host, each.port) for each in response.nodes[0].listeners] == [
        ("PLAINTEXT", host, int(port))
    ]
    assert ask(cluster, DescribeQuorumRequest(topics=topics), version=0).nodes == []
    topics[0].topic_name = "t"
    assert ask(cluster, DescribeQuorumRequest(topics=topics)).topics[0].partitions[0].error_code == 3


# --- Configurations ---


def alter(cluster, kind, name, key, value, operation=SET, node_id=1):
    configs = [AlterableConfig(name=key, config_operation=operation, value=value)]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    (response,) = ask(cluster, IncrementalAlterConfigsRequest(resources=[resource]), node_id).responses
    return response.error_code


def describe(cluster, kind, name, *keys, node_id=1):
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    (result,) = ask(cluster, request, node_id).results
    assert result.error_code == 0, result.error_message
    return {
        each.name: (each.value, each.config_source, [one.source for one in each.synonyms]) for each in result.configs
    }


def test_brokers_are_configured_while_they_run(cluster, topic):
    make(cluster, topic, {0: [1], 1: [2]})
    key = "log.segment.bytes"
    try:
        assert alter(cluster, BROKER, "", key, "100000") == 0
        assert alter(cluster, BROKER, "2", key, "200000", node_id=2) == 0
        wait_until(lambda: describe(cluster, BROKER, "1", key)[key] == ("100000", 3, [3, 5]))
        assert describe(cluster, BROKER, "2", key, node_id=2)[key] == ("200000", 2, [2, 3, 5])
        assert describe(cluster, BROKER, "") == {key: ("100000", 3, [3])}
        assert describe(cluster, TOPIC, topic, "segment.bytes")["segment.bytes"] == ("100000", 3, [3, 5])
        assert describe(cluster, TOPIC, topic, "segment.bytes", node_id=2)["segment.bytes"][0] == "200000"
    finally:
        assert alter(cluster, BROKER, "", key, None, DELETE) == 0
        assert alter(cluster, BROKER, "2", key, None, DELETE, node_id=2) == 0
    wait_until(lambda: describe(cluster, BROKER, "2", key, node_id=2)[key] == (str(2**30), 5, [5]))


def test_a_brokers_lists_grow_and_shrink(cluster):
    key = "log.cleanup.policy"
    assert alter(cluster, BROKER, "1", key, "compact", APPEND) == 0
    assert describe(cluster, BROKER, "1", key)[key][0] == "delete,compact"
    assert alter(cluster, BROKER, "1", key, "compact", SUBTRACT) == 0
    assert alter(cluster, BROKER, "1", key, None, DELETE) == 0
    assert alter(cluster, BROKER, "1", "log.segment.bytes", "1", APPEND) == InvalidConfigurationError.code


def test_what_a_broker_can_not_take(cluster):
    assert alter(cluster, BROKER, "1", "log.dirs", "/x") == InvalidRequestError.code
    assert alter(cluster, BROKER, "2", "log.segment.bytes", "100000") == InvalidRequestError.code
    assert alter(cluster, BROKER, "", "log.segment.bytes", "many") == InvalidRequestError.code
    assert alter(cluster, 8, "1", "root", "INFO") == InvalidRequestError.code
    assert alter(cluster, GROUP, "", "consumer.session.timeout.ms", "50000") == InvalidRequestError.code


def test_groups_have_a_configuration(cluster, topic):
    key = "consumer.session.timeout.ms"
    described = describe(cluster, GROUP, topic)
    assert described[key] == ("45000", 5, [5])
    assert len(described) == len(GroupConfig.entries) - 1
    assert alter(cluster, GROUP, topic, key, "50000") == 0
    assert describe(cluster, GROUP, topic, key)[key] == ("50000", 8, [8, 5])
    listed = ask(cluster, ListConfigResourcesRequest(resource_types=[GROUP])).config_resources
    assert (topic, GROUP) in [(each.resource_name, each.resource_type) for each in listed]
    assert alter(cluster, GROUP, topic, key, None, DELETE) == 0
    assert alter(cluster, GROUP, topic, "group.size", "1") == InvalidConfigurationError.code


def test_what_has_a_configuration_is_listed(cluster, topic):
    make(cluster, topic, {0: [1]})
    listed = ask(cluster, ListConfigResourcesRequest(resource_types=[])).config_resources
    named = {(each.resource_type, each.resource_name) for each in listed}
    assert {(TOPIC, topic), (BROKER, "1"), (BROKER, "2"), (BROKER, "3")} <= named
    assert ask(cluster, ListConfigResourcesRequest(), version=0).config_resources == []
    wrong = ask(cluster, ListConfigResourcesRequest(resource_types=[77]))
    assert wrong.error_code == UnsupportedVersionError.code


def test_configurations_outlive_their_cluster(tmp_path):
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        assert alter(cluster, BROKER, "1", "log.retention.ms", "7") == 0
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        assert describe(cluster, BROKER, "1", "log.retention.ms")["log.retention.ms"][:2] == ("7", 2)
        assert cluster.broker(1).config.log_retention_ms == 7


# --- Deleted topics ---


@pytest.mark.parametrize(("delay_ms", "is_kept"), [("0", False), ("3600000", True)])
def test_a_topic_says_how_long_its_directories_stay(tmp_path, delay_ms, is_kept):
    with EmbeddedCluster(
        data_dir=tmp_path, config={"log.segment.delete.delay.ms": 0 if is_kept else 3_600_000}
    ) as cluster:
        cluster.create_topic("t", configs={"file.delete.delay.ms": delay_ms})
        cluster.create_topic("u")
        cluster.controller.delete_topic("t")
        cluster.controller.delete_topic("u")
        kept, gone = ("t", "u") if is_kept else ("u", "t")
        # Never looks inside a directory: one that is being removed may be gone before it is opened.
        wait_until(lambda: not list(tmp_path.glob(f"{gone}-0*-delete")))
        assert len(list(tmp_path.glob(f"{kept}-0*-delete"))) == 1
