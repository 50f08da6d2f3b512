"""A producer's lifecycle on real sockets: memory, flush, close, exit, fork, threads, callbacks and await."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from support.waiting import know, memory_comes_back

from headrace.broker import EmbeddedCluster
from headrace.broker.requests.control import Fault
from headrace.network.protocol import errors
from headrace.network.protocol.api import ApiKey
from headrace.producer import KafkaProducer, ProducerRecord, RecordFuture

PATIENCE_S = 60


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


def producer_of(cluster: EmbeddedCluster, **options: Any) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, **{"retry_backoff_ms": 5, "reconnect_backoff_ms": 5, **options}
    )


def values_in(cluster: EmbeddedCluster, topic: str, partition: int = 0) -> list[bytes]:
    return [record.value for record in cluster.records(topic, partition)]


def run_program(program: str, *arguments: str, expect: int | None = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if expect is not None:
        assert done.returncode == expect, done.stderr
    return done


# --- Sending ---


def test_a_first_program(cluster: EmbeddedCluster, topic: str) -> None:
    with producer_of(cluster) as producer:
        metadata = producer.send(topic, b"hello", key=b"world", headers=[("h", b"1")], timestamp_ms=77).get(PATIENCE_S)
    (record,) = cluster.records(topic, 0)
    assert (record.key, record.value, list(record.headers), record.timestamp) == (b"world", b"hello", [("h", b"1")], 77)
    assert (metadata.topic, metadata.partition, metadata.offset, metadata.timestamp) == (topic, 0, 0, 77)
    assert (metadata.serialized_key_size, metadata.serialized_value_size) == (5, 5)


def test_a_program_for_kafka_python(cluster: EmbeddedCluster, topic: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=[cluster.bootstrap_servers],
        value_serializer=lambda value: json.dumps(value).encode("utf-8"),
        key_serializer=str.encode,
        acks="all",
        retries=5,
        linger_ms=10,
        compression_type="gzip",
    )
    succeeded: list[Any] = []
    failed: list[Any] = []
    future = producer.send(topic, {"a": 1}, key="k").add_callback(succeeded.append).add_errback(failed.append)
    record_metadata = future.get(timeout=PATIENCE_S)
    assert (record_metadata.topic, record_metadata.partition, record_metadata.offset) == (topic, 0, 0)
    for number in range(100):
        producer.send(topic, value=number, key=str(number), partition=0, timestamp_ms=1000)
    producer.flush()
    assert producer.bootstrap_connected()
    assert producer.partitions_for(topic) == {0}
    assert future.is_done
    assert future.succeeded()
    producer.close(timeout=PATIENCE_S)
    assert succeeded == [record_metadata]
    assert failed == []
    assert values_in(cluster, topic) == [b'{"a": 1}', *(b"%d" % number for number in range(100))]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_codec_and_acks(cluster: EmbeddedCluster, topic: str, codec: str, acks: Any) -> None:
    with producer_of(cluster, compression_type=codec, acks=acks) as producer:
        futures = [producer.send(topic, b"value %d" % number * 20) for number in range(1000)]
    assert [future.exception(0) for future in futures] == [None] * 1000
    if acks == 0:
        # the records were not acknowledged, so the broker may take a moment longer
        gate = threading.Event()
        while len(values_in(cluster, topic)) < 1000:
            gate.wait(0.01)
    assert values_in(cluster, topic) == [b"value %d" % number * 20 for number in range(1000)]


def test_a_tombstone_and_empty_values(cluster: EmbeddedCluster, topic: str) -> None:
    with producer_of(cluster) as producer:
        producer.send(topic, None, key=b"k")
        producer.send(topic, b"", key=b"")
        producer.send(ProducerRecord(topic))
    assert [(record.key, record.value) for record in cluster.records(topic, 0)] == [
        (b"k", None),
        (b"", b""),
        (None, None),
    ]


def test_a_topic_that_grows_partitions(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("growing", 1)
    with producer_of(cluster) as producer:
        assert producer.send("growing", b"x", partition=0).get(PATIENCE_S).partition == 0
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        for future in admin.create_partitions([NewPartitions("growing", 3)]).values():
            future.result(PATIENCE_S)
        assert producer.send("growing", b"x", partition=2).get(PATIENCE_S).partition == 2
        assert producer.partitions_for("growing") == {0, 1, 2}


# --- Memory ---


def test_with_the_broker_gone_memory_is_bounded_and_send_blocks_no_longer_than_it_may() -> None:
    memory = 200_000
    with EmbeddedCluster() as cluster:
        cluster.create_topic("gone", 1)
        producer = producer_of(cluster, buffer_memory=memory, batch_size=10_000, max_block_ms=200)
        know(producer, "gone")
        producer.send("gone", b"first").get(PATIENCE_S)
        cluster.stop_broker(1)
        taken: list[RecordFuture] = []

        def fill() -> None:
            while len(taken) * 1000 < memory:
                taken.append(producer.send("gone", b"x" * 1000))

        for _ in range(3):
            with pytest.raises(errors.BufferExhaustedError, match=r"buffer\.memory.*max\.block\.ms \(200 ms\)"):
                fill()
        assert len(taken) * 1000 > memory // 2
        assert producer._engine.pool.available_bytes < 10_000
        assert producer._engine.pool.waiting == 0
        cluster.start_broker(1)
        producer.flush(PATIENCE_S)
        memory_comes_back(producer)
        producer.close()
        assert len(values_in(cluster, "gone")) == len(taken) + 1


def test_many_threads_share_a_small_memory_fairly(cluster: EmbeddedCluster, topic: str) -> None:
    with producer_of(cluster, buffer_memory=8_000, batch_size=1_000, linger_ms=0) as producer:
        counts = [0] * 8

        def send(index: int) -> None:
            for number in range(200):
                producer.send(topic, b"%d-%d" % (index, number) + b"x" * (100 * index))
                counts[index] += 1

        threads = [threading.Thread(target=send, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert counts == [200] * 8
        producer.flush(PATIENCE_S)
    values = values_in(cluster, topic)
    for index in range(8):
        mine = [int(value.split(b"-")[1].rstrip(b"x")) for value in values if value.startswith(b"%d-" % index)]
        assert mine == list(range(200))


# --- Flush and close ---


def test_flush_sends_what_lingers_and_returns_after_the_callbacks(cluster: EmbeddedCluster, topic: str) -> None:
    called: list[int] = []
    with producer_of(cluster, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        futures = [
            producer.send(topic, b"x", callback=lambda metadata, error: called.append(metadata.offset))
            for _ in range(500)
        ]
        producer.flush(PATIENCE_S)
        assert all(future.done() for future in futures)
        assert called == list(range(500))


def test_flush_and_close_whose_time_passes_say_how_much_is_left(cluster: EmbeddedCluster, topic: str) -> None:
    producer = producer_of(cluster)
    producer.send(topic, b"x").get(PATIENCE_S)
    cluster.inject(ApiKey.PRODUCE, Fault(silent=True), times=None)
    futures = [producer.send(topic, b"x") for _ in range(3)]
    with pytest.raises(errors.KafkaTimeoutError, match="3 records"):
        producer.flush(0.05)
    assert not any(future.done() for future in futures)
    with pytest.raises(errors.KafkaTimeoutError, match="3 records"):
        producer.close(0.05)
    for future in futures:
        assert isinstance(future.exception(0), errors.ProducerClosedError)


def test_close_with_no_time_fails_what_is_left_at_once(cluster: EmbeddedCluster, topic: str) -> None:
    producer = producer_of(cluster, linger_ms=60_000, delivery_timeout_ms=120_000)
    producer.partitions_for(topic)
    futures = [producer.send(topic, b"x") for _ in range(3)]
    producer.close(0)
    for future in futures:
        assert isinstance(future.exception(0), errors.ProducerClosedError)
    assert values_in(cluster, topic) == []


def test_leaving_a_with_block_by_an_exception_does_not_lose_what_was_sent(cluster: EmbeddedCluster, topic: str) -> None:
    def program() -> None:
        with producer_of(cluster, linger_ms=1000) as producer:
            producer.send(topic, b"sent before")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        program()
    assert values_in(cluster, topic) == [b"sent before"]


@pytest.mark.parametrize("pending", [False, True])
def test_an_interrupted_program_is_told_why_it_goes_on(
    cluster: EmbeddedCluster, topic: str, pending: bool, caplog: pytest.LogCaptureFixture
) -> None:
    futures = []

    def program() -> None:
        with producer_of(cluster, linger_ms=50_000) as producer:
            futures.append(producer.send(topic, b"last"))
            if not pending:
                producer.flush()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program()
    assert futures[0].get(0).offset == 0
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert ["interrupt it again" in each for each in told] == [True] * pending


def test_close_ends_a_send_that_waits_for_metadata() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        producer = KafkaProducer(bootstrap_servers=f"127.0.0.1:{listener.getsockname()[1]}", max_block_ms=600_000)
        raised: list[BaseException] = []

        def send() -> None:
            try:
                producer.send("t", b"x")
            except errors.KafkaError as error:
                raised.append(error)

        thread = threading.Thread(target=send)
        thread.start()
        while not producer._engine.metadata.contains_topic("t"):
            pass
        producer.close(PATIENCE_S)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert isinstance(raised[0], errors.ProducerClosedError)


def test_closing_leaves_no_thread_and_no_descriptor(cluster: EmbeddedCluster, topic: str) -> None:
    def descriptors() -> int:
        return len(os.listdir("/dev/fd"))

    with producer_of(cluster) as producer:
        producer.send(topic, b"x").get(PATIENCE_S)
    del producer
    gc.collect()
    threads, files = threading.active_count(), descriptors()
    for _ in range(5):
        with producer_of(cluster) as producer:
            producer.send(topic, b"x").get(PATIENCE_S)
    del producer
    gc.collect()
    assert threading.active_count() <= threads
    # the broker may take a moment to close its side of a connection
    gate = threading.Event()
    while descriptors() > files:
        gate.wait(0.01)


def test_abort_drops_what_waits_and_the_producer_goes_on(cluster: EmbeddedCluster, topic: str) -> None:
    with producer_of(cluster, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        producer.partitions_for(topic)
        dropped = [producer.send(topic, b"dropped") for _ in range(3)]
        producer.abort()
        for future in dropped:
            assert isinstance(future.exception(0), errors.RecordAbortedError)
        producer.send(topic, b"kept")
    assert values_in(cluster, topic) == [b"kept"]


# --- Forgotten producers ---


def test_a_dropped_producer_delivers_what_it_has_and_warns(cluster: EmbeddedCluster, topic: str) -> None:
    def program() -> list[RecordFuture]:
        producer = producer_of(cluster, linger_ms=60_000, delivery_timeout_ms=120_000)
        producer.partitions_for(topic)
        return [producer.send(topic, b"%d" % number) for number in range(10)]

    with pytest.warns(ResourceWarning, match="dropped without close"):
        futures = program()
    assert [future.get(PATIENCE_S).offset for future in futures] == list(range(10))


def test_a_dropped_producer_without_records_ends_silently(cluster: EmbeddedCluster) -> None:
    threads = threading.active_count()
    producer = producer_of(cluster)
    thread = producer._engine._thread
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del producer
        gc.collect()
    thread.join(PATIENCE_S)
    assert threading.active_count() <= threads


def test_interpreter_exit_delivers_what_a_forgotten_producer_has(cluster: EmbeddedCluster, topic: str) -> None:
    done = run_program(
        """
        import logging, sys
        logging.basicConfig()
        from headrace.producer import KafkaProducer
        producer = KafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=60_000, delivery_timeout_ms=120_000)
        for number in range(1000):
            producer.send(sys.argv[2], b"%d" % number)
        """,
        cluster.bootstrap_servers,
        topic,
    )
    assert "was not closed" in done.stderr
    assert values_in(cluster, topic) == [b"%d" % number for number in range(1000)]


def test_interpreter_exit_is_bounded_when_a_callback_never_returns(cluster: EmbeddedCluster, topic: str) -> None:
    run_program(
        """
        import sys, threading
        import headrace.producer.engine as engine
        engine.EXIT_FLUSH_SECONDS = 0.2
        engine.FORCED_CLOSE_SECONDS = 0.2
        from headrace.producer import KafkaProducer
        entered = threading.Event()
        def callback(metadata, error):
            entered.set()
            threading.Event().wait()
        producer = KafkaProducer(bootstrap_servers=sys.argv[1])
        producer.send(sys.argv[2], b"x", callback=callback)
        assert entered.wait(30)
        """,
        cluster.bootstrap_servers,
        topic,
        expect=None,
    )


def test_interpreter_exit_is_bounded_without_a_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = run_program(
            """
            import sys
            import headrace.producer.engine as engine
            engine.EXIT_FLUSH_SECONDS = 0.2
            from headrace.producer import KafkaProducer
            producers = [KafkaProducer(bootstrap_servers=sys.argv[1]) for _ in range(3)]
            """,
            f"127.0.0.1:{listener.getsockname()[1]}",
        )
    assert "Traceback" not in done.stderr


# --- Fork ---


def in_child(work: Callable[[], object]) -> str:
    """Do `work` in a forked child. Returns the child's error, or an empty string. A hanging child is killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            signal.alarm(PATIENCE_S)
            work()
            code = 0
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode()[:4000])
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return told or ("" if status == 0 else f"status {status}")


@pytest.fixture
def without_fork_warning() -> Iterator[None]:
    with warnings.catch_warnings():
        # since Python 3.12; these tests fork with threads on purpose
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@pytest.mark.usefixtures("without_fork_warning")
def test_a_forked_child_has_a_producer_of_its_own_and_the_parent_is_undisturbed(
    cluster: EmbeddedCluster, topic: str
) -> None:
    with producer_of(cluster, linger_ms=300) as producer:
        producer.send(topic, b"parent 0").get(PATIENCE_S)
        pending = [producer.send(topic, b"parent %d" % number) for number in range(1, 50)]

        def work() -> None:
            futures = [producer.send(topic, b"child %d" % number) for number in range(50)]
            producer.flush(PATIENCE_S)
            assert all(future.exception(0) is None for future in futures)
            producer.close()

        assert in_child(work) == ""
        assert in_child(work) == ""
        pending += [producer.send(topic, b"parent %d" % number) for number in range(50, 100)]
        producer.flush(PATIENCE_S)
        assert all(future.exception(0) is None for future in pending)
    values = values_in(cluster, topic)
    assert [value for value in values if value.startswith(b"parent")] == [b"parent %d" % i for i in range(100)]
    assert sorted(value for value in values if value.startswith(b"child")) == sorted(
        2 * [b"child %d" % i for i in range(50)]
    )


@pytest.mark.usefixtures("without_fork_warning")
def test_a_forked_child_sends_many_of_its_own(cluster: EmbeddedCluster, topic: str) -> None:
    with producer_of(cluster) as producer:
        sent = producer.send_many(topic, [b"parent"] * 3)

        def work() -> None:
            assert producer.send_many(topic, [b"child"] * 2).get(PATIENCE_S).rows == 2
            producer.close()

        assert in_child(work) == ""
        assert sent.get(PATIENCE_S).rows == 3
    assert sorted(values_in(cluster, topic)) == [b"child"] * 2 + [b"parent"] * 3


@pytest.mark.usefixtures("without_fork_warning")
def test_in_a_forked_child_the_parents_futures_fail_and_closing_does_nothing(
    cluster: EmbeddedCluster, topic: str
) -> None:
    producer = producer_of(cluster, linger_ms=60_000, delivery_timeout_ms=120_000)
    producer.partitions_for(topic)
    future = producer.send(topic, b"x")

    def wait() -> None:
        try:
            future.get()
        except errors.IllegalStateError:
            return
        raise AssertionError("it did not raise")

    assert in_child(wait) == ""
    assert in_child(producer.close) == ""
    assert in_child(lambda: producer.flush(5)) == ""
    assert not future.done()
    producer.close()
    assert future.get(0).offset == 0
    assert values_in(cluster, topic) == [b"x"]


@pytest.mark.usefixtures("without_fork_warning")
def test_forks_while_many_threads_send_never_hang_the_child(cluster: EmbeddedCluster, topic: str) -> None:
    with producer_of(cluster, linger_ms=0, batch_size=500) as producer:
        stop = threading.Event()
        counts = [0] * 3

        def send(index: int) -> None:
            while not stop.is_set():
                for _ in range(20):
                    future = producer.send(topic, b"p", callback=lambda metadata, error: None)
                    future.add_callback(lambda metadata: None)
                    counts[index] += 1
                future.get(PATIENCE_S)

        threads = [threading.Thread(target=send, args=(index,)) for index in range(3)]
        for thread in threads:
            thread.start()
        try:

            def work() -> None:
                # a thread here may get the identity of the parent's sender thread
                waiting = [
                    threading.Thread(target=lambda: producer.send(topic, b"c").get(PATIENCE_S)) for _ in range(3)
                ]
                for thread in waiting:
                    thread.start()
                for thread in waiting:
                    thread.join()
                producer.send(topic, b"c").get(PATIENCE_S)
                producer.close(PATIENCE_S)

            assert [in_child(work) for _ in range(10)] == [""] * 10
        finally:
            stop.set()
            for thread in threads:
                thread.join(PATIENCE_S)
        producer.flush(PATIENCE_S)
    values = values_in(cluster, topic)
    assert values.count(b"p") == sum(counts)
    assert values.count(b"c") == 40


def test_worker_processes_of_multiprocessing_deliver_what_they_forgot(cluster: EmbeddedCluster, topic: str) -> None:
    # they don't exit as an interpreter does: it never calls their exit functions
    done = run_program(
        """
        import logging, multiprocessing, sys, warnings
        from concurrent.futures import ProcessPoolExecutor
        from headrace.producer import KafkaProducer

        warnings.simplefilter("ignore", DeprecationWarning)
        logging.basicConfig()
        producer = KafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=60_000, delivery_timeout_ms=120_000)

        def work(name):
            for number in range(100):
                producer.send(sys.argv[2], b"%s %d" % (name, number))

        fork = multiprocessing.get_context("fork")
        process = fork.Process(target=work, args=(b"process",))
        process.start()
        with fork.Pool(1) as pool:
            pool.map(work, [b"pool"])
            pool.close()
            pool.join()
        with ProcessPoolExecutor(1, mp_context=fork) as executor:
            executor.submit(work, b"executor").result()
        process.join()
        producer.close()
        """,
        cluster.bootstrap_servers,
        topic,
    )
    assert done.stderr.count("was not closed") == 3
    values = values_in(cluster, topic)
    assert len(values) == 300
    for name in (b"process", b"pool", b"executor"):
        assert [value for value in values if value.startswith(name)] == [b"%s %d" % (name, n) for n in range(100)]


def test_workers_forked_after_the_producer_was_made_deliver_at_their_exit(cluster: EmbeddedCluster, topic: str) -> None:
    # as gunicorn does with --preload
    run_program(
        """
        import os, sys, warnings
        from headrace.producer import KafkaProducer

        warnings.simplefilter("ignore", DeprecationWarning)
        producer = KafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=60_000, delivery_timeout_ms=120_000)
        waiting = [producer.send(sys.argv[2], b"parent %d" % number) for number in range(10)]
        children = []
        for child in range(2):
            pid = os.fork()
            if pid == 0:
                for number in range(100):
                    producer.send(sys.argv[2], b"child %d %d" % (child, number))
                sys.exit(0)
            children.append(pid)
        assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0]
        """,
        cluster.bootstrap_servers,
        topic,
    )
    values = values_in(cluster, topic)
    expected = {
        **{b"parent": [b"parent %d" % number for number in range(10)]},
        **{b"child %d" % child: [b"child %d %d" % (child, n) for n in range(100)] for child in (0, 1)},
    }
    assert len(values) == 210
    for name, sent in expected.items():
        assert [value for value in values if value.startswith(name)] == sent


# --- Threads ---


def test_threads_that_send_while_others_flush_and_one_closes(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("hammered", 3)
    producer = producer_of(cluster, linger_ms=1, batch_size=700, buffer_memory=50_000)
    acknowledged: list[list[RecordFuture]] = [[] for _ in range(4)]
    refused: list[BaseException] = []

    def send(index: int) -> None:
        number = 0
        while True:
            try:
                future = producer.send("hammered", b"%d-%d" % (index, number), partition=index % 3)
            except errors.ProducerClosedError as error:
                refused.append(error)
                return
            acknowledged[index].append(future)
            number += 1

    closed = threading.Event()

    def flush() -> None:
        # during the close and afterwards
        while not closed.is_set():
            producer.flush(PATIENCE_S)
        producer.flush(PATIENCE_S)
        flushed.append(closed.is_set())

    flushed: list[bool] = []

    threads = [threading.Thread(target=send, args=(index,)) for index in range(4)]
    threads += [threading.Thread(target=flush) for _ in range(2)]
    for thread in threads:
        thread.start()
    while min(map(len, acknowledged)) < 2000:
        acknowledged[0][-1].get(PATIENCE_S) if acknowledged[0] else None
    producer.close(PATIENCE_S)
    closed.set()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert (len(refused), flushed) == (4, [True, True])
    expected = {index: [b"%d-%d" % (index, number) for number in range(len(acknowledged[index]))] for index in range(4)}
    for futures in acknowledged:
        assert [future.exception(0) for future in futures] == [None] * len(futures)
    for partition in range(3):
        values = values_in(cluster, "hammered", partition)
        for index in range(partition, 4, 3):
            assert [value for value in values if value.startswith(b"%d-" % index)] == expected[index]
        assert len(values) == sum(len(expected[index]) for index in range(partition, 4, 3))


# --- Callbacks and await ---


def test_a_callback_may_send_but_not_flush(cluster: EmbeddedCluster, topic: str) -> None:
    raised: list[str] = []
    more: list[RecordFuture] = []
    with producer_of(cluster) as producer:
        # known before, since a callback can't wait for another topic's metadata
        producer.partitions_for(topic)
        unknown = f"{topic}-unknown"

        def callback(metadata: Any, error: BaseException | None) -> None:
            more.append(producer.send(topic, b"second"))
            for forbidden in (producer.flush, lambda: producer.send(unknown, b"x")):
                try:
                    forbidden()
                except errors.KafkaError as refused:
                    raised.append(type(refused).__name__)

        producer.send(topic, b"first", callback=callback).get(PATIENCE_S)
        producer.flush(PATIENCE_S)
    assert values_in(cluster, topic) == [b"first", b"second"]
    assert raised == ["IllegalStateError", "KafkaTimeoutError"]


def test_a_callback_may_close_the_producer(cluster: EmbeddedCluster, topic: str) -> None:
    producer = producer_of(cluster)
    closed = threading.Event()

    def callback(metadata: Any, error: BaseException | None) -> None:
        producer.close()
        closed.set()

    future = producer.send(topic, b"x", callback=callback)
    assert closed.wait(PATIENCE_S)
    assert future.get(PATIENCE_S).offset == 0
    with pytest.raises(errors.ProducerClosedError):
        producer.send(topic, b"x")
    producer._engine._thread.join(PATIENCE_S)
    assert not producer._engine.is_alive


def test_callbacks_come_in_the_order_of_the_sends(cluster: EmbeddedCluster, topic: str) -> None:
    order: list[int] = []
    with producer_of(cluster, batch_size=300, linger_ms=0) as producer:
        for number in range(1000):
            producer.send(topic, b"x", callback=lambda metadata, error, number=number: order.append(number))
    assert order == list(range(1000))


def test_await(cluster: EmbeddedCluster, topic: str) -> None:
    async def run(producer: KafkaProducer) -> list[int]:
        first = await producer.send(topic, b"first")
        rest = await asyncio.gather(*(producer.send(topic, b"%d" % number) for number in range(1000)))
        return [first.offset, *(metadata.offset for metadata in rest)]

    with producer_of(cluster) as producer:
        producer.partitions_for(topic)
        assert asyncio.run(run(producer)) == list(range(1001))


def test_await_of_a_record_that_fails(cluster: EmbeddedCluster, topic: str) -> None:
    async def run(producer: KafkaProducer) -> None:
        with pytest.raises(errors.TopicAuthorizationFailedError):
            await producer.send(topic, b"x")

    cluster.inject(ApiKey.PRODUCE, Fault(error=errors.TopicAuthorizationFailedError))
    with producer_of(cluster) as producer:
        asyncio.run(run(producer))
