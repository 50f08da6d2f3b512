"""IncrementalAlterConfigs: changes single keys of a configuration (KIP-339)."""

from __future__ import annotations

from ....network.config import Config
from ....network.protocol.errors import BrokerResponseError, InvalidConfigurationError, InvalidRequestError
from ....network.protocol.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ...config.client_metrics_config import ClientMetricsConfig
from ...config.group_config import GroupConfig
from ...config.topic_config import config_text
from ...metadata import BROKER, CLIENT_METRICS
from ...requests.request import RequestContext
from ...security.acls import AclOperation
from ...services.services import BrokerServices
from ..registry import serves
from .config_resources import TOPIC, check_resource, overrides_of, refusal_for_configs, set_configs

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


@serves(IncrementalAlterConfigsRequest, waits=True)
def handle(
    broker: BrokerServices, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Handles each resource independently."""
    responses = []
    for resource in request.resources:
        response = AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            refused = context.injected_error(resource.resource_name) or refusal_for_configs(
                context, AclOperation.ALTER_CONFIGS, resource.resource_type, resource.resource_name
            )
            if refused is not None:
                raise refused
            configs = _changed(broker, resource)
            set_configs(
                broker, resource.resource_type, resource.resource_name, configs, validate_only=request.validate_only
            )
        except BrokerResponseError as error:
            response.error_code = error.code
            response.error_message = str(error)
        responses.append(response)
    return IncrementalAlterConfigsResponse(responses=responses)


def _changed(broker: BrokerServices, resource: AlterConfigsResource) -> dict[str, str]:
    check_resource(broker, resource.resource_type, resource.resource_name)
    configs = dict(overrides_of(broker, resource.resource_type, resource.resource_name))
    if len({each.name for each in resource.configs}) < len(resource.configs):
        raise InvalidRequestError(f"the request changes a key of {resource.resource_name!r} twice")
    for each in resource.configs:
        _change(_effective(broker, resource.resource_type), configs, each)
    return configs


def _effective(broker: BrokerServices, resource_type: int) -> Config:
    """The configuration in effect without overrides."""
    if resource_type == TOPIC:
        return broker.config.topic_config({})
    if resource_type == CLIENT_METRICS:
        return ClientMetricsConfig.resolve_from({}, {}, {})
    return broker.config if resource_type == BROKER else GroupConfig.resolve_from({}, {}, {})


def _change(effective: Config, configs: dict[str, str], change: AlterableConfig) -> None:
    name, value = change.name, change.value
    if change.config_operation == _DELETE:
        configs.pop(name, None)
        return
    if value is None:
        raise InvalidRequestError(f"the key {name!r} has no value; delete it to restore the default")
    if change.config_operation == _SET:
        configs[name] = value
        return
    if change.config_operation not in (_APPEND, _SUBTRACT):
        raise InvalidRequestError(f"there is no operation {change.config_operation}")
    default = effective.get(name)
    if not isinstance(default, tuple):
        raise InvalidConfigurationError(f"{name!r} is not a list, so items can't be added or removed")
    current = configs.get(name) or config_text(default)
    items = [item for item in current.split(",") if item]
    changes = value.split(",")
    if change.config_operation == _APPEND:
        items += [item for item in changes if item not in items]
    else:
        items = [item for item in items if item not in changes]
    configs[name] = ",".join(items)
