"""AlterConfigs: replaces a whole configuration; `incremental_alter_configs` changes single entries."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Bool, Int8, Int16, Int32, String


@struct
class AlterableConfig:
    """An entry of the new configuration."""

    name: String
    value: String | None = field(nullable="0+")


@struct
class AlterConfigsResource:
    """The new configuration of one resource. Keys that it lacks are reset to their defaults."""

    resource_type: Int8
    resource_name: String
    configs: list[AlterableConfig]


@request(api_key=ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+")
class AlterConfigsRequest(Request):
    """Requests the change. With `validate_only` the request is only checked."""

    resources: list[AlterConfigsResource]
    validate_only: Bool = False


@struct
class AlterConfigsResourceResponse:
    """Whether a resource was changed."""

    error_code: Int16 = 0
    error_message: String | None = field(nullable="0+", default=None)
    resource_type: Int8
    resource_name: String


@response(of=AlterConfigsRequest, client_throttles="1+")
class AlterConfigsResponse(Response):
    """The result for each resource."""

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse]
