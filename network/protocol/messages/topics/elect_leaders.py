"""ElectLeaders: elects new leaders for partitions (KIP-460)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Int8, Int16, Int32, String


@struct
class TopicPartitions:
    """Partitions of one topic."""

    topic: String
    partitions: list[Int32]


@request(api_key=ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+")
class ElectLeadersRequest(Request):
    """Requests elections for some partitions, or for all with None.

    `election_type`: 0 elects the preferred leader, 1 any live replica.
    """

    election_type: Int8 = field(versions="1+", default=0)
    topic_partitions: list[TopicPartitions] | None = field(nullable="0+")
    timeout_ms: Int32 = 60_000


@struct
class PartitionResult:
    """Whether a leader was elected."""

    partition_id: Int32
    error_code: Int16 = 0
    error_message: String | None = field(nullable="0+", default=None)


@struct
class ReplicaElectionResult:
    """The partitions of one topic."""

    topic: String
    partition_result: list[PartitionResult]


@response(of=ElectLeadersRequest)
class ElectLeadersResponse(Response):
    """The result for each partition."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(versions="1+", default=0)
    replica_election_results: list[ReplicaElectionResult]
