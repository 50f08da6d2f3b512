"""Client telemetry with Apache Kafka and a receiver plugin, and Apache Kafka's tools and client with the embedded
broker."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, MetricsData
from support.apache_kafka import ApacheKafka
from support.apache_kafka.fixtures import start_or_skip
from support.waiting import wait_until

from headrace.broker import EmbeddedCluster
from headrace.network.protocol.errors import UnsupportedVersionError
from headrace.producer import KafkaProducer

# as the tests of the fixture `apache_kafka`: one JVM at a time
pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("apache_kafka")]

TOOL = "org.apache.kafka.tools.ClientMetricsCommand"
PRODUCER = "org.apache.kafka.producer."


class Received(NamedTuple):
    """A push that the plugin wrote."""

    client_id: str
    instance_id: uuid.UUID
    is_last: bool
    content_type: str
    metrics: dict[str, Metric]


class Kafka(NamedTuple):
    """A broker with the plugin, and the plugin's file."""

    broker: ApacheKafka
    file: Path

    def received(self, client_id: str) -> list[Received]:
        found = []
        text = self.file.read_text() if self.file.exists() else ""
        for line in text[: text.rfind("\n") + 1].splitlines():
            name, instance_id, is_last, content_type, data = line.split()
            if name == client_id:
                # Kafka writes a UUID's bytes in URL-safe base64 without padding
                instance = uuid.UUID(bytes=base64.urlsafe_b64decode(instance_id + "=="))
                within = MetricsData.FromString(base64.b64decode(data)).resource_metrics
                metrics = {each.name: each for of in within for scope in of.scope_metrics for each in scope.metrics}
                found.append(Received(name, instance, is_last == "true", content_type, metrics))
        return found


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    file = tmp_path_factory.mktemp("telemetry") / "pushes"
    properties = {"metric.reporters": "TelemetryReceiver", "telemetry.receiver.file": str(file)}
    broker = start_or_skip(plugin="TelemetryReceiver", properties=properties)
    try:
        arguments = ("--alter", "--name", "all", "--metrics", PRODUCER, "--interval", "500")
        broker.run_class(TOOL, "--bootstrap-server", broker.bootstrap_servers, *arguments)
        yield Kafka(broker, file)
    finally:
        broker.__exit__()


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_apache_kafka_receives_the_metrics(kafka: Kafka, codec: str) -> None:
    client_id = f"pushing-{codec}"
    with KafkaProducer(
        bootstrap_servers=kafka.broker.bootstrap_servers, client_id=client_id, compression_type=codec
    ) as producer:
        instance_id = producer.client_instance_id(30)
        for number in range(10):
            producer.send("measured", b"%d" % number).get(30)
        wait_until(lambda: kafka.received(client_id))
    wait_until(lambda: kafka.received(client_id)[-1].is_last)
    pushes = kafka.received(client_id)
    assert {push.instance_id for push in pushes} == {instance_id}
    assert [push.is_last for push in pushes] == [False] * (len(pushes) - 1) + [True]
    for push in pushes:
        assert push.content_type == "OTLP"
        assert all(name.startswith(PRODUCER) for name in push.metrics)
        # what KIP-714 requires of every producer
        assert set(push.metrics) >= {
            f"{PRODUCER}connection.creation.rate",
            f"{PRODUCER}connection.creation.total",
            f"{PRODUCER}node.request.latency.avg",
            f"{PRODUCER}node.request.latency.max",
            f"{PRODUCER}record.queue.time.avg",
            f"{PRODUCER}record.queue.time.max",
        }
        sums = push.metrics[f"{PRODUCER}record.send.total"].sum
        assert sums.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    # the first push may come before the first response
    assert {f"{PRODUCER}produce.throttle.time.avg", f"{PRODUCER}produce.throttle.time.max"} <= set(pushes[-1].metrics)
    sent = [push.metrics[f"{PRODUCER}record.send.total"].sum.data_points[0] for push in pushes]
    assert sum(point.as_double for point in sent) == 10
    # each delta begins where the one before ended
    times = [(point.start_time_unix_nano, point.time_unix_nano) for point in sent]
    assert [start for start, _ in times[1:]] == [end for _, end in times[:-1]]


def test_a_changed_subscription_is_picked_up(kafka: Kafka) -> None:
    """Kafka answers the next push with UNKNOWN_SUBSCRIPTION_ID."""
    server = ("--bootstrap-server", kafka.broker.bootstrap_servers)
    with KafkaProducer(bootstrap_servers=kafka.broker.bootstrap_servers, client_id="changing") as producer:
        producer.send("measured", b"v").get(30)
        wait_until(lambda: kafka.received("changing"))
        narrow = f"{PRODUCER}record.queue.time."
        match = ("--match", "client_software_name=headrace,client_id=changing")
        kafka.broker.run_class(
            TOOL, *server, "--alter", "--name", "narrow", "--metrics", narrow, "--interval", "200", *match
        )
        try:
            kafka.broker.run_class(TOOL, *server, "--delete", "--name", "all")
            wait_until(lambda: set(kafka.received("changing")[-1].metrics) == {f"{narrow}avg", f"{narrow}max"})
        finally:
            kafka.broker.run_class(
                TOOL, *server, "--alter", "--name", "all", "--metrics", PRODUCER, "--interval", "500"
            )


def test_apache_kafka_without_a_plugin_is_not_asked(apache_kafka: ApacheKafka) -> None:
    with KafkaProducer(bootstrap_servers=apache_kafka.bootstrap_servers) as producer:
        producer.send("unmeasured", b"v").get(30)
        with pytest.raises(UnsupportedVersionError, match="serves no client telemetry"):
            producer.client_instance_id(30)


def test_its_tool_sets_the_embedded_cluster_s_subscriptions(apache_kafka: ApacheKafka) -> None:
    with EmbeddedCluster() as cluster:
        server = ("--bootstrap-server", cluster.bootstrap_servers)
        match = ("--match", "client_software_name=apache-kafka-java")
        added = ("--alter", "--name", "java", "--metrics", PRODUCER, "--interval", "100", *match)
        apache_kafka.run_class(TOOL, *server, *added)
        assert cluster.telemetry.subscriptions == {
            "java": {"metrics": PRODUCER, "interval.ms": "100", "match": "client_software_name=apache-kafka-java"}
        }
        listed = apache_kafka.run_class(TOOL, *server, "--list").decode()
        described = apache_kafka.run_class(TOOL, *server, "--describe", "--name", "java").decode()
        assert listed.split() == ["java"]
        assert f"metrics={PRODUCER}" in described
        assert "interval.ms=100" in described

        # a Java client pushes there
        cluster.create_topic("t")
        lines = b"".join(b"%d\n" % number for number in range(100))
        for _ in range(3):
            # on a busy machine it may end before it has learnt of the subscription, and then pushes nothing
            apache_kafka.run_class("org.apache.kafka.tools.ConsoleProducer", *server, "--topic", "t", input=lines)
            if cluster.telemetry.pushes:
                break
        pushes = cluster.telemetry.pushes
        assert pushes
        assert {push.software_name for push in pushes} == {"apache-kafka-java"}
        names = {point.name for push in pushes for point in push.metrics()}
        assert f"{PRODUCER}connection.creation.total" in names
        assert all(name.startswith(PRODUCER) for name in names)

        apache_kafka.run_class(TOOL, *server, "--delete", "--name", "java")
        assert cluster.telemetry.subscriptions == {}
