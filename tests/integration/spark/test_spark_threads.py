"""Tests ``format("headrace")`` without an active session: in threads, in pools, and after an interrupt."""

from __future__ import annotations

import os
import signal
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from support.confluent import read_topic
from support.spark_session import JOB_ERRORS, needs_spark, spark

from headrace.broker import EmbeddedCluster
from headrace.producer.spark import register

__all__ = ["spark"]

pytestmark = needs_spark

PATIENCE_S = 300


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(num_partitions=3) as cluster:
        yield cluster


@pytest.fixture
def write(spark: SparkSession, cluster: EmbeddedCluster) -> Iterator[Callable[[], None]]:
    """A function that writes ten rows through the data source. At the end each row must exist once per call."""
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic}
    calls = 0

    def write() -> None:
        nonlocal calls
        rows = spark.range(0, 10, numPartitions=2).selectExpr("cast(id AS string) AS value")
        rows.write.format("headrace").options(**options).mode("append").save()
        calls += 1

    yield write
    found = Counter(message.value() for message in read_topic(cluster.bootstrap_servers, topic))
    assert found == Counter({b"%d" % number: calls for number in range(10)})


def in_a_thread(call: Callable[[], None]) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as failed:
            failures.append(failed)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    for failed in failures:
        raise failed


def test_a_thread_that_registers(spark: SparkSession, write: Callable[[], None]) -> None:
    register(spark)
    write()
    # Spark's own limitation; this fails with a version that lifts it
    with pytest.raises(JOB_ERRORS, match="DATA_SOURCE_NOT_FOUND"):
        in_a_thread(write)

    def run() -> None:
        register(spark)
        write()
        write()

    in_a_thread(run)


def test_a_pool_of_threads(spark: SparkSession, write: Callable[[], None]) -> None:
    with ThreadPoolExecutor(3, initializer=register, initargs=(spark,)) as pool:
        for done in [pool.submit(write) for _ in range(6)]:
            done.result(PATIENCE_S)


def test_a_stream_that_is_started_in_a_thread(spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    source = tmp_path / "in"
    source.mkdir()
    (source / "lines.txt").write_text("1\n2\n3")

    def run() -> None:
        register(spark)
        writer = spark.readStream.text(str(source)).writeStream.trigger(availableNow=True).format("headrace")
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic}
        query = writer.options(**options).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert query.awaitTermination(PATIENCE_S)

    in_a_thread(run)
    found = Counter(message.value() for message in read_topic(cluster.bootstrap_servers, topic))
    assert found == Counter([b"1", b"2", b"3"])


def test_after_an_interrupt(spark: SparkSession, write: Callable[[], None], tmp_path: Path) -> None:
    """An interrupt breaks the connection to the JVM that the thread's active session belongs to."""
    under_way = str(tmp_path / "under way")

    def interrupt() -> None:
        while not os.path.exists(under_way):
            threading.Event().wait(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    def wait(_: Iterator[int]) -> Iterator[int]:
        open(under_way, "w").close()
        threading.Event().wait(PATIENCE_S)
        yield 0

    register(spark)
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises((KeyboardInterrupt, Py4JError)):
        spark.sparkContext.parallelize([0], 1).mapPartitions(wait).count()
    interrupting.join()
    assert SparkSession.getActiveSession() is None
    register(spark)
    write()
