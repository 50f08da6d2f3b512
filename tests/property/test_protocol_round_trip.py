"""Every message in every version is read back as written; the cases are derived from the declarations."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.protocol_strategies import instances, message_classes, versions_of
from support.requests import decode_request

from headrace.network.protocol import frames
from headrace.network.protocol.codec import decode, encode
from headrace.network.protocol.errors import UnsupportedVersionError
from headrace.network.protocol.message import Message, Request
from headrace.network.protocol.messages.api_versions import ApiVersionsResponse

bounded = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
every_message = pytest.mark.parametrize("cls", message_classes(), ids=lambda cls: cls.__name__)


def joined(buffers: list) -> bytes:
    return b"".join(buffers)


@every_message
@bounded
@given(data=st.data())
def test_round_trip_in_every_version(cls: type[Message], data: st.DataObject) -> None:
    for version in versions_of(cls):
        message = data.draw(instances(cls, version))
        before = copy.deepcopy(message)
        written = joined(encode(message, version))
        assert decode(cls, version, written) == message == before
        assert joined(encode(decode(cls, version, memoryview(written)), version)) == written


@every_message
@bounded
@given(data=st.data())
def test_frames_round_trip_in_every_version(cls: type[Message], data: st.DataObject) -> None:
    correlation_id = data.draw(st.integers(-(2**31), 2**31 - 1))
    client_id = data.draw(st.none() | st.text(max_size=20))
    for version in versions_of(cls):
        message = data.draw(instances(cls, version))
        if isinstance(message, Request):
            buffers = frames.encode_request(
                message, version=version, correlation_id=correlation_id, client_id=client_id
            )
            header, read = decode_request(joined(buffers)[4:])
            assert header == (cls.api_key, version, correlation_id, client_id)
        else:
            if isinstance(message, ApiVersionsResponse):
                # whatever its version, it is read in version 0, as brokers write it
                assume(message.error_code != UnsupportedVersionError.code)
            request_class = next(each for each in message_classes() if getattr(each, "response_class", None) is cls)
            buffers = frames.encode_response(message, version=version, correlation_id=correlation_id)
            read_id, read = frames.decode_response(request_class, version, joined(buffers)[4:])
            assert read_id == correlation_id
        assert read == message
        assert int.from_bytes(joined(buffers)[:4], "big") == len(joined(buffers)) - 4


@every_message
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_messages_pickle(cls: type[Message], data: st.DataObject) -> None:
    message = data.draw(instances(cls, cls.versions.max))
    assert pickle.loads(pickle.dumps(message)) == message
