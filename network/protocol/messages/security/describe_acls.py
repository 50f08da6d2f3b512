"""DescribeAcls: finds access control entries (KIP-140, KIP-290)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Int8, Int16, Int32, String


@request(api_key=ApiKey.DESCRIBE_ACLS, versions="1-3", flexible="2+")
class DescribeAclsRequest(Request):
    """A filter. None matches any name, principal or host; the types have a value for any (1)."""

    resource_type_filter: Int8
    resource_name_filter: String | None = field(nullable="0+", default=None)
    pattern_type_filter: Int8 = 3
    principal_filter: String | None = field(nullable="0+", default=None)
    host_filter: String | None = field(nullable="0+", default=None)
    operation: Int8
    permission_type: Int8


@struct
class AclDescription:
    """One entry of a resource."""

    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@struct
class DescribeAclsResource:
    """A resource and its entries."""

    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = 3
    acls: list[AclDescription]


@response(of=DescribeAclsRequest, client_throttles="1+")
class DescribeAclsResponse(Response):
    """The resources with matching entries."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = field(nullable="0+", default=None)
    resources: list[DescribeAclsResource]
