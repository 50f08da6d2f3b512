"""Tests failures during a write, with every row accounted for: dead workers, lost brokers, poison rows, timeouts."""

from __future__ import annotations

import os
import signal
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pyspark.cloudpickle
import pytest
from pyspark.sql import SparkSession
from support.confluent import read_topic
from support.spark_session import JOB_ERRORS, needs_spark, spark

from headrace.broker import EmbeddedCluster
from headrace.broker.requests.control import Fault
from headrace.network.clock import SYSTEM_CLOCK
from headrace.network.protocol.api import ApiKey
from headrace.network.protocol.errors import NotEnoughReplicasError
from headrace.producer.spark import KafkaSink

__all__ = ["spark"]

pytestmark = needs_spark

PATIENCE_S = 300

# the workers can't import this module
pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(num_partitions=3) as cluster:
        yield cluster


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


def values(cluster: EmbeddedCluster, topic: str) -> Counter[bytes | None]:
    return Counter(message.value() for message in read_topic(cluster.bootstrap_servers, topic))


def await_file(path: Path) -> None:
    deadline_ms = SYSTEM_CLOCK.now_ms() + PATIENCE_S * 1000
    while not path.exists():
        if SYSTEM_CLOCK.now_ms() > deadline_ms:
            raise TimeoutError(f"{path.name} did not appear")
        SYSTEM_CLOCK.sleep(10)


def numbered(number: int) -> dict[str, Any]:
    return {"key": f"key-{number % 10}", "value": f"{number}"}


def test_a_worker_that_is_killed_in_the_middle(spark: SparkSession, cluster: EmbeddedCluster, topic: str) -> None:
    def rows(numbers: Iterator[int]) -> Iterator[dict[str, Any]]:
        for number in numbers:
            if number == 3000 and pyspark.TaskContext.get().attemptNumber() == 0:  # type: ignore[union-attr]
                os.kill(os.getpid(), signal.SIGKILL)
            yield numbered(number)

    sink = KafkaSink(bootstrap_servers=cluster.bootstrap_servers, topic=topic, linger_ms=0)
    spark.sparkContext.parallelize(range(4000), 2).mapPartitions(rows).foreachPartition(sink)
    found = values(cluster, topic)
    assert set(found) == {b"%d" % number for number in range(4000)}
    # only rows that the first attempt at the second half delivered may be duplicated
    assert all(count == 1 for value, count in found.items() if not 2000 <= int(value or b"") < 3000)
    assert max(found.values()) <= 2
    assert sink.report.rows == 4000


def test_the_broker_is_killed_in_the_middle_and_comes_back(
    spark: SparkSession, cluster: EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    under_way, is_back = tmp_path / "under way", tmp_path / "is back"

    def rows(numbers: Iterator[int]) -> Iterator[dict[str, Any]]:
        for number in numbers:
            if number == 1000:
                under_way.touch()
            if number == 1900:
                # the rows sent so far had no broker for a while
                await_file(is_back)
            yield numbered(number)

    def restart() -> None:
        await_file(under_way)
        cluster.kill_broker(1)
        SYSTEM_CLOCK.sleep(200)
        cluster.start_broker(1)
        is_back.touch()

    cluster.create_topic(topic)
    sink = KafkaSink(bootstrap_servers=cluster.bootstrap_servers, topic=topic, linger_ms=0, reconnect_backoff_ms=20)
    restarting = threading.Thread(target=restart)
    restarting.start()
    spark.sparkContext.parallelize(range(2000), 2).mapPartitions(rows).foreachPartition(sink)
    restarting.join()
    # the broker recovers acknowledged records, and the producer's sequence numbers prevent duplicates from retries
    assert values(cluster, topic) == Counter(b"%d" % number for number in range(2000))
    for partition in range(3):
        mine = [int(record.value) for record in cluster.records(topic, partition) if int(record.value) >= 1000]
        assert mine == sorted(mine)


@pytest.mark.parametrize("door", ["rows", "batches"])
def test_a_poison_row(spark: SparkSession, cluster: EmbeddedCluster, topic: str, door: str) -> None:
    sink = KafkaSink(bootstrap_servers=cluster.bootstrap_servers, topic=topic, linger_ms=0)
    poison = "CASE WHEN id = 2500 THEN repeat('x', 2000000) ELSE cast(id AS string) END AS value"
    rows = spark.range(0, 3000, numPartitions=1).selectExpr(poison)
    with pytest.raises(JOB_ERRORS) as told:
        rows.foreachPartition(sink) if door == "rows" else sink.write(rows)
    message = str(told.value)
    expected = f"row 2500 of Spark partition 0 (attempt 2) for {topic} was not delivered: MessageSizeTooLargeError"
    assert expected in message
    assert "max.request.size" in message
    assert "xxx" not in message
    # the chunk with the poison row was never sent; each of the three attempts sent the chunks before it
    found = values(cluster, topic)
    assert set(found) <= {b"%d" % number for number in range(2500)}
    assert found[b"0"] == 3
    assert sink.report.rows == 0


def test_time_passes(spark: SparkSession, cluster: EmbeddedCluster, topic: str) -> None:
    """Uses one way to write: each of three attempts ends its worker, and a new one is slow to start under load."""
    cluster.create_topic(topic)
    sink = KafkaSink(
        bootstrap_servers=cluster.bootstrap_servers,
        topic=topic,
        linger_ms=0,
        request_timeout_ms=1000,
        delivery_timeout_ms=1000,
        retry_backoff_ms=10,
    )
    rows = spark.range(0, 50, numPartitions=1).selectExpr("cast(id AS string) AS value", "1 AS partition")
    unavailable = Fault(error=NotEnoughReplicasError, topic=topic)
    with cluster.inject(ApiKey.PRODUCE, unavailable, times=None), pytest.raises(JOB_ERRORS) as told:
        sink.write(rows)
    expected = (
        f"row 0 of Spark partition 0 (attempt 2) for {topic}-1 was not delivered: DeliveryTimeoutError: 50 records"
    )
    assert expected in str(told.value)
    # afterwards the same sink still works
    rows.foreachPartition(sink)
    assert set(values(cluster, topic)) == {b"%d" % number for number in range(50)}


def test_a_job_that_is_cancelled(spark: SparkSession, cluster: EmbeddedCluster, topic: str, tmp_path: Path) -> None:
    under_way = tmp_path / "under way"

    def rows(numbers: Iterator[int]) -> Iterator[dict[str, Any]]:
        for number in numbers:
            if number == 500:
                under_way.touch()
                await_file(tmp_path / "never")
            yield numbered(number)

    sink = KafkaSink(bootstrap_servers=cluster.bootstrap_servers, topic=topic, linger_ms=0)
    failures: list[Exception] = []

    def run() -> None:
        try:
            spark.sparkContext.parallelize(range(1000), 2).mapPartitions(rows).foreachPartition(sink)
        except JOB_ERRORS as cancelled:
            failures.append(cancelled)

    running = threading.Thread(target=run)
    running.start()
    await_file(under_way)
    spark.sparkContext.cancelAllJobs()
    running.join()
    (failure,) = failures
    assert "cancelled" in str(failure)
    # the same sink still works
    spark.sparkContext.parallelize(range(1000), 2).map(numbered).foreachPartition(sink)
    found = values(cluster, topic)
    assert set(found) == {b"%d" % number for number in range(1000)}
    assert all(found[b"%d" % number] == 1 for number in range(500, 1000))
    assert max(found.values()) <= 2


def test_a_thousand_tasks_leave_nothing_behind(spark: SparkSession, cluster: EmbeddedCluster, topic: str) -> None:
    def taken(_: Iterator[int]) -> Iterator[tuple[int, int]]:
        yield len(os.listdir("/proc/self/fd")), threading.active_count()

    sink = KafkaSink(bootstrap_servers=cluster.bootstrap_servers, topic=topic, linger_ms=0)

    def run(tasks: int) -> tuple[int, int]:
        """The maximum number of file descriptors and threads of any worker afterwards."""
        spark.sparkContext.parallelize(range(tasks), tasks).map(numbered).foreachPartition(sink)
        workers = spark.sparkContext.parallelize(range(8), 8).mapPartitions(taken).collect()
        return max(descriptors for descriptors, _ in workers), max(threads for _, threads in workers)

    descriptors, threads = run(20)
    more_descriptors, more_threads = run(1000)
    # one for each connection that a producer may have opened since
    assert more_descriptors <= descriptors + 2
    assert more_threads <= threads + 1
    assert sink.report.tasks == sink.report.rows == 1020
    assert values(cluster, topic).total() == 1020
