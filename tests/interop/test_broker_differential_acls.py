"""Compares Apache Kafka with the embedded broker, as `test_broker_differential` does: requests under ACLs.

The admin connects from 127.0.0.1 and may do everything, the client from 127.0.0.2. Both are `User:ANONYMOUS`, so the
ACLs differ by host, and neither broker needs SASL.
"""

from __future__ import annotations

import contextlib
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from support.apache_kafka.cluster import ApacheKafka
from support.apache_kafka.fixtures import start_or_skip
from support.conversation import Conversation, compare, records

from headrace.broker import EmbeddedCluster
from headrace.broker.security.acls import AclOperation as Op
from headrace.broker.security.acls import PatternType as Pattern
from headrace.broker.security.acls import PermissionType as Permission
from headrace.broker.security.acls import ResourceType as Resource
from headrace.network.protocol.errors import CoordinatorLoadInProgressError
from headrace.network.protocol.messages.cluster.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from headrace.network.protocol.messages.cluster.describe_cluster import DescribeClusterRequest
from headrace.network.protocol.messages.cluster.describe_log_dirs import DescribeLogDirsRequest
from headrace.network.protocol.messages.cluster.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from headrace.network.protocol.messages.configs import alter_configs, incremental_alter_configs
from headrace.network.protocol.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.network.protocol.messages.configs.list_config_resources import ListConfigResourcesRequest
from headrace.network.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from headrace.network.protocol.messages.groups.describe_groups import DescribeGroupsRequest
from headrace.network.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from headrace.network.protocol.messages.groups.heartbeat import HeartbeatRequest
from headrace.network.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.network.protocol.messages.groups.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.network.protocol.messages.groups.list_groups import ListGroupsRequest
from headrace.network.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.network.protocol.messages.groups.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.network.protocol.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from headrace.network.protocol.messages.groups.sync_group import SyncGroupRequest
from headrace.network.protocol.messages.records.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.network.protocol.messages.records.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.network.protocol.messages.records.init_producer_id import InitProducerIdRequest
from headrace.network.protocol.messages.records.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.network.protocol.messages.records.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.network.protocol.messages.records.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.network.protocol.messages.security.create_acls import AclCreation, CreateAclsRequest
from headrace.network.protocol.messages.security.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from headrace.network.protocol.messages.security.describe_acls import DescribeAclsRequest
from headrace.network.protocol.messages.topics.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.network.protocol.messages.topics.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.network.protocol.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.network.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.network.protocol.messages.topics.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from headrace.network.protocol.messages.topics.elect_leaders import ElectLeadersRequest, TopicPartitions
from headrace.network.protocol.messages.topics.list_partition_reassignments import ListPartitionReassignmentsRequest
from headrace.network.protocol.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from headrace.network.protocol.types import ZERO_UUID
from headrace.producer import KafkaProducer
from headrace.producer.errors import ClusterAuthorizationFailedError, TopicAuthorizationFailedError

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="needs a second loopback address, 127.0.0.2"),
]

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # until the first ACL exists, somebody has to be allowed to create it
    "allow.everyone.if.no.acl.found": "true",
}
ADMIN, CLIENT = "127.0.0.1", "127.0.0.2"
CLUSTER_NAME = "kafka-cluster"
TOPICS = ("mine", "other", "none", "nowhere")
GROUPS = ("my-group", "other-group")


def acl(
    resource: Resource,
    name: str,
    operation: Op,
    *,
    host: str = CLIENT,
    permission: Permission = Permission.ALLOW,
    pattern: Pattern = Pattern.LITERAL,
    principal: str = "User:ANONYMOUS",
) -> AclCreation:
    return AclCreation(
        resource_type=resource,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def create(broker: Conversation, *acls: AclCreation) -> None:
    """Create ACLs, and wait until the broker applies them, which Kafka does a moment after its response."""
    answer = broker.ask("create ACLs", CreateAclsRequest(creations=list(acls)), 3)
    broker.answers.pop()
    assert [each.error_code for each in answer.results] == [0] * len(acls)
    for each in acls:
        count_until(
            broker,
            1,
            resource_type_filter=each.resource_type,
            resource_name_filter=each.resource_name,
            pattern_type_filter=each.resource_pattern_type,
            principal_filter=each.principal,
            host_filter=each.host,
            operation=each.operation,
            permission_type=each.permission_type,
        )


def count_until(broker: Conversation, count: int, **wanted: Any) -> None:
    """Ask until that many ACLs match the filter."""
    while True:
        answer = broker.ask("count", DescribeAclsRequest(**wanted), 3)
        broker.answers.pop()
        if sum(len(each.acls) for each in answer.resources) == count:
            return


def remove_all_of_the_client(broker: Conversation) -> None:
    anything = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    doomed = DeleteAclsFilter(host_filter=CLIENT, **anything)
    broker.ask("delete ACLs", DeleteAclsRequest(filters=[doomed]), 3)
    broker.answers.pop()
    count_until(broker, 0, host_filter=CLIENT, **anything)


def in_order(value: Any) -> Any:
    """Lists of structures in an order of their own: Kafka's is often that of a hash table."""
    if isinstance(value, dict):
        return {name: in_order(each) for name, each in value.items()}
    if isinstance(value, list):
        told = [in_order(each) for each in value]
        return sorted(told, key=repr) if any(isinstance(each, dict) for each in told) else told
    return value


class Client:
    """The requests of the client, each compared without the order of lists."""

    def __init__(self, broker: Conversation) -> None:
        self.broker = broker
        self.topics = [broker.name(name) for name in TOPICS]
        self.groups = [broker.name(name) for name in GROUPS]
        broker.sources["client"] = CLIENT

    def ask(self, label: str, message: Any, version: int) -> Any:
        answer = self.broker.ask(label, message, version, on="client")
        self.broker.answers[-1] = (label, in_order(self.broker.answers[-1][1]))
        return answer

    def last(self) -> Any:
        return self.broker.answers[-1][1]


def records_apis(client: Client, ids: dict[str, uuid.UUID]) -> None:
    def produced(topics: list[TopicProduceData], **options: Any) -> ProduceRequest:
        return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics, **options)

    def data() -> list[PartitionProduceData]:
        return [PartitionProduceData(index=0, records=records())]

    named = [TopicProduceData(name=name, partition_data=data()) for name in client.topics]
    client.ask("produce", produced(named), 9)
    by_id = [TopicProduceData(topic_id=each, partition_data=data()) for each in (*ids.values(), uuid.UUID(int=77))]
    client.ask("produce by id", produced(by_id), 13)
    asked = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**20)]
    fetched = [FetchTopic(topic=name, partitions=asked) for name in client.topics]
    client.ask("fetch", FetchRequest(max_wait_ms=0, min_bytes=1, topics=fetched), 12)
    fetched = [FetchTopic(topic_id=each, partitions=asked) for each in (*ids.values(), uuid.UUID(int=77))]
    client.ask("fetch by id", FetchRequest(max_wait_ms=0, min_bytes=1, topics=fetched), 13)
    offsets = [
        ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        for name in client.topics
    ]
    client.ask("list offsets", ListOffsetsRequest(topics=offsets), 7)
    epochs = [
        OffsetForLeaderTopic(topic=name, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])
        for name in client.topics
    ]
    client.ask("epochs", OffsetForLeaderEpochRequest(replica_id=-1, topics=epochs), 4)
    # Kafka's first answer is that it is still fetching a block of ids.
    init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
    while client.ask("producer id", init, 4).error_code == CoordinatorLoadInProgressError.code:
        client.broker.answers.pop()
    init = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1_000)
    client.ask("transactional producer id", init, 4)
    doomed = [
        DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
        for name in client.topics
    ]
    client.ask("delete records", DeleteRecordsRequest(topics=doomed, timeout_ms=5_000), 2)


def topic_apis(client: Client, ids: dict[str, uuid.UUID]) -> None:
    for version in (1, 4, 9, 12):
        options = {} if version < 8 else {"include_topic_authorized_operations": True}
        if 8 <= version <= 10:
            options["include_cluster_authorized_operations"] = True
        asked = [MetadataRequestTopic(name=name) for name in client.topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=version < 4, **options)
        if version >= 4:
            client.ask(f"metadata v{version}", request, version)
        client.ask(f"all metadata v{version}", MetadataRequest(topics=None, **options), version)
        told = client.last()
        told["topics"] = [each for each in told["topics"] if each["name"] in TOPICS]
    asked = [MetadataRequestTopic(name=None, topic_id=each) for each in (*ids.values(), uuid.UUID(int=77))]
    client.ask("metadata by id", MetadataRequest(topics=asked, allow_auto_topic_creation=False), 12)
    pages = [TopicRequest(name=name) for name in client.topics]
    client.ask("pages", DescribeTopicPartitionsRequest(topics=pages, response_partition_limit=100), 0)
    more = [CreatePartitionsTopic(name=name, count=3, assignments=None) for name in client.topics]
    client.ask("more partitions", CreatePartitionsRequest(topics=more, timeout_ms=5_000, validate_only=True), 3)
    new = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for name in client.topics
    ]
    for version in (4, 7):
        client.ask(f"create topics v{version}", CreateTopicsRequest(topics=new, validate_only=True), version)
        for topic in client.last()["topics"]:
            topic["configs"] = bool(topic.get("configs"))
            topic.pop("topic_id", None)  # Kafka draws one even if it only validates
    names = client.topics[2:]
    client.ask("delete missing topics", DeleteTopicsRequest(topic_names=names, timeout_ms=5_000), 5)


def cluster_apis(client: Client) -> None:
    topics = client.topics
    client.ask("cluster", DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
    asked = [TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    client.ask("quorum", DescribeQuorumRequest(topics=asked), 1)
    told = client.last()
    told["topics"] = len(told["topics"])
    elected = [TopicPartitions(topic=name, partitions=[0]) for name in topics[:1]]
    client.ask("elections", ElectLeadersRequest(election_type=0, topic_partitions=elected, timeout_ms=5_000), 2)
    moved = [
        ReassignableTopic(name=name, partitions=[ReassignablePartition(partition_index=0, replicas=[1])])
        for name in topics[:1]
    ]
    client.ask("moves", AlterPartitionReassignmentsRequest(topics=moved, timeout_ms=5_000), 0)
    client.ask("ongoing moves", ListPartitionReassignmentsRequest(timeout_ms=5_000), 0)
    there = [AlterReplicaLogDirTopic(name=topics[0], partitions=[0])]
    nowhere = [AlterReplicaLogDir(path="/no/such/directory", topics=there)]
    client.ask("directories", AlterReplicaLogDirsRequest(dirs=nowhere), 2)
    client.ask("described directories", DescribeLogDirsRequest(topics=[]), 4)
    told = client.last()
    told["results"] = len(told["results"])
    client.ask("listed resources", ListConfigResourcesRequest(resource_types=[16]), 1)
    client.ask("described ACLs", DescribeAclsRequest(**_filter(client)), 3)
    mine = acl(Resource.TOPIC, client.topics[3], Op.READ, host="10.0.0.9")
    client.ask("created ACLs", CreateAclsRequest(creations=[mine, mine]), 3)
    nothing = DeleteAclsFilter(**_filter(client))
    client.ask("deleted ACLs", DeleteAclsRequest(filters=[nothing, nothing]), 3)


def _filter(client: Client) -> dict[str, Any]:
    return {
        "resource_type_filter": Resource.TOPIC,
        "resource_name_filter": client.broker.name("no such"),
        "pattern_type_filter": Pattern.LITERAL,
        "operation": Op.ANY,
        "permission_type": Permission.ANY,
    }


def configuration_apis(client: Client) -> None:
    resources = [(2, client.topics[0]), (2, client.topics[1]), (2, client.topics[2]), (4, "1"), (32, client.groups[0])]
    described = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=["no.such.key"])
        for kind, name in resources
    ]
    client.ask("described", DescribeConfigsRequest(resources=described), 4)
    resources = [(2, client.topics[0]), (2, client.topics[1]), (4, "1")]
    altered = [
        alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])
        for kind, name in resources
    ]
    client.ask("altered", alter_configs.AlterConfigsRequest(resources=altered, validate_only=True), 1)
    changes = [
        incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])
        for kind, name in [*resources, (32, client.groups[0])]
    ]
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=changes, validate_only=True)
    client.ask("changed", request, 1)


def group_apis(client: Client, ids: dict[str, uuid.UUID]) -> None:
    client.ask("coordinators", FindCoordinatorRequest(key_type=0, coordinator_keys=client.groups), 4)
    for group, label in zip(client.groups, GROUPS, strict=True):
        client.ask(f"coordinator of {label}", FindCoordinatorRequest(key=group, key_type=0), 3)
        for version in (4, 9):
            request = JoinGroupRequest(
                group_id=group,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id="nobody",
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            )
            client.ask(f"join {label} v{version}", request, version)
        sync = SyncGroupRequest(
            group_id=group, generation_id=1, member_id="nobody", protocol_type="consumer", protocol_name="range",
            assignments=[],
        )  # fmt: skip
        client.ask(f"sync {label}", sync, 5)
        client.ask(f"beat {label}", HeartbeatRequest(group_id=group, generation_id=1, member_id="nobody"), 4)
        leaving = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id="nobody")])
        client.ask(f"leave {label}", leaving, 4)
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
        by_name = [OffsetCommitRequestTopic(name=name, partitions=[part]) for name in client.topics]
        client.ask(f"commit {label}", OffsetCommitRequest(group_id=group, member_id="", topics=by_name), 8)
        by_id = [OffsetCommitRequestTopic(topic_id=each, partitions=[part]) for each in ids.values()]
        client.ask(f"commit {label} by id", OffsetCommitRequest(group_id=group, member_id="", topics=by_id), 10)
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in client.topics]
        client.ask(f"offsets {label}", OffsetFetchRequest(group_id=group, topics=topics), 5)
        client.ask(f"all offsets {label}", OffsetFetchRequest(group_id=group, topics=None), 5)
        named = [OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in client.topics]
        identified = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in ids.values()]
        for version, asked in ((8, named), (8, None), (10, identified), (10, None)):
            of_group = OffsetFetchRequestGroup(group_id=group, topics=asked)
            client.ask(f"offsets {label} v{version} {asked is None}", OffsetFetchRequest(groups=[of_group]), version)
        doomed = [
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
            for name in client.topics
        ]
        client.ask(f"delete offsets {label}", OffsetDeleteRequest(group_id=group, topics=doomed), 0)
    request = DescribeGroupsRequest(groups=client.groups, include_authorized_operations=True)
    for version in (5, 6):
        client.ask(f"described groups v{version}", request, version)
    client.ask("listed groups", ListGroupsRequest(), 4)
    told = client.last()
    told["groups"] = [each for each in told["groups"] if each["group_id"] in GROUPS]
    client.ask("deleted groups", DeleteGroupsRequest(groups_names=client.groups), 2)


def everything(broker: Conversation, *acls: AclCreation) -> None:
    """Every API under these ACLs of the client."""
    ids = {name: broker.create(name) for name in ("mine", "other")}
    client = Client(broker)
    for group in client.groups:
        broker.await_coordinator(group)
    # Kafka deletes only groups that it knows.
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    committed = [OffsetCommitRequestTopic(name=broker.name("mine"), partitions=[part])]
    for group in client.groups:
        broker.ask("commit", OffsetCommitRequest(group_id=group, member_id="", topics=committed), 8)
    if acls:
        create(broker, *acls)
    try:
        records_apis(client, ids)
        topic_apis(client, ids)
        cluster_apis(client)
        configuration_apis(client)
        group_apis(client, ids)
        doomed = [DeleteTopicState(name=None, topic_id=each) for each in (*ids.values(), uuid.UUID(int=77))]
        client.ask("delete by id", DeleteTopicsRequest(topics=doomed, timeout_ms=5_000), 6)
        named = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in client.topics]
        client.ask("delete by name", DeleteTopicsRequest(topics=named, timeout_ms=5_000), 6)
    finally:
        remove_all_of_the_client(broker)


def on_topics_and_groups(*operations: Op) -> Any:
    def acls(broker: Conversation) -> list[AclCreation]:
        return [
            *(acl(Resource.TOPIC, broker.name(name), each) for name in ("mine", "none") for each in operations),
            *(acl(Resource.GROUP, broker.name("my-group"), each) for each in operations),
        ]

    return acls


def on_the_cluster(*operations: Op) -> Any:
    return lambda _: [acl(Resource.CLUSTER, CLUSTER_NAME, each) for each in operations]


def denied_amid_all(broker: Conversation) -> list[AclCreation]:
    deny = {"permission": Permission.DENY}
    return [
        acl(Resource.TOPIC, broker.name("m"), Op.ALL, pattern=Pattern.PREFIXED),
        acl(Resource.TOPIC, broker.name("n"), Op.ALL, pattern=Pattern.PREFIXED, principal="User:*"),
        acl(Resource.TOPIC, broker.name("mine"), Op.WRITE, **deny),
        acl(Resource.TOPIC, broker.name("nowh"), Op.ALL, pattern=Pattern.PREFIXED, **deny),
        acl(Resource.GROUP, "*", Op.READ),
        acl(Resource.GROUP, broker.name("other-group"), Op.DESCRIBE, **deny),
    ]


#: What the client may do -> its ACLs.
RIGHTS: dict[str, Any] = {
    "nothing": lambda _: [],
    "describe": on_topics_and_groups(Op.DESCRIBE),
    "read": on_topics_and_groups(Op.READ),
    "write": on_topics_and_groups(Op.WRITE),
    "create": on_topics_and_groups(Op.CREATE, Op.DESCRIBE),
    "delete": on_topics_and_groups(Op.DELETE),
    "alter": on_topics_and_groups(Op.ALTER, Op.ALTER_CONFIGS),
    "configurations": on_topics_and_groups(Op.DESCRIBE_CONFIGS, Op.CREATE),
    "everything on some": on_topics_and_groups(Op.ALL),
    "denied amid all": denied_amid_all,
    "describe the cluster": on_the_cluster(Op.DESCRIBE, Op.DESCRIBE_CONFIGS, Op.IDEMPOTENT_WRITE),
    "change the cluster": on_the_cluster(Op.ALTER, Op.ALTER_CONFIGS, Op.CREATE, Op.DELETE),
    "act as a broker": on_the_cluster(Op.CLUSTER_ACTION),
}


def admin_acls() -> list[AclCreation]:
    return [
        acl(kind, CLUSTER_NAME if kind is Resource.CLUSTER else "*", Op.ALL, host=ADMIN, principal="User:*")
        for kind in (Resource.TOPIC, Resource.GROUP, Resource.TRANSACTIONAL_ID, Resource.CLUSTER)
    ]


def lock_up(bootstrap_servers: str) -> None:
    """Leave the admin, and nobody else, the right to do everything."""
    broker = Conversation(bootstrap_servers, "")
    try:
        create(broker, *admin_acls())
    finally:
        broker.close()


@pytest.fixture(scope="module")
def theirs() -> Iterator[ApacheKafka]:
    kafka = start_or_skip(properties=AUTHORIZER)
    try:
        lock_up(kafka.bootstrap_servers)
        yield kafka
    finally:
        kafka.__exit__()


@pytest.fixture(scope="module")
def ours() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config={**AUTHORIZER, "auto.create.topics.enable": False}) as started:
        lock_up(started.bootstrap_servers)
        yield started


@pytest.mark.parametrize("rights", RIGHTS)
def test_both_authorize_the_same(theirs: ApacheKafka, ours: EmbeddedCluster, rights: str) -> None:
    def scenario(broker: Conversation) -> None:
        everything(broker, *RIGHTS[rights](broker))

    found = compare(theirs.bootstrap_servers, ours.bootstrap_servers, scenario)
    assert not found, "\n".join(["Kafka's answers | ours:", *found])


def the_acl_apis(broker: Conversation) -> None:
    name = broker.name("t")

    def describe(label: str, version: int = 3, **wanted: Any) -> None:
        told = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1, **wanted}
        answer = broker.ask(label, DescribeAclsRequest(**told), version)
        if answer is not None:
            broker.answers[-1] = (label, in_order(broker.answers[-1][1]))
            for each in broker.answers[-1][1]["resources"]:
                each["acls"].sort(key=repr)

    def add(label: str, *acls: AclCreation, version: int = 3) -> None:
        broker.ask(label, CreateAclsRequest(creations=list(acls)), version)

    good = acl(Resource.TOPIC, name, Op.READ)
    create(broker, good)
    try:
        add("again", good)
        add("v1", good, version=1)
        # Codes that no entry can have are left out: Kafka fails with UNKNOWN_SERVER_ERROR for the whole request, or
        # closes the connection. The embedded broker answers INVALID_REQUEST for the entry.
        for label, wrong in {
            "no name": acl(Resource.TOPIC, "", Op.READ),
            "another cluster": acl(Resource.CLUSTER, "x", Op.ALTER),
            "no principal": acl(Resource.TOPIC, name, Op.READ, principal="alice"),
            "operation of no resource": acl(Resource.TOPIC, name, Op.CLUSTER_ACTION, host="10.0.0.1"),
        }.items():
            add(label, good, wrong)
        count_until(
            broker,
            1,
            resource_type_filter=1,
            resource_name_filter=name,
            pattern_type_filter=1,
            operation=Op.CLUSTER_ACTION,
            permission_type=1,
        )
        create(
            broker,
            acl(Resource.TOPIC, name, Op.WRITE, permission=Permission.DENY, principal="User:alice"),
            acl(Resource.TOPIC, broker.name(""), Op.ALL, pattern=Pattern.PREFIXED),
            acl(Resource.TOPIC, broker.name("other"), Op.ALL, pattern=Pattern.PREFIXED),
            acl(Resource.GROUP, name, Op.READ),
        )
        describe("by name", resource_name_filter=name)
        describe("by name v1", resource_name_filter=name, version=1)
        describe("literal", resource_name_filter=name, pattern_type_filter=Pattern.LITERAL)
        describe("prefixed", resource_name_filter=broker.name(""), pattern_type_filter=Pattern.PREFIXED)
        describe("match", resource_name_filter=name, pattern_type_filter=Pattern.MATCH)
        describe("match topics", resource_name_filter=name, pattern_type_filter=Pattern.MATCH, resource_type_filter=2)
        describe("by principal", principal_filter="User:alice")
        describe("by host", host_filter=CLIENT)
        describe("denied", permission_type=Permission.DENY, host_filter=CLIENT)
        describe("by operation", operation=Op.READ, host_filter=CLIENT)
        describe("nothing", resource_name_filter=broker.name("no"))
        anything = {"pattern_type_filter": 1, "operation": 1, "permission_type": 1}
        filters = [
            DeleteAclsFilter(resource_type_filter=3, resource_name_filter=name, **anything),
            DeleteAclsFilter(resource_type_filter=1, resource_name_filter=name, host_filter=CLIENT, **anything),
            DeleteAclsFilter(resource_type_filter=2, resource_name_filter=broker.name("no"), **anything),
        ]
        broker.ask("delete", DeleteAclsRequest(filters=filters), 3)
        broker.answers[-1][1]["filter_results"] = [in_order(each) for each in broker.answers[-1][1]["filter_results"]]
    finally:
        remove_all_of_the_client(broker)


def test_both_keep_the_same_acls(theirs: ApacheKafka, ours: EmbeddedCluster) -> None:
    found = compare(theirs.bootstrap_servers, ours.bootstrap_servers, the_acl_apis)
    assert not found, "\n".join(["Kafka's answers | ours:", *found])


# --- Other programs ---


def test_kafka_acls_adds_lists_and_removes(theirs: ApacheKafka, ours: EmbeddedCluster) -> None:
    def run(*arguments: str) -> str:
        server = ("--bootstrap-server", ours.bootstrap_servers)
        return theirs.run_class("org.apache.kafka.tools.AclCommand", *server, *arguments).decode()

    before = ours.acls
    run(
        "--add",
        "--allow-principal",
        "User:tool",
        "--producer",
        "--topic",
        "orders-",
        "--resource-pattern-type",
        "prefixed",
    )
    added = {each for each in ours.acls if each not in before}
    assert {(each.resource_name, Op(each.operation)) for each in added} == {
        ("orders-", Op.WRITE),
        ("orders-", Op.DESCRIBE),
        ("orders-", Op.CREATE),
    }
    listed = run("--list", "--topic", "orders-", "--resource-pattern-type", "prefixed")
    assert listed.count("principal=User:tool") == len(added)
    run("--remove", "--force", "--topic", "orders-", "--resource-pattern-type", "prefixed")
    assert ours.acls == before


@pytest.mark.parametrize("which", ["theirs", "ours"])
def test_the_producer_recovers_when_a_denial_is_removed(request: pytest.FixtureRequest, which: str) -> None:
    cluster: ApacheKafka | EmbeddedCluster = request.getfixturevalue(which)
    broker = Conversation(cluster.bootstrap_servers, f"r{uuid.uuid4().hex[:8]}-")
    topic = broker.name("t")
    deny = {"permission": Permission.DENY, "principal": "User:*", "host": ADMIN}

    def denied(*acls: AclCreation) -> None:
        create(broker, *acls)

    def allowed_again() -> None:
        anything = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1}
        doomed = DeleteAclsFilter(permission_type=Permission.DENY, **anything)
        broker.ask("delete ACLs", DeleteAclsRequest(filters=[doomed]), 3)
        count_until(broker, 0, permission_type=Permission.DENY, **anything)

    broker.create("t")
    with contextlib.closing(broker), KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        try:
            denied(acl(Resource.TOPIC, topic, Op.DESCRIBE, **deny))
            with pytest.raises(TopicAuthorizationFailedError, match=f"WRITE on TOPIC '{topic}'"):
                producer.send(topic, b"x").get(60)
            allowed_again()
            denied(
                acl(Resource.TOPIC, "*", Op.WRITE, **deny),
                acl(Resource.CLUSTER, CLUSTER_NAME, Op.IDEMPOTENT_WRITE, **deny),
            )
            with pytest.raises(ClusterAuthorizationFailedError, match="WRITE on any topic"):
                producer.send(topic, b"x").get(60)
        finally:
            allowed_again()
        assert producer.send(topic, b"x").get(60).offset == 0
        try:
            denied(acl(Resource.TOPIC, topic, Op.WRITE, **deny))
            with pytest.raises(TopicAuthorizationFailedError, match=f"WRITE on TOPIC '{topic}'"):
                producer.send(topic, b"x").get(60)
        finally:
            allowed_again()
        assert [producer.send(topic, b"x").get(60).offset for _ in range(2)] == [1, 2]
