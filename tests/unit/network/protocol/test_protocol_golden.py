"""Bytes encoded by hand from the protocol guide, as other implementations send and expect them."""

from __future__ import annotations

import uuid

import pytest

from headrace.network.protocol import frames
from headrace.network.protocol.codec import decode, encode
from headrace.network.protocol.message import Message
from headrace.network.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from headrace.network.protocol.messages.cluster.describe_cluster import DescribeClusterRequest
from headrace.network.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from headrace.network.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.network.protocol.messages.groups.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.network.protocol.messages.records.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from headrace.network.protocol.messages.records.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.network.protocol.messages.records.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.network.protocol.messages.records.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from headrace.network.protocol.messages.topics.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.network.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.network.protocol.messages.topics.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPIC_ID = uuid.UUID(bytes=bytes(range(16)))
TOPIC_ID_HEX = "000102030405060708090a0b0c0d0e0f"


def produce(**topic: object) -> ProduceRequest:
    partition = PartitionProduceData(index=2, records=b"RR")
    return ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(partition_data=[partition], **topic)]
    )


def produced(**partition: object) -> ProduceResponse:
    answer = PartitionProduceResponse(index=0, base_offset=-1, **partition)
    return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[answer])])


METADATA = MetadataResponse(
    brokers=[MetadataResponseBroker(node_id=1, host="h", port=9092)],
    controller_id=1,
    topics=[
        MetadataResponseTopic(
            name="t",
            partitions=[MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[1, 2], isr_nodes=[1])],
        )
    ],
)
METADATA_13 = MetadataResponse(
    brokers=[MetadataResponseBroker(node_id=1, host="h", port=9092)],
    cluster_id="ab",
    controller_id=1,
    topics=[
        MetadataResponseTopic(
            name="t",
            topic_id=TOPIC_ID,
            partitions=[
                MetadataResponsePartition(
                    partition_index=0, leader_id=1, leader_epoch=5, replica_nodes=[1], isr_nodes=[1]
                )
            ],
        )
    ],
    error_code=129,
)

# (message, version, bytes): the spaces only group the bytes.
GOLDEN: list[tuple[Message, int, str]] = [
    (ApiVersionsRequest(), 0, ""),
    (ApiVersionsRequest(client_software_name="hr", client_software_version="1"), 3, "03 6872  02 31  00"),
    (
        ApiVersionsResponse(api_keys=[ApiVersion(api_key=0, min_version=3, max_version=13)]),
        0,
        "0000  00000001 0000 0003 000d",
    ),
    (
        ApiVersionsResponse(
            api_keys=[ApiVersion(api_key=0, min_version=3, max_version=13)],
            throttle_time_ms=1,
            finalized_features_epoch=5,
            finalized_features=[FinalizedFeatureKey(name="f", max_version_level=2, min_version_level=1)],
        ),
        4,
        "0000  02 0000 0003 000d 00  00000001"
        # two tagged fields: 1, the epoch, in 8 bytes; 2, an array of one, in 8 bytes
        "02  01 08 0000000000000005  02 08 02 02 66 0002 0001 00",
    ),
    (MetadataRequest(topics=None), 1, "ffffffff"),
    (MetadataRequest(topics=[]), 4, "00000000 01"),
    (
        MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False),
        12,
        "02 00000000000000000000000000000000 02 74 00  00  00  00",
    ),
    (MetadataRequest(topics=None), 9, "00 01 00 00 00"),
    (
        METADATA,
        1,
        "00000001 00000001 0001 68 00002384 ffff  00000001"
        "00000001 0000 0001 74 00  00000001 0000 00000000 00000001  00000002 00000001 00000002  00000001 00000001",
    ),
    (
        METADATA_13,
        13,
        "00000000  02 00000001 02 68 00002384 00 00  03 6162  00000001"
        f"02 0000 02 74 {TOPIC_ID_HEX} 00"
        "02 0000 00000000 00000001 00000005  02 00000001  02 00000001  01  00"
        "80000000 00  0081  00",
    ),
    (produce(name="t"), 3, "ffff ffff 00007530  00000001 0001 74  00000001 00000002 00000002 5252"),
    (produce(name="t"), 9, "00 ffff 00007530  02 02 74  02 00000002 03 5252 00  00  00"),
    (produce(topic_id=TOPIC_ID), 13, f"00 ffff 00007530  02 {TOPIC_ID_HEX}  02 00000002 03 5252 00  00  00"),
    (
        produced(
            error_code=87,
            record_errors=[BatchIndexAndErrorMessage(batch_index=4, batch_index_error_message="e")],
            error_message="no",
        ),
        8,
        "00000001 0001 74  00000001 00000000 0057 ffffffffffffffff ffffffffffffffff ffffffffffffffff"
        "00000001 00000004 0001 65  0002 6e6f  00000000",
    ),
    (
        ProduceResponse(
            responses=produced(error_code=6, current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=7)).responses,
            node_endpoints=[NodeEndpoint(node_id=2, host="h", port=9092)],
        ),
        10,
        "02 02 74  02 00000000 0006 ffffffffffffffff ffffffffffffffff ffffffffffffffff 01 00"
        "01 00 09 00000002 00000007 00  00"
        "00000000  01 00 0d 02 00000002 02 68 00002384 00 00",
    ),
    (
        FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic="t",
                    partitions=[
                        PartitionData(
                            partition_index=0,
                            high_watermark=5,
                            last_stable_offset=5,
                            log_start_offset=0,
                            aborted_transactions=None,
                            records=b"RRR",
                        )
                    ],
                )
            ]
        ),
        11,
        "00000000 0000 00000000  00000001 0001 74  00000001 00000000 0000"
        "0000000000000005 0000000000000005 0000000000000000 ffffffff ffffffff 00000003 525252",
    ),
    (
        ListOffsetsRequest(
            topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=1, timestamp=-2)])]
        ),
        1,
        "ffffffff 00000001 0001 74 00000001 00000001 fffffffffffffffe",
    ),
    (
        CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name="t",
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[7])],
                    configs=[CreatableTopicConfig(name="k", value=None)],
                )
            ],
            timeout_ms=1000,
        ),
        5,
        "02 02 74 ffffffff ffff  02 00000000 02 00000007 00  02 02 6b 00 00  00  000003e8 00 00",
    ),
    (DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=0), 1, "00000002 0001 61 0001 62 00000000"),
    (
        DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=TOPIC_ID)], timeout_ms=0),
        6,
        f"02 00 {TOPIC_ID_HEX} 00 00000000 00",
    ),
    (InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 0, "ffff 00000000"),
    (InitProducerIdRequest(transaction_timeout_ms=0), 4, "00 00000000 ffffffffffffffff ffff 00"),
    (InitProducerIdResponse(producer_id=9, producer_epoch=1), 1, "00000000 0000 0000000000000009 0001"),
    (FindCoordinatorRequest(key="g"), 0, "0001 67"),
    (FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4, "01 02 02 78 00"),
    (DescribeClusterRequest(include_cluster_authorized_operations=True), 0, "01 00"),
    (
        OffsetDeleteRequest(
            group_id="g",
            topics=[OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=3)])],
        ),
        0,
        "0001 67 00000001 0001 74 00000001 00000003",
    ),
    (
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=1,
            rebalance_timeout_ms=2,
            member_id="",
            group_instance_id="i",
            protocol_type="p",
            protocols=[JoinGroupRequestProtocol(name="r", metadata=b"\x01\x02")],
        ),
        6,
        "02 67 00000001 00000002 01 02 69 02 70  02 02 72 03 0102 00  00",
    ),
]


@pytest.mark.parametrize(
    ("message", "version", "text"), GOLDEN, ids=[f"{type(each[0]).__name__}-{each[1]}" for each in GOLDEN]
)
def test_written_and_read(message: Message, version: int, text: str) -> None:
    golden = bytes.fromhex(text)
    assert b"".join(encode(message, version)).hex(" ") == golden.hex(" ")
    assert decode(type(message), version, golden) == message


def test_request_frames() -> None:
    old = frames.encode_request(ApiVersionsRequest(), version=0, correlation_id=1, client_id="c")
    assert b"".join(old) == bytes.fromhex("0000000b 0012 0000 00000001 0001 63")
    nameless = frames.encode_request(ApiVersionsRequest(), version=0, correlation_id=1, client_id=None)
    assert b"".join(nameless) == bytes.fromhex("0000000a 0012 0000 00000001 ffff")
    request = ApiVersionsRequest(client_software_name="hr", client_software_version="1")
    new = frames.encode_request(request, version=3, correlation_id=2, client_id="c")
    # the client id keeps its two-byte size; the header's tagged fields follow
    assert b"".join(new) == bytes.fromhex("00000012 0012 0003 00000002 0001 63 00  03 6872 02 31 00")


def test_response_frames() -> None:
    message = InitProducerIdResponse(producer_id=9, producer_epoch=1)
    old = frames.encode_response(message, version=1, correlation_id=7)
    assert b"".join(old) == bytes.fromhex("00000014 00000007 00000000 0000 0000000000000009 0001")
    new = frames.encode_response(message, version=2, correlation_id=7)
    assert b"".join(new) == bytes.fromhex("00000016 00000007 00 00000000 0000 0000000000000009 0001 00")


def test_the_header_of_an_api_versions_response_never_has_tagged_fields() -> None:
    written = b"".join(frames.encode_response(ApiVersionsResponse(api_keys=[]), version=4, correlation_id=7))
    assert written == bytes.fromhex("0000000c 00000007 0000 01 00000000 00")
    assert frames.decode_response(ApiVersionsRequest, 4, written[4:]) == (7, ApiVersionsResponse(api_keys=[]))
