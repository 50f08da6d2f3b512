"""ListOffsets: finds the offset of a partition at a timestamp, at its start or at its end."""

from __future__ import annotations

from typing import ClassVar

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Int8, Int16, Int32, Int64, String


@struct
class ListOffsetsPartition:
    """The query for a partition. `timestamp` is in milliseconds, or a constant of `ListOffsetsRequest`."""

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
    """Requests offsets. A client leaves `replica_id` at -1. `timeout_ms` is for remote storage."""

    #: In place of a timestamp: the end, the start, the record with the largest timestamp (KIP-734), the start on the
    #: local disk, the last offset in remote storage (KIP-1005), the first offset not in it yet (KIP-1023).
    LATEST_TIMESTAMP: ClassVar[int] = -1
    EARLIEST_TIMESTAMP: ClassVar[int] = -2
    MAX_TIMESTAMP: ClassVar[int] = -3
    EARLIEST_LOCAL_TIMESTAMP: ClassVar[int] = -4
    LATEST_TIERED_TIMESTAMP: ClassVar[int] = -5
    EARLIEST_PENDING_UPLOAD_OFFSET: ClassVar[int] = -6

    replica_id: Int32 = -1
    isolation_level: Int8 = field(versions="2+", default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: Int32 = field(versions="10+", ignorable=True, default=0)


@struct
class ListOffsetsPartitionResponse:
    """The offset and timestamp of the first record at or after the time; -1 if there is none."""

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


@response(of=ListOffsetsRequest, client_throttles="3+")
class ListOffsetsResponse(Response):
    """The offsets found."""

    throttle_time_ms: Int32 = field(versions="2+", ignorable=True, default=0)
    topics: list[ListOffsetsTopicResponse]
