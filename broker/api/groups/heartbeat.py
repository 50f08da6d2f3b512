"""Heartbeat: keeps a member's session alive and reports a rebalance of its group."""

from __future__ import annotations

from ....network.protocol.errors import BrokerResponseError
from ....network.protocol.messages.groups.heartbeat import HeartbeatRequest, HeartbeatResponse
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves


@serves(HeartbeatRequest)
def handle(broker: BrokerServices, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """Answers immediately."""
    try:
        error = context.injected_error("") or context.refusal(AclOperation.READ, ResourceType.GROUP, request.group_id)
        if error is not None:
            raise error
        broker.groups.heartbeat(request.group_id, request.generation_id, request.member_id, request.group_instance_id)
    except BrokerResponseError as error:
        return HeartbeatResponse(error_code=error.code)
    return HeartbeatResponse()
