"""CreateTopics: creates topics with their partitions, replicas and configuration."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import ZERO_UUID, Bool, Int8, Int16, Int32, String, Uuid


@struct
class CreatableReplicaAssignment:
    """The replicas of a partition."""

    partition_index: Int32
    broker_ids: list[Int32]


@struct
class CreatableTopicConfig:
    """A configuration entry for the new topic."""

    name: String
    value: String | None = field(nullable="0+")


@struct
class CreatableTopic:
    """A topic to create. -1 partitions or replicas mean those of `assignments`, or the broker's default (KIP-464)."""

    name: String
    num_partitions: Int32
    replication_factor: Int16
    assignments: list[CreatableReplicaAssignment] = field(default_factory=list)
    configs: list[CreatableTopicConfig] = field(default_factory=list)


@request(api_key=ApiKey.CREATE_TOPICS, versions="2-7", flexible="5+")
class CreateTopicsRequest(Request):
    """Requests new topics. With `validate_only` the request is only checked."""

    topics: list[CreatableTopic]
    timeout_ms: Int32 = 60000
    validate_only: Bool = False


@struct
class CreatableTopicConfigs:
    """A configuration entry of the new topic."""

    name: String
    value: String | None = field(nullable="5+")
    read_only: Bool
    config_source: Int8 = -1
    is_sensitive: Bool


@struct
class CreatableTopicResult:
    """A created topic, with its id since version 7, or the error."""

    name: String
    topic_id: Uuid = field(versions="7+", ignorable=True, default=ZERO_UUID)
    error_code: Int16 = 0
    error_message: String | None = field(nullable="0+", default=None)
    topic_config_error_code: Int16 = field(versions="5+", tag=0, tagged="5+", ignorable=True, default=0)
    num_partitions: Int32 = field(versions="5+", ignorable=True, default=-1)
    replication_factor: Int16 = field(versions="5+", ignorable=True, default=-1)
    configs: list[CreatableTopicConfigs] | None = field(
        versions="5+", nullable="5+", ignorable=True, default_factory=list
    )


@response(of=CreateTopicsRequest, client_throttles="3+")
class CreateTopicsResponse(Response):
    """The result for each topic."""

    throttle_time_ms: Int32 = 0
    topics: list[CreatableTopicResult]
