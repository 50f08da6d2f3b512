"""SyncGroup: the leader of a classic consumer group distributes the assignment."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Bytes, Int16, Int32, String


@struct
class SyncGroupRequestAssignment:
    """The assignment of one member."""

    member_id: String
    assignment: Bytes


@request(api_key=ApiKey.SYNC_GROUP, versions="0-5", flexible="4+")
class SyncGroupRequest(Request):
    """The leader sends the `assignments`; the other members send none and wait for theirs."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field(versions="3+", nullable="3+", default=None)
    protocol_type: String | None = field(versions="5+", nullable="5+", ignorable=True, default=None)
    protocol_name: String | None = field(versions="5+", nullable="5+", ignorable=True, default=None)
    assignments: list[SyncGroupRequestAssignment] = field(default_factory=list)


@response(of=SyncGroupRequest, client_throttles="2+")
class SyncGroupResponse(Response):
    """The assignment of the requesting member."""

    throttle_time_ms: Int32 = field(versions="1+", ignorable=True, default=0)
    error_code: Int16 = 0
    protocol_type: String | None = field(versions="5+", nullable="5+", ignorable=True, default=None)
    protocol_name: String | None = field(versions="5+", nullable="5+", ignorable=True, default=None)
    assignment: Bytes
