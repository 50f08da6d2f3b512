"""DeleteTopics: deletes topics by name or id (KIP-4, KIP-516)."""

from __future__ import annotations

from ....network.protocol.errors import BrokerResponseError, TopicDeletionDisabledError
from ....network.protocol.messages.topics.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ....network.protocol.types import ZERO_UUID
from ...controller.controller_api import TopicRef
from ...requests.request import RequestContext
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
                name=topic.name, topic_id=topic.topic_id, error_code=outcome.code, error_message=str(outcome)
            )
        else:
            result = DeletableTopicResult(name=outcome.name, topic_id=outcome.topic_id)
        results.append(result)
    return DeleteTopicsResponse(responses=results)


def _refusal(broker: BrokerServices, context: RequestContext, topic: DeleteTopicState) -> BrokerResponseError | None:
    injected = context.injected_error(topic.name or "")
    if injected is None and not broker.config.delete_topic_enable:
        return TopicDeletionDisabledError("topics can't be deleted here (delete.topic.enable=false)")
    return injected
