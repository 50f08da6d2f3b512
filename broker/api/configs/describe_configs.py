"""DescribeConfigs: the configuration of topics and brokers, and where each value comes from."""

from __future__ import annotations

from collections.abc import Iterable

from ....network.config import Key
from ....network.protocol.errors import BrokerResponseError
from ....network.protocol.messages.configs.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ...config.broker_config import DEFAULTS_OF_TOPICS
from ...config.topic_config import config_text
from ...requests.request import RequestContext
from ...services.services import BrokerServices
from ..registry import serves
from .config_resources import BROKER, TOPIC, check_broker, find_topic, refuse_type, type_of

_FROM_TOPIC = 1
_FROM_BROKER = 4
_DEFAULT = 5


@serves(DescribeConfigsRequest, waits=True)
def handle(broker: BrokerServices, context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Each resource by itself."""
    results = []
    # Once each: an answer is a hundred times as long as the question.
    resources = {(resource.resource_type, resource.resource_name): resource for resource in request.resources}
    for resource in resources.values():
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name, configs=[]
        )
        try:
            injected = context.injected_error(resource.resource_name)
            if injected is not None:
                raise injected
            result.configs = _describe(broker, resource, request)
        except BrokerResponseError as error:
            result.error_code = error.code
            result.error_message = str(error)
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _describe(
    broker: BrokerServices, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> list[DescribeConfigsResourceResult]:
    asked = resource.configuration_keys

    def wanted(entries: Iterable[Key]) -> list[Key]:
        # By their names: in Kafka they stand in the order of a hash table.
        return sorted(
            (each for each in entries if each.name != "config.file" and (not asked or each.name in asked)),
            key=lambda each: each.name,
        )

    if resource.resource_type == TOPIC:
        state = find_topic(broker, resource.resource_name)
        config = broker.config.topic_config(state.configs)
        return [
            _result(
                each,
                config_text(getattr(config, each.attribute)),
                [
                    *(
                        [_synonym(each.name, state.configs[each.name], _FROM_TOPIC)]
                        if each.name in state.configs
                        else []
                    ),
                    *_defaults_of(broker, each),
                ],
                request,
                read_only=False,
            )
            for each in wanted(config.entries)
        ]
    if resource.resource_type == BROKER:
        check_broker(broker, resource.resource_name)
        return [
            _result(
                each,
                config_text(getattr(broker.config, each.attribute)),
                _broker_synonyms(broker, each.attribute),
                request,
                read_only=True,
            )
            for each in wanted(broker.config.entries)
        ]
    raise refuse_type(resource.resource_type)


def _defaults_of(broker: BrokerServices, entry: Key) -> list[DescribeConfigsSynonym]:
    """Where the value comes from that a topic has unless it overrides it."""
    synonyms = [
        synonym
        for attribute, _ in DEFAULTS_OF_TOPICS.get(entry.attribute, ())
        if getattr(broker.config, attribute) is not None
        for synonym in _broker_synonyms(broker, attribute)
    ]
    return synonyms or [_synonym(entry.name, config_text(entry.default), _DEFAULT)]


def _broker_synonyms(broker: BrokerServices, attribute: str) -> list[DescribeConfigsSynonym]:
    """Where a broker-level value comes from: given at its start, built in, or both."""
    name = attribute.replace("_", ".")
    entry = next(each for each in broker.config.entries if each.attribute == attribute)
    built_in = _synonym(name, config_text(entry.default), _DEFAULT)
    if broker.config.origins[name].startswith("default"):
        return [built_in]
    return [_synonym(name, config_text(getattr(broker.config, attribute)), _FROM_BROKER), built_in]


def _synonym(name: str, value: str, source: int) -> DescribeConfigsSynonym:
    return DescribeConfigsSynonym(name=name, value=value, source=source)


def _result(
    entry: Key,
    value: str,
    synonyms: list[DescribeConfigsSynonym],
    request: DescribeConfigsRequest,
    *,
    read_only: bool,
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=value,
        read_only=read_only,
        config_source=synonyms[0].source,
        is_sensitive=entry.secret,
        synonyms=synonyms if request.include_synonyms else [],
        config_type=type_of(entry),
        documentation=entry.doc if request.include_documentation else None,
    )
