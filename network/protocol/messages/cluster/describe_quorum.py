"""DescribeQuorum: the nodes that store the cluster's metadata (KIP-595)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import ZERO_UUID, Int16, Int32, Int64, String, UInt16, Uuid


@struct
class PartitionData:
    """A partition of the metadata log."""

    partition_index: Int32


@struct
class TopicData:
    """A topic, by its name."""

    topic_name: String
    partitions: list[PartitionData]


@request(api_key=ApiKey.DESCRIBE_QUORUM, versions="0-2", flexible="0+")
class DescribeQuorumRequest(Request):
    """Requests the quorum of `__cluster_metadata`, partition 0."""

    topics: list[TopicData]


@struct
class ReplicaState:
    """The replication progress of a node; -1 if unknown."""

    replica_id: Int32
    replica_directory_id: Uuid = field(versions="2+", ignorable=True, default=ZERO_UUID)
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = field(versions="1+", ignorable=True, default=-1)
    last_caught_up_timestamp: Int64 = field(versions="1+", ignorable=True, default=-1)


@struct
class DescribedPartitionData:
    """The leader of the quorum, its voters, and the brokers that follow it."""

    partition_index: Int32
    error_code: Int16 = 0
    error_message: String | None = field(versions="2+", nullable="2+", ignorable=True, default=None)
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


@struct
class DescribedTopicData:
    """The partitions of one topic."""

    topic_name: String
    partitions: list[DescribedPartitionData]


@struct
class Listener:
    """An address of a voter."""

    name: String
    host: String
    port: UInt16


@struct
class Node:
    """A voter."""

    node_id: Int32
    listeners: list[Listener]


@response(of=DescribeQuorumRequest)
class DescribeQuorumResponse(Response):
    """The state of the quorum. No throttle time: the API has none."""

    error_code: Int16 = 0
    error_message: String | None = field(versions="2+", nullable="2+", ignorable=True, default=None)
    topics: list[DescribedTopicData]
    nodes: list[Node] = field(versions="2+", ignorable=True, default_factory=list)
