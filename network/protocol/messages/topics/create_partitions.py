"""CreatePartitions: adds partitions to topics (KIP-195)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Bool, Int16, Int32, String


@struct
class CreatePartitionsAssignment:
    """The replicas of a new partition."""

    broker_ids: list[Int32]


@struct
class CreatePartitionsTopic:
    """A topic and its new number of partitions. With `assignments` None the cluster places the new ones."""

    name: String
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None = field(nullable="0+", default=None)


@request(api_key=ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+")
class CreatePartitionsRequest(Request):
    """Requests new partitions. With `validate_only` the request is only checked."""

    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool = False


@struct
class CreatePartitionsTopicResult:
    """Whether the partitions of a topic were created."""

    name: String
    error_code: Int16 = 0
    error_message: String | None = field(nullable="0+", default=None)


@response(of=CreatePartitionsRequest, client_throttles="1+")
class CreatePartitionsResponse(Response):
    """The result for each topic."""

    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult]
