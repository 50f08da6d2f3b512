"""AlterPartitionReassignments: moves the replicas of partitions to other brokers (KIP-455)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Bool, Int16, Int32, String


@struct
class ReassignablePartition:
    """The new replicas of a partition; None cancels the reassignment in progress."""

    partition_index: Int32
    replicas: list[Int32] | None = field(nullable="0+", default=None)


@struct
class ReassignableTopic:
    """The partitions of one topic."""

    name: String
    partitions: list[ReassignablePartition]


@request(api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest(Request):
    """Requests reassignments. Without `allow_replication_factor_change`, partitions keep their number of replicas."""

    timeout_ms: Int32 = 60_000
    allow_replication_factor_change: Bool = field(versions="1+", default=True)
    topics: list[ReassignableTopic]


@struct
class ReassignablePartitionResponse:
    """Whether a reassignment was started or cancelled."""

    partition_index: Int32
    error_code: Int16 = 0
    error_message: String | None = field(nullable="0+", default=None)


@struct
class ReassignableTopicResponse:
    """The partitions of one topic."""

    name: String
    partitions: list[ReassignablePartitionResponse]


@response(of=AlterPartitionReassignmentsRequest)
class AlterPartitionReassignmentsResponse(Response):
    """The result for each partition."""

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Bool = field(versions="1+", ignorable=True, default=True)
    error_code: Int16 = 0
    error_message: String | None = field(nullable="0+", default=None)
    responses: list[ReassignableTopicResponse]
