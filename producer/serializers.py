"""The serializer interface and the built-in serializers: ``from headrace.producer.serializers import Serializer``."""

from .plugins.serializers import (
    BytesSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntegerSerializer,
    JsonSerializer,
    LongSerializer,
    MsgpackSerializer,
    Serializer,
    ShortSerializer,
    StringSerializer,
    UUIDSerializer,
)

__all__ = [
    "BytesSerializer",
    "DoubleSerializer",
    "FloatSerializer",
    "IntegerSerializer",
    "JsonSerializer",
    "LongSerializer",
    "MsgpackSerializer",
    "Serializer",
    "ShortSerializer",
    "StringSerializer",
    "UUIDSerializer",
]
