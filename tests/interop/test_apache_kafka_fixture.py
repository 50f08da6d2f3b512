"""The Apache Kafka fixture serves other clients, and its own tools read what they wrote."""

from __future__ import annotations

import uuid

import confluent_kafka
import kafka
import pytest
from support.apache_kafka import ApacheKafka, ApacheKafkaUnavailable, jars_folder
from support.apache_kafka.fixtures import start_or_skip


def a_topic() -> str:
    return f"fixture-{uuid.uuid4().hex[:8]}"


def produce(servers: str, topic: str, values: list[bytes]) -> None:
    outcomes = []
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for number, value in enumerate(values):
        producer.produce(topic, value, b"key-%d" % number, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(60) == 0
    assert outcomes == [None] * len(values)


def consume(servers: str, topic: str, count: int) -> list[bytes | None]:
    settings = {"bootstrap.servers": servers, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, "check.crcs": True})
    consumer.subscribe([topic])
    try:
        messages = consumer.consume(count, timeout=60)
        assert [message.error() for message in messages] == [None] * count
        return [message.value() for message in messages]
    finally:
        consumer.close()


def test_confluent_kafka_produces_and_consumes(apache_kafka: ApacheKafka):
    topic, values = a_topic(), [b"value-%d" % number for number in range(100)]
    produce(apache_kafka.bootstrap_servers, topic, values)
    assert consume(apache_kafka.bootstrap_servers, topic, len(values)) == values


def test_kafka_python_produces_and_consumes(apache_kafka: ApacheKafka):
    topic, values = a_topic(), [b"value-%d" % number for number in range(100)]
    producer = kafka.KafkaProducer(bootstrap_servers=apache_kafka.bootstrap_servers)
    futures = [producer.send(topic, value) for value in values]
    assert [future.get(60).offset for future in futures] == list(range(100))
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=apache_kafka.bootstrap_servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
    )
    try:
        assert [next(consumer).value for _ in values] == values
    finally:
        consumer.close()


def test_the_console_consumer_prints_records(apache_kafka: ApacheKafka):
    topic = a_topic()
    produce(apache_kafka.bootstrap_servers, topic, [b"one", "zwei ä".encode(), b"three"])
    lines = apache_kafka.console_consumer(topic, max_messages=3, formatter={"print.key": "true"})
    assert lines == [b"key-0\tone", "key-1\tzwei ä".encode(), b"key-2\tthree"]


def test_the_dump_log_tool_reads_a_segment(apache_kafka: ApacheKafka):
    topic = a_topic()
    produce(apache_kafka.bootstrap_servers, topic, [b"one", b"two"])
    segment = apache_kafka.log_dir() / f"{topic}-0" / "00000000000000000000.log"
    dump = apache_kafka.dump_log(segment, options=["--print-data-log"])
    assert "payload: one" in dump
    assert "payload: two" in dump


def test_a_tool_that_fails_says_what_it_wrote(apache_kafka: ApacheKafka):
    with pytest.raises(RuntimeError, match=r"DumpLogSegments ended with exit code 1:[^$]*not-an-option"):
        apache_kafka.run_class("org.apache.kafka.tools.DumpLogSegments", "--not-an-option")


def test_a_three_broker_cluster_outlives_a_kill_and_takes_the_broker_back(apache_kafka_cluster: ApacheKafka):
    cluster, topic = apache_kafka_cluster, a_topic()
    admin = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    try:
        assert sorted(broker["broker_id"] for broker in admin.describe_cluster()["brokers"]) == [1, 2, 3]
    finally:
        admin.close()
    produce(cluster.bootstrap_servers, topic, [b"before"])
    cluster.kill(2)
    produce(cluster.bootstrap_servers, topic, [b"while"])
    cluster.restart(2)
    cluster.stop(1)
    produce(cluster.bootstrap_servers, topic, [b"after"])
    assert consume(cluster.bootstrap_servers, topic, 3) == [b"before", b"while", b"after"]


def test_a_broker_that_does_not_start_is_told_with_its_output():
    with pytest.raises(RuntimeError, match=r"num\.network\.threads"):
        start_or_skip(properties={"num.network.threads": "x"})


def test_a_machine_without_java_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ApacheKafkaUnavailable, match="java is missing"), ApacheKafka():
        pytest.fail("it started")


def test_a_machine_without_maven_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ApacheKafkaUnavailable, match="mvn is missing"):
        jars_folder()


def test_what_maven_says_is_passed_on(monkeypatch: pytest.MonkeyPatch, tmp_path):
    mvn = tmp_path / "mvn"
    mvn.write_text("#!/bin/sh\necho '[ERROR] Unknown host central'\nexit 1\n")
    mvn.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ApacheKafkaUnavailable, match=r"Maven Central is unreachable.*Unknown host central"):
        jars_folder()
    assert list((tmp_path / "cache" / "headrace").iterdir()) == []
