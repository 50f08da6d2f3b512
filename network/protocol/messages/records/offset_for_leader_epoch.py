"""OffsetForLeaderEpoch: where a leader epoch ended in the log (KIP-101, KIP-320)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Int16, Int32, Int64, String


@struct
class OffsetForLeaderPartition:
    """A partition and the epoch to look up; `current_leader_epoch` is the one that the client believes in."""

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
    """Asks for the ends of epochs; `replica_id` is -1 for a consumer, -2 for a debugging one."""

    replica_id: Int32 = field(versions="3+", ignorable=True, default=-2)
    topics: list[OffsetForLeaderTopic]


@struct
class EpochEndOffset:
    """The largest epoch up to the one asked for, and the offset behind its last record; -1: not known."""

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
    """The ends that were found."""

    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderTopicResult]
