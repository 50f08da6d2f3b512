"""DeleteAcls: deletes access control entries (KIP-140, KIP-290)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Int8, Int16, Int32, String


@struct
class DeleteAclsFilter:
    """A filter, like that of DescribeAcls."""

    resource_type_filter: Int8
    resource_name_filter: String | None = field(nullable="0+", default=None)
    pattern_type_filter: Int8 = 3
    principal_filter: String | None = field(nullable="0+", default=None)
    host_filter: String | None = field(nullable="0+", default=None)
    operation: Int8
    permission_type: Int8


@request(api_key=ApiKey.DELETE_ACLS, versions="1-3", flexible="2+")
class DeleteAclsRequest(Request):
    """The filters whose entries are deleted."""

    filters: list[DeleteAclsFilter]


@struct
class DeleteAclsMatchingAcl:
    """One entry and whether it was deleted."""

    error_code: Int16 = 0
    error_message: String | None = field(nullable="0+", default=None)
    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = 3
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@struct
class DeleteAclsFilterResult:
    """The entries that one filter matched."""

    error_code: Int16 = 0
    error_message: String | None = field(nullable="0+", default=None)
    matching_acls: list[DeleteAclsMatchingAcl]


@response(of=DeleteAclsRequest, client_throttles="1+")
class DeleteAclsResponse(Response):
    """The result for each filter, in the order of the request."""

    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult]
