"""`headrace consume --group` and Java's console consumer as members of one group of Apache Kafka."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from support.apache_kafka import ApacheKafka
from support.confluent import PATIENCE_S, create_topic
from support.processes import child
from support.waiting import wait_until

from headrace.producer import KafkaProducer


def await_members(kafka: ApacheKafka, group: str, count: int) -> None:
    """Wait until the group has `count` members, each with partitions."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    coordinator_starts = (
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.GROUP_ID_NOT_FOUND,
    )

    def is_so() -> bool:
        try:
            members = admin.describe_consumer_groups([group])[group].result(PATIENCE_S).members
        except KafkaException as error:
            if error.args[0].code() not in coordinator_starts:
                raise
            return False
        return len(members) == count and all(each.assignment.topic_partitions for each in members)

    wait_until(is_so)


@pytest.mark.parametrize("is_first", [True, False], ids=["as the leader", "as a follower"])
def test_a_group_with_java_s_console_consumer(apache_kafka: ApacheKafka, is_first: bool):
    topic = create_topic(apache_kafka.bootstrap_servers, partitions=4)
    java = (
        *("--topic", topic, "--group", topic, "--max-messages", "20", "--timeout-ms", "60000", "--from-beginning"),
        *("--bootstrap-server", apache_kafka.bootstrap_servers),
    )
    command = [sys.executable, "-m", "headrace.cli", "consume", topic, "-b", apache_kafka.bootstrap_servers]
    command += ["--json", "--follow", "--group", topic]

    def send(count: int) -> None:
        with KafkaProducer(bootstrap_servers=apache_kafka.bootstrap_servers) as producer:
            sent = [producer.send(topic, b"v", partition=each) for each in list(range(4)) * count]
            for future in sent:
                future.get(PATIENCE_S)

    def run_java() -> list[str]:
        tool = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        return apache_kafka.run_class(tool, *java).decode().splitlines()

    with ThreadPoolExecutor(1) as pool:
        if not is_first:
            theirs = pool.submit(run_java)
            await_members(apache_kafka, topic, 1)
        with child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            if is_first:
                await_members(apache_kafka, topic, 1)
                theirs = pool.submit(run_java)
            await_members(apache_kafka, topic, 2)
            send(10)
            shared = [json.loads(process.stdout.readline())["partition"] for _ in range(20)]
            assert len(theirs.result(PATIENCE_S)) == 20
            assert len(set(shared)) == 2
            await_members(apache_kafka, topic, 1)
            send(1)
            assert {json.loads(process.stdout.readline())["partition"] for _ in range(4)} == set(range(4))
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (130, "")
    assert "not committed" not in err
    keys = {"bootstrap.servers": apache_kafka.bootstrap_servers, "group.id": topic}
    consumer = confluent_kafka.Consumer(keys)
    places = [TopicPartition(topic, each) for each in range(4)]
    # Ctrl-C may have come between the last line and the note that it was printed
    assert sum(each.offset for each in consumer.committed(places, PATIENCE_S)) in {43, 44}
    consumer.close()
