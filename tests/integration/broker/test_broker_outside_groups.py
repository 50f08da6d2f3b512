"""Groups and admin clients of kafka-python and aiokafka with this broker: rebalances, offsets, static members."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid

import aiokafka
import confluent_kafka
import kafka
import kafka.admin
import kafka.errors
import pytest

from headrace.broker import EmbeddedCluster
from headrace.broker.group.group import GroupState

PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(3, default_replication_factor=3, num_partitions=4) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster):
    name = f"topic-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name)
    return name


def fill(cluster, topic, count=100):
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % 4)
    assert producer.flush(PATIENCE_S) == 0


def group_of(cluster, group_id):
    return next(
        group for broker in cluster.brokers.values() for group in broker.offsets.groups() if group.group_id == group_id
    )


class PythonMember(threading.Thread):
    """A kafka-python consumer that polls on its own thread until it is stopped."""

    def __init__(self, cluster, topic, group, **config):
        super().__init__(daemon=True)
        self.consumer = kafka.KafkaConsumer(
            topic,
            group_id=group,
            bootstrap_servers=cluster.bootstrap_servers.split(","),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
            session_timeout_ms=6000,
            **config,
        )
        # A group leader without the topic's metadata assigns nothing, and sometimes never corrects that.
        wait_for(lambda: self.consumer.partitions_for_topic(topic))
        self.assigned: set[int] = set()
        self.values: list[bytes] = []
        self.stopping = threading.Event()
        self.start()

    def run(self):
        try:
            while not self.stopping.is_set():
                for records in self.consumer.poll(100).values():
                    self.values += [record.value for record in records]
                self.assigned = {part.partition for part in self.consumer.assignment()}
            self.consumer.commit()
        finally:
            self.consumer.close()

    def stop(self):
        self.stopping.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


def test_members_of_kafka_python_come_and_go(cluster, topic):
    fill(cluster, topic)
    members = [PythonMember(cluster, topic, f"g-{topic}")]
    wait_for(lambda: len(members[0].values) == 100)
    members.append(PythonMember(cluster, topic, f"g-{topic}"))
    wait_for(lambda: [len(member.assigned) for member in members] == [2, 2])
    assert members[0].assigned | members[1].assigned == {0, 1, 2, 3}
    members[0].stop()
    wait_for(lambda: members[1].assigned == {0, 1, 2, 3})
    members[1].stop()
    group = group_of(cluster, f"g-{topic}")
    assert group.state is GroupState.EMPTY
    assert {key: offset.offset for key, offset in group.offsets.items()} == {
        (topic, partition): 25 for partition in range(4)
    }
    fill(cluster, topic, 20)
    again = PythonMember(cluster, topic, f"g-{topic}")
    wait_for(lambda: len(again.values) == 20)
    again.stop()


def test_a_group_outlives_its_coordinator(cluster, topic):
    # Not with kafka-python, which leaves sockets open when it connects to a broker that is gone.
    fill(cluster, topic)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": f"g-{topic}",
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 100,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    values = []

    def has_read(count):
        values.extend(message.value() for message in consumer.consume(100, 0.1) if message.error() is None)
        return len(set(values)) == count

    wait_for(lambda: has_read(100))
    consumer.commit(asynchronous=False)
    coordinator = cluster.broker(1).offsets.coordinator_of(f"g-{topic}")
    cluster.kill_broker(coordinator)
    try:
        fill(cluster, topic, 120)
        wait_for(lambda: has_read(120))
        consumer.commit(asynchronous=False)
        group = group_of(cluster, f"g-{topic}")
        assert sum(offset.offset for offset in group.offsets.values()) == 220
    finally:
        consumer.close()
        cluster.start_broker(coordinator)


def test_the_admin_client_of_kafka_python(cluster, topic):
    fill(cluster, topic)
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(","))
    try:
        made = f"made-{topic}"
        admin.create_topics([kafka.admin.NewTopic(made, 2, 3, topic_configs={"retention.ms": "12345"})])
        assert {made, topic} <= set(admin.list_topics())
        with pytest.raises(kafka.errors.TopicAlreadyExistsError):
            admin.create_topics([kafka.admin.NewTopic(made, 2, 3)])
        (described,) = admin.describe_topics([made])
        assert len(described["partitions"]) == 2
        admin.create_partitions({made: kafka.admin.NewPartitions(5)})
        assert len(admin.describe_topics([made])[0]["partitions"]) == 5
        config = admin.describe_configs([kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, made)])
        assert "12345" in str(config)
        member = PythonMember(cluster, topic, f"g-{topic}")
        wait_for(lambda: len(member.values) == 100)
        member.stop()
        assert f"g-{topic}" in str(admin.list_groups())
        assert "Empty" in str(admin.describe_groups([f"g-{topic}"]))
        offsets = admin.list_group_offsets([f"g-{topic}"])
        assert "offset=25" in str(offsets)
        admin.delete_groups([f"g-{topic}"])
        assert f"g-{topic}" not in str(admin.list_groups())
        admin.delete_topics([made])
        assert made not in admin.list_topics()
    finally:
        admin.close()


def test_members_of_aiokafka_come_and_go(cluster, topic):
    fill(cluster, topic)

    async def run():
        def member():
            return aiokafka.AIOKafkaConsumer(
                topic,
                group_id=f"g-{topic}",
                bootstrap_servers=cluster.bootstrap_servers,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                heartbeat_interval_ms=100,
            )

        async def read(*consumers, until):
            while not until():
                for consumer in consumers:
                    for records in (await consumer.getmany(timeout_ms=50)).values():
                        values.extend(record.value for record in records)

        values = []
        first, second = member(), member()
        await first.start()
        await read(first, until=lambda: len(values) == 100)
        await first.commit()
        starting = asyncio.create_task(second.start())
        await read(first, until=starting.done)
        await read(first, second, until=lambda: len(first.assignment()) == len(second.assignment()) == 2)
        assert {part.partition for each in (first, second) for part in each.assignment()} == {0, 1, 2, 3}
        await first.stop()
        await read(second, until=lambda: len(second.assignment()) == 4)
        committed = [await second.committed(part) for part in second.assignment()]
        await second.stop()
        return len(values), committed

    assert asyncio.run(asyncio.wait_for(run(), PATIENCE_S)) == (100, [25, 25, 25, 25])


def test_a_static_member_returns_without_a_rebalance(cluster, topic):
    fill(cluster, topic)

    def static(instance_id):
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": f"g-{topic}",
                "group.instance.id": instance_id,
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 100,
                "log_level": 0,
            }
        )
        consumer.subscribe([topic])
        return consumer

    def settle(*consumers):
        def settled():
            for consumer in consumers:
                consumer.poll(0.05)
            return [len(consumer.assignment()) for consumer in consumers] == [4 // len(consumers)] * len(consumers)

        wait_for(settled)

    one, other = static("one"), static("other")
    settle(one, other)
    generation = group_of(cluster, f"g-{topic}").generation
    assigned = {part.partition for part in other.assignment()}
    other.close()
    other = static("other")
    settle(one, other)
    assert {part.partition for part in other.assignment()} == assigned
    assert group_of(cluster, f"g-{topic}").generation == generation
    one.close()
    other.close()


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_that_share_out_by_other_strategies(cluster, topic, strategy):
    fill(cluster, topic)
    config = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": f"g-{topic}",
        "partition.assignment.strategy": strategy,
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 100,
        "log_level": 0,
    }
    consumers = []
    for count in (1, 2, 4):
        while len(consumers) < count:
            consumers.append(confluent_kafka.Consumer(config))
            consumers[-1].subscribe([topic])

        def shared_out(count=count):
            for consumer in consumers:
                consumer.poll(0.05)
            return [len(consumer.assignment()) for consumer in consumers] == [4 // count] * count

        wait_for(shared_out)
    assert group_of(cluster, f"g-{topic}").protocol_name == strategy
    for consumer in consumers:
        consumer.close()
