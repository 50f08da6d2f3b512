"""Confluent's Java client and Avro serializers against the embedded registry, and with ours."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import schema_registry as confluent
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from support.apache_kafka import ApacheKafkaUnavailable
from support.apache_kafka.fixtures import REQUIRE
from support.apache_kafka.registry import RegistryPeer

from headrace.broker import EmbeddedCluster
from headrace.producer import KafkaProducer
from headrace.registry import AvroSerializer, Schema, SchemaReference, SchemaRegistryClient
from headrace.registry.embedded import EmbeddedRegistry

# as the tests of the fixture `apache_kafka`: one JVM at a time
pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("apache_kafka")]

# a field per kind of type; the values are in Avro's JSON, and as fastavro takes and returns them
FIELDS: list[tuple[str, Any, Any, Any]] = [
    ("flag", "boolean", True, True),
    ("small", "int", -(2**31), -(2**31)),
    ("large", "long", 2**63 - 1, 2**63 - 1),
    ("single", "float", 1.5, 1.5),
    ("double", "double", -2.25e-300, -2.25e-300),
    ("text", "string", "straße \U0001f40e", "straße \U0001f40e"),
    ("data", "bytes", "\x00\xff", b"\x00\xff"),
    ("fixed", {"type": "fixed", "name": "Four", "size": 4}, "abcd", b"abcd"),
    ("color", {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}, "BLUE", "BLUE"),
    ("list", {"type": "array", "items": "int"}, [1, -2, 300], [1, -2, 300]),
    ("map", {"type": "map", "values": "long"}, {"a": 1}, {"a": 1}),
    ("maybe", ["null", "string"], {"string": "x"}, "x"),
    ("nothing", ["null", "string"], None, None),
    ("within", {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}, {"n": 3}, {"n": 3}),
]
SCHEMA = {
    "type": "record",
    "name": "All",
    "namespace": "shop",
    "fields": [{"name": name, "type": of} for name, of, _, _ in FIELDS],
}
IN_JSON = {name: value for name, _, value, _ in FIELDS}
IN_PYTHON = {name: value for name, _, _, value in FIELDS}

ORDER = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"long"}]}'
WITH_DEFAULT = ORDER.replace("}]}", '},{"name":"n","type":"int","default":0}]}')
WITHOUT_DEFAULT = ORDER.replace("}]}", '},{"name":"n","type":"int"}]}')


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> RegistryPeer:
    try:
        return RegistryPeer(tmp_path_factory.mktemp("classes"))
    except ApacheKafkaUnavailable as unavailable:
        if os.environ.get(REQUIRE) == "1":
            pytest.fail(f"{REQUIRE}=1, but Confluent's Java serializers are not available: {unavailable}")
        pytest.skip(f"Confluent's Java serializers are not available: {unavailable}")


@pytest.fixture
def ours(schema_registry: EmbeddedRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": schema_registry.url, "max.retries": 0}) as client:
        yield client


def test_java_reads_what_the_producer_sends(
    java: RegistryPeer, kafka_cluster: EmbeddedCluster, schema_registry: EmbeddedRegistry, ours: SchemaRegistryClient
):
    kafka_cluster.create_topic("ours")
    with KafkaProducer(
        bootstrap_servers=kafka_cluster.bootstrap_servers,
        key_serializer=AvroSerializer(ours, '"string"'),
        value_serializer=AvroSerializer(ours, json.dumps(SCHEMA)),
    ) as producer:
        producer.send("ours", IN_PYTHON, key="key").get(10)
    ((key, value, schema),) = java.run(kafka_cluster.bootstrap_servers, schema_registry.url, ("read", "ours"))
    assert key == "key"
    assert json.loads(value) == IN_JSON
    assert json.loads(schema)["name"] == "All"


def test_java_reads_a_schema_with_references(
    java: RegistryPeer, kafka_cluster: EmbeddedCluster, schema_registry: EmbeddedRegistry, ours: SchemaRegistryClient
):
    kafka_cluster.create_topic("batches")
    ours.register_schema("order", Schema(ORDER))
    batch = Schema(
        '{"type":"record","name":"Batch","fields":[{"name":"orders","type":{"type":"array","items":"shop.Order"}}]}',
        references=[SchemaReference("shop.Order", "order", 1)],
    )
    with KafkaProducer(
        bootstrap_servers=kafka_cluster.bootstrap_servers,
        key_serializer=AvroSerializer(ours, '"string"'),
        value_serializer=AvroSerializer(ours, batch),
    ) as producer:
        producer.send("batches", {"orders": [{"id": 1}, {"id": 2}]}, key="key").get(10)
    ((_, value, _),) = java.run(kafka_cluster.bootstrap_servers, schema_registry.url, ("read", "batches"))
    assert json.loads(value) == {"orders": [{"id": 1}, {"id": 2}]}


@pytest.mark.parametrize("normalize", ["false", "true"])
def test_what_java_sends_is_read(
    java: RegistryPeer,
    kafka_cluster: EmbeddedCluster,
    schema_registry: EmbeddedRegistry,
    ours: SchemaRegistryClient,
    normalize: str,
):
    topic = f"java-{normalize}"
    kafka_cluster.create_topic(topic)
    command = ("send", topic, json.dumps(SCHEMA), json.dumps(IN_JSON), f"normalize.schemas={normalize}")
    (sent,) = java.run(kafka_cluster.bootstrap_servers, schema_registry.url, command)
    assert sent == ["0"]
    (record,) = kafka_cluster.records(topic, 0)
    assert ours.get_subjects() == [f"{topic}-key", f"{topic}-value"]
    with confluent.SchemaRegistryClient({"url": schema_registry.url}) as theirs:
        read = AvroDeserializer(theirs)
        assert read(record.key, SerializationContext(topic, MessageField.KEY)) == "key"
        assert read(record.value, SerializationContext(topic, MessageField.VALUE)) == IN_PYTHON
    # ours finds the schema that Java registered, and writes the same
    conf = {"auto.register.schemas": False, "normalize.schemas": normalize == "true"}
    same = AvroSerializer(ours, json.dumps(SCHEMA), conf=conf)
    assert same(IN_PYTHON, SerializationContext(topic, MessageField.VALUE)) == record.value


@pytest.mark.parametrize(
    "setting", ["auto.register.schemas=false", "auto.register.schemas=false,use.latest.version=true"]
)
def test_java_finds_the_schema_that_ours_registered(
    java: RegistryPeer,
    kafka_cluster: EmbeddedCluster,
    schema_registry: EmbeddedRegistry,
    ours: SchemaRegistryClient,
    setting: str,
):
    topic = f"found-{setting.count('=')}"
    kafka_cluster.create_topic(topic)
    ours.register_schema(f"{topic}-key", Schema('"string"'))
    registered = ours.register_schema(f"{topic}-value", Schema(ORDER))
    command = ("send", topic, ORDER, '{"id": 7}', setting)
    (sent,) = java.run(kafka_cluster.bootstrap_servers, schema_registry.url, command)
    assert sent == ["0"]
    (record,) = kafka_cluster.records(topic, 0)
    assert record.value == b"\0" + registered.to_bytes(4, "big") + b"\x0e"
    assert not [each for each in list(schema_registry.requests)[2:] if each.endswith("/versions")]


def test_the_methods_of_javas_client(java: RegistryPeer, schema_registry: EmbeddedRegistry):
    answers = java.run(
        "localhost:1",
        schema_registry.url,
        ("register", "s", ORDER),
        ("register", "t", ORDER),
        ("compatible", "s", WITHOUT_DEFAULT),
        ("why", "s", WITHOUT_DEFAULT),
        ("compatible", "s", WITH_DEFAULT),
        ("register", "s", WITH_DEFAULT),
        ("id", "s", WITH_DEFAULT),
        ("version", "s", WITH_DEFAULT),
        ("schema", "1"),
        ("latest", "s"),
        ("subjects",),
        ("subjects-of", "1"),
        ("versions", "s"),
        ("register", "list", '{"type":"array","items":"shop.Order"}', "s:1:shop.Order"),
        ("schema", "3"),
        ("set-compatibility", "s", "FULL"),
        ("set-mode", "t", "READONLY"),
        ("register", "t", WITH_DEFAULT),
        ("set-mode", "t", "READWRITE"),
        ("delete-version", "s", "2"),
        ("delete", "t"),
    )
    why = answers.pop(3)
    assert int(why[0]) > 0
    assert answers[-4][:3] == ["error", "422", "42205"]
    answers[-4] = answers[-4][:3]
    assert answers == [
        ["1"],
        ["1"],
        ["false"],
        ["true"],
        ["2"],
        ["2"],
        ["2"],
        [ORDER],
        ["2", "2", "AVRO"],
        ["s", "t"],
        ["s", "t"],
        ["[1, 2]"],
        ["3"],
        ['{"type":"array","items":"shop.Order"}'],
        ["FULL", "FULL"],
        ["READONLY", "READONLY"],
        ["error", "422", "42205"],
        ["READWRITE", "READWRITE"],
        ["2"],
        ["[1]", "[1]"],
    ]


@pytest.mark.parametrize(
    ("command", "status", "code"),
    [
        (("register", "s", WITHOUT_DEFAULT), "409", "409"),
        (("latest", "no"), "404", "40401"),
        (("id", "s", WITH_DEFAULT), "404", "40403"),
        (("schema", "99"), "404", "40403"),
        (("versions", "no"), "404", "40401"),
        (("set-compatibility", "s", "SIDEWAYS"), "422", "42203"),
        (("delete", "no"), "404", "40401"),
    ],
)
def test_errors_reach_javas_client(
    java: RegistryPeer,
    schema_registry: EmbeddedRegistry,
    ours: SchemaRegistryClient,
    command: tuple[str, ...],
    status: str,
    code: str,
):
    ours.register_schema("s", Schema(ORDER))
    (answer,) = java.run("localhost:1", schema_registry.url, command)
    assert answer[:3] == ["error", status, code]
