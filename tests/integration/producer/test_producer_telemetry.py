"""Client telemetry (KIP-714) between the producer, librdkafka, and embedded clusters."""

from __future__ import annotations

import os
import subprocess
import sys

import confluent_kafka
import pytest
from support.waiting import wait_until

from headrace.broker import EmbeddedCluster, ProcessCluster
from headrace.broker.requests.faults import Fault
from headrace.network.protocol.api import ApiKey
from headrace.network.protocol.errors import (
    IllegalArgumentError,
    IllegalStateError,
    InvalidConfigurationError,
    InvalidRequestError,
    KafkaTimeoutError,
    ProducerClosedError,
    UnknownSubscriptionIdError,
    UnsupportedVersionError,
)
from headrace.producer import KafkaProducer

TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
SENT = "org.apache.kafka.producer.record.send.total"


@pytest.mark.parametrize("kind", [EmbeddedCluster, ProcessCluster])
def test_a_cluster_receives_what_it_has_subscribed_to(kind: type[EmbeddedCluster | ProcessCluster]) -> None:
    with kind(2) as cluster:
        cluster.telemetry.subscribe(metrics=["org.apache.kafka.producer."], interval_ms=100)
        cluster.create_topic("t", 2)
        with KafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, client_rack="r1", enable_metrics_push=True
        ) as producer:
            instance_id = producer.client_instance_id(30)
            assert producer.client_instance_id(0) == instance_id
            for number in range(6):
                producer.send("t", b"%d" % number, partition=number % 2).get(30)
            wait_until(lambda: len(cluster.telemetry.pushes) >= 2)
        pushes = cluster.telemetry.pushes
        assert {push.client_instance_id for push in pushes} == {instance_id}
        assert {push.software_name for push in pushes} == {"headrace"}
        assert [push.terminating for push in pushes] == [False] * (len(pushes) - 1) + [True]
        assert {tuple(push.resource().items()) for push in pushes} == {(("client_rack", "r1"),)}
        assert sum(point.value for push in pushes for point in push.metrics() if point.name == SENT) == 6
        nodes = {point.labels["node_id"] for point in pushes[-1].metrics() if "node_id" in point.labels}
        assert nodes == {"node-1", "node-2"}


def test_a_cluster_without_subscriptions_is_not_asked() -> None:
    with EmbeddedCluster() as cluster, KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("t", b"v").get(30)
        with pytest.raises(UnsupportedVersionError, match="serves no client telemetry"):
            producer.client_instance_id(30)
        assert not TELEMETRY & {request.api_key for request in cluster.requests}


def test_a_producer_that_may_not_push_does_not_ask() -> None:
    with EmbeddedCluster() as cluster:
        cluster.telemetry.subscribe(interval_ms=100)
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, enable_metrics_push=False) as producer:
            producer.send("t", b"v").get(30)
            with pytest.raises(IllegalStateError, match=r"enable\.metrics\.push=false"):
                producer.client_instance_id(30)
        assert not TELEMETRY & {request.api_key for request in cluster.requests}


def test_an_idle_producer_pushes_too() -> None:
    with EmbeddedCluster() as cluster:
        cluster.telemetry.subscribe(interval_ms=100)
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers):
            wait_until(lambda: cluster.telemetry.pushes)


def test_a_rejected_push_is_repeated_with_what_it_had() -> None:
    with EmbeddedCluster() as cluster:
        cluster.telemetry.subscribe(interval_ms=100)
        fault = cluster.inject(ApiKey.PUSH_TELEMETRY, Fault(error=UnknownSubscriptionIdError), times=2)
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("t", b"v").get(30)
            wait_until(lambda: cluster.telemetry.pushes)
        assert fault.hits == 2
        sent = [point.value for push in cluster.telemetry.pushes for point in push.metrics() if point.name == SENT]
        assert sum(sent) == 1


def test_a_broker_that_goes_away_is_replaced() -> None:
    with EmbeddedCluster(brokers=2) as cluster:
        cluster.telemetry.subscribe(interval_ms=100)
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            instance_id = producer.client_instance_id(30)
            wait_until(lambda: cluster.telemetry.pushes)
            gone = cluster.telemetry.pushes[0].node_id
            cluster.stop_broker(gone)
            wait_until(lambda: cluster.telemetry.pushes)
            (push, *_) = cluster.telemetry.pushes
            assert (push.node_id, push.client_instance_id) == (3 - gone, instance_id)


def test_an_older_release_serves_none() -> None:
    with EmbeddedCluster() as cluster:
        cluster.telemetry.subscribe(interval_ms=100)
        cluster.act_as("3.6")
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("t", b"v").get(30)
            with pytest.raises(UnsupportedVersionError):
                producer.client_instance_id(30)


def test_the_id_of_a_producer_without_brokers() -> None:
    producer = KafkaProducer(bootstrap_servers="127.0.0.1:1")
    with pytest.raises(KafkaTimeoutError, match=r"no broker assigned a client instance id within 0\.01 s"):
        producer.client_instance_id(0.01)
    for wrong in (-1, True, "1", float("nan"), None):
        with pytest.raises(IllegalArgumentError, match="a timeout is a number of seconds"):
            producer.client_instance_id(wrong)  # type: ignore[arg-type]
    producer.close(0)
    with pytest.raises(ProducerClosedError):
        producer.client_instance_id(1)


def test_the_id_is_not_awaited_in_a_callback() -> None:
    with EmbeddedCluster() as cluster, KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        errors = []

        def callback(metadata: object, exception: object) -> None:
            try:
                producer.client_instance_id(30)
            except Exception as error:
                errors.append(error)

        producer.send("t", b"v", callback=callback)
        producer.flush()
        wait_until(lambda: errors)
        assert isinstance(errors[0], IllegalStateError)


def test_subscriptions_that_make_no_sense() -> None:
    with EmbeddedCluster() as cluster:
        with pytest.raises(InvalidRequestError, match=r"interval\.ms"):
            cluster.telemetry.subscribe(interval_ms=99)
        for match in ("client_id", "client_id=", "client=1", "client_id=("):
            with pytest.raises(InvalidConfigurationError):
                cluster.telemetry.subscribe(match=[match])
        assert cluster.telemetry.subscriptions == {}
        cluster.telemetry.unsubscribe("unknown")


def test_librdkafka_pushes_to_an_embedded_cluster() -> None:
    with EmbeddedCluster() as cluster:
        cluster.telemetry.subscribe(interval_ms=100)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "rd", "log_level": 0}
        )
        producer.produce("t", b"v")
        producer.flush(30)
        wait_until(lambda: cluster.telemetry.pushes)
        del producer
        wait_until(lambda: cluster.telemetry.pushes[-1].terminating)
        pushes = cluster.telemetry.pushes
        assert {(push.client_id, push.software_name) for push in pushes} == {("rd", "confluent-kafka-python")}
        assert "org.apache.kafka.producer.node.request.latency.avg" in {point.name for point in pushes[0].metrics()}


PROGRAM = """
import logging, sys, threading
logging.basicConfig(format="%(levelname)s %(message)s")
{block}
from headrace.broker import EmbeddedCluster
from headrace.producer import KafkaProducer
with EmbeddedCluster() as cluster:
    {subscribe}
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers{option})
    producer.send("t", b"v").get(30)
    {then}
    producer.close()
"""
BLOCK = "sys.modules['opentelemetry'] = None"
SUBSCRIBE = "cluster.telemetry.subscribe(interval_ms=100)"
WAIT = """
    reporter = producer._engine.telemetry._reporter
    while reporter.state.name != "ENDED": threading.Event().wait(0.01)"""


def run(**parts: str) -> str:
    """What a program logs."""
    program = PROGRAM.format(**{"block": "", "subscribe": "", "option": "", "then": "", **parts})
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stderr


def test_without_the_library_a_program_is_warned_once_if_it_matters() -> None:
    assert run(block=BLOCK) == ""
    asked = run(block=BLOCK, subscribe=SUBSCRIBE, then=WAIT)
    assert asked.startswith("WARNING a broker asks for this producer's metrics (KIP-714), but opentelemetry-proto")
    assert "pip install 'headrace[telemetry]'" in asked
    assert asked.count("\n") == 1
    chosen = run(block=BLOCK, subscribe=SUBSCRIBE, then=WAIT, option=", enable_metrics_push=True")
    assert chosen.startswith("WARNING enable.metrics.push=true lets brokers ask")
    assert chosen.count("\n") == 1
    assert run(block=BLOCK, subscribe=SUBSCRIBE, option=", enable_metrics_push=False") == ""


def test_a_producer_that_is_not_closed_pushes_no_less_at_exit() -> None:
    """Where no thread can be started any longer, the sender thread encodes."""
    program = f"""
import atexit, sys
from headrace.broker import EmbeddedCluster
cluster = EmbeddedCluster()
cluster.start()
{SUBSCRIBE}
def report():
    print([push.terminating for push in cluster.telemetry.pushes][-1])
    cluster.close()
atexit.register(report)
from headrace.producer import KafkaProducer
producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
producer.send("t", b"v").get(30)
import threading
while not cluster.telemetry.pushes: threading.Event().wait(0.01)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={**os.environ}
    )
    assert (done.stdout, done.stderr) == ("True\n", "")
