"""LeaveGroup: removes members from a classic consumer group."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Int16, Int32, String


@struct
class MemberIdentity:
    """A member to remove, by its id or, if it is a static one, by its instance id."""

    member_id: String
    group_instance_id: String | None = field(nullable="3+", default=None)
    reason: String | None = field(versions="5+", nullable="5+", ignorable=True, default=None)


@request(api_key=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+")
class LeaveGroupRequest(Request):
    """Lists one member in `member_id` up to version 2, several in `members` since 3."""

    group_id: String
    member_id: String = field(versions="0-2", default="")
    members: list[MemberIdentity] = field(versions="3+", default_factory=list)


@struct
class MemberResponse:
    """Whether a member has left."""

    member_id: String
    group_instance_id: String | None = field(nullable="3+")
    error_code: Int16 = 0


@response(of=LeaveGroupRequest, client_throttles="2+")
class LeaveGroupResponse(Response):
    """The result for each member, or an error for the group as a whole."""

    throttle_time_ms: Int32 = field(versions="1+", ignorable=True, default=0)
    error_code: Int16 = 0
    members: list[MemberResponse] = field(versions="3+", default_factory=list)
