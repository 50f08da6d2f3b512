"""SyncGroup: the leader submits the assignments, and each member receives its own."""

from __future__ import annotations

from ....network.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupResponse
from ...group.group import SyncResult
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves


@serves(SyncGroupRequest)
def handle(broker: BrokerServices, context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse | None:
    """Answers when the leader has submitted the assignments."""

    def respond(result: SyncResult) -> None:
        context.respond(
            SyncGroupResponse(
                error_code=result.error_code,
                protocol_type=result.protocol_type,
                protocol_name=result.protocol_name,
                assignment=result.assignment,
            )
        )

    error = context.injected_error("") or context.refusal(AclOperation.READ, ResourceType.GROUP, request.group_id)
    if error is not None:
        respond(SyncResult(error.code))
        return None
    broker.groups.sync(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        request.protocol_type,
        request.protocol_name,
        {each.member_id: bytes(each.assignment) for each in request.assignments},
        respond,
    )
    return None
