"""ListConfigResources: the resources that have a configuration (KIP-1142)."""

from __future__ import annotations

from ....network.protocol.errors import UnsupportedVersionError
from ....network.protocol.messages.configs.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ...metadata import BROKER, CLIENT_METRICS, GROUP
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves
from .config_resources import TOPIC

_BROKER_LOGGER = 8
_TYPES = (TOPIC, BROKER, _BROKER_LOGGER, CLIENT_METRICS, GROUP)
_FIRST_VERSION_WITH_TYPES = 1


@serves(ListConfigResourcesRequest, waits=True)
def handle(
    broker: BrokerServices, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """Returns all topics, brokers and telemetry subscriptions, and the groups with overrides. Broker loggers have no
    configuration here."""
    error = context.injected_error("") or context.refusal(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
    if error is not None:
        return ListConfigResourcesResponse(error_code=error.code, config_resources=[])
    types = set(request.resource_types) or set(_TYPES)
    if context.api_version < _FIRST_VERSION_WITH_TYPES:
        types = {CLIENT_METRICS}
    if not types.issubset(_TYPES):
        return ListConfigResourcesResponse(error_code=UnsupportedVersionError.code, config_resources=[])
    image = broker.image
    named = {
        TOPIC: list(image.topics),
        BROKER: [str(node_id) for node_id in image.brokers],
        CLIENT_METRICS: [name for kind, name in image.configs if kind == CLIENT_METRICS],
        GROUP: [name for kind, name in image.configs if kind == GROUP],
    }
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, names in named.items()
            if kind in types
            for name in names
        ]
    )
