"""DeleteTopics: deletes topics by name or id (KIP-4, KIP-516)."""

from __future__ import annotations

from ....network.protocol.errors import BrokerResponseError, TopicAuthorizationFailedError
from ....network.protocol.messages.topics.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ....network.protocol.other_errors import TopicDeletionDisabledError
from ....network.protocol.types import ZERO_UUID
from ...controller.controller_api import TopicRef
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves


@serves(DeleteTopicsRequest, waits=True)
def handle(broker: BrokerServices, context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Deletes each topic independently."""
    asked = request.topics or [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names]
    refusals = [_refusal(broker, context, topic) for topic in asked]
    doomed = [
        TopicRef(topic.name, topic.topic_id) for topic, refused in zip(asked, refusals, strict=True) if refused is None
    ]
    outcomes = iter(broker.controller.delete_topics(doomed) if doomed else ())
    results = []
    for topic, refused in zip(asked, refusals, strict=True):
        outcome = next(outcomes) if refused is None else refused
        if isinstance(outcome, BrokerResponseError):
            result = DeletableTopicResult(
                name=_told_name(context, topic, outcome),
                topic_id=topic.topic_id,
                error_code=outcome.code,
                error_message=str(outcome),
            )
        else:
            result = DeletableTopicResult(name=outcome.name, topic_id=outcome.topic_id)
        results.append(result)
    return DeleteTopicsResponse(responses=results)


def _refusal(broker: BrokerServices, context: RequestContext, topic: DeleteTopicState) -> BrokerResponseError | None:
    injected = context.injected_error(topic.name or "")
    if injected is None and not broker.config.delete_topic_enable:
        return TopicDeletionDisabledError("topics can't be deleted here (delete.topic.enable=false)")
    if injected is not None or not context.has_authorizer:
        return injected
    name = topic.name if topic.name is not None else context.topic_name(topic.topic_id)
    if name is None or context.is_allowed(AclOperation.DELETE, ResourceType.CLUSTER):
        return None
    exists = name in broker.image.topics
    if not exists and context.is_allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
        return None  # the controller finds that there is no such topic
    return context.refusal(AclOperation.DELETE, ResourceType.TOPIC, name)


def _told_name(context: RequestContext, topic: DeleteTopicState, error: BrokerResponseError) -> str | None:
    """The name in the response. That of a topic that was given by its id is disclosed only to a client that may
    describe it."""
    if topic.name is not None or not isinstance(error, TopicAuthorizationFailedError):
        return topic.name
    name = context.topic_name(topic.topic_id)
    may_know = name is not None and context.is_allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    return name if may_know else None
