"""Topics named by an enum's members: every entrance takes them for the text that they are."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from headrace.broker import EmbeddedCluster
from headrace.network.protocol.errors import InvalidTopicError
from headrace.producer import AsyncKafkaProducer, KafkaProducer, ProducerRecord


class Topic(str, enum.Enum):
    """str(Topic.ORDERS) is "Topic.ORDERS"; its text is "orders"."""

    ORDERS = "orders"


class Wrong(str, enum.Enum):
    SPACES = "no spaces"


class Seen:
    """A partitioner and a serializer that note the topics they see."""

    def __init__(self) -> None:
        self.topics: set[Any] = set()

    def partition(self, topic: str, *_record: Any) -> int:
        self.topics.add((type(topic), topic))
        return 0

    def serialize(self, topic: str, _headers: Any, data: Any) -> bytes:
        self.topics.add((type(topic), topic))
        return data.encode()


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        cluster.create_topic(Topic.ORDERS)
        yield cluster


def values(cluster: EmbeddedCluster) -> list[bytes | None]:
    return sorted(record.value for record in cluster.records("orders", 0))


@pytest.mark.parametrize("warm", [False, True], ids=["unknown before", "known"])
def test_every_call_of_a_producer(cluster: EmbeddedCluster, warm: bool) -> None:
    seen = Seen()
    with KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, partitioner=seen.partition, value_serializer=seen.serialize
    ) as producer:
        if warm:
            assert producer.partitions_for(Topic.ORDERS) == {0}
        futures = [producer.send(Topic.ORDERS, "1"), producer.send(ProducerRecord(Topic.ORDERS, "2"))]
        assert [future.get(30).topic for future in futures] == ["orders", "orders"]
        producer.send_many(Topic.ORDERS, ["3"]).get(30)
        producer.send_arrow(Topic.ORDERS, pa.table({"value": ["4"]})).get(30)
    assert seen.topics == {(str, "orders")}
    assert values(cluster) == [b"1", b"2", b"3", b"4"]


def test_every_call_of_an_asynchronous_producer(cluster: EmbeddedCluster) -> None:
    async def send() -> None:
        async with AsyncKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            assert await producer.partitions_for(Topic.ORDERS) == {0}
            await producer.send_and_wait(Topic.ORDERS, b"1")
            await (await producer.send(Topic.ORDERS, b"2"))
            await producer.send_many(Topic.ORDERS, [b"3"])

    asyncio.run(send())
    assert values(cluster) == [b"1", b"2", b"3"]


def test_a_topic_that_no_cluster_can_have_is_named_by_its_text(cluster: EmbeddedCluster) -> None:
    with (
        KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer,
        pytest.raises(InvalidTopicError, match=r"^'no spaces' can't be the name of a topic"),
    ):
        producer.send(Wrong.SPACES, b"1")
