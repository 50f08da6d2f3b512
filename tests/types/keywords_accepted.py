"""Calls that type checkers accept: every way to pass a configuration. See test_type_checkers.py."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.broker import BrokerKeywords, EmbeddedCluster, ProcessCluster, Record
from headrace.network.clock import MockClock
from headrace.producer import AsyncKafkaProducer, KafkaProducer, ProducerConfig, ProducerKeywords
from headrace.producer.partitioners import RoundRobinPartitioner
from headrace.producer.serializers import JsonSerializer
from headrace.producer.spark import KafkaSink

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Upper:
    def serialize(self, topic: str, value: str) -> bytes:
        return value.upper().encode()


def in_keywords(server: str, codec: str) -> None:
    KafkaProducer(bootstrap_servers=server, linger_ms=20, acks="all", compression_type=codec)
    KafkaProducer(bootstrap_servers=["a:9092", ("b", 9092)], retries=float("inf"), acks=1, sasl_plain_username="u")
    KafkaProducer(key_serializer=str.encode, value_serializer=JsonSerializer, partitioner=RoundRobinPartitioner())
    KafkaProducer(key_serializer="string", value_serializer=Upper(), partitioner_class="round_robin", client_id=None)
    KafkaProducer(ssl_cafile=Path("ca.pem"), ssl_check_hostname=False, security_protocol=os.environ["PROTOCOL"])
    AsyncKafkaProducer(bootstrap_servers=server, max_batch_size=1000, enable_idempotence=True)
    KafkaSink({"bootstrap.servers": server}, topic="t", value_format="json", linger_ms=5)
    KafkaSink(bootstrap_servers=server, topic="t", delivery_guarantee="exactly_once", delivery_id="nightly")
    EmbeddedCluster(brokers=3, num_partitions=2, log_dirs=["a", "b"], auto_create_topics_enable=False, profile="kafka")
    EmbeddedCluster(console=True, racks={1: "a"}, features={"transaction.version": 1}, clock=MockClock())
    ProcessCluster(security="SASL_SSL", users={"alice": "secret"}, log_retention_ms=None)
    ProcessCluster(console=8642, schema_registry="http://localhost:8081", node_ids=[0, 1])


def in_dicts(settings: dict[str, Any], of_text: dict[str, str], mapping: Mapping[str, Any]) -> None:
    KafkaProducer({"bootstrap.servers": "localhost:9092", "linger.ms": "20"}, compression_type="zstd")
    KafkaProducer(settings)
    KafkaProducer(mapping, linger_ms=5)
    KafkaProducer(ProducerConfig.resolve(settings))
    KafkaProducer(**settings)
    KafkaProducer(**of_text)
    KafkaProducer(**mapping)
    KafkaProducer(**{"bootstrap.servers": "localhost:9092", "linger.ms": 20, "acks": "all"})
    producer = KafkaProducer(**{"linger_ms": 20}, **of_text)
    KafkaProducer(**{**producer.config, "linger_ms": 50})
    AsyncKafkaProducer(**{"bootstrap.servers": "localhost:9092", "linger.ms": 20})
    KafkaSink(**{"bootstrap.servers": "localhost:9092", "linger.ms": 20})
    EmbeddedCluster(**{"num.partitions": 2, "log.dirs": "/logs"})
    EmbeddedCluster(console=True, schema_registry="http://localhost:8081", **{"num.partitions": 2})
    ProcessCluster(config={"num.partitions": 2})


def passed_on(**keywords: Unpack[ProducerKeywords]) -> KafkaProducer:
    return KafkaProducer(**keywords)


def of_cluster(**keywords: Unpack[BrokerKeywords]) -> EmbeddedCluster:
    return EmbeddedCluster(**keywords)


def results(producer: KafkaProducer, cluster: EmbeddedCluster, processes: ProcessCluster) -> float:
    record: Record = cluster.records("t", 0)[0]
    total = producer.metrics()["producer-metrics"]["record-send-rate"] + record.offset
    for group, values in producer.metrics().items():
        print(group.upper(), values.get("byte-rate"))
    for name, value in producer.metrics(raw=True).items():
        print(name.group.upper(), dict(name.tags), value)
    return total + len(processes.records("t", 0)[0].value or b"") + passed_on(linger_ms=5).config.linger_ms
