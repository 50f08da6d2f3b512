"""DeleteGroups: deletes empty groups and their committed offsets."""

from __future__ import annotations

from ....network.protocol.errors import BrokerResponseError
from ....network.protocol.messages.groups.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves


@serves(DeleteGroupsRequest, waits=True)
def handle(
    broker: BrokerServices, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse | None:
    """Answers when all in-sync replicas of the offsets topic have the deletion of every group."""
    if not request.groups_names:
        return DeleteGroupsResponse(results=[])
    codes: dict[str, int] = {}
    names = list(dict.fromkeys(request.groups_names))

    def settle(group_id: str, error: BrokerResponseError | None) -> None:
        codes[group_id] = 0 if error is None else error.code
        if len(codes) == len(names):
            context.respond(
                DeleteGroupsResponse(
                    results=[DeletableGroupResult(group_id=name, error_code=codes[name]) for name in names]
                )
            )

    for group_id in names:
        try:
            refused = context.injected_error(group_id)
            refused = refused or context.refusal(AclOperation.DELETE, ResourceType.GROUP, group_id)
            if refused is not None:
                raise refused
            broker.offsets.delete_group(group_id, lambda error, name=group_id: settle(name, error))
        except BrokerResponseError as error:
            settle(group_id, error)
    return None
