"""LeaveGroup: members leave, or are removed by an admin."""

from __future__ import annotations

from ....network.protocol.errors import BrokerResponseError
from ....network.protocol.message import first_version_with
from ....network.protocol.messages.groups.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves

_FIRST_VERSION_WITH_SEVERAL = first_version_with(LeaveGroupRequest, "members")


@serves(LeaveGroupRequest)
def handle(broker: BrokerServices, context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Answers immediately; the other members learn of the rebalance with their next heartbeat."""
    several = context.api_version >= _FIRST_VERSION_WITH_SEVERAL
    leaving: list[tuple[str, str | None]] = (
        [(each.member_id, each.group_instance_id) for each in request.members]
        if several
        else [(request.member_id, None)]
    )
    try:
        error = context.injected_error("") or context.refusal(AclOperation.READ, ResourceType.GROUP, request.group_id)
        if error is not None:
            raise error
        results = broker.groups.leave(request.group_id, leaving)
    except BrokerResponseError as error:
        return LeaveGroupResponse(error_code=error.code)
    if not several:
        return LeaveGroupResponse(error_code=0 if results[0] is None else results[0].code)
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=member_id, group_instance_id=instance_id, error_code=0 if error is None else error.code
            )
            for (member_id, instance_id), error in zip(leaving, results, strict=True)
        ]
    )
