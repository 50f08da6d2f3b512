"""ACLs of the embedded cluster, met by its own helpers and by clients that nobody here wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import admin as confluent
from kafka import KafkaAdminClient
from kafka import admin as kafka_python
from support.waiting import wait_until

from headrace.broker import ApiKey, EmbeddedCluster, ProcessCluster
from headrace.broker.replica.connection import CLIENT_ID_PREFIX
from headrace.network.addresses import parse_address
from headrace.network.client.blocking_connection import BlockingConnection
from headrace.network.protocol.errors import (
    ClusterAuthorizationFailedError,
    SecurityDisabledError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from headrace.network.protocol.messages.records.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.network.protocol.messages.security.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from headrace.network.protocol.messages.security.describe_acls import DescribeAclsRequest
from headrace.network.protocol.messages.security.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from headrace.network.protocol.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.network.protocol.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from headrace.producer import KafkaProducer

pytestmark = pytest.mark.timeout(60)

AUTHORIZER = "StandardAuthorizer"


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(authorizer_class_name=AUTHORIZER) as started:
        yield started


@pytest.fixture
def connection(cluster: EmbeddedCluster) -> Iterator[BlockingConnection]:
    client = connect(cluster)
    try:
        yield client
    finally:
        client.close()


def connect(cluster: EmbeddedCluster | ProcessCluster, client_id: str = "a client") -> BlockingConnection:
    first = cluster.bootstrap_servers.split(",")[0]
    return BlockingConnection(parse_address(first, 0), client_id=client_id, timeout_ms=10_000, max_response_bytes=2**20)


def metadata_code(connection: BlockingConnection, topic: str, *, create: bool = False) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=create)
    (answer,) = connection.request(request).topics
    return answer.error_code


# --- The helpers of a cluster ---


def test_an_acl_takes_effect_at_once_and_ends_at_once(cluster: EmbeddedCluster, connection: BlockingConnection) -> None:
    cluster.create_topic("orders")
    assert metadata_code(connection, "orders") == TopicAuthorizationFailedError.code
    acl = cluster.add_acl(operation="DESCRIBE", topic="ord", pattern="PREFIXED")
    assert metadata_code(connection, "orders") == 0
    assert cluster.acls == [acl]
    assert cluster.remove_acls(topic="ord") == [acl]
    assert metadata_code(connection, "orders") == TopicAuthorizationFailedError.code


def test_remove_acls_takes_any_part_of_an_acl(cluster: EmbeddedCluster) -> None:
    read = cluster.add_acl(principal="User:alice", operation="READ", topic="t")
    write = cluster.add_acl(principal="User:alice", operation="WRITE", topic="t")
    group = cluster.add_acl(principal="User:bob", operation="READ", group="g", permission="DENY", host="10.0.0.1")
    assert cluster.remove_acls(principal="User:carol") == []
    assert cluster.remove_acls(permission="DENY", host="10.0.0.1") == [group]
    assert cluster.remove_acls(operation="WRITE") == [write]
    assert cluster.acls == [read]
    assert cluster.remove_acls() == [read]


def test_a_topic_is_created_by_those_who_may(cluster: EmbeddedCluster, connection: BlockingConnection) -> None:
    cluster.add_acl(operation="DESCRIBE", topic="*")
    assert metadata_code(connection, "new") == UnknownTopicOrPartitionError.code
    assert metadata_code(connection, "new", create=True) == TopicAuthorizationFailedError.code
    assert "new" not in cluster.controller.image.topics
    cluster.add_acl(operation="CREATE", topic="new")
    assert metadata_code(connection, "new", create=True) == 0
    assert metadata_code(connection, "another", create=True) == TopicAuthorizationFailedError.code
    cluster.add_acl(operation="CREATE", cluster=True)
    assert metadata_code(connection, "another", create=True) == 0


def test_the_error_names_the_missing_acl(cluster: EmbeddedCluster, connection: BlockingConnection) -> None:
    new = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    (answer,) = connection.request(CreateTopicsRequest(topics=[new])).topics
    assert answer.error_message == ("User:ANONYMOUS, from 127.0.0.1, has no ACL that allows CREATE on TOPIC 't'")


def test_scram_credentials_need_acls_on_the_cluster(cluster: EmbeddedCluster, connection: BlockingConnection) -> None:
    secret = {"iterations": 4096, "salt": b"salt", "salted_password": b"x" * 32}
    alice = ScramCredentialUpsertion(name="alice", mechanism=1, **secret)
    alter = AlterUserScramCredentialsRequest(deletions=[], upsertions=[alice])
    describe = DescribeUserScramCredentialsRequest(users=None)
    (refused,) = connection.request(alter).results
    assert (refused.user, refused.error_code) == ("alice", ClusterAuthorizationFailedError.code)
    assert refused.error_message is not None
    assert "ALTER on the cluster" in refused.error_message
    answer = connection.request(describe)
    assert (answer.error_code, answer.results) == (ClusterAuthorizationFailedError.code, [])
    cluster.add_acl(operation="DESCRIBE", cluster=True)
    answer = connection.request(describe)
    assert (answer.error_code, answer.results) == (0, [])  # nothing was stored
    assert connection.request(alter).results[0].error_code == ClusterAuthorizationFailedError.code
    cluster.add_acl(operation="ALTER", cluster=True)
    assert connection.request(alter).results[0].error_code == 0
    assert [each.user for each in connection.request(describe).results] == ["alice"]


# --- Life ---


def test_acls_outlive_a_restart(tmp_path: Path) -> None:
    for start in range(2):
        with EmbeddedCluster(data_dir=tmp_path, authorizer_class_name=AUTHORIZER) as cluster:
            if start == 0:
                cluster.create_topic("t")
                cluster.add_acl(operation="DESCRIBE", topic="t")
            client = connect(cluster)
            assert metadata_code(client, "t") == 0
            client.close()


def test_super_users_need_no_acl() -> None:
    with EmbeddedCluster(authorizer_class_name=AUTHORIZER, super_users="User:ANONYMOUS") as cluster:
        client = connect(cluster)
        assert metadata_code(client, "t", create=True) == 0
        client.close()


@pytest.mark.parametrize("kind", [EmbeddedCluster, ProcessCluster])
def test_every_broker_knows_the_acls_and_brokers_replicate_without_any(
    kind: type[EmbeddedCluster] | type[ProcessCluster],
) -> None:
    with kind(3, authorizer_class_name=AUTHORIZER, min_insync_replicas=3) as cluster:
        cluster.create_topic("t", num_partitions=6, replication_factor=3)
        acl = cluster.add_acl(operation="WRITE", topic="t")
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            sent = [producer.send("t", b"%d" % at, partition=at) for at in range(6)]
            assert [each.get(30).partition for each in sent] == list(range(6))
        cluster.kill_broker(2)
        cluster.start_broker(2)
        wait_until(lambda: all(len(each.isr) == 3 for each in cluster.controller.image.topics["t"].partitions))
        wait_until(lambda: len(cluster.records("t", 0, node_id=2)) == 1)
        assert cluster.remove_acls() == [acl]
        seen = [each for each in cluster.requests if each.api_key is ApiKey.FETCH]
        assert {each.client_id for each in seen} <= {f"{CLIENT_ID_PREFIX}{at}" for at in (1, 2, 3)}


@pytest.mark.parametrize("client_id", [f"{CLIENT_ID_PREFIX}1", f"{CLIENT_ID_PREFIX}1.", f"{CLIENT_ID_PREFIX}1.0000"])
def test_a_client_does_not_pass_for_a_broker(cluster: EmbeddedCluster, client_id: str) -> None:
    cluster.create_topic("t")
    client = connect(cluster, client_id)
    assert metadata_code(client, "t") == TopicAuthorizationFailedError.code
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topic = FetchTopic(topic="t", topic_id=cluster.controller.image.topics["t"].topic_id, partitions=[part])
    answer = client.request(FetchRequest(replica_id=2, max_wait_ms=0, min_bytes=0, topics=[topic]), 12)
    assert answer.responses[0].partitions[0].error_code == TopicAuthorizationFailedError.code
    client.close()


def test_without_an_authorizer_there_are_no_acls() -> None:
    with EmbeddedCluster() as cluster:
        client = connect(cluster)
        request = DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
        assert client.request(request).error_code == SecurityDisabledError.code
        client.close()


# --- Clients that nobody here wrote ---


@pytest.fixture
def administered() -> Iterator[EmbeddedCluster]:
    """A cluster whose first ACLs anybody may create."""
    with EmbeddedCluster(authorizer_class_name=AUTHORIZER) as cluster:
        cluster.add_acl(operation="ALL", cluster=True)
        cluster.create_topic("orders")
        yield cluster


def test_confluent_kafka_creates_describes_and_deletes_acls(administered: EmbeddedCluster) -> None:
    client = confluent.AdminClient({"bootstrap.servers": administered.bootstrap_servers})

    def binding(kind: confluent.ResourcePatternType, name: str, operation: confluent.AclOperation):
        return confluent.AclBinding(
            confluent.ResourceType.TOPIC, name, kind, "User:alice", "*", operation, confluent.AclPermissionType.ALLOW
        )

    literal = binding(confluent.ResourcePatternType.LITERAL, "orders", confluent.AclOperation.WRITE)
    prefix = binding(confluent.ResourcePatternType.PREFIXED, "ord", confluent.AclOperation.READ)
    other = binding(confluent.ResourcePatternType.LITERAL, "invoices", confluent.AclOperation.READ)
    for future in client.create_acls([literal, prefix, other]).values():
        future.result(10)
    wanted = confluent.AclBindingFilter(
        confluent.ResourceType.TOPIC,
        "orders",
        confluent.ResourcePatternType.MATCH,
        None,
        None,
        confluent.AclOperation.ANY,
        confluent.AclPermissionType.ANY,
    )
    assert set(client.describe_acls(wanted).result(10)) == {literal, prefix}
    (deleted,) = client.delete_acls([wanted]).values()
    assert set(deleted.result(10)) == {literal, prefix}
    assert client.describe_acls(wanted).result(10) == []
    assert len(administered.acls) == 2


def test_confluent_kafka_is_refused_without_the_acl_for_it(cluster: EmbeddedCluster) -> None:
    client = confluent.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    acl = confluent.AclBinding(
        confluent.ResourceType.TOPIC,
        "orders",
        confluent.ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        confluent.AclOperation.READ,
        confluent.AclPermissionType.ALLOW,
    )
    (future,) = client.create_acls([acl]).values()
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        future.result(10)
    assert refused.value.args[0].code() == ClusterAuthorizationFailedError.code
    assert cluster.acls == []


def test_kafka_python_creates_describes_and_deletes_acls(administered: EmbeddedCluster) -> None:
    client = KafkaAdminClient(bootstrap_servers=administered.bootstrap_servers)
    try:
        acl = kafka_python.ACL(
            principal="User:bob",
            host="10.0.0.1",
            operation=kafka_python.ACLOperation.WRITE,
            permission_type=kafka_python.ACLPermissionType.DENY,
            resource_pattern=kafka_python.ResourcePattern(
                kafka_python.ResourceType.TOPIC, "orders-", kafka_python.ACLResourcePatternType.PREFIXED
            ),
        )
        client.create_acls([acl])
        wanted = kafka_python.ACLFilter(
            principal="User:bob",
            host=None,
            operation=kafka_python.ACLOperation.ANY,
            permission_type=kafka_python.ACLPermissionType.ANY,
            resource_pattern=kafka_python.ResourcePatternFilter(
                kafka_python.ResourceType.ANY, None, kafka_python.ACLResourcePatternType.ANY
            ),
        )
        found = client.describe_acls(wanted)
        assert list(found[0] if isinstance(found, tuple) else found) == [acl]
        client.delete_acls([wanted])
        assert administered.remove_acls(principal="User:bob") == []
    finally:
        client.close()


def test_a_consumer_group_needs_read_on_the_group_and_the_topic(administered: EmbeddedCluster) -> None:
    administered.add_acl(operation="READ", topic="orders")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": administered.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe(["orders"])
        codes: set[int] = set()

        def is_refused() -> bool:
            message = consumer.poll(0.1)
            if message is not None and message.error() is not None:
                codes.add(message.error().code())
            return confluent_kafka.KafkaError.GROUP_AUTHORIZATION_FAILED in codes

        wait_until(is_refused)
        administered.add_acl(operation="READ", group="g")
        administered.add_acl(operation="WRITE", topic="orders")
        with KafkaProducer(bootstrap_servers=administered.bootstrap_servers) as producer:
            producer.send("orders", b"granted").get(10)

        def has_read() -> bool:
            message = consumer.poll(0.1)
            return message is not None and message.error() is None and message.value() == b"granted"

        wait_until(has_read)
    finally:
        consumer.close()
