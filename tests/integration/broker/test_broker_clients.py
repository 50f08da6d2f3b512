"""Third-party clients produce to the embedded broker and consume from it."""

from __future__ import annotations

import asyncio
import importlib.util

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.broker import EmbeddedCluster
from headrace.network.protocol.errors import KafkaConfigurationError, KafkaConnectionError

QUIET = {"log_level": 0}
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
VALUES = [b"value-%d" % number * (number % 7) for number in range(500)]


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(num_partitions=2, log_retention_ms=-1) as cluster:
        yield cluster


def confluent_consumer(cluster, **config):
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "group.id": "unused",
            **QUIET,
            **config,
        }
    )


def consume(consumer, count):
    messages = []
    for _ in range(300):
        messages += [message for message in consumer.consume(count - len(messages), 0.1) if not message.error()]
        if len(messages) >= count:
            break
    return messages


def read_all(cluster, topic, count):
    consumer = confluent_consumer(cluster)
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(2)])
    try:
        return consume(consumer, count)
    finally:
        consumer.close()


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka(cluster, codec, idempotent):
    topic = f"confluent-{codec}-{idempotent}"
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "compression.type": codec,
            "enable.idempotence": idempotent,
            "linger.ms": 5,
            **QUIET,
        }
    )
    failures = []
    for value in VALUES:
        producer.produce(topic, value, b"key", on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(20) == 0
    assert failures == []
    assert [message.value() for message in read_all(cluster, topic, len(VALUES))] == VALUES


@pytest.mark.parametrize(
    ("codec", "module"),
    [(None, "kafka"), ("gzip", "gzip"), ("snappy", "snappy"), ("lz4", "lz4"), ("zstd", "zstandard")],
)
def test_kafka_python(cluster, codec, module):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"kafka-python needs {module} for {codec}")
    topic = f"kafka-python-{codec}"
    producer = kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, compression_type=codec)
    futures = [producer.send(topic, value, partition=0) for value in VALUES]
    producer.flush(20)
    producer.close()
    assert [future.get(20).offset for future in futures] == list(range(len(VALUES)))
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", check_crcs=True
    )
    consumer.assign([kafka.TopicPartition(topic, 0)])
    read = []
    for _ in range(100):
        read += [record.value for records in consumer.poll(200).values() for record in records]
        if len(read) >= len(VALUES):
            break
    consumer.close()
    assert read == VALUES


def test_aiokafka(cluster):
    async def run():
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=True, compression_type="gzip"
        )
        await producer.start()
        futures = [await producer.send("aiokafka", value, partition=0) for value in VALUES]
        await asyncio.gather(*futures)
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition("aiokafka", 0)])
        read = []
        while len(read) < len(VALUES):
            read += [
                record.value for records in (await consumer.getmany(timeout_ms=200)).values() for record in records
            ]
        await consumer.stop()
        return read

    assert asyncio.run(asyncio.wait_for(run(), 30)) == VALUES


def test_a_group_shares_the_partitions_and_goes_on_where_it_was(cluster):
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
    for number in range(100):
        producer.produce("shared", b"%d" % number, partition=number % 2)
    assert producer.flush(20) == 0
    first = confluent_consumer(cluster, **{"group.id": "sharing", "heartbeat.interval.ms": 50})
    first.subscribe(["shared"])
    assert len(consume(first, 100)) == 100
    first.commit(asynchronous=False)
    second = confluent_consumer(cluster, **{"group.id": "sharing", "heartbeat.interval.ms": 50})
    second.subscribe(["shared"])
    for _ in range(200):
        first.poll(0.05)
        second.poll(0.05)
        if len(first.assignment()) == len(second.assignment()) == 1:
            break
    assert {part.partition for each in (first, second) for part in each.assignment()} == {0, 1}
    first.close()
    for number in range(100, 150):
        producer.produce("shared", b"%d" % number, partition=number % 2)
    producer.flush(20)
    values = {int(message.value()) for message in consume(second, 50)}
    second.close()
    assert values == set(range(100, 150))


@pytest.mark.parametrize("client", ["kafka-python", "aiokafka"])
def test_groups_of_other_clients(cluster, client):
    topic = f"group-{client}"
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
    for number in range(100):
        producer.produce(topic, b"%d" % number, partition=number % 2)
    assert producer.flush(20) == 0
    group = f"group-of-{client}"
    if client == "kafka-python":
        consumer = kafka.KafkaConsumer(
            topic, group_id=group, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
        )
        read = 0
        for _ in range(200):
            read += sum(map(len, consumer.poll(200).values()))
            if read >= 100:
                break
        consumer.commit()
        consumer.close()
        assert read == 100
    else:

        async def run():
            consumer = aiokafka.AIOKafkaConsumer(
                topic, group_id=group, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
            )
            await consumer.start()
            read = 0
            while read < 100:
                read += sum(map(len, (await consumer.getmany(timeout_ms=200)).values()))
            await consumer.commit()
            await consumer.stop()

        asyncio.run(asyncio.wait_for(run(), 30))
    committed = cluster.broker(1).offsets.group(group).offsets
    assert {key: offset.offset for key, offset in committed.items()} == {(topic, 0): 50, (topic, 1): 50}


def test_topics_are_made_described_and_deleted(cluster):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
    admin.create_topics([NewTopic("made", 3, 1, config={"retention.ms": "1000"})])["made"].result(10)
    assert len(admin.list_topics(timeout=10).topics["made"].partitions) == 3
    with pytest.raises(confluent_kafka.KafkaException, match="already exists"):
        admin.create_topics([NewTopic("made", 3, 1)])["made"].result(10)
    with pytest.raises(confluent_kafka.KafkaException, match="as many brokers"):
        admin.create_topics([NewTopic("too-many", 1, 3)])["too-many"].result(10)
    admin.delete_topics(["made"])["made"].result(10)
    assert "made" not in admin.list_topics(timeout=10).topics


def test_offsets_are_found_by_time(cluster):
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
    for number in range(10):
        producer.produce("times", b"x", partition=0, timestamp=1_600_000_000_000 + 1000 * number)
    producer.flush(20)
    consumer = confluent_consumer(cluster)
    try:
        (found,) = consumer.offsets_for_times(
            [confluent_kafka.TopicPartition("times", 0, 1_600_000_003_500)], timeout=10
        )
        assert found.offset == 4
        assert consumer.get_watermark_offsets(confluent_kafka.TopicPartition("times", 0), timeout=10) == (0, 10)
    finally:
        consumer.close()


@pytest.mark.parametrize("release", ["2.1", "2.6", "2.8", "3.0", "3.6", "3.9"])
def test_clients_get_along_with_what_older_releases_offer(release):
    with EmbeddedCluster(brokers=2, num_partitions=2, default_replication_factor=2) as cluster:
        cluster.act_as(release)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "acks": "all", **QUIET}
        )
        for number in range(50):
            producer.produce("t", b"%d" % number, partition=number % 2)
        assert producer.flush(20) == 0
        consumer = confluent_consumer(cluster, **{"group.id": "g"})
        consumer.subscribe(["t"])
        assert len(consume(consumer, 50)) == 50
        consumer.commit(asynchronous=False)
        consumer.close()
        other = kafka.KafkaConsumer(
            group_id="h", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
        )
        # It may miss a topic that it learns of while it joins, and then reads nothing until its next refresh.
        assert other.partitions_for_topic("t") == {0, 1}
        other.subscribe(["t"])
        read = 0
        for _ in range(100):
            read += sum(map(len, other.poll(200).values()))
            if read >= 50:
                break
        other.commit()
        other.close()
        assert read == 50


def test_a_release_without_a_table_is_refused(cluster):
    with pytest.raises(KafkaConfigurationError, match=r"2\.1, 2\.6"):
        cluster.act_as("0.7")


def test_a_port_that_can_not_be_had_is_told() -> None:
    with EmbeddedCluster() as first:
        taken = int(first.bootstrap_servers.rpartition(":")[2])
        with pytest.raises(
            KafkaConnectionError,
            match=rf"can't listen on 127\.0\.0\.1:{taken}: Address already in use; choose another port, or 0 for any$",
        ):
            EmbeddedCluster(port=taken).start()
    with pytest.raises(KafkaConfigurationError, match=r"port is 99999; give a whole number from 0 .* to 65535"):
        EmbeddedCluster(port=99_999).start()


@pytest.mark.parametrize(
    ("host", "says"),
    [
        (
            "192.0.2.1",
            r"can't listen on 192\.0\.2\.1:0: .*; choose an address of this machine, such as 127\.0\.0\.1, or",
        ),
        ("2001:db8::1", r"can't listen on \[2001:db8::1\]:0: .*; choose an address of this machine"),
        (
            "nowhere.invalid",
            r"can't listen on nowhere\.invalid:0: .*; choose a host name or an address of this machine",
        ),
    ],
)
def test_a_host_that_is_not_this_machine_is_told_as_such(host: str, says: str) -> None:
    with pytest.raises(KafkaConnectionError, match=says) as caught:
        EmbeddedCluster(host=host).start()
    assert "another port" not in str(caught.value)
