"""The serializers against the embedded schema registry: what they register, frame, request and reject."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest
from support.messages import make_classes

from headrace.broker import EmbeddedCluster
from headrace.network.clock import MockClock
from headrace.network.protocol.errors import KafkaConfigurationError, SerializationError
from headrace.producer import KafkaProducer
from headrace.registry import (
    AvroSerializer,
    IncompatibleSchemaError,
    JsonSchemaSerializer,
    MessageField,
    ProtobufSerializer,
    Schema,
    SchemaNotFoundError,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryUnavailableError,
    SerializationContext,
    header_schema_id_serializer,
)
from headrace.registry.embedded import EmbeddedRegistry
from headrace.registry.serializer import FAILURE_MS

ORDER = json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]})
ORDER_2 = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "id", "type": "long"}, {"name": "what", "type": "string", "default": "-"}],
    }
)
JSON_ORDER = json.dumps(
    {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
)
LATEST = {"use.latest.version": True, "auto.register.schemas": False}


def value_of(topic: str = "orders") -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE, [])


@pytest.fixture
def client(schema_registry: EmbeddedRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": schema_registry.url, "max.retries": 0}) as client:
        yield client


def test_a_registered_schema_of_another_type_is_an_error(client: SchemaRegistryClient):
    client.register_schema("orders-value", Schema(JSON_ORDER, "JSON"))
    with pytest.raises(SerializationError, match="the registered schema is of type JSON, not AVRO"):
        AvroSerializer(client, conf=LATEST)({"id": 5}, value_of())


def test_avro_is_what_fastavro_writes_behind_the_prefix(client: SchemaRegistryClient):
    written = AvroSerializer(client, ORDER)({"id": 5}, value_of())
    output = io.BytesIO()
    fastavro.schemaless_writer(output, fastavro.parse_schema(json.loads(ORDER)), {"id": 5})
    assert written == b"\0\0\0\0\1" + output.getvalue()
    assert client.get_latest_version("orders-value").schema == Schema(ORDER.replace(": ", ":").replace(", ", ","))


@pytest.mark.parametrize(("schema", "data", "expected"), [("string", "ab", b"\4ab"), ('"bytes"', b"ab", b"ab")])
def test_primitives(client: SchemaRegistryClient, schema: str, data: Any, expected: bytes):
    assert AvroSerializer(client, schema)(data, value_of()) == b"\0\0\0\0\1" + expected


@pytest.mark.parametrize(
    ("kind", "subject"), [("TOPIC", "orders-value"), ("RECORD", "shop.Order"), ("TOPIC_RECORD", "orders-shop.Order")]
)
def test_the_strategies_name_the_subject(client: SchemaRegistryClient, kind: str, subject: str):
    AvroSerializer(client, ORDER, conf={"subject.name.strategy.type": kind})({"id": 5}, value_of())
    own = AvroSerializer(client, ORDER, conf={"subject.name.strategy": lambda ctx, name: f"{ctx.field}:{name}"})
    own({"id": 5}, value_of())
    assert client.get_subjects() == sorted([subject, "value:shop.Order"])


def test_a_strategy_that_needs_more_than_there_is(client: SchemaRegistryClient):
    with pytest.raises(SerializationError, match="the schema has none"):
        AvroSerializer(client, '["int","string"]', conf={"subject.name.strategy.type": "RECORD"})(1, value_of())
    with pytest.raises(SerializationError, match="call the serializer with a SerializationContext"):
        AvroSerializer(client, ORDER)({"id": 1})
    with pytest.raises(SerializationError, match="returned None"):
        AvroSerializer(client, ORDER, conf={"subject.name.strategy": lambda *_: None})({"id": 1}, value_of())


def test_a_million_records_would_need_one_request(schema_registry: EmbeddedRegistry, client: SchemaRegistryClient):
    serializer = AvroSerializer(client, ORDER)
    for topic in ("a", "b"):
        for number in range(50):
            serializer({"id": number}, value_of(topic))
    assert list(schema_registry.requests) == [
        f"POST /subjects/{topic}-value/versions?normalize=false" for topic in ("a", "b")
    ]


@pytest.mark.parametrize(
    "conf",
    [
        {"use.latest.version": True},
        {"use.latest.with.metadata": {"major": "1"}},
        {"use.schema.id": 1},
        {"auto.register.schemas": False},
    ],
)
def test_no_way_of_finding_the_schema_asks_per_record(
    schema_registry: EmbeddedRegistry, client: SchemaRegistryClient, conf: dict[str, Any]
):
    schema = Schema(ORDER, metadata={"properties": {"major": "1"}})
    client.register_schema("orders-value", schema)
    serializer = AvroSerializer(client, schema, conf=conf)
    first = serializer({"id": 1}, value_of())
    before = len(schema_registry.requests)
    assert [serializer({"id": 1}, value_of()) for _ in range(20)] == [first] * 20
    assert first == b"\0\0\0\0\1\2"
    assert len(schema_registry.requests) == before


def test_the_latest_version_decides_and_changes_with_the_cache(client: SchemaRegistryClient):
    client.register_schema("orders-value", Schema(ORDER))
    serializer = AvroSerializer(client, conf=LATEST)
    assert serializer({"id": 1}, value_of()) == b"\0\0\0\0\1\2"
    client.register_schema("orders-value", Schema(ORDER_2))
    assert serializer({"id": 1}, value_of()) == b"\0\0\0\0\1\2"
    client.clear_latest_caches()
    assert serializer({"id": 1}, value_of()) == b"\0\0\0\0\2\2\2-"


def test_what_is_not_registered_is_an_error_without_auto_registration(client: SchemaRegistryClient):
    serializer = AvroSerializer(client, ORDER, conf={"auto.register.schemas": False})
    with pytest.raises(SchemaNotFoundError, match=r"subject 'orders-value', schema 'AVRO shop\.Order'"):
        serializer({"id": 1}, value_of())
    assert client.get_subjects() == []


def test_normalized_schemas_are_found_whatever_their_order(client: SchemaRegistryClient):
    one = '{"type":"record","name":"R","fields":[]}'
    other = '{"name":"R","fields":[],"type":"record"}'
    conf = {"normalize.schemas": True}
    assert AvroSerializer(client, one, conf=conf)({}, value_of()) == b"\0\0\0\0\1"
    assert AvroSerializer(client, other, conf=conf)({}, value_of()) == b"\0\0\0\0\1"
    assert client.get_versions("orders-value") == [1]


def test_an_outage_fails_new_schemas_only_and_is_not_repeated_per_record(
    schema_registry: EmbeddedRegistry, client: SchemaRegistryClient
):
    clock = MockClock()
    serializer = AvroSerializer(client, ORDER, clock=clock)
    known = serializer({"id": 1}, value_of("known"))
    schema_registry.close()
    assert serializer({"id": 1}, value_of("known")) == known
    errors = []
    for _ in range(3):
        with pytest.raises(
            SchemaRegistryUnavailableError, match=r"subject 'new-value', schema 'AVRO shop\.Order'"
        ) as failed:
            serializer({"id": 1}, value_of("new"))
        errors.append(failed.value)
    schema_registry.start()
    with pytest.raises(SchemaRegistryUnavailableError) as remembered:
        serializer({"id": 1}, value_of("new"))
    assert remembered.value.__cause__ is errors[0]
    clock.advance(FAILURE_MS)
    assert serializer({"id": 1}, value_of("new")) == known


def test_threads_that_begin_together_register_once(schema_registry: EmbeddedRegistry, client: SchemaRegistryClient):
    serializer = AvroSerializer(client, ORDER)
    barrier = threading.Barrier(8)
    found: list[Any] = []

    def serialize() -> None:
        barrier.wait()
        found.append(serializer({"id": 1}, value_of()))

    threads = [threading.Thread(target=serialize) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [b"\0\0\0\0\1\2"] * 8
    assert len(schema_registry.requests) == 1


def test_references_of_references(client: SchemaRegistryClient):
    client.register_schema("c", Schema('{"type":"fixed","name":"n.C","size":1}'))
    c = SchemaReference("n.C", "c", 1)
    both = {"type": "record", "fields": [{"name": "c", "type": "n.C"}]}
    for name in ("A", "B"):
        client.register_schema(name, Schema(json.dumps(both | {"name": f"n.{name}"}), references=[c]))
    references = [SchemaReference(f"n.{name}", name, 1) for name in ("A", "B")]
    # a diamond: both use C
    union = AvroSerializer(client, Schema('["n.A","n.B"]', references=references))
    assert union(("n.B", {"c": b"x"}), value_of()) == b"\0\0\0\0\4\2x"
    record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "n.A"}, {"name": "b", "type": "n.B"}]}
    serializer = AvroSerializer(client, Schema(json.dumps(record), references=references))
    assert serializer({"a": {"c": b"x"}, "b": {"c": b"y"}}, value_of("t")) == b"\0\0\0\0\5xy"


def test_json_schema_with_references(client: SchemaRegistryClient):
    client.register_schema("id", Schema('{"type":"integer","minimum":0}', "JSON"))
    schema = Schema(
        '{"title":"Order","properties":{"id":{"$ref":"id.json"}}}', "JSON", [SchemaReference("id.json", "id", 1)]
    )
    serializer = JsonSchemaSerializer(schema, client)
    assert serializer({"id": 1}, value_of()) == b'\0\0\0\0\2{"id":1}'
    with pytest.raises(SerializationError, match=r"does not fit the JSON Schema Order at id: it fails 'minimum'"):
        serializer({"id": -1}, value_of())


def test_json_schema_resolves_nothing_over_the_network(client: SchemaRegistryClient):
    serializer = JsonSchemaSerializer('{"properties":{"id":{"$ref":"http://127.0.0.1:1/x.json"}}}', client)
    with pytest.raises(SerializationError, match=r"127.0.0.1:1/x.json', which is not among its references"):
        serializer({"id": 1}, value_of())


def test_data_that_does_not_fit_is_an_error_without_the_data(client: SchemaRegistryClient):
    checked = JsonSchemaSerializer(JSON_ORDER, client)
    with pytest.raises(SerializationError) as wrong:
        checked({"id": "secret"}, value_of())
    assert "secret" not in str(wrong.value)
    unchecked = JsonSchemaSerializer(JSON_ORDER, client, conf={"validate": False})
    assert unchecked({"id": "x"}, value_of()) == b'\0\0\0\0\1{"id":"x"}'
    with pytest.raises(SerializationError, match="can't be JSON"):
        unchecked({"id": object()}, value_of())
    with pytest.raises(SerializationError, match=r"does not fit the Avro schema shop\.Order"):
        AvroSerializer(client, ORDER)({"id": "x"}, value_of("other"))
    with pytest.raises(SerializationError, match="does not fit the Avro schema"):
        AvroSerializer(client, ORDER, conf={"validate.strict": True})({"id": 1, "more": 2}, value_of("other"))


def test_protobuf_registers_imports_and_names_the_message_by_its_place(client: SchemaRegistryClient):
    classes = make_classes()
    order = classes["shop.Order"](id=3)
    order.price.cents = 5
    assert ProtobufSerializer(classes["shop.Order"], client)(order, value_of()) == (
        b"\0\0\0\0\2" + b"\2\2" + order.SerializeToString()
    )
    assert client.get_subjects() == ["orders-value", "shop/money.proto"]
    assert client.get_version("orders-value", 1).schema.references == (
        SchemaReference("shop/money.proto", "shop/money.proto", 1),
    )
    line = classes["shop.Order.Line"](what="x")
    assert ProtobufSerializer(classes["shop.Order.Line"], client)(line, value_of("lines")) == (
        b"\0\0\0\0\2" + b"\4\2\2" + line.SerializeToString()
    )
    money = classes["shop.Money"](cents=1)
    assert ProtobufSerializer(classes["shop.Money"], client)(money, value_of("money")) == b"\0\0\0\0\1\0\x08\1"
    with pytest.raises(SerializationError, match=r"Order is not a message of the class shop\.Money"):
        ProtobufSerializer(classes["shop.Money"], client)(order, value_of())


def test_the_place_of_a_message_is_that_in_the_registered_version(client: SchemaRegistryClient):
    text = 'syntax = "proto3"; package shop; message Zero {} message One {} message Money { int64 cents = 1; }'
    client.register_schema("money-value", Schema(text, "PROTOBUF"))
    money = make_classes()["shop.Money"]
    serializer = ProtobufSerializer(money, client, LATEST)
    assert serializer(money(cents=1), value_of("money")) == b"\0\0\0\0\1\2\4\x08\1"
    client.register_schema("other-value", Schema('syntax = "proto3"; message Other {}', "PROTOBUF"))
    with pytest.raises(SerializationError, match=r"has no message shop\.Money"):
        serializer(money(cents=1), value_of("other"))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda client: AvroSerializer(client, "{"), "not valid Avro"),
        (lambda client: AvroSerializer(client, 5), "has to be text or a Schema"),
        (lambda client: AvroSerializer(client, Schema("{}", "JSON")), "is of type JSON, not AVRO"),
        (lambda client: AvroSerializer(None, ORDER), "has to have a SchemaRegistryClient"),
        (
            lambda client: AvroSerializer(client, ORDER, conf={"auto.register": True}),
            "did you mean 'auto.register.schemas'",
        ),
        (lambda client: AvroSerializer(client, ORDER, conf={"auto.register.schemas": 1}), "has to be True or False"),
        (lambda client: AvroSerializer(client, ORDER, conf={"use.schema.id": "1"}), "has to be a whole number"),
        (lambda client: AvroSerializer(client, ORDER, conf=LATEST | {"use.schema.id": 1}), "exclude each other"),
        (
            lambda client: AvroSerializer(client, ORDER, conf=LATEST | {"auto.register.schemas": True}),
            "use.latest.version and auto.register.schemas exclude each other",
        ),
        (
            lambda client: AvroSerializer(client, ORDER, conf={"subject.name.strategy.type": "ASSOCIATED"}),
            "associations of topics with subjects are not supported",
        ),
        (lambda client: AvroSerializer(client, ORDER, conf={"subject.name.strategy": "TOPIC"}), "has to be a function"),
        (lambda client: AvroSerializer(client, ORDER, conf={"schema.id.serializer": 1}), "has to be a function"),
        (lambda client: JsonSchemaSerializer('{"type":"x"}', client), "not valid JSON Schema"),
        (lambda client: ProtobufSerializer(dict, client), "has to have a message class"),
        (
            lambda client: ProtobufSerializer(make_classes()["shop.Money"], client, {"use.deprecated.format": True}),
            "is not supported",
        ),
    ],
)
def test_what_is_configured_wrongly(client: SchemaRegistryClient, make: Any, said: str):
    with pytest.raises(KafkaConfigurationError) as wrong:
        make(client)
    assert said in str(wrong.value)


def test_a_serializer_without_schema_needs_one_from_the_registry(client: SchemaRegistryClient):
    with pytest.raises(SerializationError, match=r"has no schema; pass one, or set use\.latest\.version"):
        AvroSerializer(client)({"id": 1}, value_of())


def test_a_producer_sends_keys_and_values_with_schemas(
    kafka_cluster: EmbeddedCluster, kafka_topic: str, client: SchemaRegistryClient
):
    headers = [("trace", b"1")]
    with KafkaProducer(
        bootstrap_servers=kafka_cluster.bootstrap_servers,
        key_serializer=AvroSerializer(client, "string"),
        value_serializer=AvroSerializer(client, ORDER, conf={"schema.id.serializer": header_schema_id_serializer}),
    ) as producer:
        for number in range(3):
            producer.send(kafka_topic, {"id": number}, key="k", headers=headers).get(10)
        producer.send_many(kafka_topic, [{"id": 3}, None]).result(10)
        with pytest.raises(IncompatibleSchemaError):
            client.register_schema(f"{kafka_topic}-value", Schema("int"))
        with pytest.raises(SerializationError, match="does not fit the Avro schema"):
            producer.send(kafka_topic, {"id": "x"})
    assert headers == [("trace", b"1")]
    guid = client.lookup_schema(f"{kafka_topic}-value", Schema(ORDER)).guid
    assert guid is not None
    named = ("__value_schema_id", b"\1" + bytes.fromhex(guid.replace("-", "")))
    records = kafka_cluster.records(kafka_topic, 0)
    assert [(record.key, record.value, tuple(record.headers)) for record in records] == [
        *((b"\0\0\0\0\1\2k", bytes([2 * number]), (*headers, named)) for number in range(3)),
        (None, b"\6", (named,)),
        (None, None, ()),
    ]


def test_a_forked_child_shares_neither_connections_nor_locks(client: SchemaRegistryClient):
    serializer = AvroSerializer(client, ORDER)
    known = serializer({"id": 1}, value_of("before"))
    # as if another thread looked something up at the moment of the fork
    asked, answered = threading.Event(), threading.Event()

    def hold() -> None:
        with serializer._lookup, client._refreshing:
            asked.set()
            answered.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    asked.wait()
    with warnings.catch_warnings():
        # newer Pythons warn of a fork beside threads
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        is_right = serializer({"id": 1}, value_of("child")) == known == serializer({"id": 1}, value_of("before"))
        is_right = is_right and client.get_latest_version("child-value").version == 1
        os._exit(0 if is_right else 1)
    _, status = os.waitpid(pid, 0)
    answered.set()
    holder.join()
    assert os.waitstatus_to_exitcode(status) == 0
    assert serializer({"id": 1}, value_of("parent")) == known


def test_an_outage_reaches_the_caller_of_send(kafka_cluster: EmbeddedCluster, schema_registry: EmbeddedRegistry):
    client = SchemaRegistryClient({"url": schema_registry.url, "max.retries": 0})
    schema_registry.close()
    with (
        KafkaProducer(
            bootstrap_servers=kafka_cluster.bootstrap_servers, value_serializer=AvroSerializer(client, ORDER)
        ) as producer,
        pytest.raises(SchemaRegistryUnavailableError, match=r"subject 'lost-value', schema 'AVRO shop\.Order'"),
    ):
        producer.send("lost", {"id": 1})
