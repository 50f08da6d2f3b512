"""Tests that streaming queries lose no row: checkpoints, stops, failures and restarts."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from support.confluent import read_topic
from support.spark_session import needs_spark, spark

from headrace.broker import EmbeddedCluster
from headrace.broker.requests.control import Fault
from headrace.network.clock import SYSTEM_CLOCK
from headrace.network.protocol.api import ApiKey
from headrace.network.protocol.errors import KafkaConfigurationError, TopicAuthorizationFailedError
from headrace.producer.spark import KafkaSink, register

__all__ = ["spark"]

pytestmark = needs_spark

PATIENCE_S = 300

Start = Callable[[DataStreamWriter, EmbeddedCluster, str], StreamingQuery]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(num_partitions=3) as cluster:
        yield cluster


def by_format(writer: DataStreamWriter, cluster: EmbeddedCluster, topic: str) -> StreamingQuery:
    servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    return writer.format("headrace").options(**servers).option("topic", topic).start()


def by_foreach_batch(writer: DataStreamWriter, cluster: EmbeddedCluster, topic: str) -> StreamingQuery:
    sink = KafkaSink({"bootstrap.servers": cluster.bootstrap_servers}, topic=topic)
    return writer.foreachBatch(sink.write_batch).start()


def values(cluster: EmbeddedCluster, topic: str) -> Counter[bytes | None]:
    return Counter(message.value() for message in read_topic(cluster.bootstrap_servers, topic))


@pytest.mark.parametrize("start", [by_format, by_foreach_batch])
def test_a_query_over_files_goes_on_where_it_stopped_or_failed(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path, start: Start
) -> None:
    register(spark)
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    source = tmp_path / "in"
    source.mkdir()

    def add(name: str) -> list[bytes]:
        lines = [f"{name} {number}" for number in range(200)]
        (source / f"{name}.txt").write_text("\n".join(lines))
        return [line.encode() for line in lines]

    def run() -> None:
        writer = spark.readStream.text(str(source)).writeStream.trigger(availableNow=True)
        query = start(writer.option("checkpointLocation", str(tmp_path / "checkpoint")), cluster, topic)
        assert query.awaitTermination(PATIENCE_S)

    expected = Counter(add("first"))
    run()
    assert values(cluster, topic) == expected
    # without new rows nothing is written
    run()
    assert values(cluster, topic) == expected

    expected.update(add("second"))
    refused = Fault(error=TopicAuthorizationFailedError, topic=topic)
    with (
        cluster.inject(ApiKey.PRODUCE, refused, times=None),
        pytest.raises(StreamingQueryException, match="TopicAuthorizationFailedError"),
    ):
        run()
    assert values(cluster, topic) == Counter(b"first %d" % number for number in range(200))
    # the failed micro-batch is repeated
    run()
    assert values(cluster, topic) == expected


def test_a_rate_that_is_stopped_and_started_again(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    register(spark)
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic)

    def run(until: int) -> None:
        rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 500).option("numPartitions", 2).load()
        rows = rate.selectExpr("cast(value AS string) AS value", "cast(value % 10 AS string) AS key", "timestamp")
        writer = rows.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = by_format(writer, cluster, topic)
        deadline_ms = SYSTEM_CLOCK.now_ms() + PATIENCE_S * 1000
        while sum(len(cluster.records(topic, partition)) for partition in range(3)) < until:
            assert query.exception() is None
            assert SYSTEM_CLOCK.now_ms() < deadline_ms
            SYSTEM_CLOCK.sleep(50)
        # at an arbitrary point
        query.stop()

    run(1500)
    run(3000)
    found = values(cluster, topic)
    highest = max(int(value or b"") for value in found)
    assert highest + 1 >= 2500
    # every number at least once; those of a micro-batch in progress may be duplicated
    assert set(found) == {b"%d" % number for number in range(highest + 1)}
    assert sum(count - 1 for count in found.values()) <= 500


def test_a_streaming_dataframe_is_no_batch(spark: SparkSession, cluster: EmbeddedCluster) -> None:
    rows: Any = spark.readStream.format("rate").load().selectExpr("cast(value AS string) AS value")
    with pytest.raises(KafkaConfigurationError, match="foreachBatch"):
        KafkaSink(bootstrap_servers=cluster.bootstrap_servers, topic="t").write(rows)
