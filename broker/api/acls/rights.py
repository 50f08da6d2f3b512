"""Who may use the ACL APIs, and their error in a cluster that has no authorizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ....network.protocol.errors import BrokerResponseError, SecurityDisabledError
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices

_Outcome = TypeVar("_Outcome")


def refusal_for_acls(
    broker: BrokerServices, context: RequestContext, operation: AclOperation
) -> BrokerResponseError | None:
    """The error if the client may not do this with ACLs, or if there are none in this cluster."""
    refused = context.injected_error("") or context.refusal(operation, ResourceType.CLUSTER)
    if refused is None and broker.authorizer is None:
        return SecurityDisabledError("the cluster has no authorizer (authorizer.class.name)")
    return refused


def changed(
    broker: BrokerServices, context: RequestContext, count: int, change: Callable[[], Sequence[_Outcome]]
) -> Sequence[_Outcome | BrokerResponseError]:
    """The outcome of each of `count` changes of ACLs: what `change` returns, or the same error for all of them."""
    refused = refusal_for_acls(broker, context, AclOperation.ALTER)
    return change() if refused is None else [refused] * count
