"""Columns of records to a broker: the same as records sent one by one, under every failure."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from support.waiting import JumpingClock, know, memory_comes_back, wait_until

from headrace.broker import EmbeddedCluster
from headrace.broker.requests.control import Fault
from headrace.network.cluster import TopicPartition
from headrace.network.protocol import errors
from headrace.network.protocol.api import ApiKey
from headrace.producer import KafkaProducer, OffsetRange

PATIENCE_S = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(auto_create_topics_enable=False, log_retention_ms=-1) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"t-{abs(hash(request.node.name))}"
    cluster.create_topic(name, 3)
    yield name
    cluster.control.clear()


def producer_of(cluster: EmbeddedCluster, **options: Any) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, **{"retry_backoff_ms": 5, "reconnect_backoff_ms": 5, **options}
    )


def records_in(cluster: EmbeddedCluster, topic: str, partitions: int = 3) -> list[list[tuple]]:
    """The (timestamp, key, value, headers) of each record, per partition."""
    return [
        [(each.timestamp, each.key, each.value, tuple(each.headers)) for each in cluster.records(topic, partition)]
        for partition in range(partitions)
    ]


def table_of(rows: int, first: int = 0) -> pa.Table:
    """Rows with one key each, so that their partitions are known."""
    numbers = range(first, first + rows)
    return pa.table(
        {
            "value": pa.array([None if each % 10 == 9 else f"value {each} " * (each % 40) for each in numbers]),
            "key": pa.array([b"" if each % 7 == 0 else b"key %d" % (each % 50) for each in numbers], pa.large_binary()),
            "timestamp": pa.array([1_600_000_000_000 + each for each in numbers], pa.timestamp("ms", "UTC")),
            "headers": pa.array(
                [None if each % 3 else [{"key": "n", "value": b"%d" % each}] for each in numbers],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
    )


def send_each(producer: KafkaProducer, topic: str, table: pa.Table) -> None:
    for row in table.to_pylist():
        producer.send(
            topic,
            None if row["value"] is None else row["value"].encode(),
            row["key"],
            [(each["key"], each["value"]) for each in row["headers"] or ()],
            timestamp_ms=int(row["timestamp"].timestamp() * 1000 + 0.5),
        )


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_in_the_log_is_the_same_as_sent_one_by_one(cluster: EmbeddedCluster, topic: str, codec: str) -> None:
    cluster.create_topic(f"{topic}-each", 3)
    table = table_of(2000)
    with producer_of(cluster, compression_type=codec, batch_size=5000, batch_max_size=5000) as producer:
        future = producer.send_arrow(topic, table)
        send_each(producer, f"{topic}-each", table)
        delivered = future.get(PATIENCE_S)
    assert records_in(cluster, topic) == records_in(cluster, f"{topic}-each")
    counts = [len(cluster.records(topic, partition)) for partition in range(3)]
    assert delivered.offsets == {
        TopicPartition(topic, partition): OffsetRange(0, count - 1, count) for partition, count in enumerate(counts)
    }
    assert delivered.rows == sum(counts) == 2000
    assert delivered.batches > 3


def test_many_threads_with_columns_and_single_records_at_once(cluster: EmbeddedCluster, topic: str) -> None:
    rows, rounds, threads = 300, 10, 3
    futures = []

    def send_columns(name: int) -> None:
        for turn in range(rounds):
            numbers = range(turn * rows, (turn + 1) * rows)
            batch = {
                "value": [f"{name} {each}" for each in numbers],
                "partition": [None if each % 4 == 3 else each % 4 for each in numbers],
            }
            futures.append(producer.send_arrow(topic, pa.RecordBatch.from_pydict(batch)))

    def send_singly(name: int) -> None:
        for each in range(rounds * rows):
            producer.send(topic, b"%d %d" % (name, each), partition=None if each % 4 == 3 else each % 4)

    with producer_of(cluster, batch_size=1000, buffer_memory=100_000) as producer:
        workers = [
            threading.Thread(target=send_columns if name % 2 else send_singly, args=[name])
            for name in range(2 * threads)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        producer.flush(PATIENCE_S)
        assert sum(future.get(0).rows for future in futures) == threads * rounds * rows
    seen: list[tuple[int, int]] = []
    for partition in range(3):
        last: dict[tuple[int, bool], int] = {}
        for record in cluster.records(topic, partition):
            name, number = map(int, record.value.split())
            seen.append((name, number))
            # in order per thread, separately for rows with and without a partition
            assert last.get((name, number % 4 == 3), -1) < number
            last[name, number % 4 == 3] = number
    assert sorted(seen) == [(name, number) for name in range(2 * threads) for number in range(rounds * rows)]


def test_rows_larger_than_a_batch(cluster: EmbeddedCluster, topic: str) -> None:
    values = ["a" * 10, "b" * 5000, "c" * 10, "d" * 900, "e" * 950, "f"]
    with producer_of(cluster, batch_size=1000) as producer:
        future = producer.send_arrow(topic, pa.table({"value": values, "partition": [1] * 6}))
        assert future.get(PATIENCE_S).offsets == {TopicPartition(topic, 1): OffsetRange(0, 5, 6)}
    assert [record.value.decode() for record in cluster.records(topic, 1)] == values


def test_a_batch_that_is_too_large_for_the_broker_is_split_and_every_row_told(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("narrow", 1, configs={"max.message.bytes": "400"})
    with producer_of(cluster, batch_size=20_000, linger_ms=200) as producer:
        first = producer.send_arrow("narrow", pa.table({"value": [f"{row:050}" for row in range(60)]}))
        second = producer.send_arrow("narrow", pa.table({"value": ["x" * 100, "y" * 500, "z"]}))
        assert first.get(PATIENCE_S).offsets == {TopicPartition("narrow", 0): OffsetRange(0, 59, 60)}
        error = second.exception(PATIENCE_S)
    assert isinstance(error, errors.RowDeliveryError)
    assert (error.row, error.topic, error.partition) == (1, "narrow", 0)
    assert isinstance(error.__cause__, errors.MessageSizeTooLargeError)
    assert second.metadata.rows == 2
    assert [record.value for record in cluster.records("narrow", 0)][60:] == [b"x" * 100, b"z"]


def test_a_partition_that_fails_and_others_that_do_not(cluster: EmbeddedCluster, topic: str) -> None:
    cluster.inject(ApiKey.PRODUCE, Fault(error=errors.InvalidRecordError, topic=topic, partition=1), times=None)
    with producer_of(cluster) as producer:
        future = producer.send_arrow(topic, pa.table({"value": list("abcdef"), "partition": [0, 0, 1, 1, 2, 1]}))
        error = future.exception(PATIENCE_S)
    assert isinstance(error, errors.RowDeliveryError)
    assert (error.row, error.partition) == (2, 1)
    assert isinstance(error.__cause__, errors.InvalidRecordError)
    assert future.metadata.rows == 3
    assert set(future.metadata.offsets) == {TopicPartition(topic, 0), TopicPartition(topic, 2)}


def test_a_part_that_is_not_delivered_in_time(cluster: EmbeddedCluster, topic: str) -> None:
    cluster.inject(ApiKey.PRODUCE, Fault(error=errors.NotEnoughReplicasError, topic=topic, partition=2), times=None)
    clock = JumpingClock()
    with producer_of(cluster, clock=clock) as producer:
        future = producer.send_arrow(topic, pa.table({"value": list("abcd"), "partition": [0, 1, 2, 2]}))
        wait_until(lambda: len(producer._engine.accumulator.incomplete_batches()) == 1)
        clock.ahead_ms += producer.config.delivery_timeout_ms
        with pytest.raises(errors.RowDeliveryError, match=r"row 2 for t-.*-2 was not delivered: DeliveryTimeoutError"):
            future.get(PATIENCE_S)
    assert future.metadata.rows == 2


def test_every_answer_is_lost_once(cluster: EmbeddedCluster, topic: str) -> None:
    seen: set[bytes] = set()

    def lose_first(context: Any, message: Any) -> Fault | None:
        data = b"".join(bytes(each.records) for part in message.topic_data for each in part.partition_data)
        if data in seen:
            return None
        seen.add(data)
        return Fault(lose_answer=True)

    cluster.on_request(ApiKey.PRODUCE, lose_first)
    with producer_of(cluster, batch_size=2000) as producer:
        future = producer.send_arrow(topic, table_of(600))
        delivered = future.get(PATIENCE_S)
    assert delivered.rows == 600
    assert delivered.retries > 0
    assert sum(len(each) for each in records_in(cluster, topic)) == 600


# --- Calls that end half-way ---


def hold(cluster: EmbeddedCluster, topic: str) -> Any:
    """Reject all batches until the returned fault is removed."""
    return cluster.inject(ApiKey.PRODUCE, Fault(error=errors.NotEnoughReplicasError, topic=topic), times=None)


def test_where_memory_does_not_come_in_time_the_rows_before_are_delivered(cluster: EmbeddedCluster, topic: str) -> None:
    held = hold(cluster, topic)
    with producer_of(cluster, batch_size=1000, buffer_memory=5000, max_block_ms=300) as producer:
        know(producer, topic)
        values = [f"{row:0100}" for row in range(100)]
        with pytest.raises(errors.RowDeliveryError) as caught:
            producer.send_arrow(topic, pa.table({"value": values, "partition": [0] * 100}))
        assert isinstance(caught.value.__cause__, errors.BufferExhaustedError)
        taken = caught.value.row
        assert 0 < taken < 100
        held.remove()
        producer.flush(PATIENCE_S)
        memory_comes_back(producer)
        assert producer.metrics()["producer-metrics"]["buffer-available-bytes"] == 5000
        # and sending continues
        producer.send_arrow(topic, pa.table({"value": values, "partition": [0] * 100})).get(PATIENCE_S)
    stored = [record.value.decode() for record in cluster.records(topic, 0)]
    assert stored == values[:taken] + values


@pytest.mark.parametrize("timeout", [0, None])
def test_a_producer_that_is_closed_half_way(cluster: EmbeddedCluster, topic: str, timeout: float | None) -> None:
    held = hold(cluster, topic)
    producer = producer_of(cluster, batch_size=1000, buffer_memory=5000)
    producer.partitions_for(topic)
    failures: list[errors.RowDeliveryError] = []

    def send() -> None:
        table = pa.table({"value": [f"{row:0100}" for row in range(100)], "partition": [0] * 100})
        with pytest.raises(errors.RowDeliveryError) as caught:
            producer.send_arrow(topic, table)
        failures.append(caught.value)

    thread = threading.Thread(target=send)
    thread.start()
    wait_until(lambda: producer.metrics()["producer-metrics"]["waiting-threads"] == 1)
    closer = threading.Thread(target=producer.close, args=[timeout])
    closer.start()
    thread.join(PATIENCE_S)
    held.remove()
    closer.join(PATIENCE_S)
    (failure,) = failures
    assert isinstance(failure.__cause__, errors.ProducerClosedError)
    assert 0 < failure.row < 100
    if timeout is None:
        stored = [record.value for record in cluster.records(topic, 0)]
        assert stored == [b"%0100d" % row for row in range(failure.row)]
    with pytest.raises(errors.ProducerClosedError):
        producer.send_arrow(topic, pa.table({"value": []}))


def test_partitions_that_are_added_in_the_middle_of_a_call(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("grows", 1)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    held = hold(cluster, "grows")
    keys = [b"key %d" % row for row in range(100)]
    with producer_of(cluster, batch_size=1000, buffer_memory=5000, metadata_max_age_ms=100) as producer:
        futures = []
        table = pa.table({"value": [f"{row:0100}" for row in range(100)], "key": keys})
        thread = threading.Thread(target=lambda: futures.append(producer.send_arrow("grows", table)))
        thread.start()
        wait_until(lambda: producer.metrics()["producer-metrics"]["waiting-threads"] == 1)
        for future in admin.create_partitions([NewPartitions("grows", 4)]).values():
            future.result(PATIENCE_S)
        wait_until(lambda: len(producer.partitions_for("grows")) == 4)
        held.remove()
        thread.join(PATIENCE_S)
        # rows that were grouped before keep their partition
        assert futures[0].get(PATIENCE_S).offsets == {TopicPartition("grows", 0): OffsetRange(0, 99, 100)}
        later = producer.send_arrow("grows", pa.table({"value": ["x"] * 4, "partition": [0, 1, 2, 3]}))
        assert len(later.get(PATIENCE_S).offsets) == 4


def test_a_topic_that_does_not_exist(cluster: EmbeddedCluster, topic: str) -> None:
    with producer_of(cluster, max_block_ms=200) as producer:
        know(producer, topic)
        table = pa.table({"value": ["a", "b", "c"], "topic": [topic, topic, "nowhere"]})
        with pytest.raises(errors.RowDeliveryError, match="row 2 for nowhere was not delivered: KafkaTimeoutError"):
            producer.send_arrow(None, table)
        with pytest.raises(errors.RowDeliveryError, match="row 0 for no/where was not delivered: InvalidTopicError"):
            producer.send_arrow("no/where", table)
    assert records_in(cluster, topic) == [[], [], []]


# --- Futures ---


def test_a_callback_that_blocks_holds_up_nobody(cluster: EmbeddedCluster, topic: str) -> None:
    blocked, name = threading.Event(), []

    def block(future: Any) -> None:
        name.append(threading.current_thread().name)
        assert blocked.wait(PATIENCE_S)

    held = hold(cluster, topic)
    with producer_of(cluster) as producer:
        first = producer.send_arrow(topic, pa.table({"value": ["a"]}))
        first.add_done_callback(block)
        held.remove()
        assert first.get(PATIENCE_S).rows == 1
        assert producer.send_arrow(topic, pa.table({"value": ["b"]})).get(PATIENCE_S).rows == 1
        blocked.set()
    assert [each.rpartition("-")[0] for each in name] == ["headrace-callbacks-producer"]


def test_futures_are_awaited_without_a_thread_each(cluster: EmbeddedCluster, topic: str) -> None:
    async def send_all() -> int:
        futures = [producer.send_arrow(topic, pa.table({"value": [f"{number}"] * 3})) for number in range(500)]

        async def rows(future: Any) -> int:
            return (await future).rows

        return sum(await asyncio.gather(*map(rows, futures)))

    with producer_of(cluster) as producer:
        assert asyncio.run(send_all()) == 1500


def test_within_a_callback_columns_are_not_sent(cluster: EmbeddedCluster, topic: str) -> None:
    raised: list[BaseException] = []

    def send_more(*_: object) -> None:
        try:
            producer.send_arrow(topic, pa.table({"value": ["a"]}))
        except errors.IllegalStateError as error:
            raised.append(error)

    with producer_of(cluster) as producer:
        producer.send(topic, b"a", callback=send_more).get(PATIENCE_S)
    assert "send_arrow can't be called in a callback" in str(raised[0])


def test_without_acknowledgements(cluster: EmbeddedCluster, topic: str) -> None:
    with producer_of(cluster, acks=0) as producer:
        future = producer.send_arrow(topic, pa.table({"value": ["a", "b"], "partition": [1, 1]}))
        assert future.get(PATIENCE_S).offsets == {TopicPartition(topic, 1): OffsetRange(-1, -1, 2)}


# --- Row by row ---


class Counting:
    """An interceptor that adds a header to each record and counts."""

    def __init__(self) -> None:
        self.sent = 0
        self.acknowledged = 0

    def on_send(self, record: Any) -> Any:
        self.sent += 1
        return record

    def on_acknowledgement(self, metadata: Any, exception: BaseException | None) -> None:
        self.acknowledged += 1


def to_first(topic: str, key: Any, serialized_key: Any, value: Any, serialized_value: Any, cluster: Any) -> int:
    return 0


def upper(text: str) -> bytes:
    if text == "bad":
        raise ValueError("no such word")
    return text.upper().encode()


def test_interceptors_see_each_row_and_that_is_said_once(
    cluster: EmbeddedCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create_topic(f"{topic}-columns", 3)
    interceptor = Counting()
    table = table_of(300)
    # one batch per partition, sent by the flush
    options = {"interceptor_classes": [interceptor], "linger_ms": 60_000, "batch_size": 1_000_000}
    with caplog.at_level(logging.WARNING), producer_of(cluster, **options) as producer:
        future = producer.send_arrow(topic, table)
        producer.send_arrow(topic, table.slice(0, 10))
        producer.flush(PATIENCE_S)
        delivered = future.get(PATIENCE_S)
    with producer_of(cluster) as producer:
        columns = producer.send_arrow(f"{topic}-columns", table).get(PATIENCE_S)
        producer.send_arrow(f"{topic}-columns", table.slice(0, 10))
    assert records_in(cluster, topic) == records_in(cluster, f"{topic}-columns")
    assert (interceptor.sent, interceptor.acknowledged) == (310, 310)
    said = [each.getMessage() for each in caplog.records if "one by one" in each.getMessage()]
    assert len(said) == 1
    assert "because of interceptors" in said[0]
    assert (delivered.rows, delivered.bytes) == (columns.rows, columns.bytes)
    assert delivered.batches == 3
    assert list(delivered.offsets.values()) == [
        columns.offsets[TopicPartition(f"{topic}-columns", each.partition)] for each in delivered.offsets
    ]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"value_serializer": upper}, "a serializer"),
        ({"key_serializer": upper}, "a serializer"),
        ({"partitioner_class": to_first}, "a partitioner"),
    ],
)
def test_parts_that_need_objects(
    cluster: EmbeddedCluster, topic: str, caplog: pytest.LogCaptureFixture, options: dict, reason: str
) -> None:
    table = pa.table(
        {
            "value": ["a", None, "c"],
            "key": pa.array([None, "k", "k"]).dictionary_encode(),
            "partition": [2, None, 1],
            "timestamp": [7, None, 9],
            "headers": pa.array(
                [None, [{"key": b"h", "value": "v"}], []],
                pa.list_(pa.struct([("key", pa.binary()), ("value", pa.string())])),
            ),
        }
    )
    with caplog.at_level(logging.WARNING), producer_of(cluster, **options) as producer:
        assert producer.send_arrow(topic, table).get(PATIENCE_S).rows == 3
    assert f"one by one, because of {reason}" in caplog.text
    found = {record[2]: record for partition in records_in(cluster, topic) for record in partition}
    values = (b"A", None, b"C") if "value_serializer" in options else (b"a", None, b"c")
    key = b"K" if "key_serializer" in options else b"k"
    first, second, third = (found[value] for value in values)
    assert (first[0], first[1], first[3]) == (7, None, ())
    assert (second[1], second[3]) == (key, (("h", b"v"),))
    assert (third[0], third[1], third[3]) == (9, key, ())
    if "partitioner_class" in options:
        assert [len(partition) for partition in records_in(cluster, topic)] == [1, 1, 1]


def test_a_value_that_a_serializer_can_not_take_is_told_with_its_row(cluster: EmbeddedCluster, topic: str) -> None:
    table = pa.concat_tables([pa.table({"value": ["a", "b"]}), pa.table({"value": ["c", "bad", "e"]})])
    with producer_of(cluster, value_serializer=upper) as producer:
        with pytest.raises(errors.RowDeliveryError, match=r"row 3 for .*value serializer .*no such word") as caught:
            producer.send_arrow(topic, table)
        producer.flush(PATIENCE_S)
    assert caught.value.row == 3
    assert sorted(each[2] for partition in records_in(cluster, topic) for each in partition) == [b"A", b"B", b"C"]


def test_row_by_row_columns_are_checked_as_otherwise(cluster: EmbeddedCluster, topic: str) -> None:
    with producer_of(cluster, interceptor_classes=[Counting()]) as producer:
        with pytest.raises(errors.SerializationError, match="the column 'value' is of type int64"):
            producer.send_arrow(topic, pa.table({"value": [1]}))
        with pytest.raises(
            errors.RowDeliveryError, match=r"row 1 was not.*'partition' holds -1; it has to be 0 or more"
        ):
            producer.send_arrow(topic, pa.table({"value": ["a", "b"], "partition": [0, -1]}))
        with pytest.raises(errors.SerializationError, match="the column 'partition' is of type double"):
            producer.send_arrow(topic, pa.table({"value": ["a"], "partition": [0.0]}))
        with pytest.raises(errors.RowDeliveryError, match=r"row 1 was not.*'topic' is null"):
            producer.send_arrow(None, pa.table({"value": ["a", "b"], "topic": [topic, None]}))
        for pair in (None, {"key": None, "value": b"v"}):
            headers = pa.array([None, [pair]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
            with pytest.raises(errors.RowDeliveryError, match=r"row 1 was not.*the column 'headers' has a"):
                producer.send_arrow(topic, pa.table({"value": ["a", "b"], "headers": headers}))
        headers = pa.array([[(b"\xff", b"v")]], pa.map_(pa.binary(), pa.binary()))
        with pytest.raises(errors.RowDeliveryError, match=r"row 0 was not.*a header whose key is not UTF-8"):
            producer.send_arrow(topic, pa.table({"value": ["a"], "headers": headers}))
    assert records_in(cluster, topic) == [[], [], []]


def test_row_by_row_a_failure_is_told_with_its_row(cluster: EmbeddedCluster, topic: str) -> None:
    cluster.inject(ApiKey.PRODUCE, Fault(error=errors.InvalidRecordError, topic=topic, partition=1), times=None)
    with producer_of(cluster, interceptor_classes=[Counting()]) as producer:
        future = producer.send_arrow(topic, pa.table({"value": list("abcd"), "partition": [0, 0, 1, 1]}))
        error = future.exception(PATIENCE_S)
        assert isinstance(error, errors.RowDeliveryError)
        assert (error.row, error.partition) == (2, 1)
        with pytest.raises(errors.RowDeliveryError, match=r"row 1 for .* was not delivered: UnknownTopicOrPartition"):
            producer.send_arrow(topic, pa.table({"value": ["a", "b"], "partition": [0, 9]}))
    assert future.metadata.rows == 2


def test_row_by_row_a_future_can_be_waited_for_in_a_callback(cluster: EmbeddedCluster, topic: str) -> None:
    waited = []
    held = hold(cluster, topic)
    with producer_of(cluster, interceptor_classes=[Counting()]) as producer:
        sent = threading.Event()

        def wait(*_: object) -> None:
            assert sent.wait(PATIENCE_S)
            waited.append(future.get(PATIENCE_S).rows)

        single = producer.send(topic, b"a", callback=wait)
        future = producer.send_arrow(topic, pa.table({"value": ["a", "b"]}))
        sent.set()
        held.remove()
        single.get(PATIENCE_S)
    assert waited == [2]
