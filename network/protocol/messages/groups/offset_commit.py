"""OffsetCommit: commits the offsets of a consumer group."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import ZERO_UUID, Int16, Int32, Int64, String, Uuid


@struct
class OffsetCommitRequestPartition:
    """The offset from which the group will continue in a partition, with metadata text of the client."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(versions="6+", ignorable=True, default=-1)
    committed_metadata: String | None = field(nullable="0+", default=None)


@struct
class OffsetCommitRequestTopic:
    """The partitions of one topic, which has a name up to version 9 and an id since 10."""

    name: String = field(versions="0-9", ignorable=True, default="")
    topic_id: Uuid = field(versions="10+", ignorable=True, default=ZERO_UUID)
    partitions: list[OffsetCommitRequestPartition]


@request(api_key=ApiKey.OFFSET_COMMIT, versions="2-10", flexible="8+")
class OffsetCommitRequest(Request):
    """Offsets to store for a group.

    A client outside any generation leaves `generation_id_or_member_epoch` at -1 and `member_id` empty.
    """

    group_id: String
    generation_id_or_member_epoch: Int32 = -1
    member_id: String
    group_instance_id: String | None = field(versions="7+", nullable="7+", default=None)
    retention_time_ms: Int64 = field(versions="2-4", ignorable=True, default=-1)
    topics: list[OffsetCommitRequestTopic]


@struct
class OffsetCommitResponsePartition:
    """Whether the partition's offset was stored."""

    partition_index: Int32
    error_code: Int16 = 0


@struct
class OffsetCommitResponseTopic:
    """The partitions of one topic."""

    name: String = field(versions="0-9", ignorable=True, default="")
    topic_id: Uuid = field(versions="10+", ignorable=True, default=ZERO_UUID)
    partitions: list[OffsetCommitResponsePartition]


@response(of=OffsetCommitRequest, client_throttles="4+")
class OffsetCommitResponse(Response):
    """The result for each partition's offset."""

    throttle_time_ms: Int32 = field(versions="3+", ignorable=True, default=0)
    topics: list[OffsetCommitResponseTopic]
