"""Hypothesis strategies for the messages of the wire protocol, derived from their declarations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from headrace.network.protocol.api import requests
from headrace.network.protocol.message import Message, fields_of
from headrace.network.protocol.types import WireType

WIRE_VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "float64": st.floats(allow_nan=False),
    "uuid": st.uuids(),
    "string": st.text(max_size=12),
    "bytes": st.binary(max_size=12),
    "records": st.binary(max_size=40),
} | {f"int{bits}": st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)}


def message_classes() -> list[type[Message]]:
    """Every request and response class."""
    return [cls for request in requests.values() for cls in (request, request.response_class)]


def versions_of(cls: type[Message]) -> range:
    return range(cls.versions.min, cls.versions.max + 1)


def instances(
    cls: type, version: int, wire_values: Mapping[str, st.SearchStrategy[Any]] = WIRE_VALUES
) -> st.SearchStrategy[Any]:
    """Instances of a message or a struct that `version` carries without loss; `wire_values` has values by wire type."""
    return st.builds(
        cls,
        **{
            spec.name: _values(spec.type, version, version in spec.nullable, wire_values)
            for spec in fields_of(cls)
            if version in spec.versions
        },
    )


def _values(
    type_: Any, version: int, nullable: bool, wire_values: Mapping[str, st.SearchStrategy[Any]]
) -> st.SearchStrategy[Any]:
    if isinstance(type_, WireType):
        values = wire_values[type_.name]
    elif isinstance(type_, list):
        values = st.lists(_values(type_[0], version, False, wire_values), max_size=3)
    else:
        values = instances(type_, version, wire_values)
    return st.none() | values if nullable else values


def element_count(value: Any) -> int:
    """The number of array elements in a message, at any depth."""
    if isinstance(value, list):
        return len(value) + sum(map(element_count, value))
    if hasattr(type(value), "__codecs__"):
        return sum(element_count(getattr(value, spec.name)) for spec in fields_of(type(value)))
    return 0


# Wrong sizes and counts, as encoded on the wire.
lies = st.sampled_from(
    [
        *(b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\x7f\xff", b"\xff\xff\xff\xff\x0f"),
        *(b"\xff" * 11, b"\x00", b"\x01", b"\x80", b"\x7f", b"\x00\x00\x00\x01", b"\x00\xff\xff\xff"),
    ]
)
edits = st.lists(
    st.tuples(
        st.sampled_from(["replace", "insert", "delete", "repeat"]), st.integers(0, 2**16), lies | st.binary(max_size=6)
    ),
    min_size=1,
    max_size=4,
)


def mutated(original: bytes, changes: list[tuple[str, int, bytes]]) -> bytes:
    """The bytes with `changes` applied."""
    changed = bytearray(original)
    for kind, place, data in changes:
        position = place % (len(changed) + 1)
        if kind == "replace":
            changed[position : position + len(data)] = data
        elif kind == "insert":
            changed[position:position] = data
        elif kind == "delete":
            del changed[position : position + max(len(data), 1)]
        else:
            changed += changed[position:]
    return bytes(changed[:10_000])
