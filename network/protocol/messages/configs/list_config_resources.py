"""ListConfigResources: lists the resources with a configuration (KIP-714, KIP-1142)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Int8, Int16, Int32, String


@request(api_key=ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+")
class ListConfigResourcesRequest(Request):
    """Requests resources of some types, or of all with an empty list. Version 0 requests client metrics."""

    resource_types: list[Int8] = field(versions="1+", default_factory=list)


@struct
class ConfigResource:
    """A resource: 2 topic, 4 broker, 8 a broker's loggers, 16 client metrics, 32 group."""

    resource_name: String
    resource_type: Int8 = field(versions="1+", ignorable=True, default=16)


@response(of=ListConfigResourcesRequest)
class ListConfigResourcesResponse(Response):
    """The resources."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource]
