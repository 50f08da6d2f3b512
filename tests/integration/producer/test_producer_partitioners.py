"""A partitioner of the program chooses for every record that names no partition, whatever way the record takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from headrace.broker import EmbeddedCluster
from headrace.producer import AsyncKafkaProducer, KafkaProducer
from headrace.producer.partitioners import RoundRobinPartitioner

CHOSEN = 3
#: Small, the most that is certain to take the direct path, more than a batch, more than that even when compressed.
SIZES = (10, 16_000, 16_300, 100_000)


class Chooses:
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, Any]] = []

    def partition(self, topic: str, key: Any, key_bytes: Any, value: Any, value_bytes: Any, cluster: Any) -> int:
        assert (key_bytes, value_bytes) == (key.encode(), value.encode())
        self.asked.append((key, value))
        return CHOSEN


class TakesTurns(RoundRobinPartitioner):
    """A subclass, which the producer calls like any other partitioner."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(num_partitions=4) as cluster:
        yield cluster


def options(cluster: EmbeddedCluster, partitioner: Any, **others: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "partitioner": partitioner,
        "key_serializer": str.encode,
        "value_serializer": str.encode,
        **others,
    }


WAYS: dict[str, Callable[[KafkaProducer, str], list[int]]] = {
    "send": lambda producer, value: [producer.send("t", value, "k").get(30).partition],
    "send with headers": lambda producer, value: [
        producer.send("t", value, "k", headers=[("a", b"b")]).get(30).partition
    ],
    "send with an iterator of headers": lambda producer, value: [
        producer.send("t", value, "k", headers=iter([("a", b"b")])).get(30).partition
    ],
    "send with an empty set of headers": lambda producer, value: [
        producer.send("t", value, "k", headers=set()).get(30).partition  # type: ignore[arg-type]
    ],
    "send with a timestamp": lambda producer, value: [producer.send("t", value, "k", timestamp_ms=5).get(30).partition],
    "send_many": lambda producer, value: [
        each.partition for each in producer.send_many("t", [value], ["k"]).get(30).offsets
    ],
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", WAYS)
def test_it_is_asked_once_with_what_the_program_sent(cluster: EmbeddedCluster, way: str, size: int) -> None:
    chooses = Chooses()
    with KafkaProducer(**options(cluster, chooses)) as producer:
        producer.partitions_for("t")
        assert WAYS[way](producer, "x" * size) == [CHOSEN]
    assert chooses.asked == [("k", "x" * size)]


@pytest.mark.parametrize("batch_size", [0, 50])
def test_with_batches_that_have_room_for_one_record(cluster: EmbeddedCluster, batch_size: int) -> None:
    chooses = Chooses()
    with KafkaProducer(**options(cluster, chooses, batch_size=batch_size)) as producer:
        futures = [producer.send("t", str(number), "k") for number in range(20)]
        assert {future.get(30).partition for future in futures} == {CHOSEN}
    assert [value for _, value in chooses.asked] == [str(number) for number in range(20)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("partitioner", ["round_robin", RoundRobinPartitioner, TakesTurns])
def test_round_robin_takes_turns(cluster: EmbeddedCluster, partitioner: Any, size: int) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, partitioner=partitioner) as producer:
        assert [producer.send("t", bytes(size), b"k").get(30).partition for _ in range(8)] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_arrow_and_round_robin(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("arrow", num_partitions=4)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, partitioner="round_robin") as producer:
        producer.send_arrow("arrow", pa.table({"value": ["x" * 20_000] * 8})).get(30)
    assert [len(cluster.records("arrow", partition)) for partition in range(4)] == [2, 2, 2, 2]


@pytest.mark.parametrize("size", SIZES)
def test_of_an_asynchronous_producer(cluster: EmbeddedCluster, size: int) -> None:
    chooses = Chooses()

    async def send() -> list[int]:
        async with AsyncKafkaProducer(**options(cluster, chooses)) as producer:
            await producer.partitions_for("t")
            first = await producer.send_and_wait("t", "x" * size, "k")
            second = await (await producer.send("t", "x" * size, "k", headers=[("a", b"b")]))
            return [first.partition, second.partition]

    assert asyncio.run(send()) == [CHOSEN, CHOSEN]
    assert chooses.asked == [("k", "x" * size)] * 2
