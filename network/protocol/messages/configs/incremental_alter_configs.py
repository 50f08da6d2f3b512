"""IncrementalAlterConfigs: changes single entries of a configuration (KIP-339)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Bool, Int8, Int16, Int32, String


@struct
class AlterableConfig:
    """A change: `config_operation` 0 sets the entry, 1 deletes it, 2 appends to a list, 3 removes from a list."""

    name: String
    config_operation: Int8
    value: String | None = field(nullable="0+")


@struct
class AlterConfigsResource:
    """The changes to one resource."""

    resource_type: Int8
    resource_name: String
    configs: list[AlterableConfig]


@request(api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest(Request):
    """Requests the changes. With `validate_only` the request is only checked."""

    resources: list[AlterConfigsResource]
    validate_only: Bool = False


@struct
class AlterConfigsResourceResponse:
    """Whether a resource was changed."""

    error_code: Int16 = 0
    error_message: String | None = field(nullable="0+", default=None)
    resource_type: Int8
    resource_name: String


@response(of=IncrementalAlterConfigsRequest)
class IncrementalAlterConfigsResponse(Response):
    """The result for each resource."""

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse]
