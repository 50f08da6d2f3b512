"""DeleteRecords: deletes the start of a partition's log (KIP-107)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, request, response, struct
from ...types import Int16, Int32, Int64, String


@struct
class DeleteRecordsPartition:
    """A partition and the offset before which records are deleted; -1 for the high watermark."""

    partition_index: Int32
    offset: Int64


@struct
class DeleteRecordsTopic:
    """The partitions of one topic."""

    name: String
    partitions: list[DeleteRecordsPartition]


@request(api_key=ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+")
class DeleteRecordsRequest(Request):
    """Lists the partitions and offsets."""

    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32


@struct
class DeleteRecordsPartitionResult:
    """The lowest offset that any replica still has."""

    partition_index: Int32
    low_watermark: Int64
    error_code: Int16 = 0


@struct
class DeleteRecordsTopicResult:
    """The partitions of one topic."""

    name: String
    partitions: list[DeleteRecordsPartitionResult]


@response(of=DeleteRecordsRequest, client_throttles="1+")
class DeleteRecordsResponse(Response):
    """The result for each partition."""

    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult]
