"""This producer with Apache Kafka: Java and librdkafka read back what it sent."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

import pytest
from support.apache_kafka import ApacheKafka
from support.confluent import PATIENCE_S, create_topic, read_topic

from headrace.network.protocol.errors import (
    InvalidRecordError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
)
from headrace.producer import KafkaProducer, ProducerRecord

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def producer_for(kafka: ApacheKafka, **keywords: object) -> KafkaProducer:
    return KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, **keywords)


def of_every_kind(topic: str) -> list[ProducerRecord]:
    """Keys and values that are missing, empty, binary or long; headers of every kind; old and new timestamps."""
    rng = random.Random(4)
    records = [
        ProducerRecord(topic, b"value"),
        ProducerRecord(topic, b"value", b"key"),
        ProducerRecord(topic, b"", b""),
        ProducerRecord(topic, None, b"tombstone"),
        ProducerRecord(topic, None),
        ProducerRecord(topic, bytes(range(256)), bytes(reversed(range(256)))),
        ProducerRecord(topic, b"one", headers=[("name", b"value")]),
        ProducerRecord(
            topic, b"many", b"k", headers=[("a", b"1"), ("a", b"2"), ("", b""), ("null", None), ("ü€😀", b"\0")]
        ),
        ProducerRecord(topic, b"oldest", timestamp_ms=0),
        ProducerRecord(topic, b"old", timestamp_ms=1_000_000_000_000),
        ProducerRecord(topic, b"newer", timestamp_ms=1_700_000_000_123),
        ProducerRecord(topic, rng.randbytes(300_000), b"long"),
        ProducerRecord(topic, b"x" * 900_000, b"longer"),
    ]
    for number in range(2_000):
        records.append(ProducerRecord(topic, b"value-%d" % number * (number % 7), b"key-%d" % (number % 50)))
    return records


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_kind_arrive_as_they_were_sent(apache_kafka: ApacheKafka, codec: str):
    topic = create_topic(apache_kafka.bootstrap_servers, partitions=3)
    records = of_every_kind(topic)
    with producer_for(apache_kafka, compression_type=codec) as producer:
        futures = [producer.send(record) for record in records]
        sent = {}
        for record, future in zip(records, futures, strict=True):
            metadata = future.get(PATIENCE_S)
            if record.timestamp_ms is not None:
                assert metadata.timestamp == record.timestamp_ms
            headers = list(record.headers) if record.headers else None
            sent[metadata.partition, metadata.offset] = (record.key, record.value, headers, metadata.timestamp)
    assert len(sent) == len(records)
    read = {
        (message.partition(), message.offset()): (
            message.key(),
            message.value(),
            message.headers(),
            message.timestamp()[1],
        )
        for message in read_topic(apache_kafka.bootstrap_servers, topic)
    }
    assert read == sent
    # a batch that compression doesn't make smaller is sent uncompressed
    assert {codec} <= codecs_of_segments(apache_kafka, topic, partitions=3) <= {codec, "none"}


def batches(kafka: ApacheKafka, topic: str, partition: int = 0) -> list[Mapping[str, str]]:
    """The batches of a partition's first segment, as described by the dump-log tool."""
    segment = kafka.log_dir() / f"{topic}-{partition}" / "00000000000000000000.log"
    lines = kafka.dump_log(segment).splitlines()
    return [dict(re.findall(r"(\w+): (\S+)", line)) for line in lines if line.startswith("baseOffset")]


def codecs_of_segments(kafka: ApacheKafka, topic: str, *, partitions: int) -> set[str]:
    found = set()
    for partition in range(partitions):
        for batch in batches(kafka, topic, partition):
            assert (batch["isvalid"], batch["magic"]) == ("true", "2")
            found.add(batch["compresscodec"])
    return found


def test_batches_carry_an_unbroken_sequence_of_one_producer(apache_kafka: ApacheKafka):
    topic = create_topic(apache_kafka.bootstrap_servers)
    with producer_for(apache_kafka, batch_size=1_000, batch_max_size=1_000, linger_ms=0) as producer:
        for number in range(500):
            producer.send(topic, b"value-%d" % number)
    described = batches(apache_kafka, topic)
    assert len(described) > 5
    assert len({(batch["producerId"], batch["producerEpoch"]) for batch in described}) == 1
    assert int(described[0]["producerId"]) >= 0
    next_sequence = 0
    for batch in described:
        assert int(batch["baseSequence"]) == next_sequence
        next_sequence = int(batch["lastSequence"]) + 1
    assert next_sequence == 500


def test_without_idempotence_batches_carry_no_producer(apache_kafka: ApacheKafka):
    topic = create_topic(apache_kafka.bootstrap_servers)
    with producer_for(apache_kafka, enable_idempotence=False, acks=1) as producer:
        assert producer.send(topic, b"value").get(PATIENCE_S).offset == 0
    assert [(batch["producerId"], batch["baseSequence"]) for batch in batches(apache_kafka, topic)] == [("-1", "-1")]


@pytest.mark.parametrize("codec", CODECS)
def test_java_s_console_consumer_prints_what_was_sent(apache_kafka: ApacheKafka, codec: str):
    topic = create_topic(apache_kafka.bootstrap_servers)
    with producer_for(apache_kafka, compression_type=codec) as producer:
        producer.send(topic, "grüße".encode(), b"key", headers=[("h1", b"v1"), ("h2", b"v2")], timestamp_ms=1_234_567)
        producer.send(topic, None, b"tombstone", timestamp_ms=1_234_568)
        producer.send(topic, b"no key", timestamp_ms=1_234_569)
        producer.send(topic, b"", b"", headers=[("null", None)], timestamp_ms=0)
        producer.send(topic, b"long " * 80_000, timestamp_ms=1)  # several of Java's blocks of snappy or lz4
    names = ("timestamp", "partition", "offset", "headers", "key")
    formatter = {f"print.{name}": "true" for name in names} | {"null.literal": "NULL", "key.separator": "|"}
    lines = apache_kafka.console_consumer(topic, max_messages=5, formatter=formatter)
    assert [line.decode() for line in lines] == [
        "CreateTime:1234567|Partition:0|Offset:0|h1:v1,h2:v2|key|grüße",
        "CreateTime:1234568|Partition:0|Offset:1|NO_HEADERS|tombstone|NULL",
        "CreateTime:1234569|Partition:0|Offset:2|NO_HEADERS|NULL|no key",
        "CreateTime:0|Partition:0|Offset:3|null:NULL||",
        "CreateTime:1|Partition:0|Offset:4|NO_HEADERS|NULL|" + "long " * 80_000,
    ]


@pytest.mark.parametrize("partitions", [2, 7, 50])
def test_keys_go_where_java_s_producer_puts_them(apache_kafka: ApacheKafka, partitions: int):
    rng = random.Random(partitions)
    alphabet = "abcdefghijklmnopqrstuvwxyzABCXYZ0123456789 _-.:äöüßéčžñ中文кафка😀\u0001\u007f\u0080\u0100"
    keys = [""] + ["".join(rng.choices(alphabet, k=length)) for length in range(1, 41) for _ in range(10)]
    keys = list(dict.fromkeys(keys))
    by_java = create_topic(apache_kafka.bootstrap_servers, partitions=partitions)
    by_us = create_topic(apache_kafka.bootstrap_servers, partitions=partitions)
    apache_kafka.run_class(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", apache_kafka.bootstrap_servers, "--topic", by_java),
        *("--reader-property", "parse.key=true"),
        input="".join(f"{key}\tvalue\n" for key in keys).encode(),
    )
    with producer_for(apache_kafka) as producer:
        futures = {key: producer.send(by_us, b"value", key.encode()) for key in keys}
        answered = {key: future.get(PATIENCE_S).partition for key, future in futures.items()}
    java_s = {m.key().decode(): m.partition() for m in read_topic(apache_kafka.bootstrap_servers, by_java)}
    ours = {m.key().decode(): m.partition() for m in read_topic(apache_kafka.bootstrap_servers, by_us)}
    assert java_s.keys() == set(keys)
    assert ours == java_s
    assert answered == java_s


def test_a_partition_keeps_the_order_of_sending(apache_kafka: ApacheKafka):
    topic = create_topic(apache_kafka.bootstrap_servers, partitions=4)
    with producer_for(apache_kafka, batch_size=4_096, linger_ms=1) as producer:
        for number in range(40_000):
            producer.send(topic, b"%d" % number, partition=number % 4)
    read: dict[int, list[int]] = {partition: [] for partition in range(4)}
    for message in read_topic(apache_kafka.bootstrap_servers, topic):
        read[message.partition()].append(int(message.value()))
    assert read == {partition: list(range(partition, 40_000, 4)) for partition in range(4)}


def test_acks_0_tells_no_offset_and_the_record_arrives(apache_kafka: ApacheKafka):
    topic = create_topic(apache_kafka.bootstrap_servers)
    with producer_for(apache_kafka, acks=0, enable_idempotence=False) as producer:
        metadata = producer.send(topic, b"value").get(PATIENCE_S)
        assert (metadata.partition, metadata.offset) == (0, -1)
        producer.send(topic, b"value").get(PATIENCE_S)
    lines = apache_kafka.console_consumer(topic, max_messages=2)
    assert lines == [b"value", b"value"]


def test_log_append_time_is_the_broker_s(apache_kafka: ApacheKafka):
    topic = create_topic(apache_kafka.bootstrap_servers, config={"message.timestamp.type": "LogAppendTime"})
    with producer_for(apache_kafka) as producer:
        metadata = producer.send(topic, b"value", timestamp_ms=1_000).get(PATIENCE_S)
    assert metadata.timestamp > 1_700_000_000_000
    assert [message.timestamp()[1] for message in read_topic(apache_kafka.bootstrap_servers, topic)] == [
        metadata.timestamp
    ]


def test_a_record_that_the_topic_takes_none_so_large_fails_alone(apache_kafka: ApacheKafka):
    """The batch exceeds the topic's limit and is split until only the record that is itself too large is left."""
    topic = create_topic(apache_kafka.bootstrap_servers, config={"max.message.bytes": "2000"})
    with producer_for(apache_kafka, linger_ms=1_000) as producer:
        small = [producer.send(topic, b"%d" % number * 50) for number in range(100)]
        large = producer.send(topic, b"x" * 5_000)
        producer.flush(PATIENCE_S)
        assert isinstance(large.exception(PATIENCE_S), MessageSizeTooLargeError)
        assert sorted(future.get(PATIENCE_S).offset for future in small) == list(range(100))
    values = [message.value() for message in read_topic(apache_kafka.bootstrap_servers, topic)]
    assert values == [b"%d" % number * 50 for number in range(100)]


def test_a_compacted_topic_refuses_a_record_without_a_key(apache_kafka: ApacheKafka):
    topic = create_topic(apache_kafka.bootstrap_servers, config={"cleanup.policy": "compact"})
    with producer_for(apache_kafka) as producer:
        refused = producer.send(topic, b"value")
        assert isinstance(refused.exception(PATIENCE_S), InvalidRecordError)
        assert producer.send(topic, b"value", b"key").get(PATIENCE_S).offset == 0


def test_topics_are_made_on_demand_unless_told_otherwise(apache_kafka: ApacheKafka):
    name = create_topic(apache_kafka.bootstrap_servers) + "-on-demand"
    with (
        producer_for(apache_kafka, allow_auto_create_topics=False, max_block_ms=3_000) as producer,
        pytest.raises(KafkaTimeoutError, match=f"'{name}' did not appear within max.block.ms"),
    ):
        producer.send(name, b"value")
    with producer_for(apache_kafka) as producer:
        assert producer.send(name, b"value").get(PATIENCE_S).offset == 0


def test_the_future_tells_offsets_and_partitions_for_tells_partitions(apache_kafka: ApacheKafka):
    topic = create_topic(apache_kafka.bootstrap_servers, partitions=5)
    with producer_for(apache_kafka) as producer:
        assert len(producer.partitions_for(topic)) == 5
        metadata = producer.send(topic, b"value", b"key", partition=3, timestamp_ms=77).get(PATIENCE_S)
    assert (metadata.topic, metadata.partition, metadata.offset, metadata.timestamp) == (topic, 3, 0, 77)
    assert (metadata.serialized_key_size, metadata.serialized_value_size) == (3, 5)


@pytest.mark.timeout(400)
def test_nothing_is_lost_or_doubled_when_brokers_are_killed(apache_kafka_cluster: ApacheKafka):
    """While a million records flow, each of three brokers in turn is killed and restarted; acks=all and idempotence."""
    cluster = apache_kafka_cluster
    topic = create_topic(
        cluster.bootstrap_servers, partitions=3, replication_factor=3, config={"min.insync.replicas": "2"}
    )
    futures = []
    with producer_for(cluster) as producer:

        def send_some() -> None:
            for _ in range(150_000):
                futures.append(producer.send(topic, b"%d" % len(futures), partition=len(futures) % 3))

        for broker_id in cluster.broker_ids:
            send_some()
            cluster.kill(broker_id)
            send_some()
            producer.flush(PATIENCE_S)
            cluster.restart(broker_id)
        send_some()
    acknowledged = {future.get(PATIENCE_S).partition: 0 for future in futures}
    assert sorted(acknowledged) == [0, 1, 2]
    read: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for message in read_topic(cluster.bootstrap_servers, topic):
        read[message.partition()].append(int(message.value()))
    assert read == {partition: list(range(partition, len(futures), 3)) for partition in range(3)}
