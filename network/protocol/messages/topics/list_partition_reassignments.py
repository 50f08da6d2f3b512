"""ListPartitionReassignments: lists the reassignments of replicas in progress (KIP-455)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Int16, Int32, String


@struct
class ListPartitionReassignmentsTopics:
    """Partitions of one topic."""

    name: String
    partition_indexes: list[Int32]


@request(api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest(Request):
    """Requests some partitions, or all with None."""

    timeout_ms: Int32 = 60_000
    topics: list[ListPartitionReassignmentsTopics] | None = field(nullable="0+", default=None)


@struct
class OngoingPartitionReassignment:
    """All replicas of a partition, and those being added and removed."""

    partition_index: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32]
    removing_replicas: list[Int32]


@struct
class OngoingTopicReassignment:
    """The partitions of one topic."""

    name: String
    partitions: list[OngoingPartitionReassignment]


@response(of=ListPartitionReassignmentsRequest)
class ListPartitionReassignmentsResponse(Response):
    """The partitions with a reassignment in progress."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = field(nullable="0+", default=None)
    topics: list[OngoingTopicReassignment]
