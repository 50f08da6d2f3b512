"""DescribeGroups: the state and the members of groups."""

from __future__ import annotations

from ....network.protocol.errors import BrokerResponseError, InvalidGroupIdError
from ....network.protocol.message import first_version_with
from ....network.protocol.messages.groups.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ....network.protocol.other_errors import GroupIdNotFoundError
from ...group.group import Group, GroupState
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves

_FIRST_VERSION_WITH_NOT_FOUND = first_version_with(DescribedGroup, "error_message")


@serves(DescribeGroupsRequest, waits=True)
def handle(broker: BrokerServices, context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Answers immediately. A group named several times is described once, because it may be large."""
    names = dict.fromkeys(request.groups)
    groups = [_describe(broker, context, group_id) for group_id in names]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = context.authorized_operations(ResourceType.GROUP, group.group_id)
    return DescribeGroupsResponse(groups=groups)


def _describe(broker: BrokerServices, context: RequestContext, group_id: str) -> DescribedGroup:
    tells_reasons = context.api_version >= _FIRST_VERSION_WITH_NOT_FOUND
    try:
        refused = context.injected_error(group_id)
        refused = refused or context.refusal(AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        if refused is not None:
            raise refused
        if not group_id:
            raise InvalidGroupIdError("a group needs an id")
        broker.offsets.check_coordinator(group_id)
        group = broker.offsets.group(group_id)
        if group is None and tells_reasons:
            raise GroupIdNotFoundError(f"there is no group {group_id!r}")
    except BrokerResponseError as error:
        return DescribedGroup(
            error_code=error.code,
            error_message=str(error) if tells_reasons else None,
            group_id=group_id,
            group_state=GroupState.DEAD.value if isinstance(error, GroupIdNotFoundError) else "",
            protocol_type="",
            protocol_data="",
            members=[],
        )
    if group is None:
        return DescribedGroup(
            group_id=group_id, group_state=GroupState.DEAD.value, protocol_type="", protocol_data="", members=[]
        )
    with group.lock:
        return _describe_group(group)


def _describe_group(group: Group) -> DescribedGroup:
    is_stable = group.state is GroupState.STABLE
    protocol = group.protocol_name or "" if is_stable else ""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(protocol) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
