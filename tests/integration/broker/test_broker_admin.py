"""The admin APIs, through librdkafka's admin client and raw requests."""

from __future__ import annotations

import socket
import struct
import uuid

import confluent_kafka
import pytest
from confluent_kafka import KafkaError as Codes
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from headrace.broker import EmbeddedCluster
from headrace.network.protocol.frames import decode_response, encode_request
from headrace.network.protocol.messages.cluster.describe_log_dirs import DescribeLogDirsRequest
from headrace.network.protocol.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.network.protocol.messages.records.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

QUIET = {"log_level": 0}


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(num_partitions=1, log_retention_ms=123456) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster):
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})


@pytest.fixture
def topic(admin):
    name = f"topic-{uuid.uuid4()}"
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(10)
    return name


def fill(cluster, topic, count, partition=0):
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(20) == 0


def ask(cluster, message, version):
    host, port = cluster.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port)), 10) as sock:
        sock.sendall(b"".join(encode_request(message, version=version, correlation_id=7, client_id="test")))
        with sock.makefile("rb") as file:
            (size,) = struct.unpack(">i", file.read(4))
            return decode_response(type(message), version, file.read(size))[1]


def test_partitions_are_added_and_never_taken_away(admin, topic):
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(10)
    assert len(admin.list_topics(timeout=10).topics[topic].partitions) == 5
    with pytest.raises(confluent_kafka.KafkaException) as failed:
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(10)
    assert failed.value.args[0].code() == Codes.INVALID_PARTITIONS


def test_configurations_are_told_with_their_source(admin, topic):
    resource = ConfigResource(ResourceType.TOPIC, topic)
    configs = admin.describe_configs([resource])[resource].result(10)
    assert configs["retention.ms"].value == "123456"
    assert configs["retention.ms"].source == 4
    assert configs["cleanup.policy"].value == "delete"
    assert configs["cleanup.policy"].is_default
    broker = ConfigResource(ResourceType.BROKER, "1")
    assert admin.describe_configs([broker])[broker].result(10)["log.retention.ms"].value == "123456"
    unknown = ConfigResource(ResourceType.TOPIC, "unknown")
    with pytest.raises(confluent_kafka.KafkaException):
        admin.describe_configs([unknown])[unknown].result(10)


def test_a_test_may_give_a_topics_keys_as_python_has_them(admin, cluster):
    cluster.create_topic("own", configs={"min_insync_replicas": 2, "retention.ms": 5000, "preallocate": False})
    resource = ConfigResource(ResourceType.TOPIC, "own")
    configs = admin.describe_configs([resource])[resource].result(10)
    assert (configs["min.insync.replicas"].value, configs["retention.ms"].value) == ("2", "5000")
    assert configs["retention.ms"].source == 1


def test_configurations_are_told_by_their_names(topic, cluster):
    keys = ["retention.ms", "cleanup.policy", "compression.type"]
    resource = DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=keys)
    (result,) = ask(cluster, DescribeConfigsRequest(resources=[resource]), 4).results
    assert [each.name for each in result.configs] == ["cleanup.policy", "compression.type", "retention.ms"]


def test_configurations_change_key_by_key(admin, topic, cluster):
    def change(name, value, operation):
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(10)
        plain = ConfigResource(ResourceType.TOPIC, topic)
        return admin.describe_configs([plain])[plain].result(10)[name].value

    assert change("max.message.bytes", "2000", AlterConfigOpType.SET) == "2000"
    assert cluster.broker(1).replicas.partition((topic, 0)).log.config.max_message_bytes == 2000
    assert change("cleanup.policy", "compact", AlterConfigOpType.APPEND) == "delete,compact"
    assert change("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT) == "compact"
    assert change("max.message.bytes", None, AlterConfigOpType.DELETE) == "1048588"
    with pytest.raises(confluent_kafka.KafkaException) as failed:
        change("max.message.bytes", "many", AlterConfigOpType.SET)
    assert failed.value.args[0].code() == Codes.INVALID_CONFIG
    with pytest.raises(confluent_kafka.KafkaException, match="is not a configuration key"):
        change("no.such.key", "1", AlterConfigOpType.SET)


def test_records_are_deleted_up_to_an_offset(admin, topic, cluster):
    fill(cluster, topic, 10)
    partition = confluent_kafka.TopicPartition(topic, 0, 4)
    assert admin.delete_records([partition])[partition].result(10).low_watermark == 4
    earliest = admin.list_offsets({partition: OffsetSpec.earliest()})
    assert next(iter(earliest.values())).result(10).offset == 4
    beyond = confluent_kafka.TopicPartition(topic, 0, 11)
    with pytest.raises(confluent_kafka.KafkaException) as failed:
        admin.delete_records([beyond])[beyond].result(10)
    assert failed.value.args[0].code() == Codes.OFFSET_OUT_OF_RANGE


def test_groups_are_listed_described_and_deleted(admin, topic, cluster):
    fill(cluster, topic, 10)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest", **QUIET}
    )
    consumer.subscribe([topic])
    for _ in range(100):
        if consumer.poll(0.1) is not None:
            break
    consumer.commit(asynchronous=False)
    described = admin.describe_consumer_groups([topic])[topic].result(10)
    assert described.state.name == "STABLE"
    assert {part.partition for part in described.members[0].assignment.topic_partitions} == {0, 1}
    with pytest.raises(confluent_kafka.KafkaException) as failed:
        admin.delete_consumer_groups([topic])[topic].result(10)
    assert failed.value.args[0].code() == Codes.NON_EMPTY_GROUP
    consumer.close()
    assert topic in {group.group_id for group in admin.list_consumer_groups().result(10).valid}
    admin.delete_consumer_groups([topic])[topic].result(10)
    assert topic not in {group.group_id for group in admin.list_consumer_groups().result(10).valid}


def test_log_directories_are_described(topic, cluster):
    fill(cluster, topic, 10)
    (directory,) = ask(cluster, DescribeLogDirsRequest(topics=None), 4).results
    sizes = {
        (each.name, part.partition_index): part.partition_size for each in directory.topics for part in each.partitions
    }
    assert sizes[topic, 0] > 0
    assert sizes[topic, 1] == 0
    assert directory.total_bytes >= directory.usable_bytes > 0


def test_the_end_of_an_epoch_is_told(topic, cluster):
    fill(cluster, topic, 10)

    def end_of(epoch):
        asked = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])])
        (answer,) = ask(cluster, request, 4).topics[0].partitions
        return answer.leader_epoch, answer.end_offset

    assert end_of(0) == (0, 10)
    assert end_of(1) == (-1, -1)
