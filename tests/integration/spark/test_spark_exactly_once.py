"""Tests that a consumer with read_committed sees each row of a DataFrame once, however its tasks and jobs fail."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pyspark.cloudpickle
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from support.confluent import committed_values, create_topic
from support.spark_session import JOB_ERRORS, needs_spark, spark
from support.waiting import wait_until

from headrace.broker import EmbeddedCluster
from headrace.broker.requests.control import Fault
from headrace.network.clock import SYSTEM_CLOCK
from headrace.network.protocol.api import ApiKey
from headrace.network.protocol.errors import (
    KafkaConfigurationError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
)
from headrace.producer.spark import KafkaSink, register

__all__ = ["spark"]

pytestmark = needs_spark

PATIENCE_S = 300
ROWS = 2000
ALL = [b"%04d" % number for number in range(ROWS)]

# the workers can't import this module
pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])

Write = Callable[[DataFrame, dict[str, Any]], object]
Start = Callable[[DataStreamWriter, dict[str, Any]], StreamingQuery]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    cleanup = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}
    with EmbeddedCluster(num_partitions=3, config=cleanup) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: EmbeddedCluster) -> str:
    return create_topic(cluster.bootstrap_servers, partitions=3)


@pytest.fixture
def options(cluster: EmbeddedCluster, topic: str) -> dict[str, Any]:
    return {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "topic": topic,
        "delivery.guarantee": "exactly_once",
        # ends what the tests leave open
        "kafka.transaction.timeout.ms": "60000",
    }


def by_write(df: DataFrame, options: dict[str, Any]) -> object:
    return KafkaSink(options).write(df)


def by_format(df: DataFrame, options: dict[str, Any]) -> object:
    register(df.sparkSession)
    return df.write.format("headrace").options(**options).mode("append").save()


def stream_by_format(writer: DataStreamWriter, options: dict[str, Any]) -> StreamingQuery:
    return writer.format("headrace").options(**options).start()


def stream_by_foreach_batch(writer: DataStreamWriter, options: dict[str, Any]) -> StreamingQuery:
    return writer.foreachBatch(KafkaSink(options).write_batch).start()


def committed(cluster: EmbeddedCluster, topic: str) -> list[bytes]:
    return committed_values(cluster.bootstrap_servers, topic)


def numbers(spark: SparkSession, each: Callable[[int], str | None] | None = None, tasks: int = 4) -> DataFrame:
    """The numbers as strings. Workers call `each` with every number, which may return another string."""

    def mapped(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415

        for batch in batches:
            found = [(each(number) if each is not None else None, number) for number in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pydict({"value": [other or f"{number:04}" for other, number in found]})

    return spark.range(0, ROWS, numPartitions=tasks).mapInArrow(mapped, "value string")


#: Transactions that an earlier test has left open.
EARLIER: set[str] = set()


@pytest.fixture(autouse=True)
def earlier_transactions(cluster: EmbeddedCluster) -> None:
    EARLIER.clear()
    EARLIER.update(open_transactions(cluster))


def open_transactions(cluster: EmbeddedCluster) -> list[str]:
    """The ids of this test's open transactions."""
    found = cluster.transactions().items()
    return [name for name, each in found if each.state.label == "Ongoing" and name not in EARLIER]


# --- Batch writes ---


@pytest.mark.parametrize("write", [by_write, by_format])
def test_retried_tasks_do_not_double(
    spark: SparkSession, cluster: EmbeddedCluster, topic: str, options: dict[str, Any], write: Write
) -> None:
    def too_large(number: int) -> str | None:
        context: Any = pyspark.TaskContext.get()
        # the batches before it are sent
        return "x" * 2_000_000 if number == 1499 and context.attemptNumber() == 0 else None

    with_batches = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        write(numbers(spark, too_large), {**options, "kafka.linger.ms": "0"})
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", with_batches or "1000")
    assert committed(cluster, topic) == ALL
    # the attempts that failed wrote rows, and aborted their transactions
    assert sum(len(cluster.records(topic, partition)) for partition in range(3)) > ROWS
    assert open_transactions(cluster) == []


@pytest.mark.parametrize("write", [by_write, by_format])
def test_workers_that_are_killed_do_not_double(
    spark: SparkSession, cluster: EmbeddedCluster, topic: str, options: dict[str, Any], write: Write, tmp_path: Path
) -> None:
    def killed(number: int) -> str | None:
        marker = tmp_path / str(number)
        if number in (700, 1999) and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return None

    write(numbers(spark, killed), options)
    assert len(list(tmp_path.iterdir())) == 2
    assert committed(cluster, topic) == ALL
    assert open_transactions(cluster) == []


def test_a_worker_that_is_killed_after_its_flush(
    spark: SparkSession, cluster: EmbeddedCluster, topic: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """It has handed its transaction over, but Spark has not got its message."""
    sink = KafkaSink(options)
    write_batches = sink._write_batches

    def killed_at_the_end(*arguments: Any) -> Iterator[Any]:
        for batch in write_batches(*arguments):
            marker = tmp_path / str(pyspark.TaskContext.get().partitionId())  # type: ignore[union-attr]
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    sink._write_batches = killed_at_the_end  # type: ignore[method-assign]
    assert sink.write(numbers(spark, tasks=2)).rows == ROWS
    assert len(list(tmp_path.iterdir())) == 2
    assert sum(len(cluster.records(topic, partition)) for partition in range(3)) >= 2 * ROWS
    assert committed(cluster, topic) == ALL
    assert open_transactions(cluster) == []


@pytest.mark.parametrize("tasks", [1, 4])
@pytest.mark.parametrize("write", [by_write, by_format])
def test_a_job_that_fails_leaves_nothing(
    spark: SparkSession, cluster: EmbeddedCluster, topic: str, options: dict[str, Any], write: Write, tasks: int
) -> None:
    def fails(number: int) -> str | None:
        if number == 1999:
            raise ValueError("always")
        return None

    with pytest.raises(JOB_ERRORS, match="always"):
        write(numbers(spark, fails, tasks), options)
    assert committed(cluster, topic) == []
    # Spark may kill another task after it has aborted the job: its transaction stays open until it expires
    if tasks > 1:
        wait_until(lambda: open_transactions(cluster) == [])
    assert open_transactions(cluster) == []
    write(numbers(spark), options)
    assert committed(cluster, topic) == ALL


@pytest.mark.parametrize("write", [by_write, by_format])
def test_a_job_with_an_id_is_written_once(
    spark: SparkSession, cluster: EmbeddedCluster, topic: str, options: dict[str, Any], write: Write
) -> None:
    named = {**options, "delivery.id": f"nightly-{uuid.uuid4()}"}
    for _ in range(2):
        write(numbers(spark), named)
        assert committed(cluster, topic) == ALL
    # both ways to write know of it
    assert KafkaSink(named).write(numbers(spark)).rows == 0
    write(numbers(spark), {**named, "delivery.id": f"{named['delivery.id']}-2"})
    assert committed(cluster, topic) == sorted(ALL * 2)


def test_a_job_whose_commit_did_not_end_is_finished_by_the_next(
    spark: SparkSession, cluster: EmbeddedCluster, topic: str, options: dict[str, Any]
) -> None:
    named = {**options, "delivery.id": f"nightly-{uuid.uuid4()}"}
    denied = Fault(error=TransactionalIdAuthorizationFailedError)
    with (
        cluster.inject(ApiKey.END_TXN, denied, times=None),
        pytest.raises(PySparkException, match="TransactionalIdAuthorizationFailedError"),
    ):
        by_format(numbers(spark), named)
    # Spark has called `abort` after the failed commit
    assert len(open_transactions(cluster)) == 4
    assert committed(cluster, topic) == []
    by_format(numbers(spark), named)
    assert committed(cluster, topic) == ALL


def test_partitions_without_rows_need_no_transaction(
    spark: SparkSession, cluster: EmbeddedCluster, topic: str, options: dict[str, Any]
) -> None:
    before = set(cluster.transactions())
    few = spark.range(0, 2000, numPartitions=4).where("id < 3").selectExpr("cast(id AS string) AS value")
    by_write(few, options)
    by_format(few, options)
    assert committed(cluster, topic) == [b"0", b"0", b"1", b"1", b"2", b"2"]
    assert len(set(cluster.transactions()) - before) == 2


def test_what_can_not_be_exactly_once_is_an_error(spark: SparkSession, options: dict[str, Any]) -> None:
    with pytest.raises(JOB_ERRORS, match="foreachPartition can't write exactly once"):
        numbers(spark).foreachPartition(KafkaSink(options))
    with pytest.raises(PySparkException, match="'exactly_twice' is not one of at_least_once, exactly_once"):
        by_format(numbers(spark), {**options, "delivery.guarantee": "exactly_twice"})
    with pytest.raises(KafkaConfigurationError, match="='x' has no effect at least once"):
        KafkaSink({**options, "delivery.guarantee": "at_least_once", "delivery.id": "x"})


# --- Streams ---


class Files:
    """A streaming source of text files, and what has been added to it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder / "in"
        self.folder.mkdir()
        self.checkpoint = folder / "checkpoint"
        self.added: list[bytes] = []

    def add(self, name: str) -> None:
        lines = [f"{name} {number}" for number in range(200)]
        (self.folder / f"{name}.txt").write_text("\n".join(lines))
        self.added += [line.encode() for line in lines]
        self.added.sort()

    def run(self, start: Start, options: dict[str, Any]) -> None:
        rows = self.spark.readStream.text(str(self.folder)).repartition(2)
        writer = rows.writeStream.trigger(availableNow=True).option("checkpointLocation", str(self.checkpoint))
        query = start(writer, options)
        assert query.awaitTermination(PATIENCE_S)

    def forget_last_commit(self) -> None:
        """What a driver leaves behind that was killed after it had committed the micro-batch, before Spark had."""
        commits = self.checkpoint / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink()


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Files:
    register(spark)
    return Files(spark, tmp_path)


@pytest.mark.parametrize("start", [stream_by_format, stream_by_foreach_batch])
def test_a_micro_batch_that_spark_repeats_is_skipped(
    cluster: EmbeddedCluster, topic: str, options: dict[str, Any], files: Files, start: Start
) -> None:
    for name in ("first", "second"):
        files.add(name)
        files.run(start, options)
        files.forget_last_commit()
        files.run(start, options)
        assert committed(cluster, topic) == files.added
    assert open_transactions(cluster) == []


@pytest.mark.parametrize("start", [stream_by_format, stream_by_foreach_batch])
def test_a_micro_batch_that_failed_is_repeated(
    cluster: EmbeddedCluster, topic: str, options: dict[str, Any], files: Files, start: Start
) -> None:
    files.add("first")
    files.run(start, options)
    first = list(files.added)
    files.add("second")
    refused = Fault(error=TopicAuthorizationFailedError, topic=topic)
    with (
        cluster.inject(ApiKey.PRODUCE, refused, times=None),
        pytest.raises(StreamingQueryException, match="TopicAuthorizationFailedError"),
    ):
        files.run(start, options)
    assert committed(cluster, topic) == first
    files.run(start, options)
    assert committed(cluster, topic) == files.added
    # a task that Spark killed with its job leaves its transaction to the next run
    assert open_transactions(cluster) == []


@pytest.mark.parametrize("start", [stream_by_format, stream_by_foreach_batch])
def test_a_commit_that_did_not_end_is_finished_by_the_next_run(
    cluster: EmbeddedCluster, topic: str, options: dict[str, Any], files: Files, start: Start
) -> None:
    files.add("first")
    denied = Fault(error=TransactionalIdAuthorizationFailedError)
    with (
        cluster.inject(ApiKey.END_TXN, denied, times=None),
        pytest.raises(StreamingQueryException, match="TransactionalIdAuthorizationFailedError"),
    ):
        files.run(start, options)
    assert committed(cluster, topic) == []
    recorded = set(open_transactions(cluster))
    assert len(recorded) == 2
    files.run(start, options)
    assert committed(cluster, topic) == files.added
    ended = cluster.transactions()
    assert all(ended[name].state.label in ("PrepareCommit", "CompleteCommit") for name in recorded)
    assert open_transactions(cluster) == []


def test_a_transaction_that_expires_fails_the_query_which_then_repeats_the_micro_batch(
    cluster: EmbeddedCluster, topic: str, options: dict[str, Any], files: Files, tmp_path: Path
) -> None:
    files.add("first")
    slow = tmp_path / "slow"
    slow.touch()

    def wait(number: str) -> str:
        # the second task begins when the transaction of the first has expired
        if slow.exists() and pyspark.TaskContext.get().partitionId() == 1:  # type: ignore[union-attr]
            slow.unlink()
            SYSTEM_CLOCK.sleep(3000)
        return number

    from pyspark.sql.functions import udf  # noqa: PLC0415

    def run(**settings: str) -> None:
        slow_rows = files.spark.readStream.text(str(files.folder)).repartition(2)
        rows = slow_rows.select(udf(wait, useArrow=False)("value").alias("value"))
        writer = rows.writeStream.trigger(availableNow=True).option("checkpointLocation", str(files.checkpoint))
        query = stream_by_format(writer, {**options, **settings})
        assert query.awaitTermination(PATIENCE_S)

    with pytest.raises(StreamingQueryException, match="nothing of micro-batch 0 of headrace-spark-query-"):
        run(**{"kafka.transaction.timeout.ms": "500"})
    assert committed(cluster, topic) == []
    run()
    assert committed(cluster, topic) == files.added


def test_two_queries_side_by_side(
    spark: SparkSession, cluster: EmbeddedCluster, options: dict[str, Any], tmp_path: Path
) -> None:
    register(spark)
    topics = [create_topic(cluster.bootstrap_servers, partitions=2) for _ in range(2)]
    queries = []
    for name, start in zip(topics, (stream_by_format, stream_by_foreach_batch), strict=True):
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).option("numPartitions", 2)
        rows = source.load().selectExpr("cast(value AS string) AS value")
        writer = rows.writeStream.option("checkpointLocation", str(tmp_path / name))
        queries.append(start(writer, {**options, "topic": name}))
    deadline_ms = SYSTEM_CLOCK.now_ms() + PATIENCE_S * 1000
    while any(query.lastProgress is None or query.lastProgress["batchId"] < 4 for query in queries):
        assert all(query.exception() is None for query in queries)
        assert SYSTEM_CLOCK.now_ms() < deadline_ms
        SYSTEM_CLOCK.sleep(100)
    for query in queries:
        query.stop()
    for name in topics:
        found = Counter(committed(cluster, name))
        # whole micro-batches, each row once
        assert len(found) % 100 == 0
        assert found == Counter(b"%d" % number for number in range(len(found)))
        assert len(found) >= 500


def test_two_sinks_of_one_query_need_names(
    spark: SparkSession, cluster: EmbeddedCluster, options: dict[str, Any], files: Files
) -> None:
    other = create_topic(cluster.bootstrap_servers)
    topic = options["topic"]

    def run(*sinks: KafkaSink) -> None:
        def write(df: DataFrame, batch_id: int) -> None:
            for sink in sinks:
                sink.write_batch(df, batch_id)

        files.run(lambda writer, _: writer.foreachBatch(write).start(), options)

    files.add("first")
    with pytest.raises(StreamingQueryException, match="written twice by the same run: give each sink"):
        run(KafkaSink(options), KafkaSink(options, topic=other))
    assert committed(cluster, other) == []
    named = [KafkaSink(options, topic=other, delivery_id=name) for name in ("a", "b")]
    run(KafkaSink(options), *named)
    assert committed(cluster, topic) == files.added
    assert committed(cluster, other) == sorted(files.added * 2)


def test_a_micro_batch_outside_of_a_query_is_an_error(spark: SparkSession, options: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="micro-batch 3 does not belong to a streaming query"):
        KafkaSink(options).write_batch(numbers(spark), 3)
