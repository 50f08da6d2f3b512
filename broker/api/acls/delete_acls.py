"""DeleteAcls: deletes access control entries."""

from __future__ import annotations

from collections.abc import Sequence

from ....network.protocol.errors import BrokerResponseError
from ....network.protocol.messages.security.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ...requests.request import RequestContext
from ...security.acls import AclBinding, AclFilter
from ...services.services import BrokerServices
from ..registry import serves
from .rights import changed


@serves(DeleteAclsRequest, waits=True)
def handle(broker: BrokerServices, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Handles each filter independently. An entry that several filters select is in the result of each."""
    filters = [_filter(each) for each in request.filters]
    outcomes = changed(broker, context, len(filters), lambda: broker.controller.delete_acls(filters))
    return DeleteAclsResponse(filter_results=[_result(each) for each in outcomes])


def _filter(asked: DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def _result(outcome: Sequence[AclBinding] | BrokerResponseError) -> DeleteAclsFilterResult:
    if isinstance(outcome, BrokerResponseError):
        return DeleteAclsFilterResult(error_code=outcome.code, error_message=str(outcome), matching_acls=[])
    return DeleteAclsFilterResult(
        matching_acls=[
            DeleteAclsMatchingAcl(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
            for acl in outcome
        ]
    )
