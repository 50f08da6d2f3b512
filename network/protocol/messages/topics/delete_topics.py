"""DeleteTopics: deletes topics with all their records."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import ZERO_UUID, Int16, Int32, String, Uuid


@struct
class DeleteTopicState:
    """A topic to delete, by name or by id."""

    name: String | None = field(nullable="6+", default=None)
    topic_id: Uuid


@request(api_key=ApiKey.DELETE_TOPICS, versions="1-6", flexible="4+")
class DeleteTopicsRequest(Request):
    """Lists the topics: in `topic_names` up to version 5, in `topics` since 6."""

    topics: list[DeleteTopicState] = field(versions="6+", default_factory=list)
    topic_names: list[String] = field(versions="0-5", ignorable=True, default_factory=list)
    timeout_ms: Int32


@struct
class DeletableTopicResult:
    """A deleted topic, or the error."""

    name: String | None = field(nullable="6+")
    topic_id: Uuid = field(versions="6+", ignorable=True, default=ZERO_UUID)
    error_code: Int16 = 0
    error_message: String | None = field(versions="5+", nullable="5+", ignorable=True, default=None)


@response(of=DeleteTopicsRequest, client_throttles="2+")
class DeleteTopicsResponse(Response):
    """The result for each topic."""

    throttle_time_ms: Int32 = 0
    responses: list[DeletableTopicResult]
