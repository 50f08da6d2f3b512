"""The Kafka producer: its public names, and its engine.

from headrace.producer import KafkaProducer

with KafkaProducer(bootstrap_servers="localhost:9092") as producer:
    future = producer.send("greetings", b"hello", key=b"world")
    print(future.get(timeout=10))
"""

from ..network.cluster import TopicPartition
from . import errors
from .accumulator.batch_cy import RecordFuture
from .accumulator.record_metadata_cy import RecordMetadata
from .columns.rows_future import OffsetRange, RowsFuture, RowsMetadata
from .config import ProducerConfig
from .kafka_producer import KafkaProducer
from .record import ProducerRecord

__all__ = [
    "KafkaProducer",
    "OffsetRange",
    "ProducerConfig",
    "ProducerRecord",
    "RecordFuture",
    "RecordMetadata",
    "RowsFuture",
    "RowsMetadata",
    "TopicPartition",
    "errors",
]
