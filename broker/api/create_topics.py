"""CreateTopics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ...network.protocol.errors import BrokerResponseError, InvalidRequestError
from ...network.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ..metadata import TopicState
from .registry import serves

if TYPE_CHECKING:
    from ..node import Broker
    from ..requests import RequestContext

_SOURCE_TOPIC = 1
_SOURCE_DEFAULT = 5


@serves(CreateTopicsRequest)
def handle(broker: Broker, context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Each topic by itself: one that can't be made doesn't keep the others from it."""
    named = Counter(topic.name for topic in request.topics)
    results = []
    for topic in request.topics:
        if named[topic.name] > 1:
            if not any(result.name == topic.name for result in results):
                error = InvalidRequestError(f"the request names {topic.name!r} {named[topic.name]} times")
                results.append(_refusal(topic.name, error))
            continue
        try:
            injected = context.injected_error(topic.name)
            if injected is not None:
                raise injected
            state = _create(broker, topic, request.validate_only)
        except BrokerResponseError as error:
            results.append(_refusal(topic.name, error))
            continue
        results.append(_result(broker, state))
    return CreateTopicsResponse(topics=results)


def _create(broker: Broker, topic: CreatableTopic, validate_only: bool) -> TopicState:
    return broker.controller.create_topic(
        topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments={each.partition_index: each.broker_ids for each in topic.assignments},
        configs={each.name: each.value for each in topic.configs if each.value is not None},
        validate_only=validate_only,
    )


def _refusal(name: str, error: BrokerResponseError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=str(error))


def _result(broker: Broker, state: TopicState) -> CreatableTopicResult:
    config = broker.config.topic_config(dict(state.configs))
    return CreatableTopicResult(
        name=state.name,
        topic_id=state.topic_id,
        num_partitions=len(state.partitions),
        replication_factor=len(state.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(
                name=name,
                value=value,
                read_only=False,
                config_source=_SOURCE_TOPIC if name in state.configs else _SOURCE_DEFAULT,
                is_sensitive=False,
            )
            for name, value in config.texts()
        ],
    )
