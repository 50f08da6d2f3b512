"""A program as a user writes it, which `make types` checks strictly: Headrace's API has no unknown types."""

from __future__ import annotations

from headrace.broker import ApiKey, EmbeddedCluster, Fault
from headrace.producer import KafkaProducer, ProducerConfig, ProducerRecord, RecordFuture, RecordMetadata, RowsMetadata
from headrace.producer.errors import KafkaError, NotEnoughReplicasError
from headrace.producer.interceptors import ProducerInterceptor
from headrace.producer.reporters import prometheus_text
from headrace.registry import (
    AvroSerializer,
    JsonSchemaSerializer,
    MessageField,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryUnavailableError,
    SerializationContext,
    header_schema_id_serializer,
)
from headrace.registry.embedded import EmbeddedRegistry


class Counting(ProducerInterceptor):
    sent = 0

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.sent += 1
        return record


def acknowledged(metadata: RecordMetadata, error: KafkaError | None) -> None:
    print(error or metadata.offset + metadata.partition)


def done(future: RecordFuture) -> None:
    print(future.topic_partition.topic, future.exception())


async def offset_of(producer: KafkaProducer, record: ProducerRecord) -> int:
    return (await producer.send(record)).offset


async def rows_of(producer: KafkaProducer, table: object) -> RowsMetadata:
    return await producer.send_arrow("t", table)


def main() -> None:
    config = ProducerConfig.resolve({"bootstrap.servers": "localhost:9092"}, linger_ms=20)
    with EmbeddedCluster(brokers=3) as cluster, KafkaProducer(config) as producer:
        cluster.create_topic("t", 4)
        faults = cluster.inject(ApiKey.PRODUCE, Fault(error=NotEnoughReplicasError), times=2)
        future = producer.send("t", b"v", key=b"k", headers=[("h", b"x")], partition=0, callback=acknowledged)
        future.add_callback(print, "delivered").add_errback(print, "failed").add_done_callback(done)
        print(future.get(timeout=10).timestamp + faults.hits, future.done(), future.result(1).topic.upper())
        for tp, offsets in producer.send_arrow("t", {}).get(10).offsets.items():
            print(tp.partition + offsets.first)
        print(
            producer.config.linger_ms + 1,
            producer.partitions_for("t") | {7},
            producer.metrics(),
            prometheus_text(producer),
        )
        print([record.value for record in cluster.records("t", 0)], cluster.leader_of("t", 0) + 1)
        producer.flush(timeout=1)
        producer.abort()


def with_schemas(registry: EmbeddedRegistry) -> None:
    with SchemaRegistryClient({"url": registry.url, "max.retries": 1}) as client:
        schema = Schema('"string"', references=[SchemaReference("shop.Order", "orders", 1)])
        print(client.register_schema("s", schema) + 1, client.get_latest_version("s").schema.schema_str.upper())
        serializer = AvroSerializer(client, schema, conf={"schema.id.serializer": header_schema_id_serializer})
        context = SerializationContext("orders", MessageField.VALUE, [])
        try:
            print(serializer("x", context), JsonSchemaSerializer("{}", client)(1, context))
        except SchemaRegistryUnavailableError as error:
            print(error.subject, error.error_code + 1)
        with KafkaProducer(value_serializer=serializer) as producer:
            producer.send("orders", "x")
