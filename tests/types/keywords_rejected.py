"""Calls that type checkers reject: each line that ends in `# rejected`, and no other. See test_type_checkers.py."""

from __future__ import annotations

from headrace.broker import EmbeddedCluster, ProcessCluster
from headrace.producer import AsyncKafkaProducer, KafkaProducer
from headrace.producer.spark import KafkaSink

KafkaProducer(lingerms=5)  # rejected
KafkaProducer(linger_ms="soon")  # rejected
KafkaProducer(linger_ms=None)  # rejected
KafkaProducer(enable_idempotence=1.5)  # rejected
KafkaProducer(bootstrap_servers=9092)  # rejected
KafkaProducer(bootstrap_servers="localhost:9092", key_serializer=1)  # rejected
KafkaProducer(bootstrap_servers="localhost:9092", clock=1)  # rejected
KafkaProducer("localhost:9092")  # rejected
KafkaProducer(bootstrap_servers="localhost:9092", max_batch_size=1000)  # rejected
AsyncKafkaProducer(max_batchsize=1000)  # rejected
AsyncKafkaProducer(compression_type=3)  # rejected
KafkaSink(lingerms=5)  # rejected
KafkaSink(topic=3)  # rejected
KafkaSink(value_format=3, linger_ms=5)  # rejected
KafkaSink(delivery_id=3, linger_ms=5)  # rejected
EmbeddedCluster(num_partition=3)  # rejected
EmbeddedCluster(num_partitions="many")  # rejected
EmbeddedCluster(brokers="three")  # rejected
EmbeddedCluster(console="8642")  # rejected
ProcessCluster(numpartitions=3)  # rejected
ProcessCluster(schema_registry=8081)  # rejected

producer = KafkaProducer(bootstrap_servers="localhost:9092")
producer.metrics()["producer-metrics"]["record-send-rate"].upper()  # rejected
print(EmbeddedCluster().records("t", 0)[0].offsets)  # rejected
