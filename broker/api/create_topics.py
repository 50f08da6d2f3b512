"""CreateTopics."""

from __future__ import annotations

from collections import Counter

from ...network.protocol.errors import BrokerResponseError, InvalidRequestError, RequestTimedOutError
from ...network.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ..delayed_create_topics import DelayedCreateTopics
from ..metadata import TopicState
from ..requests import RequestContext
from ..services import BrokerServices
from .registry import serves

_SOURCE_TOPIC = 1
_SOURCE_DEFAULT = 5


@serves(CreateTopicsRequest, waits=True)
def handle(
    broker: BrokerServices, context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse | None:
    """Each topic by itself: one that can't be made doesn't keep the others from it. Answers when all partitions of
    those that were made have a leader, or after the request's time with REQUEST_TIMED_OUT for those that haven't."""
    named = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatableTopicResult] = {}
    made: list[str] = []
    for topic in request.topics:
        name = topic.name
        try:
            injected = context.injected_error(name)
            if injected is not None:
                raise injected
            if named[name] > 1:
                raise InvalidRequestError(f"the request names {name!r} {named[name]} times")
            results[name] = _result(broker, _create(broker, topic, request.validate_only))
            if not request.validate_only:
                made.append(name)
        except BrokerResponseError as error:
            results[name] = _refusal(name, error)

    def respond(not_ready: list[str]) -> None:
        for name in not_ready:
            results[name] = _refusal(name, RequestTimedOutError(f"{name!r} is made, but has no leaders yet"))
        context.respond(CreateTopicsResponse(topics=list(results.values())))

    if made and request.timeout_ms > 0:
        delayed = DelayedCreateTopics(request.timeout_ms, made, lambda: broker.image, respond)
        broker.topic_purgatory.try_complete_else_watch(delayed, made)
    else:
        respond([])
    return None


def _create(broker: BrokerServices, topic: CreatableTopic, validate_only: bool) -> TopicState:
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


def _result(broker: BrokerServices, state: TopicState) -> CreatableTopicResult:
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
