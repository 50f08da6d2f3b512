"""Tests of code that uses Kafka, against a broker in the test process: no Docker, no JVM.

    pytest examples/test_with_kafka.py

The fixtures `kafka_cluster`, `kafka_topic` and `kafka_clock` come with Headrace (docs/testing.md). The code under test
may use any Kafka client; here it uses Headrace's producer and confluent-kafka's consumer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

from headrace.broker import ApiKey, Fault
from headrace.producer import KafkaProducer
from headrace.producer.errors import DeliveryTimeoutError, NotEnoughReplicasError

# --- The code under test ---


class Orders:
    """Writes orders to Kafka, keyed by customer, so that each customer's orders stay in sequence."""

    def __init__(self, bootstrap_servers: str, topic: str, **config: Any) -> None:
        self._topic = topic
        self._producer = KafkaProducer(bootstrap_servers=bootstrap_servers, value_serializer="json", **config)

    def place(self, customer: str, item: str) -> int:
        """Write an order and wait until Kafka has acknowledged it. Returns its offset."""
        future = self._producer.send(self._topic, {"item": item}, key=customer.encode())
        return future.get(timeout=30).offset

    def close(self) -> None:
        self._producer.close()


def joined(bootstrap_servers: str, topic: str, **config: str) -> confluent_kafka.Consumer:
    """A consumer that is a member of the group `shipping` and has its partitions."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "shipping",
            "auto.offset.reset": "earliest",
            "log_level": 0,
            **config,
        }
    )
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()))
    return consumer


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it didn't happen"
        time.sleep(0.01)


# --- The tests ---


@pytest.fixture
def orders(kafka_cluster, kafka_topic):
    orders = Orders(kafka_cluster.bootstrap_servers, kafka_topic)
    yield orders
    orders.close()


def test_an_order_is_in_the_topic(orders, kafka_cluster, kafka_topic):
    assert orders.place("ada", "lamp") == 0
    (record,) = kafka_cluster.records(kafka_topic, 0)
    assert (record.key, json.loads(record.value)) == (b"ada", {"item": "lamp"})


@pytest.mark.kafka(topic_partitions=4)
def test_orders_of_a_customer_are_in_one_partition(orders, kafka_cluster, kafka_topic):
    for number in range(20):
        orders.place("ada", f"lamp {number}")
    counts = [len(kafka_cluster.records(kafka_topic, partition)) for partition in range(4)]
    assert sorted(counts) == [0, 0, 0, 20]


def test_a_lost_answer_places_no_order_twice(orders, kafka_cluster, kafka_topic):
    lost = kafka_cluster.inject(ApiKey.PRODUCE, Fault(lose_answer=True), times=2)
    orders.place("ada", "lamp")
    assert lost.hits == 2
    assert len(kafka_cluster.records(kafka_topic, 0)) == 1


def test_who_orders_is_told_when_kafka_can_not_take_it(kafka_cluster, kafka_topic):
    orders = Orders(
        kafka_cluster.bootstrap_servers, kafka_topic, delivery_timeout_ms=300, request_timeout_ms=200, linger_ms=0
    )
    kafka_cluster.inject(ApiKey.PRODUCE, Fault(error=NotEnoughReplicasError), times=None)
    with pytest.raises(DeliveryTimeoutError):
        orders.place("ada", "lamp")
    orders.close()
    assert kafka_cluster.records(kafka_topic, 0) == []


@pytest.mark.kafka(brokers=3, config={"min.insync.replicas": 2})
def test_no_order_is_lost_with_a_broker(orders, kafka_cluster, kafka_topic):
    orders.place("ada", "lamp")
    kafka_cluster.kill_broker(kafka_cluster.leader_of(kafka_topic, 0))
    orders.place("ada", "shade")
    items = [json.loads(record.value)["item"] for record in kafka_cluster.records(kafka_topic, 0)]
    assert items == ["lamp", "shade"]


def test_a_broker_of_old(kafka_cluster, kafka_topic):
    kafka_cluster.act_as("2.8")
    orders = Orders(kafka_cluster.bootstrap_servers, kafka_topic)
    assert orders.place("ada", "lamp") == 0
    orders.close()
    assert {seen.api_version for seen in kafka_cluster.requests if seen.api_key == ApiKey.PRODUCE} == {9}


def test_shipping_that_hangs_leaves_its_group_after_a_while(orders, kafka_cluster, kafka_topic, kafka_clock):
    orders.place("ada", "lamp")
    # A static member doesn't leave its group when it closes: it may return before its session expires.
    consumer = joined(
        kafka_cluster.bootstrap_servers, kafka_topic, **{"group.instance.id": "one", "session.timeout.ms": "45000"}
    )
    consumer.close()
    group = kafka_cluster.group("shipping")
    kafka_clock.advance(40_000)
    assert len(group.members) == 1
    kafka_clock.advance(10_000)
    wait_until(lambda: len(group.members) == 0)


@pytest.mark.kafka(topic_config={"retention.ms": 86_400_000})
def test_orders_are_kept_for_a_day(orders, kafka_cluster, kafka_topic, kafka_clock):
    orders.place("ada", "lamp")
    kafka_clock.advance(23 * 3_600_000)
    assert len(kafka_cluster.records(kafka_topic, 0)) == 1
    kafka_clock.advance(2 * 3_600_000)
    wait_until(lambda: kafka_cluster.records(kafka_topic, 0) == [])
