"""DescribeConfigs: the configuration of resources, and where each value comes from."""

from __future__ import annotations

from collections.abc import Iterable

from ....network.config import Config, Key
from ....network.protocol.errors import BrokerResponseError
from ....network.protocol.messages.configs.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ...config.broker_config import DYNAMIC
from ...config.client_metrics_config import ClientMetricsConfig
from ...config.group_config import OF_GROUPS_ONLY, GroupConfig
from ...config.topic_config import config_text
from ...config.topic_defaults import DEFAULTS_OF_TOPICS
from ...metadata import BROKER, CLIENT_METRICS
from ...requests.request import RequestContext
from ...security.acls import AclOperation
from ...services.services import BrokerServices
from ..registry import serves
from .config_resources import TOPIC, check_resource, overrides_of, refusal_for_configs, type_of

_FROM_TOPIC = 1
_FROM_THIS_BROKER = 2
_FROM_ALL_BROKERS = 3
_FROM_BROKER = 4
_DEFAULT = 5
_FROM_CLIENT_METRICS = 7
_FROM_GROUP = 8


@serves(DescribeConfigsRequest, waits=True)
def handle(broker: BrokerServices, context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Handles each resource independently."""
    results = []
    # Each resource once: a response is a hundred times as long as its request.
    resources = {(resource.resource_type, resource.resource_name): resource for resource in request.resources}
    for resource in resources.values():
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name, configs=[]
        )
        try:
            refused = context.injected_error(resource.resource_name) or refusal_for_configs(
                context, AclOperation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name
            )
            if refused is not None:
                raise refused
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
        # Sorted by name; in Kafka the order is that of a hash table.
        return sorted(
            (each for each in entries if each.name != "config.file" and (not asked or each.name in asked)),
            key=lambda each: each.name,
        )

    kind, name = resource.resource_type, resource.resource_name
    check_resource(broker, kind, name)
    overrides = overrides_of(broker, kind, name)
    if kind == BROKER:
        config: Config = broker.config
        described = wanted(config.entries)
        if not name:
            # Only the dynamic defaults of all brokers; the other values differ by broker.
            return [
                _result(each, text, [_synonym(each.name, text, _FROM_ALL_BROKERS)], request, read_only=False)
                for each in described
                if (text := overrides.get(each.name)) is not None
            ]
        return [
            _result(
                each,
                config_text(getattr(config, each.attribute)),
                _broker_synonyms(broker, each.attribute),
                request,
                read_only=each.attribute not in DYNAMIC,
            )
            for each in described
        ]
    if kind == TOPIC:
        config, source, defaults_of = broker.config.topic_config(overrides), _FROM_TOPIC, _topic_defaults
    elif kind == CLIENT_METRICS:
        config = ClientMetricsConfig.resolve_from(overrides, {}, {})
        source, defaults_of = _FROM_CLIENT_METRICS, _client_metrics_defaults
    else:
        config, source, defaults_of = GroupConfig.resolve_from(overrides, {}, {}), _FROM_GROUP, _group_defaults
    return [
        _result(
            each,
            config_text(getattr(config, each.attribute)),
            [
                *([_synonym(each.name, overrides[each.name], source)] if each.name in overrides else []),
                *defaults_of(broker, each),
            ],
            request,
            read_only=False,
        )
        for each in wanted(config.entries)
    ]


def _built_in(entry: Key) -> list[DescribeConfigsSynonym]:
    return [_synonym(entry.name, config_text(entry.default), _DEFAULT)]


def _group_defaults(_: BrokerServices, entry: Key) -> list[DescribeConfigsSynonym]:
    name = entry.name if entry.attribute in OF_GROUPS_ONLY else f"group.{entry.name}"
    return [_synonym(name, config_text(entry.default), _DEFAULT)]


def _client_metrics_defaults(_: BrokerServices, entry: Key) -> list[DescribeConfigsSynonym]:
    return _built_in(entry)


def _topic_defaults(broker: BrokerServices, entry: Key) -> list[DescribeConfigsSynonym]:
    """The sources of the value that a topic has without an override."""
    synonyms = [
        synonym
        for attribute, _ in DEFAULTS_OF_TOPICS.get(entry.attribute, ())
        if getattr(broker.config, attribute) is not None
        for synonym in _broker_synonyms(broker, attribute)
    ]
    return synonyms or _built_in(entry)


def _broker_synonyms(broker: BrokerServices, attribute: str) -> list[DescribeConfigsSynonym]:
    """The sources of a broker's value, in order of precedence: dynamic for this broker, dynamic for all brokers, given
    at the start, built in."""
    name = attribute.replace("_", ".")
    synonyms = []
    for of, source in ((str(broker.node_id), _FROM_THIS_BROKER), ("", _FROM_ALL_BROKERS)):
        text = broker.image.configs.get((BROKER, of), {}).get(name)
        if text is not None:
            synonyms.append(_synonym(name, text, source))
    static = broker.static_config
    entry = next(each for each in static.entries if each.attribute == attribute)
    if not static.origins[name].startswith("default"):
        synonyms.append(_synonym(name, config_text(getattr(static, attribute)), _FROM_BROKER))
    return [*synonyms, *_built_in(entry)]


def _synonym(name: str, value: str | None, source: int) -> DescribeConfigsSynonym:
    return DescribeConfigsSynonym(name=name, value=value, source=source)


def _masked(synonyms: list[DescribeConfigsSynonym]) -> list[DescribeConfigsSynonym]:
    return [DescribeConfigsSynonym(name=each.name, value=None, source=each.source) for each in synonyms]


def _result(
    entry: Key,
    value: str,
    synonyms: list[DescribeConfigsSynonym],
    request: DescribeConfigsRequest,
    *,
    read_only: bool,
) -> DescribeConfigsResourceResult:
    if entry.secret:
        # as Kafka does: a client learns that there is a value, not which
        synonyms = [_synonym(each.name, None, each.source) for each in synonyms]
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=None if entry.secret else value,
        read_only=read_only,
        config_source=synonyms[0].source,
        is_sensitive=entry.secret,
        synonyms=(_masked(synonyms) if entry.secret else synonyms) if request.include_synonyms else [],
        config_type=type_of(entry),
        documentation=entry.doc if request.include_documentation else None,
    )
