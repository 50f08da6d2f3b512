"""ListGroups: lists the groups that a broker coordinates."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Int16, Int32, String


@request(api_key=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+")
class ListGroupsRequest(Request):
    """Requests all groups, or those in some states (KIP-518) or of some types (KIP-848)."""

    states_filter: list[String] = field(versions="4+", default_factory=list)
    types_filter: list[String] = field(versions="5+", default_factory=list)


@struct
class ListedGroup:
    """A group."""

    group_id: String
    protocol_type: String
    group_state: String = field(versions="4+", ignorable=True, default="")
    group_type: String = field(versions="5+", ignorable=True, default="")


@response(of=ListGroupsRequest, client_throttles="2+")
class ListGroupsResponse(Response):
    """The groups of this broker."""

    throttle_time_ms: Int32 = field(versions="1+", ignorable=True, default=0)
    error_code: Int16 = 0
    groups: list[ListedGroup]
