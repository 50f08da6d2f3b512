"""Programs written for aiokafka: each runs with aiokafka's producer and with this one, with the same outcome."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import aiokafka
import pytest

from headrace.broker import EmbeddedCluster
from headrace.producer import AsyncKafkaProducer

PATIENCE_S = 60


@pytest.fixture(params=[aiokafka.AIOKafkaProducer, AsyncKafkaProducer], ids=["aiokafka", "headrace"])
def producer_class(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(num_partitions=2) as cluster:
        yield cluster


def run(program: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(program(), PATIENCE_S))


def test_a_program_sends_waits_and_stops(producer_class: Any, cluster: EmbeddedCluster) -> None:
    async def program() -> list[tuple[int, int, int]]:
        producer = producer_class(
            bootstrap_servers=cluster.bootstrap_servers,
            acks="all",
            enable_idempotence=True,
            compression_type="gzip",
            max_batch_size=20_000,
            linger_ms=2,
            request_timeout_ms=30_000,
            key_serializer=str.encode,
            value_serializer=lambda value: value.upper().encode(),
        )
        await producer.start()
        try:
            assert await producer.partitions_for("t") == {0, 1}
            future = await producer.send("t", "a", key="k", timestamp_ms=5, headers=[("h", b"1")])
            metadata = await future
            again = await producer.send_and_wait("t", "b", key="k")
            await producer.flush()
            done, pending = await asyncio.wait([await producer.send("t", "c", key="z", partition=1)])
            assert (len(done), len(pending)) == (1, 0)
            return [(metadata.partition, metadata.offset, metadata.timestamp), (again.partition, again.offset, 0)]
        finally:
            await producer.stop()
            await producer.stop()

    (partition, first, timestamp), (same, second, _) = run(program)
    assert (same, first, second, timestamp) == (partition, 0, 1, 5)
    records = cluster.records("t", partition)[:2]
    assert [(each.key, each.value, list(each.headers)) for each in records] == [
        (b"k", b"A", [("h", b"1")]),
        (b"k", b"B", []),
    ]


def test_a_program_fills_batches_itself(producer_class: Any, cluster: EmbeddedCluster) -> None:
    async def program() -> int:
        async with producer_class(bootstrap_servers=cluster.bootstrap_servers, max_batch_size=1000) as producer:
            batch = producer.create_batch()
            while batch.append(key=b"k", value=b"v" * 50, timestamp=None) is not None:
                pass
            count = batch.record_count()
            batch.close()
            future = await producer.send_batch(batch, "t", partition=1)
            metadata = await future
            assert (metadata.topic, metadata.partition, metadata.offset) == ("t", 1, 0)
            return count

    count = run(program)
    assert count > 10
    assert [record.value for record in cluster.records("t", 1)] == [b"v" * 50] * count


def test_a_program_is_cancelled(producer_class: Any, cluster: EmbeddedCluster) -> None:
    async def program() -> None:
        async with producer_class(bootstrap_servers=cluster.bootstrap_servers) as producer:
            future = await producer.send("t", b"x", partition=0)
            future.cancel()
            with pytest.raises(asyncio.CancelledError):
                await future

    run(program)
    assert [record.value for record in cluster.records("t", 0)] == [b"x"]


@pytest.mark.parametrize(
    "method", ["start", "stop", "flush", "send", "send_and_wait", "partitions_for", "create_batch", "send_batch"]
)
def test_methods_take_aiokafkas_arguments_in_aiokafkas_order(method: str) -> None:
    theirs = inspect.signature(getattr(aiokafka.AIOKafkaProducer, method)).parameters
    ours = inspect.signature(getattr(AsyncKafkaProducer, method)).parameters
    assert list(ours)[: len(theirs)] == list(theirs)
    assert inspect.iscoroutinefunction(getattr(AsyncKafkaProducer, method)) == inspect.iscoroutinefunction(
        getattr(aiokafka.AIOKafkaProducer, method)
    )
    for name in list(ours)[len(theirs) :]:
        assert ours[name].default is not inspect.Parameter.empty


def test_the_constructor_takes_aiokafkas_arguments_with_its_defaults() -> None:
    parameters = inspect.signature(aiokafka.AIOKafkaProducer.__init__).parameters
    given = {
        name: each.default
        for name, each in parameters.items()
        if name not in {"self", "acks", "partitioner", "bootstrap_servers"} and not name.startswith("sasl_")
    }

    async def program() -> None:
        producer = AsyncKafkaProducer(bootstrap_servers="localhost", **given)
        assert producer.config["batch.size"] == given["max_batch_size"]
        await producer.stop()

    run(program)


def test_a_program_with_transactions(producer_class: Any, cluster: EmbeddedCluster) -> None:
    async def send_and_fail(producer: Any) -> None:
        async with producer.transaction():
            await producer.send_and_wait("t", b"aborted", partition=0)
            raise ZeroDivisionError

    async def program() -> list[bytes | None]:
        producer = producer_class(bootstrap_servers=cluster.bootstrap_servers, transactional_id="program")
        await producer.start()
        async with producer.transaction():
            await producer.send("t", b"committed", partition=0)
        with pytest.raises(ZeroDivisionError):
            await send_and_fail(producer)
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"by calls", partition=0)
        await producer.send_offsets_to_transaction({aiokafka.TopicPartition("t", 0): 1}, "group")
        await producer.commit_transaction()
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers, group_id="group", isolation_level="read_committed"
        )
        await consumer.start()
        place = aiokafka.TopicPartition("t", 0)
        consumer.assign([place])
        while await consumer.committed(place) is None:
            await asyncio.sleep(0.01)  # the marker is not written yet
        assert await consumer.committed(place) == 1
        await consumer.seek_to_beginning(place)
        values = [(await consumer.getone()).value for _ in range(2)]
        await consumer.stop()
        return values

    assert run(program) == [b"committed", b"by calls"]
