"""Transactions of `AsyncKafkaProducer`, in both protocols, read by confluent-kafka's consumer with read_committed."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiokafka
import pyarrow as pa
import pytest
from support.confluent import PATIENCE_S, check_committed, committed_values, create_topic

from headrace.broker import EmbeddedCluster
from headrace.broker.requests.control import Fault
from headrace.network.protocol.api import ApiKey
from headrace.producer import AsyncKafkaProducer, KafkaProducer
from headrace.producer.errors import (
    CoordinatorLoadInProgressError,
    IllegalStateError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
)


@pytest.fixture(scope="module", params=[2, 1], ids=["tv2", "classic"])
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(features={"transaction.version": request.param}) as cluster:
        yield cluster


@pytest.fixture
def servers(cluster: EmbeddedCluster) -> Iterator[str]:
    yield cluster.bootstrap_servers
    cluster.control.clear()


@pytest.fixture
def topic(servers: str) -> str:
    return create_topic(servers, partitions=3)


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    return lambda coroutine: asyncio.run(asyncio.wait_for(coroutine, PATIENCE_S))


@asynccontextmanager
async def transactional(servers: str, **options: Any) -> AsyncIterator[AsyncKafkaProducer]:
    options = {"transactional_id": f"id-{uuid.uuid4().hex[:12]}", "retry_backoff_ms": 5, **options}
    async with AsyncKafkaProducer(bootstrap_servers=servers, **options) as producer:
        yield producer


def test_committed_records_are_read_and_aborted_ones_are_not(run: Any, servers: str, topic: str) -> None:
    async def main() -> None:
        async with transactional(servers) as producer:
            for number in range(4):
                await producer.begin_transaction()
                futures = [await producer.send(topic, b"%d-%d" % (number, each)) for each in range(20)]
                if number % 2:
                    await futures[0]
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
                    # a commit waits for every record
                    assert [metadata.topic for metadata in await asyncio.gather(*futures)] == [topic] * 20

    run(main())
    expected = sorted(b"%d-%d" % (number, each) for number in (0, 2) for each in range(20))
    check_committed(servers, topic, expected)


def test_the_block_commits_and_aborts_after_an_exception(run: Any, servers: str, topic: str) -> None:
    async def main() -> None:
        async with transactional(servers) as producer:
            async with producer.transaction():
                await producer.send(topic, b"kept")
            with pytest.raises(ZeroDivisionError):
                await send_and_fail(producer)
            async with producer.transaction():
                await (await producer.send_many(topic, [b"many"]))
                await (await producer.send_arrow(topic, pa.table({"value": ["arrow"]})))
                await (await producer.send_batch(batch_of(producer, b"batch"), topic, partition=1))

    async def send_and_fail(producer: AsyncKafkaProducer) -> None:
        async with producer.transaction():
            await producer.send(topic, b"dropped")
            raise ZeroDivisionError

    def batch_of(producer: AsyncKafkaProducer, value: bytes) -> Any:
        batch = producer.create_batch()
        batch.append(key=None, value=value, timestamp=None)
        return batch

    run(main())
    check_committed(servers, topic, [b"arrow", b"batch", b"kept", b"many"])


def test_a_cancelled_task_aborts_its_block(run: Any, servers: str, topic: str) -> None:
    async def main() -> None:
        async with transactional(servers) as producer:
            is_sent = asyncio.Event()

            async def work() -> None:
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"dropped")
                    is_sent.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await is_sent.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with producer.transaction():
                await producer.send(topic, b"kept")

    run(main())
    check_committed(servers, topic, [b"kept"])


def test_a_cancelled_commit_continues_and_may_be_repeated(
    run: Any, cluster: EmbeddedCluster, servers: str, topic: str
) -> None:
    async def main() -> None:
        async with transactional(servers) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"kept")
            cluster.control.fault(ApiKey.END_TXN, Fault(error=CoordinatorLoadInProgressError), times=None)
            commit = asyncio.create_task(producer.commit_transaction())
            await asyncio.sleep(0.05)
            commit.cancel()
            with pytest.raises(asyncio.CancelledError):
                await commit
            with pytest.raises(IllegalStateError, match="call commit_transaction again first"):
                await producer.begin_transaction()
            cluster.control.clear()
            await producer.commit_transaction()
            async with producer.transaction():
                await producer.send(topic, b"next")

    run(main())
    check_committed(servers, topic, [b"kept", b"next"])


def test_a_commit_that_times_out_leaves_the_loop_free(
    run: Any, cluster: EmbeddedCluster, servers: str, topic: str
) -> None:
    async def main() -> None:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0.01)
                turns += 1

        async with transactional(servers, max_block_ms=500) as producer:
            counter = asyncio.create_task(count())
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"kept")
            cluster.control.fault(ApiKey.END_TXN, Fault(error=CoordinatorLoadInProgressError), times=None)
            turns = 0
            with pytest.raises(KafkaTimeoutError, match="call commit_transaction again to wait for it"):
                await producer.commit_transaction()
            assert turns > 5
            cluster.control.clear()
            await producer.commit_transaction()
            counter.cancel()

    run(main())
    check_committed(servers, topic, [b"kept"])


def test_a_record_that_fails_makes_the_transaction_abortable(run: Any, servers: str, cluster: EmbeddedCluster) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, 1, configs={"max.message.bytes": "1000"})

    async def send_both(producer: AsyncKafkaProducer, futures: list[Any]) -> None:
        async with producer.transaction():
            for value in (b"dropped", b"x" * 5000):
                futures.append(await producer.send(topic, value))

    async def main() -> None:
        async with transactional(servers) as producer:
            futures: list[Any] = []
            with pytest.raises(TransactionAbortableError) as raised:
                await send_both(producer, futures)
            assert isinstance(raised.value.__cause__, (MessageSizeTooLargeError, TransactionAbortableError))
            with pytest.raises((MessageSizeTooLargeError, TransactionAbortedError)):
                await futures[1]
            async with producer.transaction():
                await producer.send(topic, b"kept")

    run(main())
    check_committed(servers, topic, [b"kept"])


def test_offsets_of_aiokafkas_consumer_are_part_of_the_transaction(run: Any, servers: str, topic: str) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"

    async def main() -> None:
        async with transactional(servers) as producer:
            async with producer.transaction():
                for number in range(5):
                    await producer.send(topic, b"%d" % number, partition=0)
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=servers, group_id=group, enable_auto_commit=False, isolation_level="read_committed"
            )
            await consumer.start()
            try:
                place = aiokafka.TopicPartition(topic, 0)
                consumer.assign([place])
                await producer.begin_transaction()
                await producer.send_offsets_to_transaction({place: 3}, group)
                await producer.abort_transaction()
                assert await consumer.committed(place) is None
                async with producer.transaction():
                    await producer.send_offsets_to_transaction({place: 4}, group)
                    await producer.send_offsets_to_transaction({}, group)
                # the commit is decided, but the group may not have its marker yet
                while await consumer.committed(place) is None:
                    await asyncio.sleep(0.01)
                assert await consumer.committed(place) == 4
            finally:
                await consumer.stop()

    run(main())


def test_a_second_producer_with_the_id_fences_the_first(run: Any, servers: str, topic: str) -> None:
    async def main() -> None:
        async with transactional(servers, transactional_id=f"fenced-{topic}") as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"of the first")
            async with transactional(servers, transactional_id=f"fenced-{topic}") as second:
                async with second.transaction():
                    await second.send(topic, b"of the second")
                with pytest.raises(ProducerFencedError):
                    await producer.commit_transaction()

    run(main())
    check_committed(servers, topic, [b"of the second"])


def test_calls_in_the_wrong_state_say_what_to_call(run: Any, servers: str, topic: str) -> None:
    async def main() -> None:
        producer = AsyncKafkaProducer(bootstrap_servers=servers, transactional_id=f"states-{topic}")
        with pytest.raises(IllegalStateError, match="start, if it is an AsyncKafkaProducer"):
            await producer.begin_transaction()
        await producer.start()
        await producer.start()
        for send in (producer.send, producer.send_and_wait):
            with pytest.raises(IllegalStateError, match="call begin_transaction first"):
                await send(topic, b"outside")
        with pytest.raises(IllegalStateError, match="call begin_transaction first"):
            await producer.send_many(topic, [b"outside"])
        batch = producer.create_batch()
        batch.append(key=None, value=b"outside", timestamp=None)
        with pytest.raises(IllegalStateError, match="call begin_transaction first"):
            await producer.send_batch(batch, topic, partition=0)
        with pytest.raises(IllegalStateError, match="call begin_transaction first"):
            await producer.commit_transaction()
        await producer.stop()
        async with AsyncKafkaProducer(bootstrap_servers=servers) as plain:
            for call in (plain.begin_transaction, plain.commit_transaction, plain.abort_transaction):
                with pytest.raises(IllegalStateError, match=r"set transactional\.id"):
                    await call()

    run(main())
    check_committed(servers, topic, [])


def test_stopping_aborts_an_open_transaction(run: Any, servers: str, topic: str) -> None:
    async def main() -> None:
        async with transactional(servers) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"dropped")

    run(main())
    with KafkaProducer(bootstrap_servers=servers) as producer:
        producer.send(topic, b"plain")
    check_committed(servers, topic, [b"plain"])


def test_tasks_that_send_at_once_belong_to_one_transaction(run: Any, servers: str, topic: str) -> None:
    async def main() -> None:
        # a buffer of a few batches, so that most sends wait for memory
        async with transactional(servers, buffer_memory=100_000, batch_size=1000) as producer, producer.transaction():
            await asyncio.gather(*(producer.send(topic, b"%04d" % number + b"x" * 500) for number in range(1000)))

    run(main())
    assert [value[:4] for value in committed_values(servers, topic)] == [b"%04d" % number for number in range(1000)]
