"""Programs written for kafka-python's producer, run with this one in its place.

Each calling pattern found in real programs runs twice, with kafka-python's class and with this one, and must give the
same result. Differences are listed in docs/from-kafka-python.md; `test_producer_kafka_python_attributes.py` compares
names, arguments and values one by one.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import json
import logging
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any
from unittest import mock

import kafka
import kafka.errors
import pytest
from kafka.partitioner import DefaultPartitioner, Partitioner, StickyPartitioner
from kafka.serializer import DefaultSerializer, JsonSerializer

from headrace.broker import EmbeddedCluster
from headrace.producer import KafkaProducer, TopicPartition, errors

# kafka-python itself warns about callables as serializers
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not implement:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:serializer does not implement:DeprecationWarning"),
]

PARTITIONS = 4
PATIENCE_S = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(auto_create_topics_enable=False, log_retention_ms=-1) as cluster:
        yield cluster


class Program:
    """A producer class with a broker and its own topic."""

    def __init__(self, cluster: EmbeddedCluster, producer_class: Any, topic: str) -> None:
        self.cluster = cluster
        self.producer_class = producer_class
        self.topic = topic
        self.errors = errors if producer_class is KafkaProducer else kafka.errors
        cluster.create_topic(topic, PARTITIONS)

    def producer(self, **options: Any) -> Any:
        return self.producer_class(bootstrap_servers=[self.cluster.bootstrap_servers], **options)

    def records(self) -> list[Any]:
        return [record for number in range(PARTITIONS) for record in self.cluster.records(self.topic, number)]

    def values(self) -> list[bytes]:
        return sorted(record.value for record in self.records())


@pytest.fixture(params=[kafka.KafkaProducer, KafkaProducer], ids=["kafka-python", "headrace"])
def program(request: pytest.FixtureRequest, cluster: EmbeddedCluster) -> Program:
    name = "".join(character if character.isalnum() else "-" for character in request.node.name)
    return Program(cluster, request.param, name)


def test_a_tutorial(program: Program) -> None:
    producer = program.producer(retries=5)
    metadata = producer.send(program.topic, b"raw", key=b"k").get(timeout=PATIENCE_S)
    assert (metadata.topic, metadata.offset) == (program.topic, 0)
    assert metadata.topic_partition == TopicPartition(program.topic, metadata.partition)
    assert (metadata.serialized_key_size, metadata.serialized_value_size) == (1, 3)
    told: list[Any] = []
    future = producer.send(program.topic, b"more").add_callback(told.append).add_errback(told.append)
    producer.flush()
    assert future.is_done
    assert future.succeeded()
    assert not future.failed()
    assert told == [future.value]
    for _ in range(100):
        producer.send(program.topic, b"msg")
    producer.close()
    assert len(program.records()) == 102


def test_json_from_dicts_and_text_keys(program: Program) -> None:
    with program.producer(
        key_serializer=str.encode, value_serializer=lambda value: json.dumps(value).encode("utf-8"), acks="all"
    ) as producer:
        producer.send(program.topic, {"a": 1}, "k")
        producer.send(program.topic, key="k", value={"a": 2})
    assert [(record.key, record.value) for record in program.records()] == [(b"k", b'{"a": 1}'), (b"k", b'{"a": 2}')]


@pytest.mark.parametrize("serializer", [json.dumps, pickle.dumps], ids=["json", "pickle"])
def test_a_serializer_from_the_library(program: Program, serializer: Callable) -> None:
    with program.producer(value_serializer=lambda value: memoryview(_bytes(serializer(value))).tobytes()) as producer:
        producer.send(program.topic, [1, 2]).get(PATIENCE_S)
    assert program.values() == [_bytes(serializer([1, 2]))]


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else value


@pytest.mark.parametrize("serializer", [DefaultSerializer("utf-16"), JsonSerializer()], ids=["utf-16", "json"])
def test_kafka_pythons_serializers(program: Program, serializer: Any) -> None:
    with program.producer(value_serializer=serializer) as producer:
        producer.send(program.topic, "grün").get(PATIENCE_S)
        producer.send(program.topic, None, key=b"k").get(PATIENCE_S)
    values = [record.value for record in program.records()]
    assert sorted(values, key=bool) == [None, serializer.serialize("t", [], "grün")]


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(program: Program, compression: str | None) -> None:
    with program.producer(compression_type=compression, linger_ms=50, batch_size=32 * 1024) as producer:
        for number in range(1000):
            producer.send(program.topic, value=b"%04d" % number * 10)
    assert program.values() == [b"%04d" % number * 10 for number in range(1000)]


def test_all_arguments_by_place(program: Program) -> None:
    with program.producer() as producer:
        metadata = producer.send(program.topic, b"value", b"key", [("name", b"x")], 3, 1_600_000_000_123).get(
            PATIENCE_S
        )
    assert (metadata.partition, metadata.timestamp) == (3, 1_600_000_000_123)
    (record,) = program.records()
    assert (record.key, record.value, list(record.headers)) == (b"key", b"value", [("name", b"x")])


def test_keys_go_where_they_went_before(program: Program) -> None:
    with program.producer() as producer:
        sent = [producer.send(program.topic, b"", key=b"user-%d" % number) for number in range(50)]
        chosen = [future.get(PATIENCE_S).partition for future in sent]
    hashed = DefaultPartitioner()
    keys = [b"user-%d" % number for number in range(50)]
    assert chosen == [hashed.partition(program.topic, None, key, None, b"", Everywhere()) for key in keys]


class Everywhere:
    """The cluster metadata as kafka-python's partitioners see them."""

    def topics(self) -> Any:
        return mock.MagicMock(__contains__=lambda self, topic: True)

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(PARTITIONS))

    available_partitions_for_topic = partitions_for_topic


@pytest.mark.parametrize("acks", [0, 1, "all", -1])
def test_acks(program: Program, acks: Any) -> None:
    with program.producer(acks=acks) as producer:
        metadata = producer.send(program.topic, b"x", partition=0).get(timeout=PATIENCE_S)
    # with acks=0 the broker reports neither success nor an offset
    if acks != 0:
        assert metadata.offset == 0
        assert program.values() == [b"x"]


class ByValue(Partitioner):
    """A user-defined partitioner on kafka-python's base class."""

    def partition(self, topic: str, key: Any, key_bytes: Any, value: Any, value_bytes: Any, cluster: Any) -> int:
        everything = sorted(cluster.available_partitions_for_topic(topic))
        return everything[int(value_bytes) % len(everything)]


def test_a_partitioner_of_the_users(program: Program) -> None:
    with program.producer(partitioner=ByValue()) as producer:
        sent = [producer.send(program.topic, b"%d" % number) for number in range(12)]
        assert [future.get(PATIENCE_S).partition for future in sent] == [0, 1, 2, 3] * 3


def test_a_sticky_partitioner_moves_on_batch_by_batch(program: Program) -> None:
    with program.producer(partitioner=StickyPartitioner(), batch_size=1000, linger_ms=200) as producer:
        sent = [producer.send(program.topic, b"x" * 90) for _ in range(500)]
        chosen = [future.get(PATIENCE_S).partition for future in sent]
    moves = sum(1 for one, other in pairwise(chosen) if one != other)
    # about ten records per batch: not one partition for all, nor a new one for each record
    assert 10 < moves < 150
    assert len(set(chosen)) == PARTITIONS


class LogHandler(logging.Handler):
    """As in kafka-logging-handler and similar packages: one record per log line, flushed, closed at exit."""

    def __init__(self, producer: Any, topic: str) -> None:
        super().__init__()
        self.producer = producer
        self.topic = topic
        atexit.register(self.close)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.producer.send(self.topic, {"message": self.format(record)})
            self.flush(timeout=PATIENCE_S)
        except Exception:
            self.handleError(record)

    def flush(self, timeout: float | None = None) -> None:
        self.producer.flush(timeout=timeout)

    def close(self) -> None:
        atexit.unregister(self.close)
        self.producer.close()
        super().close()


def test_a_handler_of_the_logging_module(program: Program) -> None:
    handler = LogHandler(
        program.producer(value_serializer=lambda v: json.dumps(v).encode(), linger_ms=10), program.topic
    )
    logger = logging.getLogger(f"of.{program.topic}")
    root = logging.getLogger()
    level = root.level
    # not in emit, which runs with the handler's lock: a producer thread that logs would wait for it
    handler.addFilter(lambda record: not record.name.startswith(("kafka", "headrace")))
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        threads = [threading.Thread(target=logger.info, args=("line %d", number)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
        handler.close()
    assert program.values() == [b'{"message": "line %d"}' % number for number in range(8)]


def test_a_producer_that_is_made_when_first_needed_and_shared_by_threads(program: Program) -> None:
    made: list[Any] = []
    lock = threading.Lock()

    def shared() -> Any:
        with lock:
            if not made:
                made.append(program.producer(max_block_ms=10_000, api_version=(2, 6, 2)))
            return made[0]

    def handle(number: int) -> int:
        producer = shared()
        metadata = producer.send(program.topic, key=str(number).encode(), value=b"v%03d" % number).get(PATIENCE_S)
        producer.flush()
        return metadata.partition

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(handle, range(100))) <= set(range(PARTITIONS))
    made[0].close()
    made[0].close()
    assert len(made) == 1
    assert program.values() == [b"v%03d" % number for number in range(100)]


def test_a_subclass_for_asyncio(program: Program) -> None:
    class AsyncProducer(program.producer_class):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.sent = 0

        async def produce(self, topic: str, message: str) -> Any:
            loop = asyncio.get_running_loop()
            waiter = loop.create_future()
            future = super().send(topic, message.encode())
            self.sent += 1
            future.add_callback(self._settle, loop, waiter)
            future.add_errback(self._settle, loop, waiter)
            return await waiter

        @staticmethod
        def _settle(loop: Any, waiter: asyncio.Future, outcome: Any) -> None:
            loop.call_soon_threadsafe(waiter.set_result, outcome)

    async def run(producer: Any) -> list[Any]:
        return await asyncio.gather(*(producer.produce(program.topic, "m") for _ in range(20)))

    with AsyncProducer(bootstrap_servers=program.cluster.bootstrap_servers) as producer:
        outcomes = asyncio.run(run(producer))
    assert producer.sent == 20
    assert {metadata.topic for metadata in outcomes} == {program.topic}


def test_futures_of_the_standard_library_filled_by_callbacks(program: Program) -> None:
    """As a driver of the OpenMessaging benchmark does."""
    with program.producer() as producer:
        filled = []
        for _ in range(10):
            future: Future[Any] = Future()
            sent = producer.send(topic=program.topic, value=b"x")
            sent.add_callback(lambda metadata, future: future.set_result(metadata.offset), future=future)
            sent.add_errback(lambda error, future: future.set_exception(error), future=future)
            filled.append(future)
        assert all(future.result(PATIENCE_S) >= 0 for future in filled)


def test_arguments_for_callbacks_come_first(program: Program) -> None:
    told: list[Any] = []

    def note(number: int, metadata: Any, *, word: str) -> None:
        told.append((number, metadata.topic, word))

    with program.producer() as producer:
        producer.send(program.topic, b"x").add_callback(note, 7, word="w")
        producer.send(program.topic, b"x").add_both(partial(note, 8, word="v"))
    assert sorted(told) == [(7, program.topic, "w"), (8, program.topic, "v")]


def test_what_fails_is_told_to_errbacks(program: Program) -> None:
    told: list[Any] = []
    program.cluster.create_topic(f"{program.topic}-narrow", 1, configs={"max.message.bytes": "500"})
    with program.producer(retries=3, enable_idempotence=False) as producer:
        future = producer.send(f"{program.topic}-narrow", b"x" * 1000)
        future.add_callback(told.append).add_errback(told.append)
        with pytest.raises(program.errors.MessageSizeTooLargeError):
            future.get(timeout=PATIENCE_S)
    assert [type(error) for error in told] == [program.errors.MessageSizeTooLargeError]
    assert future.is_done
    assert future.failed()
    assert not future.retriable()


def test_an_errback_looks_into_the_error(program: Program) -> None:
    told: list[Any] = []
    topic = f"{program.topic}-looked-into"
    program.cluster.create_topic(topic, 1, configs={"max.message.bytes": "500"})
    with program.producer(retries=3, enable_idempotence=False) as producer:
        producer.send(topic, b"x" * 1000).add_errback(told.append)
        producer.flush()
    (error,) = told
    assert isinstance(error, program.errors.BrokerResponseError)
    assert (error.errno, error.message) == (10, "MESSAGE_SIZE_TOO_LARGE")
    assert program.errors.for_code(error.errno) is type(error)
    assert (error.retriable, error.invalid_metadata) == (False, False)


def test_errors_that_may_pass_are_told_by_their_class(program: Program) -> None:
    """As in wrappers that retry `send`."""
    passing = (
        program.errors.KafkaTimeoutError,
        program.errors.KafkaConnectionError,
        program.errors.NodeNotReadyError,
        program.errors.LeaderNotAvailableError,
    )
    assert all(issubclass(kind, program.errors.KafkaError) and kind.retriable for kind in passing)
    with program.producer(max_block_ms=300) as producer:
        with pytest.raises(passing) as caught:
            producer.send("nobody-made-this", b"x").get(PATIENCE_S)
        assert caught.value.retriable


def test_it_is_flushed_and_closed_again_after_the_close(program: Program) -> None:
    """As by a handler that was closed, at the shutdown of the logging module."""
    producer = program.producer(linger_ms=50)
    future = producer.send(program.topic, b"x")
    producer.close(timeout=PATIENCE_S)
    assert future.succeeded()
    producer.flush()
    producer.flush(timeout=1)
    producer.close(timeout=0)
    producer.close(null_logger=True)


def test_a_copy_of_the_defaults_is_changed_and_passed(program: Program) -> None:
    config = dict(program.producer_class.DEFAULT_CONFIG)
    config.update(bootstrap_servers=[program.cluster.bootstrap_servers], acks=1, enable_idempotence=False, linger_ms=3)
    with program.producer_class(**config) as producer:
        assert producer.send(program.topic, b"x", key=b"k").get(PATIENCE_S).offset == 0
        assert (producer.config["acks"], producer.config.get("linger_ms")) == (1, 3)
        assert producer.config.get("group_id") is None
        assert "linger_ms" in producer.config
        assert {**producer.config, "linger_ms": 4}["linger_ms"] == 4


def test_no_metadata_in_time_is_a_timeout(program: Program) -> None:
    with program.producer(max_block_ms=300) as producer, pytest.raises(program.errors.KafkaTimeoutError):
        producer.send("nobody-made-this", b"x")


def test_options_are_picked_by_the_table_of_defaults(program: Program) -> None:
    settings = {"bootstrap_servers": "h:1", "linger_ms": 3, "group_id": "consumer's", "acks": 1, "partitioner": None}
    table = program.producer_class.DEFAULT_CONFIG
    assert {name for name in settings if name in table} == {"bootstrap_servers", "linger_ms", "acks", "partitioner"}
    assert table["request_timeout_ms"] == 30_000


def test_the_configuration_is_passed_on(program: Program) -> None:
    with program.producer(client_id="mine") as producer:
        producer.send(program.topic, b"x", partition=0).get(PATIENCE_S)
        assert producer.config["client_id"] == "mine"
        assert producer.config["max_block_ms"] == 60_000
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=producer.config["bootstrap_servers"], consumer_timeout_ms=10_000
        )
    with consumer:
        consumer.assign([kafka.TopicPartition(program.topic, 0)])
        consumer.seek_to_beginning()
        assert next(consumer).value == b"x"


def test_metrics_by_group_and_name(program: Program) -> None:
    with program.producer() as producer:
        producer.send(program.topic, b"x").get(PATIENCE_S)
        metrics = producer.metrics()
        assert metrics["producer-metrics"]["record-send-rate"] > 0
        assert metrics["producer-metrics"]["batch-size-avg"] > 0
        assert metrics[f"producer-topic-metrics.{program.topic}"]["byte-rate"] > 0


def test_partitions_for(program: Program) -> None:
    with program.producer() as producer:
        assert producer.partitions_for(program.topic) == set(range(PARTITIONS))


def test_it_can_be_replaced_in_tests_of_a_program(program: Program) -> None:
    """Mocks with autospec, and the order of parameters, which some programs check."""
    stand_in = mock.create_autospec(program.producer_class, instance=True)
    stand_in.send("t", b"v", key=b"k")
    stand_in.send.assert_called_once_with("t", b"v", key=b"k")
    stand_in.flush(timeout=3)
    with pytest.raises(AttributeError):
        stand_in.produce("t")
    with program.producer() as producer, mock.patch.object(program.producer_class, "send") as send:
        producer.send("t", b"v")
    send.assert_called_once_with("t", b"v")
    order = list(inspect.signature(program.producer_class.send).parameters)
    assert order[:7] == ["self", "topic", "value", "key", "headers", "partition", "timestamp_ms"]


@pytest.mark.parametrize("servers", ["localhost", ["localhost"], "localhost,127.0.0.1", [" localhost:9092 "]])
def test_hosts_without_a_port(servers: Any) -> None:
    """Only with this producer: kafka-python also takes 9092, where nothing listens on this machine."""
    with KafkaProducer(bootstrap_servers=servers, max_block_ms=1) as producer:
        assert {address.port for address in producer.config.bootstrap_servers} == {9092}
