"""Arbitrary bytes decode to a message or to a typed error, never to anything else."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.protocol_strategies import edits, element_count, instances, message_classes, mutated, versions_of
from support.requests import decode_request

from headrace.network.protocol import frames
from headrace.network.protocol.codec import decode, encode
from headrace.network.protocol.errors import MalformedMessageError, ProtocolError, UnsupportedVersionError
from headrace.network.protocol.message import Message, Request

bounded = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
every_message = pytest.mark.parametrize("cls", message_classes(), ids=lambda cls: cls.__name__)


@every_message
@bounded
@given(data=st.data())
def test_every_truncation_is_a_malformed_message(cls: type[Message], data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(versions_of(cls)))
    written = b"".join(encode(data.draw(instances(cls, version)), version))
    for size in range(len(written)):
        with pytest.raises(MalformedMessageError):
            decode(cls, version, written[:size])


@every_message
@bounded
@given(data=st.data())
def test_trailing_bytes_are_a_malformed_message(cls: type[Message], data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(versions_of(cls)))
    written = b"".join(encode(data.draw(instances(cls, version)), version))
    with pytest.raises(MalformedMessageError, match="left over"):
        decode(cls, version, written + data.draw(st.binary(min_size=1, max_size=5)))


@every_message
@settings(parent=bounded, max_examples=40)
@given(data=st.data())
def test_mutations_give_a_message_or_a_protocol_error(cls: type[Message], data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(versions_of(cls)))
    changed = mutated(b"".join(encode(data.draw(instances(cls, version)), version)), data.draw(edits))
    try:
        message = decode(cls, version, changed)
    except ProtocolError:
        return
    assert element_count(message) <= len(changed)
    again = b"".join(encode(message, version))
    assert decode(cls, version, again) == message


@settings(parent=bounded, max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_as_a_request(data: bytes) -> None:
    try:
        header, message = decode_request(data)
    except (ProtocolError, UnsupportedVersionError):
        return
    assert type(message).api_key == header.api_key


@settings(parent=bounded, max_examples=300)
@given(request=st.sampled_from([cls for cls in message_classes() if issubclass(cls, Request)]), data=st.data())
def test_a_known_header_before_any_bytes(request: type[Request], data: st.DataObject) -> None:
    version = data.draw(st.integers(request.versions.min - 1, request.versions.max + 1))
    start = request.api_key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True)
    body = data.draw(st.binary(max_size=60) | edits.map(lambda changes: mutated(bytes(12), changes)))
    try:
        header, message = decode_request(start + body)
    except ProtocolError:
        return
    except UnsupportedVersionError:
        assert version not in request.versions
        return
    assert (header.api_version, type(message)) == (version, request)


@settings(parent=bounded, max_examples=300)
@given(
    request=st.sampled_from([cls for cls in message_classes() if issubclass(cls, Request)]),
    data=st.data(),
    answer=st.binary(max_size=100),
)
def test_any_bytes_as_a_response(request: type[Request], data: st.DataObject, answer: bytes) -> None:
    version = data.draw(st.sampled_from(versions_of(request)))
    try:
        _, message = frames.decode_response(request, version, answer)
    except ProtocolError:
        return
    assert type(message) is request.response_class
