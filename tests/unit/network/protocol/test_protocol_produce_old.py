"""Produce versions 0 to 2, of brokers before 0.11: bytes encoded by hand from the protocol guide."""

from __future__ import annotations

import pytest

from headrace.network.protocol.codec import decode, encode
from headrace.network.protocol.errors import EncodeError
from headrace.network.protocol.messages.records.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)


def a_request(**fields: object) -> ProduceRequest:
    partition = PartitionProduceData(index=2, records=b"RR")
    topics = [TopicProduceData(name="t", partition_data=[partition])]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics, **fields)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_request_has_no_transactional_id(version: int) -> None:
    expected = "ffff 00007530  00000001 0001 74  00000001 00000002 00000002 5252"
    assert b"".join(encode(a_request(), version)) == bytes.fromhex(expected)
    assert decode(ProduceRequest, version, bytes.fromhex(expected)) == a_request()


def test_a_transactional_id_would_be_lost() -> None:
    with pytest.raises(EncodeError, match="transactional_id"):
        encode(a_request(transactional_id="id"), 2)


@pytest.mark.parametrize(
    ("version", "log_append_time_ms", "throttle_time_ms", "expected"),
    [
        (0, -1, 0, "00000001 0001 74  00000001 00000002 0006 0000000000000005"),
        (1, -1, 9, "00000001 0001 74  00000001 00000002 0006 0000000000000005  00000009"),
        (2, 7, 9, "00000001 0001 74  00000001 00000002 0006 0000000000000005 0000000000000007  00000009"),
    ],
)
def test_a_response_grows_with_its_version(
    version: int, log_append_time_ms: int, throttle_time_ms: int, expected: str
) -> None:
    def a_response(log_append_time_ms: int, throttle_time_ms: int) -> ProduceResponse:
        answer = PartitionProduceResponse(
            index=2, error_code=6, base_offset=5, log_append_time_ms=log_append_time_ms, log_start_offset=-1
        )
        topics = [TopicProduceResponse(name="t", partition_responses=[answer])]
        return ProduceResponse(responses=topics, throttle_time_ms=throttle_time_ms)

    # a field that the version doesn't have is dropped, and read back as unknown
    assert b"".join(encode(a_response(7, 9), version)) == bytes.fromhex(expected)
    assert decode(ProduceResponse, version, bytes.fromhex(expected)) == a_response(log_append_time_ms, throttle_time_ms)
