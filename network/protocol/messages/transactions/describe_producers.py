"""DescribeProducers: the producers a partition remembers (KIP-664)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Int16, Int32, Int64, String


@struct
class DescribeProducersTopic:
    """The partitions of one topic."""

    name: String
    partition_indexes: list[Int32]


@request(api_key=ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+")
class DescribeProducersRequest(Request):
    """Requests the producers of partitions."""

    topics: list[DescribeProducersTopic]


@struct
class ActiveProducer:
    """One producer. `current_txn_start_offset` is -1 if it has no open transaction in the partition."""

    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = -1


@struct
class DescribeProducersPartitionResult:
    """The producers of one partition."""

    partition_index: Int32
    error_code: Int16 = 0
    error_message: String | None = field(nullable="0+", default=None)
    active_producers: list[ActiveProducer]


@struct
class DescribeProducersTopicResult:
    """The partitions of one topic."""

    name: String
    partitions: list[DescribeProducersPartitionResult]


@response(of=DescribeProducersRequest, client_throttles="0+")
class DescribeProducersResponse(Response):
    """The producers found."""

    throttle_time_ms: Int32 = 0
    topics: list[DescribeProducersTopicResult]
