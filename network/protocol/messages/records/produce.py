"""Produce: appends record batches to partitions, on their leaders."""

from __future__ import annotations

from typing import ClassVar

from ...api_keys import ApiKey
from ...message import Request, Response, field, first_version_with, request, response, struct
from ...types import ZERO_UUID, Int16, Int32, Int64, Records, String, Uuid


@struct
class PartitionProduceData:
    """The record batches for one partition, by reference."""

    index: Int32
    records: Records | None = field(nullable="0+", repr=False)


@struct
class TopicProduceData:
    """The partitions of one topic, which has a name up to version 12 and an id since 13 (KIP-516)."""

    name: String = field(versions="0-12", ignorable=True, default="")
    topic_id: Uuid = field(versions="13+", ignorable=True, default=ZERO_UUID)
    partition_data: list[PartitionProduceData]


@request(api_key=ApiKey.PRODUCE, versions="0-13", flexible="9+")
class ProduceRequest(Request):
    """Record batches to append.

    `acks`: 0 for none, in which case there is no response; 1 for the leader; -1 for all in-sync replicas, for which the
    broker waits up to `timeout_ms`. Within a transaction, version 12 and later also add the partitions to it (KIP-890).
    Up to version 2, the newest of brokers before 0.11, the records are message sets: of format v0 up to version 1, of
    v0 or v1 in version 2 (KIP-32). Apache Kafka 4 still advertises these versions for older librdkafka, but rejects
    them (KAFKA-18659).
    """

    #: The first version with record batches (message format v2; Kafka 0.11).
    FIRST_VERSION_WITH_RECORD_BATCHES: ClassVar[int] = 3
    #: The first version with message sets of format v1, which have timestamps (KIP-32; Kafka 0.10).
    FIRST_VERSION_WITH_TIMESTAMPS: ClassVar[int] = 2
    FIRST_VERSION_WITH_TOPIC_IDS: ClassVar[int] = first_version_with(TopicProduceData, "topic_id")
    LAST_VERSION_WITH_NAMES: ClassVar[int] = FIRST_VERSION_WITH_TOPIC_IDS - 1

    transactional_id: String | None = field(versions="3+", nullable="3+", default=None)
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData]

    @classmethod
    def newest_magic(cls, version: int) -> int:
        """The newest message format that this version supports."""
        if version >= cls.FIRST_VERSION_WITH_RECORD_BATCHES:
            return 2
        return 1 if version >= cls.FIRST_VERSION_WITH_TIMESTAMPS else 0


@struct
class BatchIndexAndErrorMessage:
    """A record for which the broker rejected its whole batch, by its index in the batch (KIP-467)."""

    batch_index: Int32
    batch_index_error_message: String | None = field(nullable="8+", default=None)


@struct
class LeaderIdAndEpoch:
    """The leader known to the broker if that is another broker (KIP-951); -1 if unknown."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@struct
class PartitionProduceResponse:
    """The offset of the batch, or the error. `log_append_time_ms` is -1 unless the topic uses append time."""

    index: Int32
    error_code: Int16 = 0
    base_offset: Int64
    log_append_time_ms: Int64 = field(versions="2+", ignorable=True, default=-1)
    log_start_offset: Int64 = field(versions="5+", ignorable=True, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field(versions="8+", ignorable=True, default_factory=list)
    error_message: String | None = field(versions="8+", nullable="8+", ignorable=True, default=None)
    current_leader: LeaderIdAndEpoch = field(versions="10+", tag=0, tagged="10+", default_factory=LeaderIdAndEpoch)


@struct
class TopicProduceResponse:
    """The partitions of one topic."""

    name: String = field(versions="0-12", ignorable=True, default="")
    topic_id: Uuid = field(versions="13+", ignorable=True, default=ZERO_UUID)
    partition_responses: list[PartitionProduceResponse]


@struct
class NodeEndpoint:
    """The address of a leader in the response (KIP-951)."""

    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field(nullable="10+", default=None)


@response(of=ProduceRequest, client_throttles="6+")
class ProduceResponse(Response):
    """The result for each partition's batches."""

    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = field(versions="1+", ignorable=True, default=0)
    node_endpoints: list[NodeEndpoint] = field(versions="10+", tag=0, tagged="10+", default_factory=list)
