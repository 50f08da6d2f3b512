"""The declarations compared with kafka-python's, which are generated from Apache Kafka's schema files."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.protocol_strategies import instances, message_classes, versions_of

from headrace.network.protocol.codec import encode
from headrace.network.protocol.message import Message, fields_of
from headrace.network.protocol.types import WireType

pytest.importorskip("kafka.protocol.api_message", reason="kafka-python 3 is not installed")

from kafka.protocol import admin, consumer, metadata, producer, sasl
from kafka.protocol.api_message import ApiMessage

#: kafka-python doesn't report its metrics to the brokers (KIP-714).
NOT_THEIRS = ("GetTelemetrySubscriptions", "PushTelemetry")


def theirs_of(cls: type[Message]) -> Any:
    return next(
        getattr(module, cls.__name__)
        for module in (metadata, admin, consumer, producer, sasl)
        if hasattr(module, cls.__name__)
    )


def assert_same(ours: Any, theirs: Any, type_: Any, version: int, path: str) -> None:
    if isinstance(type_, list):
        assert (ours is None) == (theirs is None), path
        for index, pair in enumerate(zip(ours or [], theirs or [], strict=True)):
            assert_same(*pair, type_[0], version, f"{path}[{index}]")
    elif isinstance(type_, WireType):
        if isinstance(theirs, (memoryview, bytearray)):
            theirs = bytes(theirs)
        if type_.name == "uuid" and not isinstance(theirs, uuid.UUID):
            theirs = uuid.UUID(bytes=theirs)
        assert ours == theirs, path
    elif ours is None:
        assert theirs is None, path
    else:
        for spec in fields_of(type_):
            # kafka-python turns these bit fields into sets, and leaves tagged fields that are not sent at None.
            if version not in spec.versions or spec.name.endswith("authorized_operations"):
                continue
            ours_value = getattr(ours, spec.name)
            if spec.is_tagged(version) and spec.make_default is not None and ours_value == spec.make_default():
                continue
            assert_same(ours_value, getattr(theirs, spec.name), spec.type, version, f"{path}.{spec.name}")


@pytest.mark.parametrize(
    "cls", [cls for cls in message_classes() if not cls.__name__.startswith(NOT_THEIRS)], ids=lambda cls: cls.__name__
)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_kafka_python_reads_the_same_and_writes_the_same_bytes(cls: type[Message], data: st.DataObject) -> None:
    their_class = theirs_of(cls)
    for version in versions_of(cls):
        message = data.draw(instances(cls, version))
        written = b"".join(encode(message, version))
        # Bypasses kafka-python's override for ApiVersions, which tries version 0.
        theirs = ApiMessage.decode.__func__(their_class, written, version=version)
        assert_same(message, theirs, cls, version, f"{cls.__name__} v{version}")
        if not any("authorized_operations" in each for each in field_names(cls, version)):
            theirs._header = None
            assert bytes(theirs.encode(version=version)) == written


def field_names(cls: Any, version: int) -> list[str]:
    names = []
    for spec in fields_of(cls):
        if version in spec.versions:
            names.append(spec.name)
            inner = spec.type[0] if isinstance(spec.type, list) else spec.type
            if not isinstance(inner, WireType):
                names += field_names(inner, version)
    return names
