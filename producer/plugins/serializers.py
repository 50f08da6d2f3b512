"""Serializers, which convert a record's key or value to bytes.

The configuration keys `key.serializer` and `value.serializer` accept the name of a built-in serializer (`string`,
`json`, ...; Java's class names are understood), an import path, a `Serializer` class or instance, or a callable. A
callable has one parameter, the data, or three: (topic, headers, data), or two, as in confluent-kafka: (data, context),
a `SerializationContext` to whose headers it may append. The serializers of `headrace.registry` are of this kind.

A callable is not called with None, because None already means "no key" and, as a value, a tombstone. A `Serializer` is
called with None, as in Java and kafka-python, and may convert it; the serializers in this module keep None.
"""

from __future__ import annotations

import codecs
import enum
import struct
import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from ...network.protocol.errors import KafkaConfigurationError
from ...registry.context import MessageField, SerializationContext
from ..accumulator.serializing_cy import SerializeFunction
from .json_cy import FastJson
from .loading import accepts, name_of, resolve_plugin, takes_context

#: The headers as passed to `send`; None if there are none.
Headers = Iterable[tuple[str, "bytes | None"]] | None


class Serializer(ABC):
    """Base class of serializers. All threads that send share one instance and use it concurrently."""

    @abstractmethod
    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | bytearray | memoryview | None:
        """Return the bytes of a key or value; None for a null. If it raises, `send` raises a SerializationError."""

    def close(self) -> None:  # noqa: B027  (there is rarely anything to release)
        """Release the serializer's resources; called once when the producer is closed."""


class BytesSerializer(Serializer):
    """Bytes, bytearrays and memoryviews, unchanged."""

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:
        if data is None or type(data) is bytes:
            return data
        if isinstance(data, (bytes, bytearray, memoryview)):
            return bytes(data)
        raise TypeError(f"{type(data).__name__} is not bytes")


class StringSerializer(Serializer):
    """Text in an encoding, by default UTF-8. Raises LookupError for an encoding that Python lacks."""

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
    """A number of fixed width, big-endian, as written by Java's DataOutput."""

    _struct: struct.Struct

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:
        return None if data is None else self._struct.pack(data)


class ShortSerializer(_StructSerializer):
    """16-bit integers."""

    _struct = struct.Struct(">h")


class IntegerSerializer(_StructSerializer):
    """32-bit integers."""

    _struct = struct.Struct(">i")


class LongSerializer(_StructSerializer):
    """64-bit integers."""

    _struct = struct.Struct(">q")


class FloatSerializer(_StructSerializer):
    """32-bit floating-point numbers."""

    _struct = struct.Struct(">f")


class DoubleSerializer(_StructSerializer):
    """64-bit floating-point numbers."""

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
    """Compact JSON in UTF-8. Rejects NaN and infinities, for which JSON has no notation.

    `default` is called with an object that JSON can't express and returns a replacement, as in `json.dumps`. Without
    it, a UUID is written as text and a member of an enum as its value.

    Values are encoded by orjson if it is installed (``pip install 'headrace[orjson]'``) and there is no `default`. The
    output means the same, but a float may be written in another way: ``0.00001`` instead of ``1e-05``. Keys are always
    encoded by the json module, because the bytes of a key determine its partition.
    """

    def __init__(self, default: Callable[[Any], Any] | None = None) -> None:
        import json  # noqa: PLC0415 - not every program serializes to JSON

        encoder = json.JSONEncoder(
            ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=default or _in_json
        )
        self._encode_text = encoder.encode
        #: Encodes a value that isn't None.
        self.encode_value: Callable[[Any], bytes] = self._encode
        if default is None:
            try:
                import orjson  # noqa: PLC0415  (optional)
            except ImportError:
                return
            # instances of other classes than JSON's own go to the json module
            options = (
                orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
            )
            self.encode_value = FastJson(orjson.dumps, options, self._encode)

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:
        return None if data is None else self._encode(data)

    def _encode(self, data: Any) -> bytes:
        return self._encode_text(data).encode()


def _in_json(data: Any) -> Any:
    """What orjson, too, writes for an object that the json module rejects."""
    if isinstance(data, enum.Enum):
        return data.value
    if isinstance(data, uuid.UUID):
        return str(data)
    raise TypeError(f"Object of type {type(data).__name__} is not JSON serializable")


class MsgpackSerializer(Serializer):
    """MessagePack, which has a separate type for bytes.

    `default` is called with an object that MessagePack can't express and returns a replacement.
    """

    def __init__(self, default: Callable[[Any], Any] | None = None) -> None:
        import msgpack  # noqa: PLC0415 - not every program serializes to MessagePack

        self._default = default
        self._pack = msgpack.packb

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:
        return None if data is None else self._pack(data, default=self._default)


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
    """Adapts a callable that also takes the topic and the headers."""

    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        return None if data is None else self.function(topic, headers, data)


class _ContextSerializer(_CallableSerializer):
    """Adapts a callable of confluent-kafka's shape: (data, SerializationContext)."""

    def __init__(self, function: Callable[..., Any], field: MessageField) -> None:
        super().__init__(function)
        self._field = field

    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        if data is None:
            return None
        return self.function(data, SerializationContext(topic, self._field, headers))  # type: ignore[arg-type]


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
    """Return the serializer that `value` of the configuration key `key` stands for; None if there is none.

    The result has `serialize`; it has `close` only if the user's class does. Raises KafkaConfigurationError.
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
        if takes_context(found):
            return _ContextSerializer(found, MessageField.KEY if key == "key.serializer" else MessageField.VALUE)
        if accepts(found, 1):
            return _CallableSerializer(found)
        if accepts(found, 3):
            return _SeeingCallableSerializer(found)
        raise KafkaConfigurationError(
            f"{key}: {name_of(found)} has to take (data), (data, context) or (topic, headers, data)"
        )
    raise KafkaConfigurationError(
        f"{key} is of type {type(found).__name__}, which is not callable and has no method serialize(topic, headers, "
        "data)"
    )


def column_form(serializer: Serializer | None) -> Any:
    """How a serializer serializes whole columns: "string" or "bytes", which change nothing, or an object of
    `headrace.registry` with `of_columns`. None: not at all.
    """
    if type(serializer) is BytesSerializer:
        return "bytes"
    if type(serializer) is StringSerializer and codecs.lookup(serializer.encoding).name == "utf-8":
        return "string"
    if isinstance(serializer, _ContextSerializer) and getattr(serializer.function, "takes_columns", False):
        return serializer.function
    return None


def is_async(serializer: Serializer) -> bool:
    """Whether a resolved serializer has to be awaited."""
    import inspect  # noqa: PLC0415 - only programs with serializers need it

    function = getattr(serializer, "function", serializer.serialize)
    # an instance of a class with an async __call__ is no coroutine function itself
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def reject_async(*serializers: Serializer | None) -> None:
    """Raise KafkaConfigurationError if the serializer of keys or values has to be awaited."""
    for part, serializer in zip(("key", "value"), serializers, strict=True):
        if serializer is not None and is_async(serializer):
            raise KafkaConfigurationError(
                f"{part}.serializer is an async function, which KafkaProducer can't await: use AsyncKafkaProducer, or "
                f"a plain function"
            )


def may_add_headers(serializer: Serializer | None) -> bool:
    """Whether a serializer receives a list of the record's headers to which it may append."""
    return isinstance(serializer, _ContextSerializer)


def _check_returns_bytes(function: Any, key: str) -> None:
    """Reject a function known not to return bytes now, because every send would fail, and the first may come late."""
    json = sys.modules.get("json")
    is_json_dumps = json is not None and function is json.dumps
    instead = "json" if is_json_dumps else next((name for known, name in _RETURN_TEXT if known is function), None)
    if instead is not None:
        raise KafkaConfigurationError(
            f"{key}: {name_of(function)} returns text, but a serializer has to return bytes; use {key}={instead!r}, or "
            "encode its result"
        )
    if isinstance(function, type) and not issubclass(function, (bytes, bytearray, memoryview)):
        is_callable = any("__call__" in vars(base) for base in function.__mro__)
        advice = "give an instance of it" if is_callable else "give a function that returns bytes"
        raise KafkaConfigurationError(
            f"{key}: calling the class {name_of(function)} creates an instance of it, but a serializer has to return "
            f"bytes; {advice}"
        )


_METHODS = ("serialize",)
#: Functions that are mistaken for serializers, beside `json.dumps`, and the built-in serializer to use instead.
_RETURN_TEXT = ((str, "string"), (repr, "string"), (ascii, "string"), (format, "string"))


def compile_serializer(serializer: Serializer | None, part: str) -> SerializeFunction | None:
    """Return a function (topic, headers, data) -> bytes or None that calls a serializer; None if there is none.

    `part` ("key" or "value") is for messages. The function raises SerializationError if the serializer raises, or if it
    returns something that is not bytes. The threads that send call it.
    """
    if serializer is None:
        return None
    adapted = isinstance(serializer, (_CallableSerializer, _WithoutHeadersSerializer))
    name = name_of(serializer.function) if adapted else type(serializer).__name__
    if type(serializer) is _CallableSerializer:
        return SerializeFunction(part, name, serializer.function, takes_data=True)
    # only these classes themselves: a subclass may override `serialize`
    is_own = type(serializer) in (JsonSerializer, StringSerializer)
    if is_own and isinstance(serializer, JsonSerializer) and part == "value":
        return SerializeFunction(part, name, serializer.encode_value, takes_data=True)
    encodes_text = (
        is_own and isinstance(serializer, StringSerializer) and codecs.lookup(serializer.encoding).name == "utf-8"
    )
    return SerializeFunction(part, name, serializer.serialize, encodes_text=encodes_text)
