"""confluent-kafka's schema registry client against the embedded registry, and its (de)serializers with ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import schema_registry as confluent
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.avro import AvroSerializer as ConfluentsAvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer as ConfluentsProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from support.messages import make_classes

from headrace.broker import EmbeddedCluster
from headrace.producer import KafkaProducer
from headrace.registry import (
    AvroSerializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    Schema,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from headrace.registry.embedded import EmbeddedRegistry

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "what", "type": ["null", "string"], "default": None},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
        ],
    }
)
JSON_ORDER = json.dumps({"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}})
SMALL = Schema('{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}')
CLASSES = make_classes()


@pytest.fixture
def theirs(schema_registry: EmbeddedRegistry) -> Iterator[confluent.SchemaRegistryClient]:
    with confluent.SchemaRegistryClient({"url": schema_registry.url, "max.retries": 0}) as client:
        yield client


@pytest.fixture
def ours(schema_registry: EmbeddedRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": schema_registry.url, "max.retries": 0}) as client:
        yield client


def test_every_method_of_their_client(theirs: confluent.SchemaRegistryClient):
    one = confluent.Schema(SMALL.schema_str, "AVRO")
    two = confluent.Schema(SMALL.schema_str.replace("}]}", '},{"name":"b","type":"int","default":0}]}'), "AVRO")
    assert (theirs.register_schema("s", one), theirs.register_schema("s", two)) == (1, 2)
    full = theirs.register_schema_full_response("t", one)
    assert (full.schema_id, full.version, full.subject) == (1, 1, "t")
    assert full.guid is not None
    assert theirs.get_schema(1).schema_str == one.schema_str
    assert theirs.get_schema_by_guid(full.guid).schema_str == one.schema_str
    assert theirs.get_schema_types() == ["AVRO", "JSON", "PROTOBUF"]
    assert theirs.get_subjects_by_schema_id(1) == ["s", "t"]
    assert [(each.subject, each.version) for each in theirs.get_schema_versions(2)] == [("s", 2)]
    assert (theirs.lookup_schema("s", two).version, theirs.lookup_schema("s", two).schema_id) == (2, 2)
    assert theirs.get_subjects() == ["s", "t"]
    assert theirs.get_latest_version("s").version == theirs.get_version("s", "latest").version == 2
    assert theirs.get_version("s", 1).schema.schema_str == one.schema_str
    assert theirs.get_versions("s") == [1, 2]
    assert theirs.set_compatibility(level="full") == {"compatibility": "FULL"}
    assert theirs.get_compatibility() == "FULL"
    assert theirs.set_compatibility("s", "none") == {"compatibility": "NONE"}
    assert theirs.get_compatibility("s") == "NONE"
    assert str(theirs.get_config("s").compatibility_level) == "NONE"
    theirs.set_config("s", confluent.ServerConfig(compatibility=confluent.ConfigCompatibilityLevel.BACKWARD))
    assert str(theirs.delete_config("s").compatibility_level) == "BACKWARD"
    assert theirs.test_compatibility("s", one)
    assert theirs.test_compatibility_all_versions("s", one)
    assert not theirs.test_compatibility("s", confluent.Schema('"int"', "AVRO"))
    assert theirs.update_mode("s", "READONLY") == theirs.get_mode("s") == theirs.delete_mode("s") == "READONLY"
    assert theirs.get_global_mode() == theirs.update_global_mode("READWRITE") == "READWRITE"
    assert theirs.get_contexts() == ["."]
    refers = confluent.Schema('{"type":"array","items":"R"}', "AVRO", [confluent.SchemaReference("R", "s", 2)])
    assert theirs.register_schema("list", refers) == 3
    assert theirs.get_referenced_by("s", 2) == [3]
    assert theirs.get_version("list", 1).schema.references == refers.references
    assert theirs.delete_version("s", 1) == theirs.delete_version("s", 1, permanent=True) == 1
    assert theirs.delete_subject("t") == theirs.delete_subject("t", permanent=True) == [1]
    assert theirs.get_subjects(deleted=True) == ["list", "s"]
    metadata = confluent.Metadata(None, confluent.MetadataProperties({"a b": "1"}), None)
    theirs.register_schema("m", confluent.Schema('"int"', "AVRO", metadata=metadata))
    assert theirs.get_latest_with_metadata("m", {"a b": "1"}).schema.metadata.properties == metadata.properties


@pytest.mark.parametrize(
    ("status", "code", "call"),
    [
        (404, 40401, lambda client: client.get_latest_version("no")),
        (404, 40403, lambda client: client.get_schema(99)),
        (409, 409, lambda client: client.register_schema("s", confluent.Schema('"int"', "AVRO"))),
        (422, 42201, lambda client: client.register_schema("s", confluent.Schema("{", "AVRO"))),
        (404, 40408, lambda client: client.get_compatibility("s")),
    ],
)
def test_errors_reach_their_client(theirs: confluent.SchemaRegistryClient, status: int, code: int, call: Any):
    theirs.register_schema("s", confluent.Schema(SMALL.schema_str, "AVRO"))
    with pytest.raises(SchemaRegistryError) as failed:
        call(theirs)
    assert (failed.value.http_status_code, failed.value.error_code) == (status, code)


@pytest.mark.parametrize("framing", ["prefix", "header"])
def test_their_deserializers_read_what_the_producer_sends(
    kafka_cluster: EmbeddedCluster, theirs: confluent.SchemaRegistryClient, ours: SchemaRegistryClient, framing: str
):
    conf = {} if framing == "prefix" else {"schema.id.serializer": header_schema_id_serializer}
    dual = {"schema.id.deserializer": confluent.dual_schema_id_deserializer}
    order = CLASSES["shop.Order"](id=7)
    order.price.cents = 5
    data = {"id": 7, "what": "bread", "at": 0}
    cases: list[tuple[str, Any, Any, Any, Any]] = [
        ("avro", AvroSerializer(ours, ORDER, conf=conf), AvroDeserializer(theirs, conf=dual), data, None),
        (
            "json",
            JsonSchemaSerializer(JSON_ORDER, ours, conf=conf),
            JSONDeserializer(None, schema_registry_client=theirs, conf=dual),
            data,
            None,
        ),
        (
            "protobuf",
            ProtobufSerializer(CLASSES["shop.Order"], ours, conf),
            ProtobufDeserializer(CLASSES["shop.Order"], dual, theirs),
            order,
            None,
        ),
    ]
    for topic, serializer, deserializer, sent, _ in cases:
        kafka_cluster.create_topic(topic)
        with KafkaProducer(
            bootstrap_servers=kafka_cluster.bootstrap_servers, key_serializer=serializer, value_serializer=serializer
        ) as producer:
            producer.send(topic, sent, key=sent).get(10)
        (record,) = kafka_cluster.records(topic, 0)
        for field, content in ((MessageField.KEY, record.key), (MessageField.VALUE, record.value)):
            read = deserializer(content, SerializationContext(topic, field, list(record.headers)))
            if topic == "avro":
                read["at"] = int(read["at"].timestamp() * 1000)
            assert read == sent
        assert [name for name, _ in record.headers] == (
            [] if framing == "prefix" else ["__key_schema_id", "__value_schema_id"]
        )


@pytest.mark.parametrize("framing", ["prefix", "header"])
def test_their_serializers_and_ours_write_the_same(
    theirs: confluent.SchemaRegistryClient, ours: SchemaRegistryClient, framing: str
):
    their_conf = {} if framing == "prefix" else {"schema.id.serializer": confluent.header_schema_id_serializer}
    our_conf = {} if framing == "prefix" else {"schema.id.serializer": header_schema_id_serializer}
    line = CLASSES["shop.Order.Line"](what="x")
    money = CLASSES["shop.Money"](cents=300)

    pairs: list[tuple[Any, Any, Any]] = [
        (
            ConfluentsAvroSerializer(theirs, ORDER, conf=their_conf),
            AvroSerializer(ours, ORDER, conf=our_conf),
            {"id": 1},
        ),
        (
            ConfluentsAvroSerializer(theirs, '"string"', conf=their_conf),
            AvroSerializer(ours, "string", conf=our_conf),
            "text",
        ),
        (
            JSONSerializer(JSON_ORDER, theirs, conf=their_conf),
            JsonSchemaSerializer(JSON_ORDER, ours, conf=our_conf),
            {"id": 1},
        ),
        (
            ConfluentsProtobufSerializer(CLASSES["shop.Order.Line"], theirs, their_conf),
            ProtobufSerializer(CLASSES["shop.Order.Line"], ours, our_conf),
            line,
        ),
        (
            ConfluentsProtobufSerializer(CLASSES["shop.Money"], theirs, their_conf),
            ProtobufSerializer(CLASSES["shop.Money"], ours, our_conf),
            money,
        ),
    ]
    for number, (their_serializer, our_serializer, data) in enumerate(pairs):
        results = []
        for serializer in (their_serializer, our_serializer):
            context = SerializationContext(f"t{number}", MessageField.VALUE, [("a", b"1")])
            results.append((serializer(data, context), context.headers))
        assert results[0] == results[1]
        # the second one found what the first one had registered
        assert ours.get_versions(f"t{number}-value") == [1]


def test_a_producer_takes_their_serializers(
    kafka_cluster: EmbeddedCluster, kafka_topic: str, theirs: confluent.SchemaRegistryClient
):
    value = ConfluentsAvroSerializer(
        theirs, ORDER, conf={"schema.id.serializer": confluent.header_schema_id_serializer}
    )
    key = ConfluentsAvroSerializer(theirs, '"string"')
    with KafkaProducer(
        bootstrap_servers=kafka_cluster.bootstrap_servers, key_serializer=key, value_serializer=value
    ) as producer:
        producer.send(kafka_topic, {"id": 1}, key="k").get(10)
    (record,) = kafka_cluster.records(kafka_topic, 0)
    assert (record.key, record.value) == (b"\0\0\0\0\1\2k", b"\2\0\0")
    assert [name for name, _ in record.headers] == ["__value_schema_id"]
