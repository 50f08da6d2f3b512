"""Compares Apache Kafka with the embedded broker, as `test_broker_differential` does: elections, replica moves, pages
of topics, configurations of brokers and groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.conversation import Conversation, Scenario, compare

from headrace.broker import EmbeddedCluster
from headrace.network.protocol.messages.cluster.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from headrace.network.protocol.messages.cluster.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
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

pytestmark = pytest.mark.timeout(180)

BROKER, GROUP = 4, 32
SET, DELETE, APPEND = range(3)


def elections(broker: Conversation) -> None:
    broker.create("t", partitions=2)

    def elect(label: str, *partitions: tuple[str, int], version: int = 2, kind: int = 0) -> None:
        asked = [TopicPartitions(topic=broker.name(topic), partitions=[index]) for topic, index in partitions]
        broker.ask(label, ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=5_000), version)
        broker.answers[-1][1]["replica_election_results"].sort(key=lambda each: each["topic"])

    for version in (0, 1, 2):
        elect(f"not needed v{version}", ("t", 0), version=version)
    elect("unclean, not needed", ("t", 0), kind=1)
    elect("unknown", ("none", 0))
    elect("unknown partition", ("t", 7))
    elect("none")


def reassignments(broker: Conversation) -> None:
    broker.create("t", partitions=2)

    def reassign(label: str, topic: str, index: int, replicas: list[int] | None, version: int = 1, **options: Any):
        partition = ReassignablePartition(partition_index=index, replicas=replicas)
        topics = [ReassignableTopic(name=broker.name(topic), partitions=[partition])]
        broker.ask(label, AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=5_000, **options), version)

    reassign("where it is", "t", 0, [1])
    reassign("where it is v0", "t", 0, [1], version=0)
    reassign("cancelled", "t", 0, None)
    reassign("nowhere", "t", 0, [])
    reassign("twice there", "t", 0, [1, 1])
    reassign("to nobody", "t", 0, [77])
    reassign("unknown", "none", 0, [1])
    reassign("unknown partition", "t", 5, [1])
    reassign("cancelled unknown", "none", 0, None)
    broker.ask("listed", ListPartitionReassignmentsRequest(timeout_ms=5_000), 0)
    some = ListPartitionReassignmentsTopics(name=broker.name("t"), partition_indexes=[0, 9])
    none = ListPartitionReassignmentsTopics(name=broker.name("none"), partition_indexes=[0])
    broker.ask("some", ListPartitionReassignmentsRequest(timeout_ms=5_000, topics=[some, none]), 0)


def log_directories(broker: Conversation) -> None:
    broker.create("t")
    for version in (1, 2):
        topics = [AlterReplicaLogDirTopic(name=broker.name(name), partitions=[0, 7]) for name in ("t", "none")]
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/no/such/directory", topics=topics)])
        broker.ask(f"nowhere v{version}", request, version)
        results = broker.answers[-1][1]["results"]
        results.sort(key=lambda each: each["topic_name"])
        for each in results:
            each["partitions"].sort(key=lambda partition: partition["partition_index"])


def pages(broker: Conversation) -> None:
    broker.create("a", partitions=3)
    broker.create("b", partitions=3)

    def describe(label: str, *topics: str, limit: int = 2000, at: tuple[str, int] | None = None) -> None:
        cursor = None if at is None else Cursor(topic_name=broker.name(at[0]), partition_index=at[1])
        asked = [TopicRequest(name=broker.name(name)) for name in topics]
        request = DescribeTopicPartitionsRequest(topics=asked, response_partition_limit=limit, cursor=cursor)
        broker.ask(label, request, 0)

    describe("both", "b", "a")
    describe("twice", "a", "a")
    describe("a page", "b", "a", limit=2)
    describe("a topic", "b", "a", limit=3)
    describe("no room", "a", limit=0)
    describe("negative room", "a", limit=-5)
    describe("from the middle", "b", "a", at=("a", 2))
    describe("from the second", "b", "a", at=("b", 1), limit=1)
    describe("from past the end", "b", "a", at=("a", 3))
    describe("from a topic that isn't asked for", "b", at=("a", 0))
    describe("a missing one", "a", "none")
    describe("from a missing one", "b", at=("aa", 1))
    describe("a negative cursor", "a", at=("a", -1))
    describe("a wrong name", "a b")


def quorum(broker: Conversation) -> None:
    def ask(label: str, *partitions: tuple[str, int], version: int = 2) -> None:
        topics = [TopicData(topic_name=name, partitions=[PartitionData(partition_index=at)]) for name, at in partitions]
        broker.ask(label, DescribeQuorumRequest(topics=topics), version)
        answer = broker.answers[-1][1]
        # The nodes and the log's length differ between brokers.
        answer.pop("nodes", None)
        for topic in answer["topics"]:
            for partition in topic["partitions"]:
                for name in ("leader_id", "leader_epoch", "high_watermark"):
                    partition[name] = partition[name] > 0
                partition["current_voters"] = len(partition["current_voters"])
                # A controller that is also a broker has no observers.
                del partition["observers"]

    for version in (0, 1, 2):
        ask(f"metadata v{version}", ("__cluster_metadata", 0), version=version)
    ask("another topic", ("t", 0))
    ask("another partition", ("__cluster_metadata", 1))


def configurations(broker: Conversation) -> None:
    def change(label: str, kind: int, name: str, *changes: tuple[str, int, str | None], validate: bool = False) -> None:
        asked = [
            AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes
        ]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=asked)
        broker.ask(label, IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate), 1)

    def describe(label: str, kind: int, name: str, *keys: str, until: str | None = None) -> None:
        asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
        request = DescribeConfigsRequest(resources=[asked], include_synonyms=True)
        while True:
            broker.ask(label, request, 4)
            (result,) = broker.answers[-1][1]["results"]
            # Kafka applies a change a moment after its response.
            if until is None or [each["value"] for each in result["configs"]] == [until]:
                break
            broker.answers.pop()
        # Kafka sets this one by itself, for its eligible leader replicas.
        result["configs"] = [
            each for each in result["configs"] if (kind, each["name"]) != (BROKER, "min.insync.replicas")
        ]
        result["configs"].sort(key=lambda each: each["name"])

    key = "log.segment.bytes"
    try:
        change("only asked", BROKER, "1", (key, SET, "20000000"), validate=True)
        change("set of all", BROKER, "", (key, SET, "20000000"))
        describe("of all", BROKER, "", key, until="20000000")
        describe("then of one", BROKER, "1", key, until="20000000")
        change("set of one", BROKER, "1", (key, SET, "30000000"))
        describe("of one", BROKER, "1", key, until="30000000")
        change("wrong value", BROKER, "1", (key, SET, "many"))
        change("not while it runs", BROKER, "1", ("broker.rack", SET, "r"))
        change("append to no list", BROKER, "1", (key, APPEND, "1"))
        change("twice", BROKER, "1", (key, SET, "1000000"), (key, SET, "2000000"))
        change("of another broker", BROKER, "77", (key, SET, "20000000"))
        change("of no broker", BROKER, "x", (key, SET, "20000000"))
    finally:
        change("removed of one", BROKER, "1", (key, DELETE, None))
        change("removed of all", BROKER, "", (key, DELETE, None))
    describe("as it was", BROKER, "1", key, until=str(2**30))
    describe("of all, as it was", BROKER, "")

    group, key = broker.name("g"), "consumer.session.timeout.ms"
    describe("a group", GROUP, group)
    describe("of a group", GROUP, group, key)
    change("set of a group", GROUP, group, (key, SET, "50000"))
    describe("then of a group", GROUP, group, key, until="50000")
    broker.ask("listed groups", ListConfigResourcesRequest(resource_types=[GROUP]), 1)
    change("unknown of a group", GROUP, group, ("no.such.key", SET, "1"))
    change("wrong of a group", GROUP, group, (key, SET, "often"))
    change("of no group", GROUP, "", (key, SET, "50000"))
    change("removed of a group", GROUP, group, (key, DELETE, None))
    describe("of a group, as it was", GROUP, group, key, until="45000")
    broker.ask("listed brokers", ListConfigResourcesRequest(resource_types=[BROKER]), 1)
    broker.ask("listed of no kind", ListConfigResourcesRequest(resource_types=[77]), 1)
    broker.ask("listed v0", ListConfigResourcesRequest(), 0)


SCENARIOS: list[Scenario] = [elections, reassignments, log_directories, pages, quorum, configurations]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(auto_create_topics_enable=False) as started:
        yield started


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_both_answer_the_same(apache_kafka, cluster: EmbeddedCluster, scenario: Scenario) -> None:
    found = compare(apache_kafka.bootstrap_servers, cluster.bootstrap_servers, scenario)
    assert not found, "\n".join(["Kafka's answers | ours:", *found])
