"""DeleteTopics."""

from __future__ import annotations

from ...network.protocol.errors import BrokerResponseError, TopicDeletionDisabledError
from ...network.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ...network.protocol.types import ZERO_UUID
from ..requests import RequestContext
from ..services import BrokerServices
from .registry import serves


@serves(DeleteTopicsRequest, waits=True)
def handle(broker: BrokerServices, context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Deletes by name or id, each topic by itself."""
    asked = request.topics or [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names]
    results = []
    for topic in asked:
        try:
            injected = context.injected_error(topic.name or "")
            if injected is not None:
                raise injected
            if not broker.config.delete_topic_enable:
                raise TopicDeletionDisabledError("topics can't be deleted here (delete.topic.enable=false)")
            state = broker.controller.delete_topic(topic.name, topic.topic_id)
        except BrokerResponseError as error:
            results.append(
                DeletableTopicResult(
                    name=topic.name, topic_id=topic.topic_id, error_code=error.code, error_message=str(error)
                )
            )
            continue
        results.append(DeletableTopicResult(name=state.name, topic_id=state.topic_id))
    return DeleteTopicsResponse(responses=results)
