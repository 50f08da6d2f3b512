"""`producer.describe()`: what it says about producers in every kind of trouble, while their other threads run."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading

import pytest
from support.waiting import wait_until

from headrace.broker import EmbeddedCluster, Fault
from headrace.network.protocol.api import ApiKey
from headrace.network.protocol.errors import KafkaTimeoutError, NotLeaderForPartitionError
from headrace.producer import AsyncKafkaProducer, KafkaProducer, ProducerDescription
from headrace.producer.description import Pending

HOURS_MS = 4 * 3_600_000


@pytest.fixture
def cluster():
    with EmbeddedCluster() as started:
        started.create_topic("orders", 3)
        yield started


def broker_of(described: ProducerDescription, broker_id: int):
    (found,) = [each for each in described.brokers if each.id == broker_id]
    return found


def topic_of(described: ProducerDescription, name: str):
    (found,) = [each for each in described.topics if each.name == name]
    return found


def test_before_during_and_after_a_life(cluster):
    servers = cluster.bootstrap_servers
    producer = KafkaProducer(bootstrap_servers=servers, client_id="shop", linger_ms=HOURS_MS)
    described = producer.describe()
    assert (described.client_id, described.state, described.bootstrap_servers) == ("shop", "open", (servers,))
    assert described.waiting == described.in_flight == Pending()
    assert described.topics == ()
    producer.send("orders", b"v" * 100)
    producer.flush()
    producer.send("orders", b"v" * 100)
    described = producer.describe()
    assert described.cluster_id is not None
    assert described.metadata_age_ms is not None
    assert broker_of(described, 1).state == "ready"
    orders = topic_of(described, "orders")
    assert (orders.partitions, orders.leaderless, orders.waiting.records, orders.retrying) == (3, (), 1, 0)
    assert orders.waiting.bytes > 100
    assert orders.oldest_ms == described.oldest_ms is not None
    assert described.records_sent == 1
    assert 0 < described.memory_used_bytes < described.memory_total_bytes == 32 * 2**20
    assert (described.producer_id, described.producer_epoch) == (0, 0)
    assert json.loads(json.dumps(described.as_dict()))["topics"][0]["waiting"]["records"] == 1
    page = str(described)
    assert "producer shop: open" in page
    assert "waiting     1 record in 1 batch" in page
    producer.close()
    described = producer.describe()
    assert (described.state, described.brokers, described.waiting) == ("closed", (), Pending())
    assert described.records_sent == 2


def test_a_request_without_an_answer_is_in_flight_and_one_with_an_error_is_named(cluster):
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0, retry_backoff_ms=5) as producer:
        producer.partitions_for("orders")
        cluster.inject(ApiKey.PRODUCE, Fault(silent=True))
        future = producer.send("orders", b"v", partition=0)
        wait_until(lambda: producer.describe().in_flight.records)
        described = producer.describe()
        assert topic_of(described, "orders").in_flight.batches == 1
        assert broker_of(described, 1).requests_in_flight == 1
        assert broker_of(described, 1).oldest_request_ms is not None
        cluster.inject(ApiKey.PRODUCE, Fault(error=NotLeaderForPartitionError), times=3)
        cluster.close_connections(1)
        future.get(30)
        rejected, lost = producer.describe().errors
        assert (rejected.topic, rejected.failed, rejected.retried) == ("orders", 0, 3)
        assert rejected.error.startswith("NotLeaderForPartitionError")
        assert (lost.failed, lost.retried) == (0, 1)
        assert re.search(r"orders +0 +3 +NotLeaderForPartitionError", str(producer.describe()))
        assert producer.describe().records_retried == 4


def test_a_broker_that_is_gone(cluster):
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
        producer.send("orders", b"v", partition=0).get(30)
        cluster.kill_broker(1)
        producer.send("orders", b"v", partition=0)
        wait_until(lambda: broker_of(producer.describe(), 1).failed_attempts > 1)
        described = producer.describe()
        assert described.metadata_error is not None
        assert "Connection refused" in (broker_of(described, 1).error or "")
        assert described.waiting.records == 1
        cluster.start_broker(1)
    assert producer.describe().records_failed == 0


def test_no_broker_at_all():
    with KafkaProducer(bootstrap_servers="127.0.0.1:1", max_block_ms=50) as producer:
        with pytest.raises(KafkaTimeoutError):
            producer.send("orders", b"v")
        wait_until(lambda: producer.describe().metadata_error)
        described = producer.describe()
        assert described.metadata_age_ms is None
        assert [each.id for each in described.brokers] == [-1]
        assert "no broker of 127.0.0.1:1 has answered yet" in str(described)


def test_memory_that_is_short_and_a_callback_that_does_not_return(cluster):
    release = threading.Event()
    config = {"buffer_memory": 20_000, "batch_size": 10_000, "linger_ms": 0, "max_block_ms": 60_000}
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **config) as producer:
        producer.send("orders", b"v", partition=0, callback=lambda *_: release.wait(60)).get(30)
        wait_until(lambda: producer.describe().callbacks_pending)
        assert "callbacks   of 1 batch have not returned" in str(producer.describe())
        silence = cluster.inject(ApiKey.PRODUCE, Fault(silent=True), times=None)

        def fill() -> None:
            for _ in range(10):
                producer.send("orders", b"v" * 9000, partition=1)

        thread = threading.Thread(target=fill)
        thread.start()
        wait_until(lambda: producer.describe().waiting_threads)
        described = producer.describe()
        release.set()
        silence.remove()
        cluster.close_connections(1)
        thread.join()
    assert described.waiting_threads == 1
    assert described.memory_used_bytes > 9000


def test_a_partition_without_a_leader():
    with EmbeddedCluster(2) as pair:
        pair.create_topic("half", 2)
        lost, other = pair.leader_of("half", 1), pair.leader_of("half", 0)
        assert lost != other
        with KafkaProducer(bootstrap_servers=pair.bootstrap_servers, linger_ms=0) as producer:
            producer.partitions_for("half")
            pair.kill_broker(lost)
            future = producer.send("half", b"v", partition=1)
            wait_until(lambda: topic_of(producer.describe(), "half").leaderless)
            half = topic_of(producer.describe(), "half")
            assert (half.leaderless, half.waiting.records) == ((1,), 1)
            pair.start_broker(lost)
            future.get(60)


def test_a_transaction(cluster):
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="till") as producer:
        before = producer.describe().transaction
        assert before is not None
        assert (before.state, before.number) == ("uninitialized", 0)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"v")
        during = producer.describe().transaction
        assert during is not None
        assert (during.transactional_id, during.state, during.number, during.error) == (
            "till",
            "in transaction",
            1,
            None,
        )
        assert "transaction till, number 1, in transaction" in str(producer.describe())
        producer.commit_transaction()
        assert producer.describe().transaction.state == "ready"


def test_the_asyncio_producer_describes_itself_too(cluster):
    async def run() -> ProducerDescription:
        async with AsyncKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="aio") as producer:
            await producer.send_and_wait("orders", b"v")
            return producer.describe()

    described = asyncio.run(run())
    assert (described.client_id, described.state, described.records_sent) == ("aio", "open", 1)


def test_a_dead_sender_thread_is_reported(cluster, monkeypatch):
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    monkeypatch.setattr(producer._engine.metadata, "next_fetch", lambda now_ms: 1 // 0)

    def is_dead() -> bool:
        # it may have fetched metadata before, and a wakeup that comes before it waits does not end its next wait
        producer._engine.metadata.request_fresh()
        producer._engine.sender.wakeup()
        return producer._engine.sender.death is not None

    wait_until(is_dead)
    wait_until(lambda: not producer._engine.is_alive)
    assert producer.describe().state.startswith("its sender thread died: ZeroDivisionError")
    producer.close()


def test_a_forked_child_says_whose_producer_it_is(cluster):
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=HOURS_MS)
    producer.send("orders", b"v")
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        described = producer.describe()
        os.write(writing, f"{described.state}|{described.waiting}".encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        assert told.read() == (f"of process {os.getpid()}; the next send starts it again in this one, {child}|none")
    os.waitpid(child, 0)
    producer.close()


def test_it_can_be_called_all_the_time_while_others_send(cluster):
    """Every snapshot adds up within itself, and no thread is disturbed."""
    done = threading.Event()
    trouble: list[BaseException] = []
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, batch_size=500, linger_ms=0) as producer:
        producer.partitions_for("orders")

        def look() -> None:
            try:
                while not done.is_set():
                    described = producer.describe()
                    str(described)
                    assert described.waiting.records == sum(each.waiting.records for each in described.topics)
                    assert 0 <= described.memory_used_bytes <= described.memory_total_bytes
            except BaseException as error:
                trouble.append(error)

        threads = [threading.Thread(target=look) for _ in range(2)]
        for thread in threads:
            thread.start()
        futures = [producer.send("orders", b"v" * 50) for _ in range(20_000)]
        producer.flush()
        done.set()
        for thread in threads:
            thread.join()
    assert trouble == []
    assert all(future.succeeded() for future in futures)
