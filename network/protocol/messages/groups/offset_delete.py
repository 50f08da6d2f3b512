"""OffsetDelete: deletes a consumer group's offsets of some partitions (KIP-496)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, request, response, struct
from ...types import Int16, Int32, String


@struct
class OffsetDeleteRequestPartition:
    """A partition."""

    partition_index: Int32


@struct
class OffsetDeleteRequestTopic:
    """The partitions of one topic."""

    name: String
    partitions: list[OffsetDeleteRequestPartition]


@request(api_key=ApiKey.OFFSET_DELETE, versions="0")
class OffsetDeleteRequest(Request):
    """Lists the partitions whose offsets are to be deleted."""

    group_id: String
    topics: list[OffsetDeleteRequestTopic]


@struct
class OffsetDeleteResponsePartition:
    """Whether the partition's offset was deleted."""

    partition_index: Int32
    error_code: Int16 = 0


@struct
class OffsetDeleteResponseTopic:
    """The partitions of one topic."""

    name: String
    partitions: list[OffsetDeleteResponsePartition]


@response(of=OffsetDeleteRequest)
class OffsetDeleteResponse(Response):
    """The result for each partition's offset, or an error for the group as a whole."""

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteResponseTopic]
