"""CreateAcls: grants or denies principals an operation on resources (KIP-140, KIP-290)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Int8, Int16, Int32, String


@struct
class AclCreation:
    """One access control entry. `resource_pattern_type` is 3 for a literal name and 4 for a prefix."""

    resource_type: Int8
    resource_name: String
    resource_pattern_type: Int8 = 3
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@request(api_key=ApiKey.CREATE_ACLS, versions="1-3", flexible="2+")
class CreateAclsRequest(Request):
    """The entries to create."""

    creations: list[AclCreation]


@struct
class AclCreationResult:
    """The result for one entry."""

    error_code: Int16 = 0
    error_message: String | None = field(nullable="0+", default=None)


@response(of=CreateAclsRequest, client_throttles="1+")
class CreateAclsResponse(Response):
    """The result for each entry, in the order of the request."""

    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult]
