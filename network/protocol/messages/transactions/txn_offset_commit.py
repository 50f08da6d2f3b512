"""TxnOffsetCommit: commits offsets of a consumer group within a transaction (KIP-98, KIP-447)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Int16, Int32, Int64, String


@struct
class TxnOffsetCommitRequestPartition:
    """The offset from which the group will continue in a partition, with metadata text of the client."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(versions="2+", ignorable=True, default=-1)
    committed_metadata: String | None = field(nullable="0+", default=None)


@struct
class TxnOffsetCommitRequestTopic:
    """The partitions of one topic."""

    name: String
    partitions: list[TxnOffsetCommitRequestPartition]


@request(api_key=ApiKey.TXN_OFFSET_COMMIT, versions="0-5", flexible="3+")
class TxnOffsetCommitRequest(Request):
    """Offsets that become visible when the transaction is committed.

    Since version 3 the consumer's generation and member id fence a member that was replaced (KIP-447). Since version 5
    the request itself adds the group to the transaction (KIP-890).
    """

    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = field(versions="3+", default=-1)
    member_id: String = field(versions="3+", default="")
    group_instance_id: String | None = field(versions="3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic]


@struct
class TxnOffsetCommitResponsePartition:
    """Whether the partition's offset was accepted."""

    partition_index: Int32
    error_code: Int16 = 0


@struct
class TxnOffsetCommitResponseTopic:
    """The partitions of one topic."""

    name: String
    partitions: list[TxnOffsetCommitResponsePartition]


@response(of=TxnOffsetCommitRequest, client_throttles="1+")
class TxnOffsetCommitResponse(Response):
    """The result for each partition's offset."""

    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic]
