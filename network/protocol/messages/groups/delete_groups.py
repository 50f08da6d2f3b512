"""DeleteGroups: deletes empty consumer groups and their offsets."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, request, response, struct
from ...types import Int16, Int32, String


@request(api_key=ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+")
class DeleteGroupsRequest(Request):
    """Lists the groups."""

    groups_names: list[String]


@struct
class DeletableGroupResult:
    """Whether a group was deleted."""

    group_id: String
    error_code: Int16 = 0


@response(of=DeleteGroupsRequest, client_throttles="1+")
class DeleteGroupsResponse(Response):
    """The result for each group."""

    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult]
