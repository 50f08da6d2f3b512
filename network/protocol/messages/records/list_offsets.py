"""ListOffsets: the offset of a partition at a time, at its start or at its end."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Int8, Int16, Int32, Int64, String


@struct
class ListOffsetsPartition:
    """What is asked of a partition.

    `timestamp` is in milliseconds, or -1: end, -2: start, -3: the largest timestamp (KIP-734), -4: start on local disk,
    -5: last in remote storage (KIP-1005), -6: first not yet in remote storage (KIP-1023).
    """

    partition_index: Int32
    current_leader_epoch: Int32 = field(versions="4+", ignorable=True, default=-1)
    timestamp: Int64


@struct
class ListOffsetsTopic:
    """The partitions of one topic."""

    name: String
    partitions: list[ListOffsetsPartition]


@request(api_key=ApiKey.LIST_OFFSETS, versions="1-11", flexible="6+")
class ListOffsetsRequest(Request):
    """Asks for offsets; a client leaves `replica_id` at -1. `timeout_ms` is for remote storage."""

    replica_id: Int32 = -1
    isolation_level: Int8 = field(versions="2+", default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: Int32 = field(versions="10+", ignorable=True, default=0)


@struct
class ListOffsetsPartitionResponse:
    """The first record at or after the time; -1 where there is none."""

    partition_index: Int32
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Int32 = field(versions="4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    """The partitions of one topic."""

    name: String
    partitions: list[ListOffsetsPartitionResponse]


@response(of=ListOffsetsRequest)
class ListOffsetsResponse(Response):
    """The offsets that were found."""

    throttle_time_ms: Int32 = field(versions="2+", ignorable=True, default=0)
    topics: list[ListOffsetsTopicResponse]
