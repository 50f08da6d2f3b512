"""JoinGroup: a member joins a classic consumer group and waits for the others."""

from __future__ import annotations

from typing import ClassVar

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Bool, Bytes, Int16, Int32, String


@struct
class JoinGroupRequestProtocol:
    """An assignment protocol that the member supports, with the member's metadata."""

    name: String
    metadata: Bytes


@request(api_key=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+")
class JoinGroupRequest(Request):
    """Joins the group. The first join has an empty `member_id`.

    Since `FIRST_VERSION_REQUIRING_IDS` the coordinator responds to that with an id and MEMBER_ID_REQUIRED (KIP-394),
    unless the member is a static one with a `group_instance_id` (KIP-345). In version 0 the session timeout is also
    the rebalance timeout.
    """

    FIRST_VERSION_REQUIRING_IDS: ClassVar[int] = 4

    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = field(versions="1+", ignorable=True, default=-1)
    member_id: String
    group_instance_id: String | None = field(versions="5+", nullable="5+", default=None)
    protocol_type: String
    protocols: list[JoinGroupRequestProtocol]
    reason: String | None = field(versions="8+", nullable="8+", ignorable=True, default=None)


@struct
class JoinGroupResponseMember:
    """A member of the group. Only the leader receives the members."""

    member_id: String
    group_instance_id: String | None = field(versions="5+", nullable="5+", ignorable=True, default=None)
    metadata: Bytes


@response(of=JoinGroupRequest, client_throttles="3+")
class JoinGroupResponse(Response):
    """The new generation, its protocol and its leader.

    The member with the id `leader` assigns the partitions, unless `skip_assignment` keeps the assignment.
    """

    throttle_time_ms: Int32 = field(versions="2+", ignorable=True, default=0)
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: String | None = field(versions="7+", nullable="7+", ignorable=True, default=None)
    protocol_name: String | None = field(nullable="7+")
    leader: String
    skip_assignment: Bool = field(versions="9+", default=False)
    member_id: String
    members: list[JoinGroupResponseMember]
