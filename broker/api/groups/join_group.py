"""JoinGroup: joins a group, or its next generation."""

from __future__ import annotations

from ....network.protocol.message import first_version_with
from ....network.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from ...group.coordinator import JoinParams
from ...group.group import JoinResult
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves

#: The first version whose `protocol_name` may be null.
_FIRST_VERSION_WITHOUT_PROTOCOL = first_version_with(JoinGroupResponse, "protocol_type")
_FIRST_VERSION_SKIPPING_ASSIGNMENT = first_version_with(JoinGroupResponse, "skip_assignment")


@serves(JoinGroupRequest)
def handle(broker: BrokerServices, context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse | None:
    """Answers when the next generation begins."""
    version = context.api_version

    def respond(result: JoinResult) -> None:
        no_protocol = None if version >= _FIRST_VERSION_WITHOUT_PROTOCOL else ""
        context.respond(
            JoinGroupResponse(
                error_code=result.error_code,
                generation_id=result.generation,
                protocol_type=result.protocol_type,
                protocol_name=no_protocol if result.protocol_name is None else result.protocol_name,
                leader=result.leader,
                skip_assignment=result.skip_assignment and version >= _FIRST_VERSION_SKIPPING_ASSIGNMENT,
                member_id=result.member_id,
                members=[
                    JoinGroupResponseMember(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
                    for member_id, instance_id, metadata in result.members
                ],
            )
        )

    error = context.injected_error("") or context.refusal(AclOperation.READ, ResourceType.GROUP, request.group_id)
    if error is not None:
        respond(JoinResult("", error.code))
        return None
    rebalance_ms = request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms
    params = JoinParams(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        requires_member_id=version >= JoinGroupRequest.FIRST_VERSION_REQUIRING_IDS,
        supports_skipping_assignment=version >= _FIRST_VERSION_SKIPPING_ASSIGNMENT,
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=rebalance_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, bytes(each.metadata)) for each in request.protocols),
    )
    broker.groups.join(params, respond)
    return None
