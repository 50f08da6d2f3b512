"""Heartbeat: keeps a member of a classic consumer group alive."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response
from ...types import Int16, Int32, String


@request(api_key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+")
class HeartbeatRequest(Request):
    """The heartbeat of a member in a generation."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field(versions="3+", nullable="3+", default=None)


@response(of=HeartbeatRequest, client_throttles="2+")
class HeartbeatResponse(Response):
    """Success, or an error such as REBALANCE_IN_PROGRESS."""

    throttle_time_ms: Int32 = field(versions="1+", ignorable=True, default=0)
    error_code: Int16 = 0
