"""OffsetForLeaderEpoch: finds the end of a leader epoch in the log (KIP-101, KIP-320)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Int16, Int32, Int64, String


@struct
class OffsetForLeaderPartition:
    """A partition and the epoch to look up. `current_leader_epoch` is the current epoch in the client's metadata."""

    partition: Int32
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32


@struct
class OffsetForLeaderTopic:
    """The partitions of one topic."""

    topic: String
    partitions: list[OffsetForLeaderPartition]


@request(api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest(Request):
    """Requests the ends of epochs. `replica_id` is -1 for a consumer and -2 for a debugging consumer."""

    replica_id: Int32 = field(versions="3+", ignorable=True, default=-2)
    topics: list[OffsetForLeaderTopic]


@struct
class EpochEndOffset:
    """The largest epoch up to the requested one, and the offset after its last record; -1 if unknown."""

    error_code: Int16 = 0
    partition: Int32
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


@struct
class OffsetForLeaderTopicResult:
    """The partitions of one topic."""

    topic: String
    partitions: list[EpochEndOffset]


@response(of=OffsetForLeaderEpochRequest)
class OffsetForLeaderEpochResponse(Response):
    """The ends found."""

    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderTopicResult]
