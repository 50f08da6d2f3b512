from __future__ import annotations

import json
import math
import struct
import uuid
from typing import Any

import msgpack
import pytest

from headrace.network.protocol.errors import KafkaConfigurationError, SerializationError
from headrace.producer import KafkaProducer
from headrace.producer.plugins.serializers import (
    BytesSerializer,
    JsonSerializer,
    MsgpackSerializer,
    Serializer,
    StringSerializer,
    compile_serializer,
    may_add_headers,
    resolve_serializer,
)
from headrace.registry import SerializationContext

IDENTITY = uuid.UUID("12345678-9abc-def0-1234-56789abcdef0")


def serialize(serializer: Any, data: Any, part: str = "value", topic: str = "t", headers: Any = ()) -> bytes | None:
    function = compile_serializer(resolve_serializer(serializer, f"{part}.serializer"), part)
    assert function is not None
    return function(topic, headers, data)


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("bytes", b"x", b"x"),
        ("bytes", bytearray(b"x"), b"x"),
        ("bytes", memoryview(b"axbx")[1::2], b"xx"),
        ("string", "grün", b"gr\xc3\xbcn"),
        ("short", -2, b"\xff\xfe"),
        ("integer", 258, b"\x00\x00\x01\x02"),
        ("long", 2**63 - 1, b"\x7f" + b"\xff" * 7),
        ("float", 1.5, b"\x3f\xc0\x00\x00"),
        ("double", -2, b"\xc0" + b"\x00" * 7),
        ("uuid", IDENTITY, b"12345678-9abc-def0-1234-56789abcdef0"),
        ("json", {"a": [1, None, "ü"]}, b'{"a":[1,null,"\xc3\xbc"]}'),
        ("json", "x", b'"x"'),
        ("msgpack", {"a": b"x"}, b"\x81\xa1a\xc4\x01x"),
    ],
)
def test_built_in(name: str, data: object, expected: bytes) -> None:
    output = serialize(name, data)
    assert output == expected
    assert type(output) is bytes


@pytest.mark.parametrize(
    "name", ["bytes", "string", "short", "integer", "long", "float", "double", "uuid", "json", "msgpack"]
)
def test_none_stays_none(name: str) -> None:
    assert serialize(name, None) is None


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("bytes", "x", "BytesSerializer failed on data of type str for topic t: TypeError: str is not bytes"),
        ("bytes", 5, "int is not bytes"),
        ("string", b"x", "bytes is not str"),
        ("string", "\ud800", "UnicodeEncodeError"),
        ("short", 2**15, "ShortSerializer failed on data of type int"),
        ("integer", 2**31, "IntegerSerializer failed"),
        ("integer", "5", "IntegerSerializer failed on data of type str"),
        ("integer", 5.0, "IntegerSerializer failed on data of type float"),
        ("long", -(2**63) - 1, "LongSerializer failed"),
        ("float", 1e300, "FloatSerializer failed"),
        ("double", "1", "DoubleSerializer failed"),
        ("uuid", str(IDENTITY), "str is not uuid.UUID"),
        ("json", {"a": object()}, "Object of type object is not JSON serializable"),
        ("json", math.nan, "Out of range float values are not JSON compliant"),
        ("msgpack", object(), "can not serialize 'object' object"),
    ],
)
def test_what_does_not_fit_is_a_serialization_error(name: str, data: object, says: str) -> None:
    with pytest.raises(SerializationError) as caught:
        serialize(name, data)
    assert says in str(caught.value)
    assert str(caught.value).startswith("the value serializer ")
    assert caught.value.__cause__ is not None


def test_encodings() -> None:
    assert serialize(StringSerializer("utf-16-le"), "a") == b"a\0"
    with pytest.raises(LookupError):
        StringSerializer("nothing")


def test_defaults_for_foreign_objects() -> None:
    assert json.loads(serialize(JsonSerializer(default=str), {"id": IDENTITY}) or b"") == {"id": str(IDENTITY)}
    assert msgpack.unpackb(serialize(MsgpackSerializer(default=str), [IDENTITY]) or b"") == [str(IDENTITY)]


def test_no_serializer() -> None:
    assert resolve_serializer(None, "key.serializer") is None
    assert compile_serializer(None, "key") is None


def test_a_callable_takes_the_data_but_never_none() -> None:
    assert serialize(str.encode, "x") == b"x"
    assert serialize(str.encode, None) is None
    assert serialize(struct.Struct(">i").pack, 1) == b"\0\0\0\1"


class Recording(Serializer):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def serialize(self, topic: str, headers: Any, data: Any) -> bytes | None:
        self.seen.append((topic, headers, data))
        return b"null" if data is None else b"data"


def test_a_serializer_sees_topic_headers_and_none() -> None:
    serializer = Recording()
    headers = [("trace", b"1")]
    assert serialize(serializer, 5, headers=headers) == b"data"
    assert serialize(serializer, None, topic="u") == b"null"
    assert serializer.seen == [("t", headers, 5), ("u", (), None)]


def test_a_serializer_need_not_derive_from_ours() -> None:
    class Foreign:
        def serialize(self, topic: str, headers: Any, data: Any) -> bytearray:
            return bytearray(data, "ascii")

    output = serialize(Foreign(), "x")
    assert output == b"x"
    assert type(output) is bytes
    assert serialize(Foreign, "x") == b"x"


@pytest.mark.parametrize(
    "name",
    [
        "headrace.producer.plugins.serializers:BytesSerializer",
        "headrace.producer.plugins.serializers.BytesSerializer",
        "org.apache.kafka.common.serialization.ByteArraySerializer",
        "BYTES",
    ],
)
def test_names(name: str) -> None:
    assert isinstance(resolve_serializer(name, "key.serializer"), BytesSerializer)


def test_javas_names_are_understood() -> None:
    assert serialize("org.apache.kafka.common.serialization.IntegerSerializer", 1) == b"\0\0\0\1"


def test_a_function_is_found_by_its_path() -> None:
    assert serialize("binascii.hexlify", b"\x01") == b"01"


class Callable:
    def __call__(self, data: object) -> bytes:
        return b"called"


def test_an_instance_may_be_called() -> None:
    assert serialize(Callable(), 1) == b"called"


class NeedsAnArgument(Serializer):
    def __init__(self, argument: int) -> None:
        raise AssertionError

    def serialize(self, topic: str, headers: Any, data: Any) -> bytes:
        raise AssertionError


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (
            "jsn",
            "key.serializer='jsn' is neither one of the built-in bytes, string, short, integer, long, float, double",
        ),
        ("jsn", "nor an import path like package.module:Name; did you mean 'json'?"),
        (
            "json.dumps",
            "key.serializer: dumps returns text, but a serializer has to return bytes; use key.serializer='j",
        ),
        (json.dumps, "use key.serializer='json', or encode its result"),
        (str, "str returns text, but a serializer has to return bytes; use key.serializer='string'"),
        (repr, "use key.serializer='string'"),
        (int, "calling the class int creates an instance of it, but a serializer has to return bytes; give a function"),
        (Callable, "creates an instance of it, but a serializer has to return bytes; give an instance of it"),
        (
            "org.apache.kafka.common.serialization.VoidSerializer",
            "is a class of the Java client, which needs the JVM; the built-in ones are bytes, string, short",
        ),
        ("no_such_module.Thing", "can't be imported (ModuleNotFoundError"),
        ("json:Nothing", "can't be imported (AttributeError"),
        ("com.example.MySerializer", "key.serializer='com.example.MySerializer' can't be imported"),
        (":x", "is neither"),
        (NeedsAnArgument, "creating a NeedsAnArgument without arguments failed (TypeError"),
        (5, "key.serializer is of type int, which is not callable and has no method serialize"),
        ("math.pi", "key.serializer is of type float"),
    ],
)
def test_what_is_no_serializer_is_refused(value: object, says: str) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        resolve_serializer(value, "key.serializer")
    assert says in str(caught.value)


def test_output_that_is_not_bytes_names_part_topic_and_type() -> None:
    def text(data: object) -> str:
        return "text"

    with pytest.raises(
        SerializationError, match=r"the key serializer .*text returned str for topic t; it has to return bytes: encode"
    ):
        serialize(text, {}, part="key")
    with pytest.raises(SerializationError, match=r"returned int for topic t; it has to return bytes$"):
        serialize(len, {}, part="key")


def test_a_serializer_that_raises_is_the_cause() -> None:
    def broken(data: object) -> bytes:
        raise ZeroDivisionError("oh")

    with pytest.raises(
        SerializationError, match=r"broken failed on data of type int for topic t: ZeroDivisionError: oh"
    ) as caught:
        serialize(broken, 5)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_serialization_error_passes_unchanged() -> None:
    error = SerializationError("mine")

    def broken(data: object) -> bytes:
        raise error

    with pytest.raises(SerializationError) as caught:
        serialize(broken, 5)
    assert caught.value is error


def test_a_callable_may_see_topic_and_headers() -> None:
    def seeing(topic: str, headers: Any, data: Any) -> bytes:
        return f"{topic} {headers} {data}".encode()

    assert serialize(seeing, 5, headers=[("a", b"b")]) == b"t [('a', b'b')] 5"
    assert serialize(seeing, None) is None


class _WithContext:
    def __call__(self, obj: Any, ctx: Any = None) -> bytes:
        return f"{obj} {ctx.topic} {ctx.field} {ctx.headers}".encode()


def _annotated(obj: Any, about: SerializationContext | None = None) -> bytes:
    return _WithContext()(obj, about)


@pytest.mark.parametrize(
    "function",
    [
        _WithContext(),
        _WithContext().__call__,
        _annotated,
        lambda data, second: _WithContext().__call__(data, ctx=second),
    ],
    ids=["instance", "method", "annotation", "two required"],
)
def test_a_callable_of_confluents_shape_gets_a_context(function: Any) -> None:
    assert serialize(function, 5, "key", headers=[]) == b"5 t key []"
    assert serialize(function, 5, "value", headers=[]) == b"5 t value []"
    assert serialize(function, None) is None
    assert may_add_headers(resolve_serializer(function, "value.serializer"))


@pytest.mark.parametrize(
    "function",
    [lambda data, indent=None: b"1", lambda *data: b"1", lambda topic, headers, data: b"1", lambda data, *ctx: b"1"],
)
def test_a_callable_of_another_shape_gets_none(function: Any) -> None:
    assert serialize(function, 5) == b"1"
    assert not may_add_headers(resolve_serializer(function, "value.serializer"))


def test_one_parameter_is_the_data_whatever_else_has_a_default() -> None:
    def encoded(data: Any, encoding: str = "ascii", errors: str = "strict") -> bytes:
        return data.encode(encoding, errors)

    assert serialize(encoded, "x") == serialize(str.encode, "x") == b"x"


def test_a_serializer_written_for_kafka_python_2() -> None:
    class Old:
        closed = False

        def serialize(self, topic: str, value: Any) -> bytes:
            return f"{topic} {value}".encode()

        def close(self) -> None:
            Old.closed = True

    assert serialize(Old(), None) == serialize(Old, None) == b"t None"
    found: Any = resolve_serializer(Old(), "value.serializer")
    found.close()
    assert Old.closed


def test_a_serializer_that_can_not_be_called_so_is_refused_before_anything_is_sent() -> None:
    class Odd:
        def serialize(self) -> bytes:
            return b""

    for value, says in ((Odd(), r"Odd\.serialize has to take \(topic, headers, data\)"), (lambda: b"", "has to take")):
        with pytest.raises(KafkaConfigurationError, match=says):
            resolve_serializer(value, "key.serializer")


def test_an_async_serializer_needs_a_producer_that_awaits() -> None:
    async def encrypt(value: str) -> bytes:
        return value.encode()

    with pytest.raises(KafkaConfigurationError, match=r"^value\.serializer is an async function"):
        KafkaProducer(bootstrap_servers="localhost:9092", value_serializer=encrypt)
