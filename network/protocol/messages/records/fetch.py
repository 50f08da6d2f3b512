"""Fetch: reads record batches from the leaders of partitions, for consumers and followers."""

from __future__ import annotations

from typing import ClassVar

from ...api_keys import ApiKey
from ...message import Request, Response, field, first_version_with, request, response, struct
from ...types import ZERO_UUID, Int8, Int16, Int32, Int64, Records, String, Uuid


@struct
class ReplicaState:
    """The requesting follower, since version 15 (KIP-903); -1 for a consumer."""

    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


@struct
class FetchPartition:
    """Where and how much to read in a partition. The leader detects divergence by `last_fetched_epoch` (KIP-595)."""

    partition: Int32
    current_leader_epoch: Int32 = field(versions="9+", ignorable=True, default=-1)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = field(versions="12+", default=-1)
    log_start_offset: Int64 = field(versions="5+", ignorable=True, default=-1)
    partition_max_bytes: Int32
    replica_directory_id: Uuid = field(versions="17+", tag=0, tagged="17+", ignorable=True, default=ZERO_UUID)
    high_watermark: Int64 = field(versions="18+", tag=1, tagged="18+", ignorable=True, default=9223372036854775807)


@struct
class FetchTopic:
    """The partitions of one topic, which has a name up to version 12 and an id since 13 (KIP-516)."""

    topic: String = field(versions="0-12", ignorable=True, default="")
    topic_id: Uuid = field(versions="13+", ignorable=True, default=ZERO_UUID)
    partitions: list[FetchPartition]


@struct
class ForgottenTopic:
    """Partitions to remove from the fetch session."""

    topic: String = field(versions="7-12", ignorable=True, default="")
    topic_id: Uuid = field(versions="13+", ignorable=True, default=ZERO_UUID)
    partitions: list[Int32]


@request(api_key=ApiKey.FETCH, versions="4-18", flexible="12+")
class FetchRequest(Request):
    """Requests records. The response waits for `min_bytes`, at most `max_wait_ms`.

    With `session_id` and `session_epoch` the request is incremental (KIP-227). `INITIAL_EPOCH` opens a session.
    `FINAL_EPOCH` uses no session and closes that of `session_id`.
    `isolation_level` 0 reads everything, 1 no records of open transactions; `aborted_transactions` of the response
    lists those to skip.
    """

    FIRST_VERSION_WITH_TOPIC_IDS: ClassVar[int] = first_version_with(FetchTopic, "topic_id")
    NO_SESSION: ClassVar[int] = 0
    INITIAL_EPOCH: ClassVar[int] = 0
    FINAL_EPOCH: ClassVar[int] = -1

    cluster_id: String | None = field(versions="12+", nullable="12+", tag=0, tagged="12+", ignorable=True, default=None)
    replica_id: Int32 = field(versions="0-14", default=-1)
    replica_state: ReplicaState = field(versions="15+", tag=1, tagged="15+", default_factory=ReplicaState)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 2147483647
    isolation_level: Int8 = 0
    session_id: Int32 = field(versions="7+", ignorable=True, default=NO_SESSION)
    session_epoch: Int32 = field(versions="7+", ignorable=True, default=FINAL_EPOCH)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = field(versions="7+", default_factory=list)
    rack_id: String = field(versions="11+", ignorable=True, default="")

    @staticmethod
    def next_epoch(epoch: int) -> int:
        """The epoch of a session's next request. It wraps from 2^31 - 1 to 1."""
        return 1 if epoch == 0x7FFFFFFF else epoch + 1


@struct
class EpochEndOffset:
    """The end in the leader's log of the epoch that the follower fetched last; -1 without divergence."""

    epoch: Int32 = -1
    end_offset: Int64 = -1


@struct
class LeaderIdAndEpoch:
    """The leader known to the broker; -1 if unknown."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@struct
class SnapshotId:
    """The snapshot of the metadata log to fetch instead."""

    end_offset: Int64 = -1
    epoch: Int32 = -1


@struct
class AbortedTransaction:
    """A producer and the first offset from which to skip its records."""

    producer_id: Int64
    first_offset: Int64


@struct
class PartitionData:
    """The records of one partition, by reference, with the partition's offsets."""

    partition_index: Int32
    error_code: Int16 = 0
    high_watermark: Int64
    last_stable_offset: Int64 = -1
    log_start_offset: Int64 = field(versions="5+", ignorable=True, default=-1)
    diverging_epoch: EpochEndOffset = field(versions="12+", tag=0, tagged="12+", default_factory=EpochEndOffset)
    current_leader: LeaderIdAndEpoch = field(versions="12+", tag=1, tagged="12+", default_factory=LeaderIdAndEpoch)
    snapshot_id: SnapshotId = field(versions="12+", tag=2, tagged="12+", default_factory=SnapshotId)
    aborted_transactions: list[AbortedTransaction] | None = field(nullable="4+", default=None)
    preferred_read_replica: Int32 = field(versions="11+", default=-1)
    records: Records | None = field(nullable="0+", repr=False)


@struct
class FetchableTopicResponse:
    """The partitions of one topic."""

    topic: String = field(versions="0-12", ignorable=True, default="")
    topic_id: Uuid = field(versions="13+", ignorable=True, default=ZERO_UUID)
    partitions: list[PartitionData]


@struct
class NodeEndpoint:
    """The address of a leader in the response (KIP-951)."""

    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field(nullable="16+", default=None)


@response(of=FetchRequest, client_throttles="8+")
class FetchResponse(Response):
    """The records. An incremental response has only partitions with changes."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(versions="7+", ignorable=True, default=0)
    session_id: Int32 = field(versions="7+", default=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = field(versions="16+", tag=0, tagged="16+", default_factory=list)
