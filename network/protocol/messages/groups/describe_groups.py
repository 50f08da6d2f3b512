"""DescribeGroups: the state and the members of classic consumer groups."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Bool, Bytes, Int16, Int32, String


@request(api_key=ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+")
class DescribeGroupsRequest(Request):
    """Lists the groups."""

    groups: list[String]
    include_authorized_operations: Bool = field(versions="3+", default=False)


@struct
class DescribedGroupMember:
    """A member. Its metadata and assignment are present only while the group is stable."""

    member_id: String
    group_instance_id: String | None = field(versions="4+", nullable="4+", ignorable=True, default=None)
    client_id: String
    client_host: String
    member_metadata: Bytes
    member_assignment: Bytes


@struct
class DescribedGroup:
    """A group. One that does not exist is Dead, and since version 6 has GROUP_ID_NOT_FOUND (KIP-1043)."""

    error_code: Int16 = 0
    error_message: String | None = field(versions="6+", nullable="6+", default=None)
    group_id: String
    group_state: String
    protocol_type: String
    protocol_data: String
    members: list[DescribedGroupMember]
    authorized_operations: Int32 = field(versions="3+", default=-2147483648)


@response(of=DescribeGroupsRequest, client_throttles="2+")
class DescribeGroupsResponse(Response):
    """The groups, each with its own error code."""

    throttle_time_ms: Int32 = field(versions="1+", ignorable=True, default=0)
    groups: list[DescribedGroup]
