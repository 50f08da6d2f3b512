"""Tests all ways to write Spark DataFrames to the embedded cluster; confluent-kafka reads the records back."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from support.confluent import read_topic
from support.spark_session import needs_spark, spark

from headrace.broker import EmbeddedCluster
from headrace.network.protocol.api import ApiKey
from headrace.network.protocol.errors import KafkaConfigurationError
from headrace.producer.spark import KafkaSink, register

__all__ = ["spark"]

pytestmark = needs_spark

ROWS = 5000


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(num_partitions=3, log_retention_ms=-1) as cluster:
        yield cluster


@pytest.fixture
def servers(cluster: EmbeddedCluster) -> dict[str, Any]:
    return {"kafka.bootstrap.servers": cluster.bootstrap_servers}


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


def numbers(spark: SparkSession, rows: int = ROWS) -> DataFrame:
    """Rows with all columns: repeated keys, tombstones, headers, times; in four Spark partitions."""
    number = f.col("id").cast("string")
    return spark.range(0, rows, numPartitions=4).select(
        f.concat(f.lit("key-"), (f.col("id") % 100).cast("string")).alias("key"),
        f.when(f.col("id") % 50 == 7, None).otherwise(f.concat(f.lit("value "), number)).alias("value"),
        f.when(f.col("id") % 3 == 0, f.array(f.struct(f.lit("n").alias("key"), number.cast("binary").alias("value"))))
        .otherwise(None)
        .alias("headers"),
        f.timestamp_millis(f.lit(1_600_000_000_000) + f.col("id")).alias("timestamp"),
        f.lit("ignored").alias("other"),
    )


def expected(rows: int = ROWS) -> Counter[tuple]:
    return Counter(
        (
            f"key-{number % 100}".encode(),
            None if number % 50 == 7 else f"value {number}".encode(),
            (("n", str(number).encode()),) if number % 3 == 0 else (),
            1_600_000_000_000 + number,
        )
        for number in range(rows)
    )


def stored(cluster: EmbeddedCluster, topic: str) -> Counter[tuple]:
    messages = read_topic(cluster.bootstrap_servers, topic)
    return Counter(
        (message.key(), message.value(), tuple(message.headers() or ()), message.timestamp()[1]) for message in messages
    )


def values(cluster: EmbeddedCluster, topic: str) -> Counter[bytes | None]:
    return Counter(message.value() for message in read_topic(cluster.bootstrap_servers, topic))


def test_rows(spark: SparkSession, cluster: EmbeddedCluster, servers: dict[str, Any], topic: str) -> None:
    sink = KafkaSink(servers, topic=topic)
    numbers(spark).foreachPartition(sink)
    assert stored(cluster, topic) == expected()
    assert sink.report.rows == ROWS
    assert sink.report.tasks == 4
    assert sum(found.records for found in sink.report.offsets.values()) == ROWS


def test_batches(spark: SparkSession, cluster: EmbeddedCluster, servers: dict[str, Any], topic: str) -> None:
    sink = KafkaSink(servers, topic=topic)
    report = sink.write(numbers(spark))
    assert stored(cluster, topic) == expected()
    assert report.rows == sink.report.rows == ROWS
    assert report.tasks == 4
    assert report.elapsed_ms > 0
    assert {place[0] for place in report.offsets} == {topic}
    assert all(found.last - found.first + 1 == found.records for found in report.offsets.values())
    assert report.slowest_task is not None


def test_data_source(spark: SparkSession, cluster: EmbeddedCluster, servers: dict[str, Any], topic: str) -> None:
    register(spark)
    numbers(spark).write.format("headrace").options(**servers).option("topic", topic).mode("append").save()
    assert stored(cluster, topic) == expected()


def test_an_rdd_of_anything_like_rows(
    spark: SparkSession, cluster: EmbeddedCluster, servers: dict[str, Any], topic: str
) -> None:
    sink = KafkaSink(servers, topic=topic, value_format="json")
    spark.sparkContext.parallelize([Row(value=Row(a=1, b=[2])), Row(value=None)], 2).foreachPartition(sink)
    spark.sparkContext.parallelize([{"value": {"c": 3}}], 1).foreachPartition(sink)
    assert values(cluster, topic) == Counter([b'{"a":1,"b":[2]}', None, b'{"c":3}'])


def test_structs_in_json_are_the_same_through_every_door(
    spark: SparkSession, cluster: EmbeddedCluster, servers: dict[str, Any], topic: str
) -> None:
    register(spark)
    rows = spark.sql(
        "SELECT named_struct('i', id, 't', timestamp'2013-01-01 05:00:00', 'd', date'2013-01-01', 'n', null, "
        "'m', map('k', array(1.5D)), 'b', X'00FF', 'x', cast(1.20 AS decimal(5,2))) AS value, id AS key FROM range(5)"
    )
    sink = KafkaSink(servers, topic=topic, value_format="json", key_format="string")
    rows.foreachPartition(sink)
    sink.write(rows)
    source = rows.write.format("headrace").options(**servers)
    source.options(**{"topic": topic, "value.format": "json", "key.format": "string"}).mode("append").save()
    shape = '{"i":%d,"t":"2013-01-01T05:00:00Z","d":"2013-01-01","n":null,"m":{"k":[1.5]},"b":"AP8=","x":"1.20"}'
    found = Counter((message.key(), message.value()) for message in read_topic(cluster.bootstrap_servers, topic))
    assert found == Counter({(b"%d" % number, (shape % number).encode()): 3 for number in range(5)})


def test_serializers_get_the_same_through_every_door(
    spark: SparkSession, cluster: EmbeddedCluster, servers: dict[str, Any], topic: str
) -> None:
    register(spark)
    options = {**servers, "topic": topic, "kafka.value.serializer": "json"}
    rows = spark.sql(
        "SELECT struct(id AS a, array(struct('x' AS c)) AS b) AS value, map('h', 'i') AS headers FROM range(3)"
    )
    rows.foreachPartition(KafkaSink(options))
    KafkaSink(options).write(rows)
    rows.write.format("headrace").options(**options).mode("append").save()
    found = Counter((message.value(), *message.headers()) for message in read_topic(cluster.bootstrap_servers, topic))
    expected = {(b'{"a":%d,"b":[{"c":"x"}]}' % number, ("h", b"i")): 3 for number in range(3)}
    assert found == Counter(expected)


def test_columns_that_an_option_overrides_may_be_of_any_type(
    spark: SparkSession, cluster: EmbeddedCluster, servers: dict[str, Any], topic: str
) -> None:
    register(spark)
    options = {**servers, "topic": topic, "includeHeaders": "false"}
    rows = spark.sql("SELECT 'v' AS value, 1 AS topic, 'none' AS headers, interval 1 day AS other")
    rows.foreachPartition(KafkaSink(options))
    KafkaSink(options).write(rows)
    rows.write.format("headrace").options(**options).mode("append").save()
    assert values(cluster, topic) == Counter({b"v": 3})


def test_columns_whose_names_differ_in_case_are_others(
    spark: SparkSession, cluster: EmbeddedCluster, servers: dict[str, Any], topic: str
) -> None:
    """Spark ignores case, so `value` could mean either column."""
    register(spark)
    rows = spark.createDataFrame([("v", "V", "KEY", 1)], ["value", "VALUE", "Key", "other"])
    rows.foreachPartition(KafkaSink(servers, topic=topic))
    KafkaSink(servers, topic=topic).write(rows)
    rows.write.format("headrace").options(**servers).option("topic", topic).mode("append").save()
    found = Counter((message.key(), message.value()) for message in read_topic(cluster.bootstrap_servers, topic))
    assert found == Counter({(None, b"v"): 3})


def test_a_topic_per_row(spark: SparkSession, cluster: EmbeddedCluster, servers: dict[str, Any], topic: str) -> None:
    rows = spark.range(100).selectExpr(f"concat('{topic}-', id % 2) AS topic", "cast(id AS string) AS value")
    report = KafkaSink(servers).write(rows)
    assert {place[0] for place in report.offsets} == {f"{topic}-0", f"{topic}-1"}
    assert values(cluster, f"{topic}-1") == Counter(b"%d" % number for number in range(1, 100, 2))


def test_wrong_schemas_and_options_are_told_before_any_task_runs(
    spark: SparkSession, servers: dict[str, Any], topic: str
) -> None:
    register(spark)
    for query, message in (
        ("SELECT 1 AS key", "there is no column 'value' among key"),
        ("SELECT 1 AS value", "the column 'value' is of type int, which format raw can't express"),
        ("SELECT struct(1) AS value", "choose value_format json or msgpack"),
        ("SELECT 'v' AS value, 'x' AS partition", "the column 'partition' is of type string"),
        ("SELECT 'v' AS value, 'x' AS headers", "the column 'headers' is of type string; it has to be an array"),
        ("SELECT 'v' AS value, 'w' AS value", "there are 2 columns 'value'"),
        ("SELECT 'v' AS value, timestamp_ntz'2020-01-01' AS timestamp", "a timestamp with a time zone"),
        ("SELECT struct(interval 1 day) AS value", "the column 'value' has values of type interval day, which no"),
        ("SELECT map('k', parse_json('1')) AS value", "the column 'value' has values of type variant, which no"),
        ("SELECT array(map(struct(1), 2)) AS value", "the column 'value' has maps whose keys are of type struct<"),
    ):
        with pytest.raises(KafkaConfigurationError) as told:
            KafkaSink(servers, topic=topic).write(spark.sql(query))
        assert message in str(told.value)
    with pytest.raises(KafkaConfigurationError, match="no topic: give the sink"):
        KafkaSink(servers).write(spark.sql("SELECT 'v' AS value"))
    months = spark.sql("SELECT 'v' AS value, interval 3 month AS m")
    with pytest.raises(PySparkException, match="the column 'm' has values of type interval month, which Spark can't"):
        months.write.format("headrace").options(**servers).option("topic", topic).mode("append").save()
    with pytest.raises(PySparkException, match="did you mean topic"):
        spark.sql("SELECT 'v' AS value").write.format("headrace").option("topik", "t").mode("append").save()
    with pytest.raises(PySparkException, match="can't be overwritten"):
        spark.sql("SELECT 'v' AS value").write.format("headrace").options(**servers).mode("overwrite").save()


def test_tasks_share_a_producer(
    spark: SparkSession, cluster: EmbeddedCluster, servers: dict[str, Any], topic: str
) -> None:
    sink = KafkaSink(servers, topic=topic, client_id=topic)
    for _ in range(3):
        numbers(spark, 100).foreachPartition(sink)
    asked = [seen for seen in cluster.requests if seen.client_id == topic and seen.api_key is ApiKey.INIT_PRODUCER_ID]
    # twelve tasks, two at a time; Spark may start a worker before another becomes free again
    assert 1 <= len(asked) <= 4
