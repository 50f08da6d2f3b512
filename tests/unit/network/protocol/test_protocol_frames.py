"""Headers: their versions, the fallback of ApiVersions, and malformed ones."""

from __future__ import annotations

from typing import Any

import pytest
from support.requests import decode_request

from headrace.network.protocol import frames
from headrace.network.protocol.api import ApiKey
from headrace.network.protocol.errors import EncodeError, MalformedMessageError, UnsupportedVersionError
from headrace.network.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from headrace.network.protocol.messages.groups.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.network.protocol.messages.records.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.network.protocol.messages.topics.delete_topics import DeleteTopicsRequest


def frame(text: str) -> bytes:
    return bytes.fromhex(text)


class HugeRegion:
    """Stands for two gibibytes of a file."""

    size_bytes = 2**31


@pytest.mark.parametrize("asked", [0, 3, 4])
def test_an_unsupported_version_of_api_versions_is_answered_in_version_0(asked: int) -> None:
    answer = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=3)])
    buffers = frames.encode_response(answer, version=0, correlation_id=5)
    assert frames.decode_response(ApiVersionsRequest, asked, b"".join(buffers)[4:]) == (5, answer)


def test_a_header_can_be_read_of_a_version_to_come() -> None:
    start = frame("0012 0063 00000009 0001 63 00")
    header, position = frames.decode_request_header(start + b"who knows")
    assert header == (ApiKey.API_VERSIONS, 99, 9, "c")
    assert position == len(start)
    with pytest.raises(UnsupportedVersionError, match="99"):
        decode_request(start)


def test_tagged_fields_of_a_header_are_skipped() -> None:
    header, message = decode_request(frame("0012 0003 00000009 ffff  01 05 02 aabb  02 61 02 62 00"))
    assert header.client_id is None
    assert message == ApiVersionsRequest(client_software_name="a", client_software_version="b")
    assert frames.decode_response(HeartbeatRequest, 4, frame("00000009 01 07 01 aa  00000000 0000 00")) == (
        9,
        HeartbeatResponse(),
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "end within a request header"),
        ("0012 0000 00000001 00", "end within a request header"),
        ("4745 5420 2f204854 5450", "API 18245, which does not exist"),
        ("0012 0000 00000001 fffe", "client id has size -2"),
        ("0012 0000 00000001 7fff 61", "client id has size 32767"),
        ("0012 0000 00000001 0001 ff", "not valid UTF-8"),
        ("0012 0003 00000001 ffff", "end within a header's tagged fields"),
        ("0012 0003 00000001 ffff ffffffff0f", "end within a header's tagged fields"),
        ("0012 0003 00000001 ffff 01 00 ff01", "tagged field has size 255"),
        ("0012 0000 00000001 ffff 00", "1 bytes are left over"),
    ],
)
def test_requests_that_are_none(text: str, complaint: str) -> None:
    with pytest.raises(MalformedMessageError, match=complaint):
        decode_request(frame(text))


@pytest.mark.parametrize("text", ["", "000000", "00000001", "00000001 ff", "00000001 00 00"])
def test_responses_that_are_none(text: str) -> None:
    with pytest.raises(MalformedMessageError):
        frames.decode_response(DeleteTopicsRequest, 6, frame(text))


def test_an_api_without_messages_is_unsupported() -> None:
    with pytest.raises(UnsupportedVersionError, match="STOP_REPLICA"):
        decode_request(frame("0005 0000 00000001 ffff"))


def test_a_negative_version_is_unsupported() -> None:
    with pytest.raises(UnsupportedVersionError, match="-1"):
        decode_request(frame("0012 ffff 00000001 ffff"))


def test_a_request_has_fewer_elements_than_a_bound() -> None:
    count = frames.MAX_REQUEST_ELEMENTS + 1
    body = count.to_bytes(4, "big") + bytes(2 * count) + bytes(4)
    with pytest.raises(MalformedMessageError, match="more array elements"):
        decode_request(frame("0014 0001 00000001 ffff") + body)


def test_names_and_frames_that_are_too_large() -> None:
    with pytest.raises(EncodeError, match="client_id has 32768 bytes"):
        frames.encode_request(ApiVersionsRequest(), version=0, correlation_id=1, client_id="c" * 32768)
    with pytest.raises(EncodeError, match="cannot be encoded in UTF-8"):
        frames.encode_request(ApiVersionsRequest(), version=0, correlation_id=1, client_id="\ud800")
    partitions: list[Any] = [PartitionProduceData(index=0, records=HugeRegion())]
    message = ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=partitions)])
    with pytest.raises(EncodeError):
        frames.encode_request(message, version=3, correlation_id=1, client_id=None)
    with pytest.raises(EncodeError, match="more than a frame can hold"):
        frames.encode_request(message, version=9, correlation_id=1, client_id=None)
