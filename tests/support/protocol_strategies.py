"""Hypothesis strategies for the messages of the wire protocol, made from their declarations."""

from __future__ import annotations

from typing import Any

from headrace.network.protocol.api import requests
from headrace.network.protocol.message import Message, fields_of
from headrace.network.protocol.types import WireType
from hypothesis import strategies as st

_WIRE_VALUES = {
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
    """Every request and every response there is."""
    return [cls for request in requests.values() for cls in (request, request.response_class)]


def versions_of(cls: type[Message]) -> range:
    return range(cls.versions.min, cls.versions.max + 1)


def instances(cls: type, version: int) -> st.SearchStrategy[Any]:
    """Instances of a message or a struct that `version` can carry without loss."""
    return st.builds(
        cls,
        **{
            spec.name: _values(spec.type, version, version in spec.nullable)
            for spec in fields_of(cls)
            if version in spec.versions
        },
    )


def _values(type_: Any, version: int, nullable: bool) -> st.SearchStrategy[Any]:
    if isinstance(type_, WireType):
        values = _WIRE_VALUES[type_.name]
    elif isinstance(type_, list):
        values = st.lists(_values(type_[0], version, False), max_size=3)
    else:
        values = instances(type_, version)
    return st.none() | values if nullable else values


def element_count(value: Any) -> int:
    """How many array elements are in a message, in all its depths."""
    if isinstance(value, list):
        return len(value) + sum(map(element_count, value))
    if hasattr(type(value), "__codecs__"):
        return sum(element_count(getattr(value, spec.name)) for spec in fields_of(type(value)))
    return 0
