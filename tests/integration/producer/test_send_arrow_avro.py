"""`send_arrow` through registry serializers: confluent-kafka's deserializers read what arrives."""

from __future__ import annotations

import datetime
import decimal
import json
import logging
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import schema_registry as confluent
from confluent_kafka.schema_registry import dual_schema_id_deserializer
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField as TheirField
from confluent_kafka.serialization import SerializationContext as TheirContext
from support.confluent import read_topic
from support.messages import make_classes

from headrace.broker import EmbeddedCluster
from headrace.network.protocol.errors import IllegalArgumentError, RowDeliveryError, SerializationError
from headrace.producer import KafkaProducer
from headrace.registry import (
    AvroSerializer,
    IncompatibleSchemaError,
    ProtobufBytesSerializer,
    ProtobufSerializer,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryUnavailableError,
    header_schema_id_serializer,
)
from headrace.registry.embedded import EmbeddedRegistry

UTC = datetime.timezone.utc
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
    }
)
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "note": ["a", None, "ü"]})
DATA = [{"id": 1, "note": "a"}, {"id": 2, "note": None}, {"id": 3, "note": "ü"}]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(num_partitions=1) as cluster:
        yield cluster


@pytest.fixture
def client(schema_registry: EmbeddedRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": schema_registry.url, "max.retries": 0}) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid.uuid4().hex[:8]}"


def read_back(cluster: EmbeddedCluster, registry: EmbeddedRegistry, topic: str) -> list[Any]:
    """The values of a topic, by confluent-kafka's consumer and deserializer."""
    with confluent.SchemaRegistryClient({"url": registry.url}) as theirs:
        deserialize = AvroDeserializer(theirs, conf={"schema.id.deserializer": dual_schema_id_deserializer})
        return [
            deserialize(message.value(), TheirContext(topic, TheirField.VALUE, message.headers()))
            for message in read_topic(cluster.bootstrap_servers, topic)
        ]


@pytest.fixture
def producers(cluster: EmbeddedCluster) -> Iterator[Any]:
    made: list[KafkaProducer] = []

    def make(**options: Any) -> KafkaProducer:
        made.append(KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **options))
        return made[-1]

    yield make
    for producer in made:
        producer.close(10)


def test_a_whole_table_by_a_derived_schema(
    cluster: EmbeddedCluster,
    schema_registry: EmbeddedRegistry,
    client: SchemaRegistryClient,
    producers: Any,
    topic: str,
    caplog: pytest.LogCaptureFixture,
):
    data = [
        {
            "id": number,
            "at": datetime.datetime(2024, 1, 1, 0, 0, number, 1000 * number, UTC),
            "price": decimal.Decimal(number) / 4,
            "lines": [{"item": "bread", "count": number}],
            "more": None,
        }
        for number in range(50)
    ]
    kind = pa.schema(
        [
            ("id", pa.int64()),
            ("at", pa.timestamp("us", "UTC")),
            ("price", pa.decimal128(9, 2)),
            ("lines", pa.list_(pa.struct([("item", pa.string()), ("count", pa.int32())]))),
            ("more", pa.map_(pa.string(), pa.string())),
        ]
    )
    table = pa.Table.from_pylist(data, kind).append_column("key", pa.array([f"k{row['id']}" for row in data]))
    producer = producers(key_serializer="string", value_serializer=AvroSerializer(client))
    with caplog.at_level(logging.WARNING):
        assert producer.send_arrow(topic, table, value_format="avro").get(20).rows == 50
        assert producer.send_arrow(topic, table, value=None).get(20).rows == 50
    assert "one by one" not in caplog.text
    assert read_back(cluster, schema_registry, topic) == data + data
    assert {message.key() for message in read_topic(cluster.bootstrap_servers, topic)} == {
        b"k%d" % number for number in range(50)
    }
    registered = json.loads(client.get_latest_version(f"{topic}-value").schema.schema_str)
    assert registered["name"] == f"{topic.replace('-', '_')}_value"
    assert list(schema_registry.requests).count(f"POST /subjects/{topic}-value/versions?normalize=false") == 1


def test_a_struct_column_by_a_given_schema(
    cluster: EmbeddedCluster,
    schema_registry: EmbeddedRegistry,
    client: SchemaRegistryClient,
    producers: Any,
    topic: str,
):
    serializer = AvroSerializer(client, ORDER)
    producer = producers(key_serializer=AvroSerializer(client, '"long"'), value_serializer=serializer)
    values = pa.array([*DATA, None], pa.struct([("id", pa.int32()), ("note", pa.string())]))
    table = pa.table({"value": values, "key": pa.array([1, 2, 3, 4], pa.int64())})
    producer.send_arrow(topic, table).get(20)
    # row by row, the bytes are the same
    for value, key in zip(values.to_pylist(), table["key"].to_pylist(), strict=True):
        producer.send(topic, value, key).get(10)
    messages = read_topic(cluster.bootstrap_servers, topic)
    pairs = [(message.key(), message.value()) for message in messages]
    assert pairs[:4] == pairs[4:]
    assert pairs[3][1] is None
    assert read_back(cluster, schema_registry, topic)[:3] == DATA
    assert json.loads(client.get_latest_version(f"{topic}-value").schema.schema_str) == json.loads(ORDER)


def test_a_topic_per_row_has_a_schema_per_topic(
    cluster: EmbeddedCluster,
    schema_registry: EmbeddedRegistry,
    client: SchemaRegistryClient,
    producers: Any,
    topic: str,
):
    producer = producers(value_serializer=AvroSerializer(client))
    table = ROWS.append_column("topic", pa.array([f"{topic}-a", f"{topic}-b", f"{topic}-a"]))
    producer.send_arrow(None, table, value_format="avro").get(20)
    assert read_back(cluster, schema_registry, f"{topic}-a") == [DATA[0], DATA[2]]
    assert read_back(cluster, schema_registry, f"{topic}-b") == [DATA[1]]
    assert client.get_subjects() == [f"{topic}-a-value", f"{topic}-b-value"]
    # an error names the row of the table
    bad = table.set_column(0, "id", pa.array([1, 2**64 - 1, 3], pa.uint64()))
    with pytest.raises(RowDeliveryError, match=r"row 1 .*'id' has a number out of the range"):
        producer.send_arrow(None, bad, value=None)


@pytest.mark.parametrize("earlier", ["none", "list", "map"])
def test_framing_by_headers(
    cluster: EmbeddedCluster,
    schema_registry: EmbeddedRegistry,
    client: SchemaRegistryClient,
    producers: Any,
    topic: str,
    earlier: str,
):
    conf = {"schema.id.serializer": header_schema_id_serializer}
    producer = producers(value_serializer=AvroSerializer(client, ORDER, conf=conf))
    pairs = [[("a", b"1"), ("__value_schema_id", b"old"), ("b", None)], None, []]
    # confluent-kafka's deserializer takes data of six bytes or more, even if they have no prefix
    data = [{"id": number, "note": "long enough"} for number in range(3)]
    rows = table = pa.Table.from_pylist(data)
    if earlier == "list":
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        lists = [None if each is None else [{"key": key, "value": value} for key, value in each] for each in pairs]
        table = rows.append_column("headers", pa.array(lists, kind))
    elif earlier == "map":
        table = rows.append_column("headers", pa.array(pairs, pa.map_(pa.string(), pa.binary())))
    producer.send_arrow(topic, table, value_format="avro").get(20)
    assert read_back(cluster, schema_registry, topic) == data
    names = [[name for name, _ in message.headers()] for message in read_topic(cluster.bootstrap_servers, topic)]
    first = ["__value_schema_id"] if earlier == "none" else ["a", "b", "__value_schema_id"]
    assert names == [first, ["__value_schema_id"], ["__value_schema_id"]]


def test_other_columns_are_another_version_of_a_derived_schema(
    client: SchemaRegistryClient, producers: Any, topic: str
):
    producer = producers(value_serializer=AvroSerializer(client))
    producer.send_arrow(topic, ROWS, value=None).get(20)
    producer.send_arrow(topic, ROWS.append_column("x", pa.array([1, 2, 3])), value=None).get(20)
    assert client.get_versions(f"{topic}-value") == [1, 2]
    with pytest.raises(IncompatibleSchemaError, match=f"{topic}-value"):
        producer.send_arrow(topic, ROWS.set_column(0, "id", pa.array(["a", "b", "c"])), value=None)


def test_an_outage(schema_registry: EmbeddedRegistry, client: SchemaRegistryClient, producers: Any, topic: str):
    producer = producers(value_serializer=AvroSerializer(client, ORDER))
    schema_registry.close()
    with pytest.raises(SchemaRegistryUnavailableError, match=f"{topic}-value.*shop.Order"):
        producer.send_arrow(topic, ROWS, value=None)
    schema_registry.start()
    producer.send_arrow(f"{topic}-2", ROWS, value=None).get(20)
    schema_registry.close()
    producer.send_arrow(f"{topic}-2", ROWS, value=None).get(20)


def test_references_and_the_latest_version(
    cluster: EmbeddedCluster,
    schema_registry: EmbeddedRegistry,
    client: SchemaRegistryClient,
    producers: Any,
    topic: str,
):
    note = '{"type":"record","name":"Note","namespace":"shop","fields":[{"name":"text","type":"string"}]}'
    client.register_schema("note", Schema(note))
    order = json.dumps(
        {
            "type": "record",
            "name": "Order",
            "namespace": "shop",
            "fields": [{"name": "note", "type": "Note"}, {"name": "other", "type": ["null", "Note"], "default": None}],
        }
    )
    client.register_schema(f"{topic}-value", Schema(order, references=[SchemaReference("shop.Note", "note", 1)]))
    producer = producers(value_serializer=AvroSerializer(client, conf={"use.latest.version": True}))
    data = [{"note": {"text": "a"}, "other": None}, {"note": {"text": "b"}, "other": {"text": "c"}}]
    producer.send_arrow(topic, pa.Table.from_pylist(data), value=None).get(20)
    assert read_back(cluster, schema_registry, topic) == data


def test_serialized_protobuf_messages(
    cluster: EmbeddedCluster,
    schema_registry: EmbeddedRegistry,
    client: SchemaRegistryClient,
    producers: Any,
    topic: str,
):
    classes = make_classes()
    line = classes["shop.Order.Line"]
    messages = [line(), line()]
    for number, message in enumerate(messages):
        field = line.DESCRIPTOR.fields[0]
        setattr(message, field.name, f"{number}" if field.type == field.TYPE_STRING else number)
    column = pa.array([message.SerializeToString() for message in messages])
    by_class = producers(value_serializer=ProtobufSerializer(line, client))
    by_class.send_arrow(topic, pa.table({"value": column})).get(20)
    conf = {"use.latest.version": True}
    by_name = producers(value_serializer=ProtobufBytesSerializer(client, "shop.Order.Line", conf))
    by_name.send_arrow(topic, pa.table({"value": column})).get(20)
    by_name.send(topic, messages[0].SerializeToString()).get(10)
    with confluent.SchemaRegistryClient({"url": schema_registry.url}) as theirs:
        deserialize = ProtobufDeserializer(line, {"use.deprecated.format": False}, theirs)
        context = TheirContext(topic, TheirField.VALUE)
        read = [deserialize(each.value(), context) for each in read_topic(cluster.bootstrap_servers, topic)]
    assert read == [*messages, *messages, messages[0]]
    with pytest.raises(SerializationError, match=r"'value' is of type string; it has to be binary"):
        by_class.send_arrow(topic, pa.table({"value": ["a"]}))


def test_serializers_that_need_each_value_go_row_by_row(
    cluster: EmbeddedCluster,
    schema_registry: EmbeddedRegistry,
    client: SchemaRegistryClient,
    producers: Any,
    topic: str,
):
    serializer = AvroSerializer(client, ORDER, lambda row, _: {**row, "id": row["id"] + 10})
    producers(value_serializer=serializer).send_arrow(topic, ROWS, value=None).get(20)
    assert [each["id"] for each in read_back(cluster, schema_registry, topic)] == [11, 12, 13]


def test_roles_and_formats_that_do_not_fit(client: SchemaRegistryClient, producers: Any, topic: str):
    with_avro = producers(key_serializer="string", value_serializer=AvroSerializer(client))
    plain = producers()
    with pytest.raises(IllegalArgumentError, match=r"needs a producer with value_serializer=.*AvroSerializer"):
        plain.send_arrow(topic, ROWS, value_format="avro")
    with pytest.raises(IllegalArgumentError, match=r"value_format='json' has to be 'avro'"):
        with_avro.send_arrow(topic, ROWS, value_format="json")
    with pytest.raises(IllegalArgumentError, match="every column has a role"):
        with_avro.send_arrow(topic, pa.table({"key": ["a"]}), value=None)
    with pytest.raises(SerializationError, match="pass value=None for a record of all columns"):
        with_avro.send_arrow(topic, pa.table({"value": [1.5]}))
    with pytest.raises(SerializationError, match=r"'key' is of type int64, and key.serializer='string' takes strings"):
        with_avro.send_arrow(topic, ROWS.append_column("key", pa.array([1, 2, 3])), value=None)
    with pytest.raises(SerializationError, match="struct<id: int64, note: string>"):
        plain.send_arrow(topic, ROWS, value=None)
    # None gives no column the role
    with_avro.send_arrow(topic, pa.table({"timestamp": ["noon"], "value": [1]}), value=None, timestamp=None).get(20)
