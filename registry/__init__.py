"""The schema registry: its client, and serializers for Avro, JSON Schema and Protobuf.

from headrace.registry import AvroSerializer, SchemaRegistryClient

client = SchemaRegistryClient({"url": "http://localhost:8081"})
producer = KafkaProducer(bootstrap_servers="localhost:9092", value_serializer=AvroSerializer(client, schema))

`headrace.registry.embedded` is a schema registry for tests. Needs ``pip install 'headrace[registry]'``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .avro import AvroSerializer
    from .client import SchemaRegistryClient
    from .context import MessageField, SerializationContext
    from .errors import (
        IncompatibleSchemaError,
        InvalidSchemaError,
        NotASchemaRegistryError,
        SchemaNotFoundError,
        SchemaRegistryAuthenticationError,
        SchemaRegistryError,
        SchemaRegistryUnavailableError,
    )
    from .framing import header_schema_id_serializer, prefix_schema_id_serializer
    from .json_schema import JsonSchemaSerializer
    from .protobuf import ProtobufBytesSerializer, ProtobufSerializer
    from .schemas import RegisteredSchema, Schema, SchemaReference
    from .subjects import (
        record_subject_name_strategy,
        topic_record_subject_name_strategy,
        topic_subject_name_strategy,
    )

# Imported on first use: the producer knows the context of a serializer, and needs nothing else.
_MODULES = {
    "AvroSerializer": ".avro",
    "IncompatibleSchemaError": ".errors",
    "InvalidSchemaError": ".errors",
    "JsonSchemaSerializer": ".json_schema",
    "MessageField": ".context",
    "NotASchemaRegistryError": ".errors",
    "ProtobufBytesSerializer": ".protobuf",
    "ProtobufSerializer": ".protobuf",
    "RegisteredSchema": ".schemas",
    "Schema": ".schemas",
    "SchemaNotFoundError": ".errors",
    "SchemaReference": ".schemas",
    "SchemaRegistryAuthenticationError": ".errors",
    "SchemaRegistryClient": ".client",
    "SchemaRegistryError": ".errors",
    "SchemaRegistryUnavailableError": ".errors",
    "SerializationContext": ".context",
    "header_schema_id_serializer": ".framing",
    "prefix_schema_id_serializer": ".framing",
    "record_subject_name_strategy": ".subjects",
    "topic_record_subject_name_strategy": ".subjects",
    "topic_subject_name_strategy": ".subjects",
}

__all__ = [
    "AvroSerializer",
    "IncompatibleSchemaError",
    "InvalidSchemaError",
    "JsonSchemaSerializer",
    "MessageField",
    "NotASchemaRegistryError",
    "ProtobufBytesSerializer",
    "ProtobufSerializer",
    "RegisteredSchema",
    "Schema",
    "SchemaNotFoundError",
    "SchemaReference",
    "SchemaRegistryAuthenticationError",
    "SchemaRegistryClient",
    "SchemaRegistryError",
    "SchemaRegistryUnavailableError",
    "SerializationContext",
    "header_schema_id_serializer",
    "prefix_schema_id_serializer",
    "record_subject_name_strategy",
    "topic_record_subject_name_strategy",
    "topic_subject_name_strategy",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        found = globals()[name] = getattr(import_module(_MODULES[name], __package__), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
