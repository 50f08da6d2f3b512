"""JoinGroup: a member enters a classic consumer group and waits for the others."""

from __future__ import annotations

from typing import ClassVar

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Bool, Bytes, Int16, Int32, String


@struct
class JoinGroupRequestProtocol:
    """A way to assign partitions that the member can follow, and what it says about itself."""

    name: String
    metadata: Bytes


@request(api_key=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+")
class JoinGroupRequest(Request):
    """Enters the group, with an empty `member_id` for the first time.

    From `FIRST_VERSION_REQUIRING_IDS` on the coordinator answers that with an id and MEMBER_ID_REQUIRED (KIP-394),
    unless the member is a static one with a `group_instance_id` (KIP-345). Version 0 has only the session timeout for
    the rebalance, too.
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
    """A member of the group; only the leader gets them."""

    member_id: String
    group_instance_id: String | None = field(versions="5+", nullable="5+", ignorable=True, default=None)
    metadata: Bytes


@response(of=JoinGroupRequest, client_throttles="3+")
class JoinGroupResponse(Response):
    """The new generation, its protocol, and who leads it.

    The member whose id is `leader` assigns the partitions, unless `skip_assignment` says that they stay as they are.
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
