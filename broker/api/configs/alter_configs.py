"""AlterConfigs: replaces the whole configuration of a resource."""

from __future__ import annotations

from ....network.protocol.errors import BrokerResponseError, InvalidConfigurationError
from ....network.protocol.messages.configs.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ...requests.request import RequestContext
from ...security.acls import AclOperation
from ...services.services import BrokerServices
from ..registry import serves
from .config_resources import refusal_for_configs, set_configs


@serves(AlterConfigsRequest, waits=True)
def handle(broker: BrokerServices, context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
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
            set_configs(
                broker,
                resource.resource_type,
                resource.resource_name,
                _given(resource),
                validate_only=request.validate_only,
            )
        except BrokerResponseError as error:
            response.error_code = error.code
            response.error_message = str(error)
        responses.append(response)
    return AlterConfigsResponse(responses=responses)


def _given(resource: AlterConfigsResource) -> dict[str, str]:
    missing = [each.name for each in resource.configs if each.value is None]
    if missing:
        raise InvalidConfigurationError(f"these keys have no value: {', '.join(missing)}")
    return {each.name: each.value for each in resource.configs if each.value is not None}
