"""`AsyncKafkaProducer` on real sockets: sending, waiting without blocking the loop, cancelling, closing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa
import pytest
from support.waiting import wait_until

from headrace.broker import EmbeddedCluster
from headrace.broker.requests.control import Fault
from headrace.network.protocol import errors
from headrace.network.protocol.api import ApiKey
from headrace.producer import AsyncKafkaProducer, ProducerRecord, RecordMetadata

PATIENCE_S = 60


def uvloop_loop() -> asyncio.AbstractEventLoop:
    uvloop = pytest.importorskip("uvloop")
    return uvloop.new_event_loop()


@pytest.fixture(params=[asyncio.new_event_loop, uvloop_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """Runs a coroutine on an event loop of each kind."""
    loop = request.param()
    yield lambda coroutine: loop.run_until_complete(asyncio.wait_for(coroutine, PATIENCE_S))
    loop.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(num_partitions=1, log_retention_ms=-1) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"t-{abs(hash(request.node.name))}"
    cluster.create_topic(name, 1)
    yield name
    cluster.control.clear()


@asynccontextmanager
async def producer_of(cluster: EmbeddedCluster, **options: Any) -> AsyncIterator[AsyncKafkaProducer]:
    options = {"retry_backoff_ms": 5, "reconnect_backoff_ms": 5, **options}
    async with AsyncKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **options) as producer:
        yield producer


def values_in(cluster: EmbeddedCluster, topic: str) -> list[bytes]:
    return [record.value for record in cluster.records(topic, 0)]


@pytest.fixture
def produce_blocked(cluster: EmbeddedCluster) -> Iterator[threading.Event]:
    """Brokers hold every produce request until the event is set."""
    gate = threading.Event()
    registration = cluster.control.add(ApiKey.PRODUCE, lambda context, request: gate.wait(PATIENCE_S) and None)
    yield gate
    gate.set()
    registration.remove()


# --- Sending ---


def test_a_first_program(run: Any, cluster: EmbeddedCluster, topic: str) -> None:
    async def main() -> RecordMetadata:
        async with producer_of(cluster) as producer:
            assert repr(producer).endswith(", open>")
            future = await producer.send(topic, b"hello", b"world", 0, 77, [("h", b"1")])
            metadata = await future
            assert await future is metadata
        assert producer.closed
        return metadata

    metadata = run(main())
    (record,) = cluster.records(topic, 0)
    assert (record.key, record.value, list(record.headers), record.timestamp) == (b"world", b"hello", [("h", b"1")], 77)
    assert (metadata.topic, metadata.partition, metadata.offset, metadata.timestamp) == (topic, 0, 0, 77)


def test_records_keep_the_order_in_which_they_are_sent(run: Any, cluster: EmbeddedCluster, topic: str) -> None:
    async def main() -> None:
        async with producer_of(cluster) as producer:
            for number in range(5000):
                await producer.send(topic, b"%d" % number)

    run(main())
    assert values_in(cluster, topic) == [b"%d" % number for number in range(5000)]


def test_a_hundred_thousand_awaits_at_once(run: Any, cluster: EmbeddedCluster, topic: str) -> None:
    count = 100_000

    async def main() -> None:
        async with producer_of(cluster, buffer_memory=4_000_000) as producer:
            sent = await asyncio.gather(*(producer.send_and_wait(topic, b"%d" % number) for number in range(count)))
            assert sorted(metadata.offset for metadata in sent) == list(range(count))

    run(main())
    assert sorted(values_in(cluster, topic)) == sorted(b"%d" % number for number in range(count))


def test_a_gather_that_waits_for_memory_keeps_its_order(run: Any, cluster: EmbeddedCluster, topic: str) -> None:
    count = 20_000

    async def main() -> None:
        async with producer_of(cluster, buffer_memory=200_000) as producer:
            # the topic is known, and batches have room, until memory is short
            await producer.send_and_wait(topic, b"first")
            sent = await asyncio.gather(*(producer.send_and_wait(topic, b"%d" % number) for number in range(count)))
            assert [metadata.offset for metadata in sent] == list(range(1, count + 1))

    run(main())
    assert values_in(cluster, topic)[1:] == [b"%d" % number for number in range(count)]


def test_send_and_wait_begins_in_the_order_of_tasks(run: Any, cluster: EmbeddedCluster, topic: str) -> None:
    async def main() -> None:
        async with producer_of(cluster) as producer:
            await producer.send_and_wait(topic, b"0")
            first = asyncio.create_task(producer.send_and_wait(topic, b"1"))
            second = asyncio.gather(producer.send_and_wait(topic, b"2"), producer.send_and_wait(topic, b"3"))
            third = asyncio.create_task(producer.send_and_wait(topic, b"4"))
            await asyncio.gather(first, second, third)

    run(main())
    assert values_in(cluster, topic) == [b"0", b"1", b"2", b"3", b"4"]


def test_send_and_wait_may_be_called_where_its_loop_does_not_run(cluster: EmbeddedCluster, topic: str) -> None:
    loop = asyncio.new_event_loop()
    producer = AsyncKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    for number in range(2):
        # the second time, the producer knows the loop
        assert loop.run_until_complete(producer.send_and_wait(topic, b"x")).offset == number
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def from_another_loop() -> RecordMetadata:
        await producer.send_and_wait(topic, b"x")
        there = asyncio.run_coroutine_threadsafe(producer.send_and_wait(topic, b"x"), loop)
        return await asyncio.wait_for(asyncio.wrap_future(there), PATIENCE_S)

    assert asyncio.run_coroutine_threadsafe(producer.send_and_wait(topic, b"x"), loop).result(PATIENCE_S).offset == 2
    assert asyncio.run(from_another_loop()).offset == 4
    assert asyncio.run_coroutine_threadsafe(producer.send_and_wait(topic, b"x"), loop).result(PATIENCE_S).offset == 5
    asyncio.run_coroutine_threadsafe(producer.stop(), loop).result(PATIENCE_S)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_a_whole_record_is_sent_and_nothing_beside_it(run: Any, cluster: EmbeddedCluster, topic: str) -> None:
    async def main() -> None:
        async with producer_of(cluster) as producer:
            await producer.send_and_wait(ProducerRecord(topic, b"v", b"k", [("h", b"1")], 0, 5))
            with pytest.raises(errors.IllegalArgumentError, match="no further arguments"):
                await producer.send(ProducerRecord(topic, b"v"), b"x")

    run(main())
    (record,) = cluster.records(topic, 0)
    assert (record.key, record.value, list(record.headers), record.timestamp) == (b"k", b"v", [("h", b"1")], 5)


def test_lists_and_tables_and_aiokafkas_batches(run: Any, cluster: EmbeddedCluster, topic: str) -> None:
    async def main() -> None:
        async with producer_of(cluster, max_batch_size=200) as producer:
            assert (await (await producer.send_many(topic, [b"0", b"1"]))).rows == 2
            assert (await (await producer.send_arrow(topic, pa.table({"value": ["2", "3"]})))).rows == 2
            batch = producer.create_batch()
            first = batch.append(timestamp=5, key=None, value=b"4")
            assert first is not None
            assert (first.offset, first.timestamp, batch.record_count()) == (0, 5, 1)
            while batch.append(timestamp=None, key=b"k", value=b"5", headers=[("h", b"1")]) is not None:
                assert batch.size() <= 200
            assert batch.append(value=b"6") is None
            metadata = await (await producer.send_batch(batch, topic, partition=0))
            assert (metadata.topic, metadata.partition, metadata.offset) == (topic, 0, 4)
            large = producer.create_batch()
            assert large.append(value=b"x" * 300) is not None, "a first record may be larger"
            with pytest.raises(errors.IllegalArgumentError, match="no records"):
                await producer.send_batch(producer.create_batch(), topic, partition=0)

    run(main())
    values = values_in(cluster, topic)
    assert values[:5] == [b"0", b"1", b"2", b"3", b"4"]
    assert set(values[5:]) == {b"5"}
    assert cluster.records(topic, 0)[4].timestamp == 5


def test_partitions_and_metrics_and_abort(run: Any, cluster: EmbeddedCluster, topic: str) -> None:
    async def main() -> None:
        async with producer_of(cluster, linger_ms=50_000) as producer:
            assert await producer.partitions_for(topic) == {0}
            dropped = await producer.send(topic, b"dropped")
            await producer.abort()
            with pytest.raises(errors.RecordAbortedError):
                await dropped
            kept = await producer.send(topic, b"kept")
            await producer.flush()
            assert kept.done()
            assert producer.metrics()["producer-metrics"]["record-send-total"] >= 1

    run(main())
    assert values_in(cluster, topic) == [b"kept"]


# --- Plugins ---


def test_async_and_plain_serializers(run: Any, cluster: EmbeddedCluster, topic: str) -> None:
    async def upper(value: str) -> bytes:
        await asyncio.sleep(0)
        return value.upper().encode()

    class WithTopic:
        async def serialize(self, topic: str, headers: Any, data: Any) -> bytes:
            return f"{topic}/{data}".encode()

    async def main() -> None:
        async with producer_of(cluster, key_serializer=WithTopic(), value_serializer=upper) as producer:
            await producer.send_and_wait(topic, "a", 1)
            with pytest.raises(errors.IllegalArgumentError, match="async"):
                await producer.send_many(topic, ["a"])
            with pytest.raises(errors.IllegalArgumentError, match="async"):
                producer.create_batch()
        async with producer_of(cluster, key_serializer=str.encode, value_serializer=upper) as producer:
            await producer.send_and_wait(topic, "b", "k")
        async with producer_of(cluster, value_serializer="json") as producer:
            await producer.send_and_wait(topic, {"a": 1})
            assert (await (await producer.send_many(topic, [{"b": 2}]))).rows == 1

    run(main())
    records = [(record.key, record.value) for record in cluster.records(topic, 0)]
    assert records == [
        (f"{topic}/1".encode(), b"A"),
        (b"k", b"B"),
        (None, b'{"a":1}'),
        (None, b'{"b":2}'),
    ]


def test_a_serializer_that_fails_is_a_typed_error_and_sends_nothing(
    run: Any, cluster: EmbeddedCluster, topic: str
) -> None:
    async def fails(value: Any) -> bytes:
        raise ValueError("no")

    async def text(value: Any) -> Any:
        return "text"

    def plain(value: Any) -> bytes:
        raise ValueError("no")

    async def main() -> None:
        for serializer in (fails, text, plain):
            async with producer_of(cluster, value_serializer=serializer) as producer:
                with pytest.raises(errors.SerializationError, match="value serializer"):
                    await producer.send(topic, "a")
        async with producer_of(cluster) as producer:
            with pytest.raises(errors.SerializationError, match="not bytes"):
                await producer.send(topic, "a")

    run(main())
    assert values_in(cluster, topic) == []


def test_interceptors_and_partitioners(run: Any, cluster: EmbeddedCluster, topic: str) -> None:
    acknowledged: list[tuple[int, Any]] = []

    class Interceptor:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            record.value += "!"
            return record

        def on_acknowledgement(self, metadata: RecordMetadata, exception: BaseException | None) -> None:
            acknowledged.append((metadata.offset, exception))

    async def encode(value: str) -> bytes:
        return value.encode()

    def last(key: bytes, everything: list[int], available: list[int]) -> int:
        return everything[-1]

    async def main() -> None:
        options: dict[str, Any] = {"interceptor_classes": [Interceptor()], "value_serializer": encode}
        async with producer_of(cluster, partitioner=last, **options) as producer:
            await producer.send_and_wait(topic, "a")
            with pytest.raises(errors.IllegalArgumentError):
                await producer.send(topic, "b", partition=-3)

    run(main())
    assert values_in(cluster, topic) == [b"a!"]
    assert sorted((offset, type(error)) for offset, error in acknowledged) == [
        (-1, errors.IllegalArgumentError),
        (0, type(None)),
    ]


# --- Waiting for metadata ---


def test_metadata_is_awaited_while_the_loop_runs(run: Any, cluster: EmbeddedCluster) -> None:
    name = f"appears-{os.urandom(4).hex()}"
    gate = threading.Event()
    with cluster.control.add(ApiKey.METADATA, lambda context, request: gate.wait(PATIENCE_S) and None):

        async def main() -> None:
            producer = AsyncKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
            sends = [asyncio.ensure_future(producer.send_and_wait(name, b"%d" % number)) for number in range(1000)]
            for _ in range(100):
                await asyncio.sleep(0)
            assert not any(send.done() for send in sends)
            gate.set()
            await asyncio.gather(*sends)
            await producer.stop()

        run(main())
    assert values_in(cluster, name) == [b"%d" % number for number in range(1000)]


def test_a_send_cancelled_while_it_waits_for_metadata_is_not_sent(run: Any, cluster: EmbeddedCluster) -> None:
    name = f"appears-{os.urandom(4).hex()}"
    gate = threading.Event()
    with cluster.control.add(ApiKey.METADATA, lambda context, request: gate.wait(PATIENCE_S) and None):

        async def main() -> None:
            producer = AsyncKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
            cancelled = asyncio.ensure_future(producer.send(name, b"cancelled"))
            kept = asyncio.ensure_future(producer.send(name, b"kept"))
            await asyncio.sleep(0.01)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            gate.set()
            await (await kept)
            await producer.stop()

        run(main())
    assert values_in(cluster, name) == [b"kept"]


def test_without_metadata_in_time_it_is_a_timeout(run: Any, cluster: EmbeddedCluster, topic: str) -> None:
    async def main() -> None:
        async with producer_of(cluster, max_block_ms=50, allow_auto_create_topics=False) as producer:
            for _ in range(2):
                with pytest.raises(errors.KafkaTimeoutError, match=r"within max.block.ms \(50 ms\)"):
                    await producer.send("never-there", b"x")
            with pytest.raises(errors.KafkaTimeoutError):
                await producer.partitions_for("never-there")
            with pytest.raises(errors.InvalidTopicError):
                await producer.send("in valid", b"x")

    run(main())


def test_a_partition_that_is_not_there_is_an_error(run: Any, cluster: EmbeddedCluster, topic: str) -> None:
    async def main() -> None:
        async with producer_of(cluster) as producer:
            with pytest.raises(errors.UnknownTopicOrPartitionError, match="7"):
                await producer.send(topic, b"x", partition=7)

    run(main())


def test_start_waits_for_a_broker_and_raises_without_one(run: Any) -> None:
    async def main() -> None:
        producer = AsyncKafkaProducer(bootstrap_servers="127.0.0.1:1", max_block_ms=100)
        with pytest.raises(errors.KafkaTimeoutError):
            await producer.start()
        await producer.stop()

    run(main())


# --- Waiting for memory ---

FULL = {"buffer_memory": 40_000, "batch_size": 16_384, "batch_max_size": 16_384, "linger_ms": 0}


def test_a_full_buffer_suspends_the_sends_and_not_the_loop(
    run: Any, cluster: EmbeddedCluster, topic: str, produce_blocked: threading.Event
) -> None:
    async def main() -> None:
        async with producer_of(cluster, **FULL) as producer:
            sends = [asyncio.ensure_future(producer.send(topic, b"%03d" % number * 1000)) for number in range(100)]
            await asyncio.sleep(0.05)
            assert not all(send.done() for send in sends)
            turns = 0
            while turns < 100:
                await asyncio.sleep(0)
                turns += 1
            produce_blocked.set()
            for future in await asyncio.gather(*sends):
                await future

    run(main())
    assert [value[:3] for value in values_in(cluster, topic)] == [b"%03d" % number for number in range(100)]


def test_sends_cancelled_while_they_wait_for_memory_are_not_sent(
    run: Any, cluster: EmbeddedCluster, topic: str, produce_blocked: threading.Event
) -> None:
    async def main() -> set[int]:
        async with producer_of(cluster, **FULL) as producer:
            sends = [asyncio.ensure_future(producer.send(topic, b"%03d" % number * 1000)) for number in range(100)]
            await asyncio.sleep(0.05)
            waiting = [number for number, send in enumerate(sends) if not send.done()]
            assert waiting
            # the first in line, and every other one behind it
            for number in waiting[::2]:
                sends[number].cancel()
            await asyncio.sleep(0.01)
            produce_blocked.set()
            await asyncio.wait(sends)
            await producer.flush()
            pool = producer._producer.engine.pool
            assert pool.waiting == 0
            return set(waiting[::2])

    cancelled = run(main())
    assert [int(value[:3]) for value in values_in(cluster, topic)] == [
        number for number in range(100) if number not in cancelled
    ]


def test_memory_that_does_not_come_in_time_is_an_error(
    run: Any, cluster: EmbeddedCluster, topic: str, produce_blocked: threading.Event
) -> None:
    async def main() -> None:
        producer = AsyncKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, max_block_ms=200, **FULL)
        await producer.start()
        await producer.partitions_for(topic)
        sends = [asyncio.ensure_future(producer.send(topic, b"x" * 1000)) for _ in range(100)]
        await asyncio.wait(sends)
        failed = [send.exception() for send in sends if send.exception() is not None]
        assert failed
        assert all(isinstance(error, errors.BufferExhaustedError) for error in failed)
        metrics = producer.metrics()["producer-metrics"]
        assert metrics["buffer-exhausted-total"] == len(failed)
        produce_blocked.set()
        await producer.stop()

    run(main())


def test_stopping_fails_the_sends_that_wait(
    run: Any, cluster: EmbeddedCluster, topic: str, produce_blocked: threading.Event
) -> None:
    async def main() -> None:
        producer = AsyncKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **FULL)
        await producer.partitions_for(topic)
        sends = [asyncio.ensure_future(producer.send(topic, b"x" * 1000)) for _ in range(100)]
        blocked = asyncio.ensure_future(producer.send_many(topic, [b"y" * 10_000] * 100))
        await asyncio.sleep(0.05)
        waiting = [send for send in sends if not send.done()]
        assert waiting
        stopped = asyncio.ensure_future(producer.stop())
        for send in waiting:
            with pytest.raises(errors.ProducerClosedError):
                await send
        produce_blocked.set()
        await stopped
        with pytest.raises(errors.ProducerClosedError):
            await blocked

    run(main())


# --- Cancelling, closing, loops ---


def test_a_wait_cancelled_after_the_record_was_appended_does_not_stop_it(
    run: Any, cluster: EmbeddedCluster, topic: str, produce_blocked: threading.Event
) -> None:
    async def main() -> None:
        async with producer_of(cluster, linger_ms=0) as producer:
            await producer.partitions_for(topic)
            task = asyncio.ensure_future(producer.send_and_wait(topic, b"delivered"))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(producer.send_and_wait(topic, b"too"), 0.01)
            produce_blocked.set()

    run(main())
    assert values_in(cluster, topic) == [b"delivered", b"too"]


def test_flush_waits_for_what_was_sent_and_at_most_its_timeout(
    run: Any, cluster: EmbeddedCluster, topic: str, produce_blocked: threading.Event
) -> None:
    async def main() -> None:
        async with producer_of(cluster, linger_ms=50_000) as producer:
            await producer.flush()
            future = await producer.send(topic, b"x")
            with pytest.raises(errors.KafkaTimeoutError, match="1 records in 1 batches"):
                await producer.flush(0.01)
            produce_blocked.set()
            await producer.flush()
            assert future.done()
        await producer.flush()

    run(main())


def test_after_stop_every_call_says_so(run: Any, cluster: EmbeddedCluster, topic: str) -> None:
    async def main() -> None:
        async with producer_of(cluster) as producer:
            last = await producer.send(topic, b"last")
        await producer.stop()
        assert (await last).offset == 0
        for call in (
            producer.send(topic, b"x"),
            producer.send_many(topic, [b"x"]),
            producer.partitions_for(topic),
            producer.abort(),
            producer.start(),
        ):
            with pytest.raises(errors.ProducerClosedError):
                await call

    run(main())


def test_stop_with_a_timeout_fails_what_is_left(
    run: Any, cluster: EmbeddedCluster, topic: str, produce_blocked: threading.Event
) -> None:
    async def main() -> None:
        producer = AsyncKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        future = await producer.send(topic, b"x")
        with pytest.raises(errors.KafkaTimeoutError, match="1 records not acknowledged"):
            await producer.stop(0.05)
        with pytest.raises(errors.ProducerClosedError):
            await future

    run(main())


def test_a_cancelled_stop_closes_all_the_same(run: Any, cluster: EmbeddedCluster, topic: str) -> None:
    async def main() -> AsyncKafkaProducer:
        producer = AsyncKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        await producer.send(topic, b"x")
        task = asyncio.ensure_future(producer.stop())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return producer

    producer = run(main())
    wait_until(lambda: producer.closed and not producer._producer.engine.is_alive)
    assert values_in(cluster, topic) == [b"x"]


def test_a_loop_that_is_closed_early_loses_nothing(
    cluster: EmbeddedCluster, topic: str, produce_blocked: threading.Event
) -> None:
    loop = asyncio.new_event_loop()
    producer = AsyncKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **FULL)
    loop.run_until_complete(producer.partitions_for(topic))
    sends = [loop.create_task(producer.send_and_wait(topic, b"x" * 1000)) for _ in range(100)]
    loop.run_until_complete(asyncio.sleep(0.05))
    loop.close()
    for send in sends:
        # asyncio would log that they were destroyed while pending
        send._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue]
    del sends, send
    produce_blocked.set()

    async def main() -> None:
        # the memory that the closed loop waited for is free again
        for _ in range(200):
            await producer.send(topic, b"y" * 1000)
        await producer.stop()

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    values = values_in(cluster, topic)
    assert values.count(b"y" * 1000) == 200
    assert 0 < values.count(b"x" * 1000) < 100


def test_two_loops_in_two_threads_share_one_producer(cluster: EmbeddedCluster, topic: str) -> None:
    producer = AsyncKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, buffer_memory=100_000)
    failed: list[BaseException] = []

    async def main(name: bytes) -> None:
        for number in range(20):
            futures = [await producer.send(topic, b"%s-%d" % (name, number)) for _ in range(50)]
            assert {future.get_loop() for future in futures} == {asyncio.get_running_loop()}
            await asyncio.gather(*futures, *(producer.send_and_wait(topic, name * 100) for _ in range(50)))

    def thread(name: bytes) -> None:
        try:
            asyncio.run(asyncio.wait_for(main(name), PATIENCE_S))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=thread, args=(name,)) for name in (b"a", b"b")]
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE_S)
    asyncio.run(producer.stop())
    assert not failed
    assert len(values_in(cluster, topic)) == 4000


def test_sending_starts_no_thread_but_the_sender(run: Any, cluster: EmbeddedCluster, topic: str) -> None:
    async def main() -> None:
        async with producer_of(cluster, client_id="few-threads") as producer:
            await asyncio.gather(*(producer.send_and_wait(topic, b"x") for _ in range(1000)))
            await producer.flush()
            await producer.abort()
            names = [thread.name for thread in threading.enumerate() if "few-threads" in thread.name]
            assert names == ["headrace-sender-few-threads"]

    run(main())


@pytest.mark.parametrize("keys", [{"loop": object()}, {"lingerms": 1}, {"max_batch_size": 1, "batch_size": 1}])
def test_a_configuration_mistake_is_an_error(keys: dict[str, Any]) -> None:
    with pytest.raises(errors.KafkaConfigurationError):
        AsyncKafkaProducer(bootstrap_servers="localhost", **keys)


# --- Processes ---


def test_a_program_that_ends_without_stop_delivers_within_a_bound(cluster: EmbeddedCluster, topic: str) -> None:
    program = """
        import asyncio, sys
        from headrace.producer import AsyncKafkaProducer

        async def main():
            producer = AsyncKafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=60000)
            await producer.send(sys.argv[2], b"last")
            return producer

        producer = asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(program), cluster.bootstrap_servers, topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert values_in(cluster, topic) == [b"last"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_a_producer_of_its_own(cluster: EmbeddedCluster, topic: str) -> None:
    producer = AsyncKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)

    async def send(value: bytes) -> None:
        await producer.send_and_wait(topic, value)
        await (await producer.send_many(topic, [value]))

    asyncio.run(send(b"parent"))
    with warnings.catch_warnings():
        # since Python 3.12; this test forks with threads on purpose
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            asyncio.run(asyncio.wait_for(send(b"child"), PATIENCE_S))
            asyncio.run(asyncio.wait_for(producer.stop(), PATIENCE_S))
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    asyncio.run(send(b"parent"))
    asyncio.run(producer.stop())
    assert sorted(values_in(cluster, topic)) == [b"child"] * 2 + [b"parent"] * 4


# --- Faults ---


def test_an_error_of_the_broker_reaches_the_await(run: Any, cluster: EmbeddedCluster, topic: str) -> None:
    cluster.control.fault(ApiKey.PRODUCE, Fault(error=errors.InvalidRecordError, topic=topic), times=None)

    async def main() -> None:
        async with producer_of(cluster) as producer:
            with pytest.raises(errors.InvalidRecordError):
                await producer.send_and_wait(topic, b"x")

    run(main())


def test_a_batch_that_is_retried_completes_its_awaits_once(run: Any, cluster: EmbeddedCluster, topic: str) -> None:
    cluster.control.fault(ApiKey.PRODUCE, Fault(error=errors.NotLeaderForPartitionError, topic=topic), times=2)

    async def main() -> None:
        async with producer_of(cluster) as producer:
            sent = await asyncio.gather(*(producer.send_and_wait(topic, b"%d" % number) for number in range(100)))
            assert [metadata.offset for metadata in sent] == list(range(100))

    run(main())
    assert len(values_in(cluster, topic)) == 100


def test_a_batch_that_is_split_completes_all_its_awaits(run: Any, cluster: EmbeddedCluster, topic: str) -> None:
    cluster.control.fault(ApiKey.PRODUCE, Fault(error=errors.MessageSizeTooLargeError, topic=topic), times=1)

    async def main() -> None:
        async with producer_of(cluster) as producer:
            sent = await asyncio.gather(*(producer.send_and_wait(topic, b"%d" % number) for number in range(100)))
            assert sorted(metadata.offset for metadata in sent) == list(range(100))

    run(main())
    assert len(values_in(cluster, topic)) == 100
