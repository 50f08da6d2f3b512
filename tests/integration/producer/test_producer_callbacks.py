"""Misbehaving callbacks on a real producer harm nothing else."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Iterator

import pytest
from support.waiting import know

from headrace.broker import EmbeddedCluster
from headrace.producer import KafkaProducer, errors


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedCluster(brokers=1, config={"num.partitions": 2}) as cluster:
        yield cluster.bootstrap_servers


def test_a_callback_that_blocks_harms_nobody_else(bootstrap: str) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
        entered, leave = threading.Event(), threading.Event()

        def blocks(metadata: object, error: BaseException | None) -> None:
            entered.set()
            leave.wait(60)

        producer.send("t", b"blocked", partition=0, callback=blocks)
        assert entered.wait(30)
        called = threading.Event()
        others = [producer.send("t", b"%d" % number, partition=number % 2) for number in range(1000)]
        behind = producer.send("t", b"behind", partition=0, callback=lambda metadata, error: called.set())
        assert [other.get(30).partition for other in others] == [number % 2 for number in range(1000)]
        assert behind.get(30).offset == 501

        async def awaited() -> int:
            return (await producer.send("t", b"awaited", partition=1)).offset

        assert asyncio.run(asyncio.wait_for(awaited(), 30)) == 500
        assert not called.is_set()
        with pytest.raises(errors.KafkaTimeoutError, match="callbacks did not return"):
            producer.flush(0.05)
        leave.set()
        producer.flush(30)
        assert called.is_set()


def test_closing_is_bounded_by_its_timeout_when_a_callback_blocks(bootstrap: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=0)
    entered, leave = threading.Event(), threading.Event()

    def blocks(metadata: object, error: BaseException | None) -> None:
        entered.set()
        leave.wait(60)

    future = producer.send("t", b"v", callback=blocks)
    assert entered.wait(30)
    with pytest.raises(errors.KafkaTimeoutError, match="has not returned"):
        producer.close(0.05)
    assert future.succeeded()
    leave.set()


def test_slow_callbacks_slow_the_sends_down_instead_of_piling_up(bootstrap: str) -> None:
    """Records keep their memory until their callbacks have run."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, linger_ms=0, batch_size=1000, buffer_memory=10_000, max_block_ms=200
    )
    know(producer, "t")
    leave = threading.Event()

    def fill() -> None:
        for _ in range(1000):
            producer.send("t", bytes(600), callback=lambda metadata, error: leave.wait(60) and None)

    with pytest.raises(errors.BufferExhaustedError):
        fill()
    leave.set()
    producer.flush(60)
    producer.send("t", b"again").get(30)
    producer.close(30)


def test_a_callback_that_raises_is_logged_once_with_its_records_coordinates(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    def raises(metadata: object, error: BaseException | None) -> None:
        raise RuntimeError("on purpose")

    called = []
    with KafkaProducer(bootstrap_servers=bootstrap) as producer, caplog.at_level(logging.ERROR, "headrace"):
        first = producer.send("other", b"1", partition=1, callback=raises)
        producer.send("other", b"2", partition=1, callback=lambda metadata, error: called.append(metadata))
        offset = first.get(30).offset
        producer.flush(30)
    assert [metadata.offset for metadata in called] == [offset + 1]
    told = [record for record in caplog.records if "callback" in record.getMessage()]
    assert len(told) == 1
    assert f"other-1, offset {offset}" in told[0].getMessage()


def test_a_callback_may_wait_for_records_in_the_way_of_concurrent_futures(bootstrap: str) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
        seen: list[object] = []

        def send_more(metadata: object, error: BaseException | None) -> None:
            # the sender thread completes these without a callback
            more = [producer.send("waited-for", b"more", partition=0).as_concurrent() for _ in range(3)]
            done, pending = concurrent.futures.wait(more, 30)
            seen.extend((len(done), len(pending)))

        producer.send("waited-for", b"v", partition=0, callback=send_more).get(30)
        producer.flush(30)
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            sent = [producer.send("waited-for", b"w").as_concurrent() for _ in range(100)]
            done, pending = concurrent.futures.wait([*sent, executor.submit(seen.append, "ran")], 30)
        assert (len(done), len(pending), seen) == (101, 0, [3, 0, "ran"])
        assert len({(future.result().partition, future.result().offset) for future in sent}) == 100


def test_a_callback_may_wait_for_another_producer_but_not_for_its_own(bootstrap: str) -> None:
    with (
        KafkaProducer(bootstrap_servers=bootstrap, linger_ms=10_000, delivery_timeout_ms=120_000) as other,
        KafkaProducer(bootstrap_servers=bootstrap, linger_ms=0) as own,
    ):
        seen: list[object] = []

        def forward(metadata: object, error: BaseException | None) -> None:
            # neither that topic's metadata nor memory for it is available yet
            forwarded = other.send("forwarded", b"v", partition=0)
            other.flush(30)
            seen.append(forwarded.done())
            second = other.send("forwarded", b"w", partition=0)
            other.flush(30)
            seen.append(second.get(30).offset)
            seen.append(other.partitions_for("forwarded"))
            own_record = own.send("t", b"of its own", partition=0)
            for wait in (own.flush, lambda: own.partitions_for("never-heard-of")):
                try:
                    wait()
                except errors.KafkaError as refused:
                    seen.append(type(refused))
            # the sender thread completes it without a callback
            seen.append(own_record.get(30).offset)

        own_offset = own.send("t", b"v", partition=0, callback=forward).get(30).offset + 1
        own.flush(30)
        assert seen == [True, 1, {0, 1}, errors.IllegalStateError, errors.KafkaTimeoutError, own_offset]
