"""CreatePartitions."""

from __future__ import annotations

from collections import Counter

from ...network.protocol.errors import BrokerResponseError, InvalidRequestError
from ...network.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ..requests import RequestContext
from ..services import BrokerServices
from .registry import serves


@serves(CreatePartitionsRequest, waits=True)
def handle(
    broker: BrokerServices, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Each topic by itself; a topic never gets fewer partitions."""
    named = Counter(topic.name for topic in request.topics)
    results = []
    for topic in request.topics:
        result = CreatePartitionsTopicResult(name=topic.name)
        try:
            injected = context.injected_error(topic.name)
            if injected is not None:
                raise injected
            if named[topic.name] > 1:
                raise InvalidRequestError(f"the request names {topic.name!r} {named[topic.name]} times")
            assignments = None if topic.assignments is None else [each.broker_ids for each in topic.assignments]
            broker.controller.create_partitions(
                topic.name, topic.count, assignments, validate_only=request.validate_only
            )
        except BrokerResponseError as error:
            result.error_code = error.code
            result.error_message = str(error)
        results.append(result)
    return CreatePartitionsResponse(results=results)
