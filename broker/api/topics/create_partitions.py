"""CreatePartitions: adds partitions to topics (KIP-195)."""

from __future__ import annotations

from collections import Counter

from ....network.protocol.errors import BrokerResponseError, InvalidRequestError
from ....network.protocol.messages.topics.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ...controller.controller_api import MorePartitions
from ...metadata import TopicState
from ...requests.request import RequestContext
from ...security.acls import AclOperation
from ...services.services import BrokerServices
from ..registry import serves


@serves(CreatePartitionsRequest, waits=True)
def handle(
    broker: BrokerServices, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Handles each topic independently; the number of partitions never decreases."""
    named = Counter(topic.name for topic in request.topics)
    outcomes: dict[str, TopicState | BrokerResponseError] = {}
    asked: list[MorePartitions] = []
    for topic in request.topics:
        refused = context.injected_error(topic.name) or context.refusal_for_topic(AclOperation.ALTER, topic.name)
        if refused is not None:
            outcomes[topic.name] = refused
        elif named[topic.name] > 1:
            outcomes[topic.name] = InvalidRequestError(f"the request names {topic.name!r} {named[topic.name]} times")
        else:
            assignments = None if topic.assignments is None else [each.broker_ids for each in topic.assignments]
            asked.append(MorePartitions(topic.name, topic.count, assignments))
    if asked:
        decided = broker.controller.create_partitions(asked, validate_only=request.validate_only)
        outcomes.update(zip((topic.name for topic in asked), decided, strict=True))
    return CreatePartitionsResponse(results=[_result(topic.name, outcomes[topic.name]) for topic in request.topics])


def _result(name: str, outcome: TopicState | BrokerResponseError) -> CreatePartitionsTopicResult:
    if isinstance(outcome, BrokerResponseError):
        return CreatePartitionsTopicResult(name=name, error_code=outcome.code, error_message=str(outcome))
    return CreatePartitionsTopicResult(name=name)
