"""The formats avro and protobuf of Spark's columns, with the embedded registry and confluent-kafka's deserializers."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import schema_registry as confluent
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from support.confluent import read_topic
from support.messages import make_classes
from support.spark_session import needs_spark, spark

from headrace.broker import EmbeddedCluster
from headrace.network.protocol.errors import KafkaConfigurationError
from headrace.producer.spark import KafkaSink, register
from headrace.registry import ProtobufSerializer, SchemaRegistryClient
from headrace.registry.embedded import EmbeddedRegistry

__all__ = ["spark"]

pytestmark = needs_spark

UTC = datetime.timezone.utc
SCHEMA = "id LONG NOT NULL, at TIMESTAMP, price DECIMAL(9, 2), lines ARRAY<STRUCT<item: STRING, count: INT>>"
LINES = [Row(item="bread", count=2), Row(item=None, count=None)]
DATA = [
    (number, datetime.datetime(2024, 1, 1, 0, 0, number, 1000, UTC), decimal.Decimal(number) / 4, LINES)
    for number in range(40)
]
EXPECTED = [
    {
        "id": number,
        "at": at,
        "price": price.quantize(decimal.Decimal("0.01")),
        "lines": [{"item": "bread", "count": 2}, {"item": None, "count": None}],
    }
    for number, at, price, _ in DATA
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def options(cluster: EmbeddedCluster, schema_registry: EmbeddedRegistry, topic: str) -> dict[str, Any]:
    return {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "topic": topic,
        "value.format": "avro",
        "schema.registry.url": schema_registry.url,
    }


def read_back(cluster: EmbeddedCluster, registry: EmbeddedRegistry, topic: str) -> list[Any]:
    with confluent.SchemaRegistryClient({"url": registry.url}) as theirs:
        deserialize = AvroDeserializer(theirs)
        context = SerializationContext(topic, MessageField.VALUE)
        rows: list[Any] = [
            deserialize(message.value(), context) for message in read_topic(cluster.bootstrap_servers, topic)
        ]
    return sorted(rows, key=lambda row: row["id"])


def test_ways_to_write(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    schema_registry: EmbeddedRegistry,
    options: dict[str, Any],
    topic: str,
):
    register(spark)
    df = spark.createDataFrame(DATA, SCHEMA).repartition(4).selectExpr("string(id) AS key", "struct(*) AS value")
    assert KafkaSink(options).write(df).rows == len(DATA)
    assert read_back(cluster, schema_registry, topic) == EXPECTED
    df.write.format("headrace").options(**options).mode("append").save()
    assert read_back(cluster, schema_registry, topic)[1::2] == EXPECTED
    with SchemaRegistryClient({"url": schema_registry.url}) as client:
        assert client.get_versions(f"{topic}-value") == [1]
        registered = json.loads(client.get_latest_version(f"{topic}-value").schema.schema_str)
    assert registered["fields"][0] == {"name": "id", "type": "long"}
    # once per Python worker at most, and there are two at a time
    asked = [each for each in schema_registry.requests if each.startswith(f"POST /subjects/{topic}")]
    assert 1 <= len(asked) <= 8


def test_a_stream_with_keys_and_a_given_schema(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    schema_registry: EmbeddedRegistry,
    options: dict[str, Any],
    topic: str,
    tmp_path: Path,
):
    source = tmp_path / "source"
    spark.createDataFrame([(1, "a"), (2, None)], "id INT, note STRING").write.parquet(str(source))
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
    }
    rows = spark.readStream.schema("id INT, note STRING").parquet(str(source))
    more = {"value.schema": json.dumps(schema), "key.format": "avro", "subject.name.strategy.type": "TOPIC"}
    sink = KafkaSink({**options, **more})
    writer = rows.selectExpr("struct(id) AS key", "struct(*) AS value").writeStream.foreachBatch(sink.write_batch)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(100)
    assert read_back(cluster, schema_registry, topic) == [{"id": 1, "note": "a"}, {"id": 2, "note": None}]
    with SchemaRegistryClient({"url": schema_registry.url}) as client:
        assert client.get_subjects() == [f"{topic}-key", f"{topic}-value"]


def test_protobuf(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    schema_registry: EmbeddedRegistry,
    options: dict[str, Any],
    topic: str,
):
    line = make_classes()["shop.Order.Line"]
    with SchemaRegistryClient({"url": schema_registry.url}) as client:
        context = SerializationContext(topic, MessageField.VALUE)
        ProtobufSerializer(line, client)(line(what="x"), context)  # type: ignore[arg-type]
    messages = [line(what=f"item {number}") for number in range(20)]
    # as `to_protobuf` returns them
    df = spark.createDataFrame([(message.SerializeToString(),) for message in messages], "value BINARY")
    protobuf = {"value.format": "protobuf", "use.latest.version": "true", "value.message": "shop.Order.Line"}
    KafkaSink({**options, **protobuf}).write(df)
    with confluent.SchemaRegistryClient({"url": schema_registry.url}) as theirs:
        deserialize = ProtobufDeserializer(line, {"use.deprecated.format": False}, theirs)
        read = [deserialize(each.value(), context) for each in read_topic(cluster.bootstrap_servers, topic)]
    assert sorted(each.what for each in read) == sorted(each.what for each in messages)


def test_what_the_driver_rejects(spark: SparkSession, options: dict[str, Any]):
    with pytest.raises(KafkaConfigurationError, match="no format can express"):
        KafkaSink(options).write(spark.sql("SELECT struct(INTERVAL 1 DAY AS i) AS value"))
    with pytest.raises(KafkaConfigurationError, match="the schema of a struct can be derived only"):
        KafkaSink(options).write(spark.sql("SELECT 'a' AS value"))
    text = '{"type":"record","name":"R","fields":[{"name":"id","type":"long"}]}'
    with pytest.raises(
        KafkaConfigurationError, match=r"'value.id' is of type string, which does not fit the Avro type"
    ):
        KafkaSink(options, value_schema=text).write(spark.sql("SELECT struct('a' AS id) AS value"))
    protobuf = {**options, "value.format": "protobuf", "use.latest.version": "true"}
    with pytest.raises(KafkaConfigurationError, match="'value' is of type string; it has to be binary"):
        KafkaSink(protobuf).write(spark.sql("SELECT 'a' AS value"))


def test_what_a_task_rejects(spark: SparkSession, schema_registry: EmbeddedRegistry, options: dict[str, Any]):
    text = '{"type":"record","name":"R","fields":[{"name":"id","type":"int"}]}'
    rows = spark.range(5, numPartitions=1).selectExpr("struct(IF(id = 3, 1L << 40, id) AS id) AS value")
    with pytest.raises(
        PySparkException, match=r"row 3 of Spark partition 0 .*'value.id' has a number out of the range"
    ):
        KafkaSink(options, value_schema=text).write(rows)
    with pytest.raises(PySparkException, match="takes Arrow batches, and these are rows"):
        rows.foreachPartition(KafkaSink(options))
    schema_registry.close()
    with pytest.raises(PySparkException, match="no schema registry could serve the request in 1 attempts"):
        KafkaSink({**options, "schema.registry.max.retries": "0"}).write(rows.filter("value.id < 3"))
