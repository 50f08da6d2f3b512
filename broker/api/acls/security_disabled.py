"""The error of the ACL APIs in a cluster that has no authorizer."""

from __future__ import annotations

from ....network.protocol.errors import BrokerResponseError, SecurityDisabledError
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices


def refusal_for_acls(
    broker: BrokerServices, context: RequestContext, operation: AclOperation
) -> BrokerResponseError | None:
    """The error if the client may not do this with ACLs, or if there are none in this cluster."""
    refused = context.injected_error("") or context.refusal(operation, ResourceType.CLUSTER)
    if refused is None and broker.authorizer is None:
        return SecurityDisabledError("the cluster has no authorizer (authorizer.class.name)")
    return refused
