"""ListGroups: the groups that this broker coordinates."""

from __future__ import annotations

from ....network.protocol.messages.groups.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ...group.group import GroupState
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves

_TYPE = "classic"


@serves(ListGroupsRequest, waits=True)
def handle(broker: BrokerServices, context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """Answers immediately; filters by state and type ignore case."""
    error = context.injected_error("")
    if error is not None:
        return ListGroupsResponse(error_code=error.code, groups=[])
    sees_all = context.is_allowed(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    states = {state.lower() for state in request.states_filter}
    types = {each.lower() for each in request.types_filter}
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=_TYPE,
            )
            for group in broker.offsets.groups()
            if group.state is not GroupState.DEAD
            and (not states or group.state.value.lower() in states)
            and (not types or _TYPE in types)
            and (sees_all or context.is_allowed(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id))
        ]
    )
