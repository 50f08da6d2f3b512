"""The producer with librdkafka's mock brokers, read back by librdkafka's consumer."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import confluent_kafka
import pytest

from headrace.producer import KafkaProducer

PARTITIONS = 4
PATIENCE_S = 60


@pytest.fixture(scope="module")
def brokers() -> Iterator[str]:
    owner = confluent_kafka.Producer(
        {"test.mock.num.brokers": 3, "bootstrap.servers": "unused", "log_level": 0, "log.queue": False}
    )
    found = owner.list_topics(timeout=PATIENCE_S)
    yield ",".join(f"{broker.host}:{broker.port}" for broker in found.brokers.values())
    # the mock brokers live as long as their owner
    del owner


def read(brokers: str, topic: str, count: int) -> dict[int, list[bytes | None]]:
    """The first `count` records of a topic, by partition."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": brokers, "group.id": "unused", "check.crcs": True, "log_level": 0}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        values: dict[int, list[bytes | None]] = {partition: [] for partition in range(PARTITIONS)}
        for _ in range(count):
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"only {sum(map(len, values.values()))} of {count} records arrived"
            assert message.error() is None
            values[message.partition() or 0].append(message.value())
        return values
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [True, False])
def test_what_is_produced_there_is_read_there(brokers: str, codec: str, idempotent: bool) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    with KafkaProducer(
        bootstrap_servers=brokers, compression_type=codec, enable_idempotence=idempotent, batch_size=2000
    ) as producer:
        futures = [producer.send(topic, b"%06d" % number * 5, key=b"%d" % (number % 17)) for number in range(5000)]
        producer.flush(PATIENCE_S)
    by_partition: dict[int, list[bytes]] = {}
    for number, future in enumerate(futures):
        metadata = future.get(0)
        mine = by_partition.setdefault(metadata.partition, [])
        assert metadata.offset == len(mine)
        mine.append(b"%06d" % number * 5)
    assert {partition: values for partition, values in read(brokers, topic, 5000).items() if values} == by_partition
