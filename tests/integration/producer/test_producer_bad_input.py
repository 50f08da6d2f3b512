"""Bad input to a producer raises a typed error where it is detected, and the error says what to do."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import pickle
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.waiting import know, wait_until

from headrace.broker import ApiKey, EmbeddedCluster, Fault
from headrace.network.protocol import errors
from headrace.producer import KafkaProducer, ProducerRecord

PATIENCE_S = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(auto_create_topics_enable=False) as cluster:
        cluster.create_topic("known", 3)
        yield cluster


@pytest.fixture
def producer(cluster: EmbeddedCluster) -> Iterator[KafkaProducer]:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, max_block_ms=10_000) as producer:
        yield producer


class Peer:
    """A listening port that applies `act` to every connection."""

    def __init__(self, act: Callable[[socket.socket], None]) -> None:
        self._act = act
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                try:
                    self._act(connection)
                except OSError:
                    continue

    def close(self) -> None:
        self._listener.close()


def _http(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def _closes(connection: socket.socket) -> None:
    connection.recv(1000)


def _garbage(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"\x00\x00\x00\x10" + b"\xde\xad\xbe\xef" * 4)


def _says_nothing(connection: socket.socket) -> None:
    while connection.recv(1000):
        pass


def _absurd_length(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"\x7f\xff\xff\xff" + b"\x00" * 100)


def causes(error: BaseException | None) -> list[BaseException]:
    found = []
    while error is not None:
        found.append(error)
        error = error.__cause__
    return found


def failure_of(producer: KafkaProducer, *, finds_something: bool = True) -> errors.KafkaError:
    """The error of a send, once the sender thread has detected the problem."""
    while True:
        known = producer._engine.metadata.last_error is not None or not finds_something
        with pytest.raises(errors.KafkaError) as raised:
            producer.send("t", b"x")
        if known:
            return raised.value


@pytest.mark.parametrize(
    ("act", "kind", "text"),
    [
        (_http, errors.KafkaError, "HTTP"),
        (_closes, errors.KafkaError, "closed the connection"),
        (_garbage, errors.KafkaError, "not Kafka"),
        (_absurd_length, errors.KafkaError, "not Kafka"),
        (_says_nothing, errors.KafkaTimeoutError, "max.block.ms"),
    ],
    ids=["HTTP", "closes", "garbage", "absurd length", "silence"],
)
def test_a_port_where_no_kafka_speaks(act: Callable, kind: type, text: str) -> None:
    peer = Peer(act)
    try:
        with KafkaProducer(bootstrap_servers=peer.address, max_block_ms=100) as producer:
            error = failure_of(producer, finds_something=act is not _says_nothing)
            # the address, and what answered there
            assert peer.address in str(error)
            assert text in str(error)
            assert any(isinstance(cause, kind) for cause in causes(error))
    finally:
        peer.close()


def test_a_port_where_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with KafkaProducer(bootstrap_servers=address, max_block_ms=100) as producer:
        error = failure_of(producer)
    assert isinstance(error, errors.KafkaTimeoutError)
    assert re.search(r"max\.block\.ms.*refused", str(error))
    assert address in str(error)


def test_a_host_that_does_not_resolve() -> None:
    with KafkaProducer(bootstrap_servers="nowhere.invalid:9092", max_block_ms=100) as producer:
        error = failure_of(producer)
    assert "nowhere.invalid" in str(error)
    assert any(isinstance(cause, errors.UnresolvableHostError) for cause in causes(error))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"linger_mss": 5}, "linger"),
        ({"bootstrap.server": "x:1"}, r"bootstrap\.servers"),
        ({"linger_ms": "soon"}, "linger"),
        ({"linger_ms": -1}, "linger"),
        ({"acks": 7}, "acks"),
        ({"compression_type": "zip"}, "compression"),
        ({"bootstrap_servers": ""}, "bootstrap"),
        ({"bootstrap_servers": "localhost:"}, "bootstrap"),
        ({"value_serializer": 5}, "serializer"),
        ({"value_serializer": "no.such.Class"}, "serializer"),
        ({"partitioner_class": object()}, "partitioner"),
        ({"delivery_timeout_ms": 10, "linger_ms": 100}, "delivery"),
        ({"linger_ms": b"5"}, "linger"),
        ({b"linger.ms": 5}, "is not text"),
        ({"bootstrap_servers": b"localhost:1"}, "bootstrap"),
        ({"client_id": b"x"}, "client_id"),
        ({"compression_type": b"gzip"}, "compression"),
        ({"config_file": "/no/such/file"}, "can't be read"),
        ({"enable.idempotence": True, "acks": 1}, "contradicts acks=1"),
        ({"value_serializer": lambda: b""}, "has to take"),
        ({"value_serializer": "json.dumps"}, "use value.serializer='json'"),
        ({"value_serializer": int}, "creates an instance of it"),
        ({"partitioner": lambda key: 0}, "has to take"),
        ({"interceptor_classes": [5]}, "on_send"),
        ({"metric_reporters": ["no.such.Reporter"]}, "metric"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else value,
)
def test_configuration_that_can_not_work_starts_no_thread(options: dict[str, Any], text: str) -> None:
    before = threading.active_count()
    with pytest.raises(errors.KafkaConfigurationError, match=text):
        KafkaProducer({"bootstrap.servers": "localhost:1", **options})
    assert threading.active_count() == before


def test_a_topic_that_does_not_exist_and_is_not_created(cluster: EmbeddedCluster) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, max_block_ms=100) as producer:
        know(producer, "known")
        with pytest.raises(errors.KafkaTimeoutError):
            producer.send("unknown", b"x")
        wait_until(lambda: producer._engine.metadata.topic_error("unknown"))
        for send in (
            lambda: producer.send("unknown", b"x"),
            lambda: producer.send("unknown", b"x", key=b"k"),
            lambda: producer.send("unknown", b"x", partition=0),
            lambda: producer.partitions_for("unknown"),
        ):
            with pytest.raises(errors.KafkaTimeoutError, match=r"'unknown' did not appear.*Create the topic"):
                send()
        assert producer.send("known", b"x").get(PATIENCE_S).topic == "known"


@pytest.mark.parametrize("topic", ["", ".", "..", "with space", "ä", "x" * 250, "a/b", None, b"bytes", 7])
def test_an_illegal_topic_name(producer: KafkaProducer, topic: Any) -> None:
    for send in (lambda: producer.send(topic, b"x"), lambda: producer.partitions_for(topic)):
        with pytest.raises(errors.InvalidTopicError, match="1 to 249"):
            send()


def test_a_partition_that_does_not_exist(cluster: EmbeddedCluster, producer: KafkaProducer) -> None:
    cluster.create_topic("single", 1)
    for _ in range(2):
        with pytest.raises(errors.UnknownTopicOrPartitionError, match=r"3 partitions, 0 to 2.* 3"):
            producer.send("known", b"x", partition=3)
    with pytest.raises(errors.UnknownTopicOrPartitionError, match="1 partition, number 0: there is no partition 1"):
        producer.send("single", b"x", partition=1)
    assert producer.send("known", b"x", partition=2).get(PATIENCE_S).partition == 2


@pytest.mark.parametrize("partition", [3, 2**40, 2**70])
def test_a_partition_far_beyond(producer: KafkaProducer, partition: int) -> None:
    with pytest.raises(errors.UnknownTopicOrPartitionError, match=f"there is no partition {partition}"):
        producer.send("known", b"x", key=b"k", partition=partition)


@pytest.mark.parametrize("partition", [-1, -(2**40), 1.0, "1", True])
def test_a_partition_that_is_none(producer: KafkaProducer, partition: Any) -> None:
    with pytest.raises(errors.IllegalArgumentError, match="partition"):
        producer.send("known", b"x", partition=partition)


def test_numbers_of_numpy_are_numbers(producer: KafkaProducer) -> None:
    metadata = producer.send("known", b"x", partition=np.int64(2), timestamp_ms=np.int32(77)).get(PATIENCE_S)
    assert (metadata.partition, metadata.timestamp) == (2, 77)


@pytest.mark.parametrize(
    "timestamp", [-1, 1.5, 5.0, float("nan"), "now", True, 2**63, datetime(2026, 1, 1, tzinfo=timezone.utc)]
)
def test_a_timestamp_that_is_none(producer: KafkaProducer, timestamp: Any) -> None:
    with pytest.raises(errors.IllegalArgumentError, match="timestamp_ms"):
        producer.send("known", b"x", timestamp_ms=timestamp)


def test_a_record_larger_than_a_request_may_be(cluster: EmbeddedCluster) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, max_request_size=1000) as producer:
        with pytest.raises(errors.MessageSizeTooLargeError, match=r"max\.request\.size"):
            producer.send("known", b"x" * 1000)
        with pytest.raises(errors.MessageSizeTooLargeError, match=r"max\.request\.size"):
            producer.send("known", b"", key=b"x" * 1000)
        with pytest.raises(errors.MessageSizeTooLargeError, match=r"max\.request\.size"):
            producer.send("known", b"", headers=[("h", b"x" * 1000)])
        producer.send("known", b"x" * 800).get(PATIENCE_S)


def test_a_record_larger_than_the_memory(cluster: EmbeddedCluster) -> None:
    with KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, buffer_memory=40_000, max_request_size=1_000_000
    ) as producer:
        with pytest.raises(errors.MessageSizeTooLargeError, match=r"buffer\.memory"):
            producer.send("known", b"x" * 50_000)
        producer.send("known", b"x" * 30_000).get(PATIENCE_S)


def test_a_record_larger_than_the_broker_takes_fails_in_its_future(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("narrow", 1, configs={"max.message.bytes": "500"})
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        future = producer.send("narrow", b"x" * 600)
        with pytest.raises(errors.MessageSizeTooLargeError):
            future.get(PATIENCE_S)


@pytest.mark.parametrize("value", ["text", 5, 1.5, ["list"], {"a": 1}, object()])
def test_a_value_or_key_that_is_not_bytes(producer: KafkaProducer, value: Any) -> None:
    with pytest.raises(errors.SerializationError, match=r"value.*value_serializer"):
        producer.send("known", value)
    with pytest.raises(errors.SerializationError, match=r"key.*key_serializer"):
        producer.send("known", b"x", key=value)


@pytest.mark.parametrize("value", [b"x", bytearray(b"x"), memoryview(b"x")])
def test_what_is_like_bytes_is_taken_and_may_change_afterwards(producer: KafkaProducer, value: Any) -> None:
    future = producer.send("known", value, key=value)
    if isinstance(value, bytearray):
        value[:] = b"y"
    assert future.get(PATIENCE_S).serialized_value_size == 1


@pytest.mark.parametrize(
    "headers",
    [
        [("a", "text")],
        [("a", 5)],
        [("a",)],
        [("a", b"b", b"c")],
        ["ab", 1],
        [(b"a", b"b")],
        [(None, b"b")],
        [("\ud800", b"b")],
        7,
        "ab",
        {"key": "value"},
        {"key": b"value"},
        {"ab": b"value"},
    ],
)
def test_headers_that_are_none(producer: KafkaProducer, headers: Any) -> None:
    with pytest.raises(errors.SerializationError, match="headers of a record for topic 'known'"):
        producer.send("known", b"x", headers=headers)


def test_of_a_dict_of_headers_its_items_are_asked_for(producer: KafkaProducer) -> None:
    with pytest.raises(errors.SerializationError, match=r"give its items\(\)"):
        producer.send("known", b"x", headers={"a": b"b"})  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [list, tuple, iter], ids=["list", "tuple", "iterator"])
def test_pairs_of_any_kind_are_headers(cluster: EmbeddedCluster, producer: KafkaProducer, make: Callable) -> None:
    metadata = producer.send("known", b"x", headers=make([["a", b"b"], ("c", None)])).get(PATIENCE_S)
    record = cluster.records("known", metadata.partition)[metadata.offset]
    assert list(record.headers) == [("a", b"b"), ("c", None)]


def test_a_serializer_that_raises(cluster: EmbeddedCluster) -> None:
    def bad(data: Any) -> bytes:
        raise ZeroDivisionError("bang")

    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, value_serializer=bad) as producer:
        with pytest.raises(errors.SerializationError, match=r"value.*known.*bang") as raised:
            producer.send("known", 5)
        assert isinstance(raised.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("output", [5, "text", [b"x"], object()])
def test_a_serializer_that_does_not_give_bytes(cluster: EmbeddedCluster, output: Any) -> None:
    with (
        KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, value_serializer=lambda data: output) as producer,
        pytest.raises(errors.SerializationError, match=f"returned {type(output).__name__} for topic known"),
    ):
        producer.send("known", b"x")


def test_a_serializer_that_gives_nothing_makes_a_tombstone(cluster: EmbeddedCluster) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, value_serializer=lambda data: None) as producer:
        assert producer.send("known", "x", key=b"k").get(PATIENCE_S).serialized_value_size == -1


def test_a_partitioner_that_raises_or_chooses_what_is_not_there(cluster: EmbeddedCluster) -> None:
    choices: list[Any] = [0, 99, "one", -1, ZeroDivisionError("bang"), 2]

    def partitioner(key: Any, everything: Any, available: Any) -> Any:
        choice = choices.pop(0)
        if isinstance(choice, Exception):
            raise choice
        return choice

    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, partitioner=partitioner) as producer:
        assert producer.send("known", b"x").get(PATIENCE_S).partition == 0
        for _ in range(4):
            with pytest.raises(errors.KafkaError, match="partitioner"):
                producer.send("known", b"x")
        assert producer.send("known", b"x").get(PATIENCE_S).partition == 2


def test_a_callback_that_can_not_be_called(producer: KafkaProducer) -> None:
    with pytest.raises(errors.IllegalArgumentError, match="callback"):
        producer.send("known", b"x", headers=[("a", b"b")], callback=5)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(errors.IllegalArgumentError, match="callback"):
            producer.send("known", b"x", callback=5)  # type: ignore[arg-type]
        producer.send("known", b"x", key=b"k")


def test_an_argument_that_send_does_not_have(producer: KafkaProducer) -> None:
    with pytest.raises(TypeError, match="on_delivery"):
        producer.send("known", b"x", on_delivery=print)  # type: ignore[call-arg]


@pytest.mark.parametrize("data", [5, b"bytes", [b"x"], pa.table({"other": [b"x"]}), pa.table({"value": [1.5]})])
def test_columns_that_can_not_be_sent(producer: KafkaProducer, data: Any) -> None:
    with pytest.raises((errors.IllegalArgumentError, errors.SerializationError)):
        producer.send_arrow("known", data)


def test_lists_that_can_not_be_sent(producer: KafkaProducer) -> None:
    with pytest.raises(errors.IllegalArgumentError, match="lists of equal length"):
        producer.send_many("known", [b"x", b"y"], [b"k"])
    with pytest.raises(errors.RowDeliveryError) as caught:
        producer.send_many("known", [b"x", "y"])
    assert caught.value.row == 1
    assert isinstance(caught.value.__cause__, errors.SerializationError)


def test_no_memory_in_time(cluster: EmbeddedCluster) -> None:
    held = cluster.inject(ApiKey.PRODUCE, Fault(error=errors.NotEnoughReplicasError), times=None)
    with KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, buffer_memory=20_000, batch_size=10_000, max_block_ms=100
    ) as producer:
        know(producer, "known")
        for _ in range(2):
            producer.send("known", b"x" * 9000, partition=0)
        with pytest.raises(errors.BufferExhaustedError, match=r"max\.block\.ms"):
            producer.send("known", b"x" * 9000, partition=0)
        held.remove()
    assert issubclass(errors.BufferExhaustedError, errors.KafkaTimeoutError)


def test_what_is_not_known_in_time(cluster: EmbeddedCluster) -> None:
    with cluster.inject(ApiKey.PRODUCE, Fault(error=errors.NotEnoughReplicasError), times=None):
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        future = producer.send("known", b"x")
        for wait in (lambda: future.get(0.01), lambda: future.exception(0.01), lambda: producer.flush(0.01)):
            with pytest.raises(errors.KafkaTimeoutError):
                wait()
        assert not future.done()
        with pytest.raises(errors.KafkaTimeoutError, match="1 record"):
            producer.close(0.01)
        assert isinstance(future.exception(PATIENCE_S), errors.KafkaError)


def test_flush_in_a_callback(producer: KafkaProducer) -> None:
    outcomes: list[Any] = []

    def callback(metadata: Any, error: Any) -> None:
        try:
            producer.flush()
        except errors.KafkaError as refused:
            outcomes.append(refused)

    producer.send("known", b"x", callback=callback)
    producer.flush(PATIENCE_S)
    producer.close()
    assert [type(outcome) for outcome in outcomes] == [errors.IllegalStateError]


def test_an_await_where_no_loop_runs(producer: KafkaProducer) -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        producer.send("known", b"x").__await__()


def test_something_beside_a_record(producer: KafkaProducer) -> None:
    record = ProducerRecord("known", b"x", partition=1)
    with pytest.raises(errors.IllegalArgumentError, match="beside a ProducerRecord"):
        producer.send(record, b"value")
    with pytest.raises(errors.IllegalArgumentError, match="beside a ProducerRecord"):
        producer.send(record, partition=2)
    called: list[Any] = []
    assert producer.send(record, lambda metadata, error: called.append(metadata)).get(PATIENCE_S).partition == 1
    assert called[0].partition == 1


def test_use_after_close_and_closing_twice(cluster: EmbeddedCluster) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    future = producer.send("known", b"x")
    producer.close()
    assert future.get(0).topic == "known"
    producer.close()
    producer.close(0)
    for use in (
        lambda: producer.send("known", b"x"),
        lambda: producer.send("known", b"x", key=b"k", headers=[("a", b"b")]),
        lambda: producer.send(ProducerRecord("known")),
        lambda: producer.partitions_for("known"),
        producer.abort,
    ):
        with pytest.raises(errors.ProducerClosedError, match="closed"):
            use()
    producer.flush()
    producer.flush(1)
    producer.close(null_logger=True)
    assert "closed" in repr(producer)


@pytest.mark.parametrize("timeout", [-1, "soon", True])
def test_a_timeout_that_is_none(cluster: EmbeddedCluster, timeout: Any) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with pytest.raises(errors.IllegalArgumentError, match="timeout"):
            producer.flush(timeout)
        with pytest.raises(errors.IllegalArgumentError, match="timeout"):
            producer.close(timeout)
        # the rejected close has not closed it
        assert producer.send("known", b"x").get(PATIENCE_S).topic == "known"


def test_a_callback_that_raises_is_logged_and_harms_nobody(
    producer: KafkaProducer, caplog: pytest.LogCaptureFixture
) -> None:
    def bad(metadata: Any, error: Any) -> None:
        raise ZeroDivisionError("bang")

    with caplog.at_level(logging.ERROR, "headrace.producer"):
        futures = [producer.send("known", b"x", partition=0, callback=bad if i == 1 else None) for i in range(3)]
        producer.flush(PATIENCE_S)
    assert [future.exception(0) for future in futures] == [None] * 3
    (logged,) = caplog.records
    assert f"known-0, offset {futures[1].get(0).offset}" in logged.getMessage()


def test_what_takes_the_futures_of_others_alone_says_what_to_pass(producer: KafkaProducer) -> None:
    async def wait() -> None:
        future = producer.send("known", b"x")
        with pytest.raises(TypeError, match="a coroutine was expected"):
            asyncio.create_task(future)  # type: ignore[arg-type]  # noqa: RUF006  (there is none)
        if sys.version_info >= (3, 11):
            with pytest.raises(TypeError, match="ensure_future"):
                await asyncio.wait([future])
        await asyncio.ensure_future(future)

    asyncio.run(wait())
    for take in (concurrent.futures.wait, lambda futures: next(concurrent.futures.as_completed(futures))):
        with pytest.raises(AttributeError, match="as_concurrent"):
            take([producer.send("known", b"x")])


def test_a_second_interpreter_of_a_process_is_refused_at_the_import() -> None:
    program = """
import sys
import headrace.producer
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
again = f"import sys; sys.path[:0] = {sys.path!r}; import headrace.producer"
try:
    # newer versions return what an interpreter raised
    print(interpreters.run_string(interpreters.create(), again))
except interpreters.RunFailedError as failed:
    print(failed)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert re.search(r"ImportError.*(one interpreter per process|subinterpreters)", run.stdout, re.DOTALL), run.stdout


def test_pickling_says_what_to_do_instead(producer: KafkaProducer) -> None:
    with pytest.raises(TypeError, match="configuration"):
        pickle.dumps(producer)
