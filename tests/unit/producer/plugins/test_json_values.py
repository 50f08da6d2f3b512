"""JSON values by orjson mean what the json module's mean, and are rejected where those are."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import json
import math
import sys
import uuid
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.network import _build
from headrace.network.protocol.errors import SerializationError
from headrace.producer.plugins.json_cy import FastJson
from headrace.producer.plugins.serializers import JsonSerializer, compile_serializer

interpreted = _build.interpreted("headrace.producer.plugins.json_cy")


class Color(enum.Enum):
    RED = "red"
    NONE = None
    NAN = math.nan


class Level(enum.IntEnum):
    LOW = 1


class Text(str):
    pass


Pair = collections.namedtuple("Pair", "a b")


def encode(data: Any, serializer: JsonSerializer | None = None, part: str = "value") -> bytes | None:
    function = compile_serializer(serializer or JsonSerializer(), part)
    assert function is not None
    return function("t", (), data)


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(TEXT | st.integers(), inner),
)


@given(data=DOCUMENTS)
def test_any_document_means_the_same(data: Any) -> None:
    output = encode(data)
    plain = JsonSerializer().serialize("t", (), data)
    assert (output is None) == (plain is None)
    if output is not None and plain is not None:
        assert repr(json.loads(output)) == repr(json.loads(plain))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"a": [1, None, "ü", "null"], "b": (True, 2.5)}, '{"a":[1,null,"ü","null"],"b":[true,2.5]}'),
        ({1: "a", None: 2, 2.5: True}, '{"1":"a","null":2,"2.5":true}'),
        (2**70, str(2**70)),
        (Text("x"), '"x"'),
        (collections.OrderedDict(a=1), '{"a":1}'),
        (Pair(1, None), "[1,null]"),
        (Level.LOW, "1"),
        ([Color.RED, Color.NONE], '["red",null]'),
        (uuid.UUID(int=5), '"00000000-0000-0000-0000-000000000005"'),
    ],
)
def test_what_each_class_becomes_with_orjson_and_without(
    monkeypatch: pytest.MonkeyPatch, data: Any, expected: str
) -> None:
    assert encode(data) == expected.encode()
    monkeypatch.setitem(sys.modules, "orjson", None)
    assert encode(data) == expected.encode()


@dataclasses.dataclass
class Point:
    x: int = 1


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (math.nan, "not JSON compliant"),
        ({"a": [(None, -math.inf)]}, "not JSON compliant"),
        ([Color.NAN], "not JSON compliant"),
        ("\ud800", "surrogates not allowed"),
        (Point(), "Object of type Point is not JSON serializable"),
        (datetime.datetime(2020, 1, 1), "Object of type datetime is not JSON serializable"),
        ({(1, 2): 3}, "keys must be str"),
        (b"x", "Object of type bytes is not JSON serializable"),
    ],
    ids=str,
)
def test_what_is_rejected_with_orjson_and_without(monkeypatch: pytest.MonkeyPatch, data: Any, says: str) -> None:
    with pytest.raises(SerializationError, match=says):
        encode(data)
    monkeypatch.setitem(sys.modules, "orjson", None)
    with pytest.raises(SerializationError, match=says):
        encode(data)


def test_values_are_encoded_by_orjson_and_keys_never() -> None:
    assert encode(1e-5) == orjson.dumps(1e-5)
    assert encode(1e-5, part="key") == b"1e-05" == json.dumps(1e-5).encode()
    assert orjson.dumps(1e-5) != b"1e-05"


def test_a_default_of_the_users_sees_every_object() -> None:
    serializer = JsonSerializer(lambda data: "seen")
    assert encode([uuid.UUID(int=5), Color.RED, Point()], serializer) == b'["seen","seen","seen"]'


def test_a_subclass_is_called_itself() -> None:
    class Wrapped(JsonSerializer):
        def serialize(self, topic: str, headers: Any, data: Any) -> bytes | None:
            return b"wrapped"

    assert encode(None, Wrapped()) == b"wrapped"


@pytest.mark.parametrize("kind", [FastJson, interpreted.FastJson], ids=["as installed", "interpreted"])
def test_only_what_orjson_does_otherwise_is_encoded_again(kind: Any) -> None:
    again = []
    encode_fast = kind(orjson.dumps, 0, lambda data: again.append(data) or b"again")
    assert encode_fast({"a": None, "b": ["null", (1.5, None)]}) == b'{"a":null,"b":["null",[1.5,null]]}'
    assert again == []
    assert encode_fast([None, {"a": (math.inf,)}]) == b"again"
    assert encode_fast({1: 2}) == b"again"
    assert again == [[None, {"a": (math.inf,)}], {1: 2}]
