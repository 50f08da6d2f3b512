"""Heartbeat: a member of a classic consumer group is still there."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response
from ...types import Int16, Int32, String


@request(api_key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+")
class HeartbeatRequest(Request):
    """A sign of life in a generation."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field(versions="3+", nullable="3+", default=None)


@response(of=HeartbeatRequest, client_throttles="2+")
class HeartbeatResponse(Response):
    """All right, or REBALANCE_IN_PROGRESS and the like."""

    throttle_time_ms: Int32 = field(versions="1+", ignorable=True, default=0)
    error_code: Int16 = 0
