"""DescribeTopicPartitions: topics and their partitions, page by page (KIP-966)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import ZERO_UUID, Bool, Int16, Int32, String, Uuid


@struct
class TopicRequest:
    """A topic by its name."""

    name: String


@struct
class Cursor:
    """The first partition of a page."""

    topic_name: String
    partition_index: Int32


@request(api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest(Request):
    """Requests topics (an empty list for all) from `cursor`, with at most `response_partition_limit` partitions."""

    topics: list[TopicRequest]
    response_partition_limit: Int32 = 2_000
    cursor: Cursor | None = field(nullable="0+", default=None)


@struct
class DescribeTopicPartitionsResponsePartition:
    """A partition's leader and replicas. The eligible leader replicas outlive the in-sync ones (KIP-966)."""

    error_code: Int16 = 0
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field(ignorable=True, default=-1)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    eligible_leader_replicas: list[Int32] | None = field(nullable="0+", default=None)
    last_known_elr: list[Int32] | None = field(nullable="0+", default=None)
    offline_replicas: list[Int32] = field(ignorable=True, default_factory=list)


@struct
class DescribeTopicPartitionsResponseTopic:
    """A topic, or the error if it cannot be described."""

    error_code: Int16 = 0
    name: String | None = field(nullable="0+")
    topic_id: Uuid = field(ignorable=True, default=ZERO_UUID)
    is_internal: Bool = field(ignorable=True, default=False)
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: Int32 = -(2**31)


@response(of=DescribeTopicPartitionsRequest)
class DescribeTopicPartitionsResponse(Response):
    """A page; `next_cursor` is None on the last one."""

    throttle_time_ms: Int32 = field(ignorable=True, default=0)
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = field(nullable="0+", default=None)
