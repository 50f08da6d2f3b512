"""Lists of records to a broker, read back by another client, under failures, in a fork and with plugins."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.confluent import read_topic
from support.waiting import know, memory_comes_back

from headrace.broker import EmbeddedCluster
from headrace.broker.requests.control import Fault
from headrace.network.cluster import TopicPartition
from headrace.network.protocol import errors
from headrace.network.protocol.api import ApiKey
from headrace.producer import KafkaProducer, OffsetRange, ProducerRecord, RowsFuture
from headrace.producer.columns import lists

PATIENCE_S = 60
PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(auto_create_topics_enable=False, log_retention_ms=-1) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"t-{abs(hash(request.node.name))}"
    cluster.create_topic(name, PARTITIONS)
    yield name
    cluster.control.clear()


def producer_of(cluster: EmbeddedCluster, **options: Any) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, **{"retry_backoff_ms": 5, "reconnect_backoff_ms": 5, **options}
    )


def read(cluster: EmbeddedCluster, topic: str) -> list[tuple]:
    """What confluent-kafka finds in the topic: partition, timestamp, key, value, headers."""
    return [
        (each.partition(), each.timestamp()[1], each.key(), each.value(), tuple(each.headers() or ()))
        for each in read_topic(cluster.bootstrap_servers, topic)
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_another_client_reads_what_send_would_have_written(cluster: EmbeddedCluster, topic: str, codec: str) -> None:
    cluster.create_topic(f"{topic}-each", PARTITIONS)
    rows = range(3000)
    values = [None if row % 10 == 9 else b"value %d " % row * (row % 40) for row in rows]
    keys = [b"key %d" % (row % 50) for row in rows]
    headers = [[("n", b"%d" % row), ("ü", None)] if row % 3 else None for row in rows]
    times = [1_600_000_000_000 + row for row in rows]
    with producer_of(cluster, compression_type=codec, batch_size=5000) as producer:
        future = producer.send_many(topic, values, keys, headers, timestamp_ms=times)
        for record in zip(values, keys, headers, (None,) * len(rows), times, strict=True):
            producer.send(f"{topic}-each", *record)
        delivered = future.get(PATIENCE_S)
    found = sorted(read(cluster, topic), key=lambda record: record[0])
    assert sorted(found, key=repr) == sorted(read(cluster, f"{topic}-each"), key=repr)
    assert sorted(found, key=lambda record: record[1]) == [
        (record[0], time, key, value, tuple(pairs or ()))
        for record, time, key, value, pairs in zip(
            sorted(found, key=lambda record: record[1]), times, keys, values, headers, strict=True
        )
    ]
    counts = [sum(record[0] == number for record in found) for number in range(PARTITIONS)]
    assert delivered.offsets == {
        TopicPartition(topic, number): OffsetRange(0, count - 1, count) for number, count in enumerate(counts)
    }
    assert delivered.rows == len(rows)


def test_defaults_and_many_calls_at_once(cluster: EmbeddedCluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "SLICE_ROWS", 70)
    futures: list[RowsFuture] = []

    def send(name: int) -> None:
        for turn in range(10):
            values = [b"%d %d" % (name, turn * 500 + number) for number in range(500)]
            futures.append(producer.send_many(topic, values, partition=name % PARTITIONS))

    with producer_of(cluster, batch_size=1000, buffer_memory=100_000) as producer:
        threads = [threading.Thread(target=send, args=[name]) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(future.get(PATIENCE_S).rows for future in futures) == 20_000
        memory_comes_back(producer)
    for name in range(4):
        values = [record[3] for record in read(cluster, topic) if record[3].startswith(b"%d " % name)]
        assert values == [b"%d %d" % (name, number) for number in range(5000)]


def test_a_partition_that_fails_and_what_was_delivered(cluster: EmbeddedCluster, topic: str) -> None:
    cluster.inject(ApiKey.PRODUCE, Fault(error=errors.InvalidRecordError, topic=topic, partition=1), times=None)
    with producer_of(cluster) as producer:
        future = producer.send_many(topic, [b"%d" % row for row in range(30)], partition=[row % 3 for row in range(30)])
        with pytest.raises(errors.RowDeliveryError) as caught:
            future.get(PATIENCE_S)
    assert (caught.value.row, caught.value.partition) == (1, 1)
    assert isinstance(caught.value.__cause__, errors.InvalidRecordError)
    assert caught.value.delivered == {
        TopicPartition(topic, 0): OffsetRange(0, 9, 10),
        TopicPartition(topic, 2): OffsetRange(0, 9, 10),
    }
    found = {int(record[3]) for record in read(cluster, topic)}
    assert found == {row for row in range(30) if row % 3 != 1}


def test_memory_that_does_not_come_in_time(cluster: EmbeddedCluster, topic: str) -> None:
    with producer_of(cluster, batch_size=1000, buffer_memory=4000, max_block_ms=200, linger_ms=0) as producer:
        know(producer, topic)
        held = cluster.inject(ApiKey.PRODUCE, Fault(error=errors.NotEnoughReplicasError, topic=topic), times=None)
        future = producer.send_many(topic, [b"%d" % row * 20 for row in range(500)], partition=0)
        with pytest.raises(errors.BufferExhaustedError):
            producer.send_many(topic, [b"x" * 100], partition=1)
        held.remove()
        error = future.exception(PATIENCE_S)
        memory_comes_back(producer)
    assert error is not None
    assert isinstance(error.__cause__, errors.BufferExhaustedError)
    rows = error.row
    assert rows > 10
    assert error.delivered == {TopicPartition(topic, 0): OffsetRange(0, rows - 1, rows)}
    assert [record[3] for record in read(cluster, topic)] == [b"%d" % row * 20 for row in range(rows)]


def test_a_serializer_and_a_record_that_it_rejects(
    cluster: EmbeddedCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    documents: list[Any] = [{"n": number} for number in range(5)]
    with producer_of(cluster, value_serializer="json", key_serializer="string") as producer:
        with caplog.at_level(logging.WARNING):
            future = producer.send_many(topic, documents, list("abcde"), [[("h", b"1")]] * 5, 1, range(5))
        assert "rows one by one, because of a serializer" in caplog.text
        assert future.get(PATIENCE_S).offsets == {TopicPartition(topic, 1): OffsetRange(0, 4, 5)}
        broken = producer.send_many(topic, [*documents[:2], {"n": object()}, *documents], partition=2)
        with pytest.raises(errors.RowDeliveryError) as caught:
            broken.get(PATIENCE_S)
        assert caught.value.row == 2
        assert isinstance(caught.value.__cause__, errors.SerializationError)
        assert caught.value.delivered == {TopicPartition(topic, 2): OffsetRange(0, 1, 2)}
        with pytest.raises(errors.SerializationError):
            producer.send_many(topic, [object()])
    found = sorted(read(cluster, topic), key=lambda record: record[0])
    assert found[:5] == [
        (1, number, b"abcde"[number : number + 1], json.dumps(document, separators=(",", ":")).encode(), (("h", b"1"),))
        for number, document in enumerate(documents)
    ]
    assert len(found) == 7


class Upper:
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        record.value = record.value.upper()
        return record

    def on_acknowledgement(self, metadata: Any, exception: Any) -> None: ...

    def close(self) -> None: ...


def test_an_interceptor_sees_every_record(cluster: EmbeddedCluster, topic: str) -> None:
    with producer_of(cluster, interceptor_classes=[Upper()]) as producer:
        assert producer.send_many(topic, [b"a", b"b"], partition=0).get(PATIENCE_S).rows == 2
    assert [record[3] for record in read(cluster, topic)] == [b"A", b"B"]


def test_a_topic_that_does_not_exist_and_a_closed_producer(cluster: EmbeddedCluster) -> None:
    producer = producer_of(cluster, max_block_ms=200)
    with producer, pytest.raises(errors.KafkaTimeoutError, match="did not appear"):
        producer.send_many("missing", [b"1"])
    with pytest.raises(errors.ProducerClosedError):
        producer.send_many("missing", [b"1"])


def test_within_a_callback_lists_are_not_sent(cluster: EmbeddedCluster, topic: str) -> None:
    raised: list[BaseException] = []

    def call(metadata: Any, exception: Any) -> None:
        try:
            producer.send_many(topic, [b"1"])
        except errors.IllegalStateError as error:
            raised.append(error)

    with producer_of(cluster) as producer:
        producer.send(topic, b"0", callback=call)
        producer.flush(PATIENCE_S)
    assert ["can't be called in a callback" in str(error) for error in raised] == [True]
