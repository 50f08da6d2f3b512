"""Serializers: from a record's key or value to bytes.

In the configuration (`key.serializer`, `value.serializer`) stands a built-in's name (`string`, `json`, ...; Java's
class names are understood), an import path, a `Serializer` class or instance, or a callable: of one parameter, the
data, or of three, (topic, headers, data).

What None becomes: a callable is not called with None, because None already means "no key" and, as a value, a tombstone.
A `Serializer` is called, as in Java and kafka-python, and may decide otherwise; those in this module keep None.
"""

from __future__ import annotations

import json
import struct
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import msgpack

from ...network.protocol.errors import KafkaConfigurationError, SerializationError
from .loading import accepts, name_of, resolve_plugin

#: The headers as they were given to `send`; None where none were.
Headers = Iterable[tuple[str, "bytes | None"]] | None
SerializeFunction = Callable[[str, Any, Any], "bytes | None"]


class Serializer(ABC):
    """Base of serializers. One instance is used by all threads that send, at the same time."""

    @abstractmethod
    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | bytearray | memoryview | None:
        """The bytes of a key or value; None for a null. What it raises reaches the sender as a SerializationError."""

    def close(self) -> None:  # noqa: B027  (there is rarely anything to release)
        """Release what the serializer holds; called once, when the producer is closed."""


class BytesSerializer(Serializer):
    """Bytes, bytearrays and memoryviews as they are."""

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:
        if data is None or type(data) is bytes:
            return data
        if isinstance(data, (bytes, bytearray, memoryview)):
            return bytes(data)
        raise TypeError(f"{type(data).__name__} is not bytes")


class StringSerializer(Serializer):
    """Text in an encoding, UTF-8 unless another is named. Raises LookupError for an encoding that Python lacks."""

    def __init__(self, encoding: str = "utf-8") -> None:
        "".encode(encoding)
        self.encoding = encoding

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:
        if data is None:
            return None
        if not isinstance(data, str):
            raise TypeError(f"{type(data).__name__} is not str")
        return data.encode(self.encoding)


class _StructSerializer(Serializer):
    """A number in a fixed width, big-endian, as Java's DataOutput writes it."""

    _struct: struct.Struct

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:
        return None if data is None else self._struct.pack(data)


class ShortSerializer(_StructSerializer):
    """Integers of 16 bits."""

    _struct = struct.Struct(">h")


class IntegerSerializer(_StructSerializer):
    """Integers of 32 bits."""

    _struct = struct.Struct(">i")


class LongSerializer(_StructSerializer):
    """Integers of 64 bits."""

    _struct = struct.Struct(">q")


class FloatSerializer(_StructSerializer):
    """Floating point numbers of 32 bits."""

    _struct = struct.Struct(">f")


class DoubleSerializer(_StructSerializer):
    """Floating point numbers of 64 bits."""

    _struct = struct.Struct(">d")


class UUIDSerializer(Serializer):
    """UUIDs as text (36 characters), like Java's."""

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:
        if data is None:
            return None
        if not isinstance(data, uuid.UUID):
            raise TypeError(f"{type(data).__name__} is not uuid.UUID")
        return str(data).encode()


class JsonSerializer(Serializer):
    """Compact JSON in UTF-8. NaN and infinities, for which JSON has no notation, are refused.

    `default` is called with what JSON can't express and gives what to write instead, as in `json.dumps`.
    """

    def __init__(self, default: Callable[[Any], Any] | None = None) -> None:
        encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=default)
        self._encode = encoder.encode

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:
        return None if data is None else self._encode(data).encode()


class MsgpackSerializer(Serializer):
    """MessagePack, with its type of its own for bytes.

    `default` is called with what MessagePack can't express and gives what to write instead.
    """

    def __init__(self, default: Callable[[Any], Any] | None = None) -> None:
        self._default = default

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:
        return None if data is None else msgpack.packb(data, default=self._default)


_BUILT_IN: dict[str, type[Serializer]] = {
    "bytes": BytesSerializer,
    "string": StringSerializer,
    "short": ShortSerializer,
    "integer": IntegerSerializer,
    "long": LongSerializer,
    "float": FloatSerializer,
    "double": DoubleSerializer,
    "uuid": UUIDSerializer,
    "json": JsonSerializer,
    "msgpack": MsgpackSerializer,
}
# Properties files are shared with Java programs, which name Java's classes
_JAVA_PACKAGE = "org.apache.kafka.common.serialization."
_JAVA_NAMES = {
    **{f"{_JAVA_PACKAGE}{serializer.__name__}": name for name, serializer in _BUILT_IN.items()},
    f"{_JAVA_PACKAGE}ByteArraySerializer": "bytes",
}


class _CallableSerializer(Serializer):
    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        return None if data is None else self.function(data)


class _SeeingCallableSerializer(_CallableSerializer):
    """Adapts a callable that also wants to see topic and headers."""

    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        return None if data is None else self.function(topic, headers, data)


class _WithoutHeadersSerializer(Serializer):
    """Adapts a serializer written for kafka-python before 3: `serialize(topic, data)`."""

    def __init__(self, serializer: Any) -> None:
        self.function = serializer.serialize
        close = getattr(serializer, "close", None)
        if close is not None:
            self.close = close

    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        return self.function(topic, data)


def resolve_serializer(value: Any, key: str) -> Serializer | None:
    """The serializer that `value` of the configuration key `key` stands for; None when there is none.

    The result has `serialize`; `close` only when the user's class has it. Raises KafkaConfigurationError.
    """
    if value is None:
        return None
    found = resolve_plugin(_JAVA_NAMES.get(value, value) if isinstance(value, str) else value, key, _BUILT_IN, _METHODS)
    method = getattr(found, "serialize", None)
    if callable(method):
        if accepts(method, 3):
            return found
        if accepts(method, 2):
            return _WithoutHeadersSerializer(found)
        raise KafkaConfigurationError(f"{key}: {type(found).__name__}.serialize has to take (topic, headers, data)")
    if callable(found):
        _check_returns_bytes(found, key)
        if accepts(found, 1):
            return _CallableSerializer(found)
        if accepts(found, 3):
            return _SeeingCallableSerializer(found)
        raise KafkaConfigurationError(f"{key}: {name_of(found)} has to take (data) or (topic, headers, data)")
    raise KafkaConfigurationError(
        f"{key} is of type {type(found).__name__}, which can be called neither itself nor by a method serialize(topic, "
        "headers, data)"
    )


def _check_returns_bytes(function: Any, key: str) -> None:
    """Refuse what is known not to return bytes: every send would fail, and the first of them may come late."""
    instead = next((name for known, name in _RETURN_TEXT if known is function), None)
    if instead is not None:
        raise KafkaConfigurationError(
            f"{key}: {name_of(function)} returns text, and a serializer has to return bytes; use {key}={instead!r}, or "
            "encode its result"
        )
    if isinstance(function, type) and not issubclass(function, (bytes, bytearray, memoryview)):
        is_callable = any("__call__" in vars(base) for base in function.__mro__)
        advice = "give an instance of it" if is_callable else "give a function that returns bytes"
        raise KafkaConfigurationError(
            f"{key}: to call the class {name_of(function)} makes an instance of it, and a serializer has to return "
            f"bytes; {advice}"
        )


_METHODS = ("serialize",)
#: Functions that are mistaken for serializers, and the built-in serializer that their users want.
_RETURN_TEXT = ((json.dumps, "json"), (str, "string"), (repr, "string"), (ascii, "string"), (format, "string"))


def compile_serializer(serializer: Serializer | None, part: str) -> SerializeFunction | None:
    """A function (topic, headers, data) -> bytes or None around a resolved serializer; None when there is none.

    `part` ("key" or "value") is for messages. The function raises SerializationError, from what the serializer raised,
    or because it returned something that is not bytes. It is called by the threads that send.
    """
    if serializer is None:
        return None
    serialize = serializer.serialize
    adapted = isinstance(serializer, (_CallableSerializer, _WithoutHeadersSerializer))
    name = name_of(serializer.function) if adapted else type(serializer).__name__

    def serialized(topic: str, headers: Any, data: Any) -> bytes | None:
        try:
            output = serialize(topic, headers, data)
        except SerializationError:
            raise
        except Exception as error:
            raise SerializationError(
                f"the {part} serializer {name} failed on data of type {type(data).__name__} for topic {topic}: "
                f"{type(error).__name__}: {error}"
            ) from error
        if output is None or type(output) is bytes:
            return output
        if isinstance(output, (bytes, bytearray, memoryview)):
            return bytes(output)
        raise SerializationError(
            f"the {part} serializer {name} returned {type(output).__name__} for topic {topic}; it has to return bytes"
            + (": encode the text" if isinstance(output, str) else "")
        )

    return serialized
