"""Helpers over confluent-kafka, an independent client: create a topic, read it back."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

# Timeout for a broker's answer; no passing test waits this long.
PATIENCE_S = 60.0


def create_topic(
    bootstrap_servers: str,
    *,
    partitions: int = 1,
    replication_factor: int = 1,
    config: Mapping[str, str] | None = None,
    name: str = "",
) -> str:
    """Create a topic, with a unique name unless one is given, and return its name."""
    name = name or f"topic-{uuid.uuid4().hex[:12]}"
    topic = NewTopic(name, partitions, replication_factor, config=dict(config or {}))
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.create_topics([topic], operation_timeout=PATIENCE_S).values():
        future.result(PATIENCE_S)
    return name


def read_topic(bootstrap_servers: str, topic: str) -> list[confluent_kafka.Message]:
    """Every record that is in a topic now, with CRCs checked, in log order per partition."""
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": uuid.uuid4().hex, "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({**settings, "check.crcs": True})
    try:
        starts, missing = [], {}
        for partition in consumer.list_topics(topic, PATIENCE_S).topics[topic].partitions:
            low, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, partition), PATIENCE_S)
            starts.append(confluent_kafka.TopicPartition(topic, partition, low))
            if low < high:
                missing[partition] = high
        consumer.assign(starts)
        messages: list[confluent_kafka.Message] = []
        while missing:
            message = consumer.poll(PATIENCE_S)
            if message is None:
                raise TimeoutError(f"{topic} returned no more records before the end offsets of {missing}")
            if message.error() is not None:
                raise confluent_kafka.KafkaException(message.error())
            partition, offset = message.partition(), message.offset()
            if partition in missing and offset < missing[partition]:
                messages.append(message)
                if offset == missing[partition] - 1:
                    del missing[partition]
        return messages
    finally:
        consumer.close()


def read_committed(bootstrap_servers: str, topic: str) -> list[confluent_kafka.Message]:
    """Every record of a topic that a consumer with `isolation.level=read_committed` sees now, per partition in order.

    Returns at the last stable offset: records behind it, of open transactions and after them, are not included.
    """
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": uuid.uuid4().hex, "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(
        {**settings, "isolation.level": "read_committed", "enable.partition.eof": True, "check.crcs": True}
    )
    try:
        partitions = set(consumer.list_topics(topic, PATIENCE_S).topics[topic].partitions)
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in partitions])
        messages: list[confluent_kafka.Message] = []
        while partitions:
            message = consumer.poll(PATIENCE_S)
            if message is None:
                raise TimeoutError(f"{topic} did not report the end of its partitions {partitions}")
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                partitions.discard(message.partition())
            else:
                raise confluent_kafka.KafkaException(error)
        return messages
    finally:
        consumer.close()


def committed_values(bootstrap_servers: str, topic: str) -> list[bytes]:
    """The sorted values that `read_committed` returns."""
    return sorted(message.value() for message in read_committed(bootstrap_servers, topic))


def check_committed(bootstrap_servers: str, topic: str, expected: list[bytes]) -> None:
    """Check that these values are committed, and no others. Kafka writes the markers after it has answered EndTxn."""
    end_s = time.monotonic() + PATIENCE_S
    while len(found := committed_values(bootstrap_servers, topic)) < len(expected) and time.monotonic() < end_s:
        time.sleep(0.05)
    assert found == expected
