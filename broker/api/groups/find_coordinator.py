"""FindCoordinator: which broker coordinates a group or a transactional id."""

from __future__ import annotations

from ....network.protocol.errors import (
    BrokerResponseError,
    CoordinatorNotAvailableError,
    InvalidGroupIdError,
    InvalidRequestError,
)
from ....network.protocol.message import first_version_with
from ....network.protocol.messages.groups.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ...metadata import BrokerEndpoint
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves

GROUP = 0
TRANSACTION = 1
_FIRST_VERSION_WITH_SEVERAL = first_version_with(FindCoordinatorRequest, "coordinator_keys")


@serves(FindCoordinatorRequest, waits=True)
def handle(broker: BrokerServices, context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Finds the coordinators of one key or several: groups, or transactional ids."""
    if context.api_version < _FIRST_VERSION_WITH_SEVERAL:
        try:
            endpoint = _find(broker, context, request.key, request.key_type)
        except BrokerResponseError as error:
            return FindCoordinatorResponse(
                error_code=error.code, error_message=str(error), node_id=-1, host="", port=-1
            )
        return FindCoordinatorResponse(node_id=endpoint.node_id, host=endpoint.host, port=endpoint.port)
    coordinators = []
    for key in request.coordinator_keys:
        try:
            endpoint = _find(broker, context, key, request.key_type)
        except BrokerResponseError as error:
            coordinators.append(
                Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=str(error))
            )
        else:
            coordinators.append(Coordinator(key=key, node_id=endpoint.node_id, host=endpoint.host, port=endpoint.port))
    return FindCoordinatorResponse(coordinators=coordinators)


def _find(broker: BrokerServices, context: RequestContext, key: str, key_type: int) -> BrokerEndpoint:
    error = context.injected_error(key)
    if error is None and key_type == GROUP:
        error = context.refusal(AclOperation.DESCRIBE, ResourceType.GROUP, key)
    elif error is None and key_type == TRANSACTION:
        error = context.refusal(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key)
    if error is not None:
        raise error
    if key_type == TRANSACTION:
        node_id = broker.transaction_store.coordinator_of(key)
    elif key_type != GROUP:
        raise InvalidRequestError(f"there are no coordinators for keys of type {key_type}")
    elif not key:
        raise InvalidGroupIdError("a group needs an id")
    else:
        node_id = broker.offsets.coordinator_of(key)
    endpoint = context.endpoint(node_id)
    if endpoint is None:
        raise CoordinatorNotAvailableError(f"the coordinator of {key!r} is not alive")
    return endpoint
