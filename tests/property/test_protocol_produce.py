"""The codec of usual produce requests and responses against the general one: the same result, or none."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.protocol_strategies import WIRE_VALUES, edits, instances, mutated, versions_of

from headrace.network import _build
from headrace.network.protocol import produce_cy as installed
from headrace.network.protocol.codec import decode, encode
from headrace.network.protocol.errors import EncodeError, MalformedMessageError
from headrace.network.protocol.frames import decode_request_header
from headrace.network.protocol.messages.records.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

bounded = settings(max_examples=60, deadline=None)
both_forms = pytest.mark.parametrize(
    "codec", [installed, _build.interpreted("headrace.network.protocol.produce_cy")], ids=["installed", "interpreted"]
)
versions = st.sampled_from(versions_of(ProduceRequest))
handled = st.integers(installed.FIRST_VERSION, installed.LAST_VERSION)
client_ids = st.none() | st.text(max_size=20)
int32 = WIRE_VALUES["int32"]
int64 = WIRE_VALUES["int64"]
data = st.binary(max_size=30)
# a batch is one buffer or several
records = data | data.map(bytearray) | data.map(memoryview) | st.lists(data | data.map(memoryview), max_size=3)

requests = st.builds(
    ProduceRequest,
    acks=st.sampled_from([-1, 0, 1]),
    timeout_ms=int32,
    topic_data=st.lists(
        st.builds(
            TopicProduceData,
            name=st.text(max_size=150),
            topic_id=st.uuids(),
            partition_data=st.lists(
                st.builds(PartitionProduceData, index=int32, records=st.none() | records), max_size=130
            ),
        ),
        max_size=4,
    ),
)
successes = st.builds(
    ProduceResponse,
    throttle_time_ms=int32,
    responses=st.lists(
        st.builds(
            TopicProduceResponse,
            name=st.text(max_size=150),
            topic_id=st.uuids(),
            partition_responses=st.lists(
                st.builds(
                    PartitionProduceResponse,
                    index=int32,
                    base_offset=int64,
                    log_append_time_ms=int64,
                    log_start_offset=int64,
                ),
                max_size=130,
            ),
        ),
        max_size=4,
    ),
)


def header_of(version: int) -> bytes:
    """A response's correlation id, and its tagged fields if it has any."""
    return b"\0\0\0\7" + (b"\0" if version in ProduceResponse.flexible else b"")


def decoded(version: int, body: bytes) -> Any:
    try:
        return decode(ProduceResponse, version, body, exact=False)
    except MalformedMessageError:
        return None


@both_forms
@bounded
@given(requests, handled, int32, client_ids)
def test_a_usual_request_has_the_bytes_of_the_general_codec(
    codec: ModuleType, request: ProduceRequest, version: int, correlation_id: int, client_id: str | None
) -> None:
    frame = b"".join(codec.frame_of(request, version, correlation_id, client_id))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, start = decode_request_header(frame[4:])
    assert header == (ProduceRequest.api_key, version, correlation_id, client_id)
    assert frame[4 + start :] == b"".join(encode(request, version))


@both_forms
@bounded
@given(st.data())
def test_any_request_has_these_bytes_or_is_left_to_the_general_codec(codec: ModuleType, data: st.DataObject) -> None:
    version = data.draw(versions)
    request = data.draw(instances(ProduceRequest, version))
    frame = codec.frame_of(request, version, 1, None)
    if frame is not None:
        assert b"".join(frame)[4:].endswith(b"".join(encode(request, version)))


WRONG: list[dict[str, Any]] = [
    {"acks": 1 << 15},
    {"acks": None},
    {"acks": "1"},
    {"timeout_ms": 1 << 31},
    {"timeout_ms": 1.5},
    {"timeout_ms": 1 << 70},
    {"topic_data": None},
    {"topic_data": ["t"]},
    {"topic_data": [TopicProduceData(name="\ud800", partition_data=[])]},
    {"topic_data": [TopicProduceData(name="x" * 40_000, partition_data=[])]},
    {"topic_data": [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=1 << 31, records=b"")])]},
    {"topic_data": [TopicProduceData(name="t", partition_data=[PartitionProduceData(index="1", records=b"")])]},
    {"topic_data": [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=1, records=7)])]},
]


@both_forms
@pytest.mark.parametrize("fields", WRONG, ids=str)
@pytest.mark.parametrize("version", [3, 9, 12])
def test_what_cannot_be_encoded_is_left_to_the_general_codec(
    codec: ModuleType, fields: dict[str, Any], version: int
) -> None:
    request = ProduceRequest(**{"acks": 1, "timeout_ms": 1, "topic_data": [], **fields})
    assert codec.frame_of(request, version, 1, None) is None
    with pytest.raises(EncodeError):
        encode(request, version)


@both_forms
@bounded
@given(successes, handled, st.binary(max_size=2))
def test_a_response_without_errors_is_decoded_as_by_the_general_codec(
    codec: ModuleType, response: ProduceResponse, version: int, rest: bytes
) -> None:
    body = b"".join(encode(response, version)) + rest
    assert codec.response_in(version, memoryview(header_of(version) + body)) == decoded(version, body)


@both_forms
@bounded
@given(st.data(), successes, edits)
def test_any_response_is_decoded_the_same_way_or_left_to_the_general_codec(
    codec: ModuleType, data: st.DataObject, success: ProduceResponse, changes: list[tuple[str, int, bytes]]
) -> None:
    version = data.draw(versions)
    response = data.draw(instances(ProduceResponse, version) | st.just(success))
    body = b"".join(encode(response, version))
    for each in (body, mutated(body, changes)):
        usual = codec.response_in(version, memoryview(header_of(version) + each))
        if usual is not None:
            assert usual == decoded(version, each)
