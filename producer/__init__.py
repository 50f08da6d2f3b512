"""The Kafka producer: its public names, and its engine.

from headrace.producer import KafkaProducer

with KafkaProducer(bootstrap_servers="localhost:9092") as producer:
    future = producer.send("greetings", b"hello", key=b"world")
    print(future.get(timeout=10))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..network.cluster import TopicPartition
from . import errors
from .accumulator.batch_cy import RecordFuture
from .accumulator.record_metadata_cy import RecordMetadata
from .config import ProducerConfig
from .kafka_producer import KafkaProducer
from .record import ProducerRecord

if TYPE_CHECKING:
    from .aio.async_producer import AsyncKafkaProducer
    from .aio.futures_cy import AsyncRecordFuture
    from .columns.rows_future import OffsetRange, RowsFuture, RowsMetadata
    from .description import ProducerDescription
    from .keywords import AsyncProducerKeywords, ProducerKeywords

__all__ = [
    "AsyncKafkaProducer",
    "AsyncProducerKeywords",
    "AsyncRecordFuture",
    "KafkaProducer",
    "OffsetRange",
    "ProducerConfig",
    "ProducerDescription",
    "ProducerKeywords",
    "ProducerRecord",
    "RecordFuture",
    "RecordMetadata",
    "RowsFuture",
    "RowsMetadata",
    "TopicPartition",
    "errors",
]

# Imported on first use: most programs send no columns and don't use asyncio.
_MODULES = {
    "AsyncKafkaProducer": ".aio.async_producer",
    "AsyncProducerKeywords": ".keywords",
    "AsyncRecordFuture": ".aio.futures_cy",
    "OffsetRange": ".columns.rows_future",
    "ProducerDescription": ".description",
    "ProducerKeywords": ".keywords",
    "RowsFuture": ".columns.rows_future",
    "RowsMetadata": ".columns.rows_future",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        found = globals()[name] = getattr(import_module(_MODULES[name], __package__), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
