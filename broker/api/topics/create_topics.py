"""CreateTopics: creates topics (KIP-4)."""

from __future__ import annotations

from collections import Counter

from ....network.protocol.errors import (
    BrokerResponseError,
    InvalidConfigurationError,
    InvalidRequestError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
)
from ....network.protocol.messages.topics.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ...controller.controller_api import NewTopic
from ...metadata import TopicState
from ...requests.request import RequestContext
from ...security.acls import AclOperation
from ...services.services import BrokerServices
from ..authorized_operations import refusal_to_create
from ..registry import serves
from .delayed_create_topics import DelayedCreateTopics

_SOURCE_TOPIC = 1
_SOURCE_DEFAULT = 5


@serves(CreateTopicsRequest, waits=True)
def handle(
    broker: BrokerServices, context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse | None:
    """Creates each topic independently: one failure doesn't affect the others.

    Answers when all partitions of the new topics have a leader. After the request's timeout it answers with
    REQUEST_TIMED_OUT for topics without.
    """
    named = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatableTopicResult] = {}
    asked: list[NewTopic] = []
    for topic in request.topics:
        name = topic.name
        refused = context.injected_error(name)
        without_value = [each.name for each in topic.configs if each.value is None]
        if refused is None and named[name] > 1:
            refused = InvalidRequestError(f"the request names {name!r} {named[name]} times")
        elif refused is None and without_value:
            refused = InvalidConfigurationError(f"a topic's configuration needs values; {without_value} have none")
        refused = refused or refusal_to_create(context, name)
        # The response has the order of the request.
        results[name] = CreatableTopicResult(name=name) if refused is None else _refusal(name, refused)
        if refused is None:
            asked.append(_new_topic(topic))
    outcomes = broker.controller.create_topics(asked, validate_only=request.validate_only) if asked else []
    made: list[str] = []
    told_configs: dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]] = {}
    for topic, outcome in zip(asked, outcomes, strict=True):
        if isinstance(outcome, BrokerResponseError):
            results[topic.name] = _refusal(topic.name, outcome)
            continue
        if context.refusal_for_topic(AclOperation.DESCRIBE_CONFIGS, outcome.name) is not None:
            # The client may not see what the topic's configuration is.
            results[topic.name] = CreatableTopicResult(
                name=outcome.name,
                topic_id=outcome.topic_id,
                topic_config_error_code=TopicAuthorizationFailedError.code,
                configs=[],
            )
            if not request.validate_only:
                made.append(topic.name)
            continue
        overrides = tuple(outcome.configs.items())
        configs = told_configs.get(overrides)
        if configs is None:
            configs = told_configs[overrides] = _configs(broker, outcome)
        results[topic.name] = CreatableTopicResult(
            name=outcome.name,
            topic_id=outcome.topic_id,
            num_partitions=len(outcome.partitions),
            replication_factor=len(outcome.partitions[0].replicas),
            configs=configs,
        )
        if not request.validate_only:
            made.append(topic.name)

    def respond(not_ready: list[str]) -> None:
        for name in not_ready:
            results[name] = _refusal(name, RequestTimedOutError(f"{name!r} is created, but has no leaders yet"))
        context.respond(CreateTopicsResponse(topics=list(results.values())))

    if made and request.timeout_ms > 0:
        delayed = DelayedCreateTopics(request.timeout_ms, made, lambda: broker.image, respond)
        broker.topic_purgatory.try_complete_else_watch(delayed, made)
    else:
        respond([])
    return None


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        {each.partition_index: each.broker_ids for each in topic.assignments},
        {each.name: each.value for each in topic.configs if each.value is not None},
    )


def _refusal(name: str, error: BrokerResponseError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=str(error))


def _configs(broker: BrokerServices, state: TopicState) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=name,
            value=value,
            read_only=False,
            config_source=_SOURCE_TOPIC if name in state.configs else _SOURCE_DEFAULT,
            is_sensitive=False,
        )
        for name, value in broker.config.topic_config(state.configs).texts()
    ]
