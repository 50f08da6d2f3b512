"""CreateAcls: creates access control entries."""

from __future__ import annotations

from ....network.protocol.errors import BrokerResponseError
from ....network.protocol.messages.security.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from ...requests.request import RequestContext
from ...security.acls import AclBinding
from ...services.services import BrokerServices
from ..registry import serves
from .rights import changed


@serves(CreateAclsRequest, waits=True)
def handle(broker: BrokerServices, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Creates each entry independently. An entry that exists already is no error."""
    acls = [_binding(each) for each in request.creations]
    outcomes = changed(broker, context, len(acls), lambda: broker.controller.create_acls(acls))
    return CreateAclsResponse(results=[_result(each) for each in outcomes])


def _binding(asked: AclCreation) -> AclBinding:
    return AclBinding(
        asked.resource_type,
        asked.resource_name,
        asked.resource_pattern_type,
        asked.principal,
        asked.host,
        asked.operation,
        asked.permission_type,
    )


def _result(outcome: AclBinding | BrokerResponseError) -> AclCreationResult:
    if isinstance(outcome, BrokerResponseError):
        return AclCreationResult(error_code=outcome.code, error_message=str(outcome))
    return AclCreationResult()
