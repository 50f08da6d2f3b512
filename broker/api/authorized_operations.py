"""Checks of authorization that several APIs share."""

from __future__ import annotations

from ...network.protocol.errors import AuthorizationError
from ..requests.request import RequestContext
from ..security.acls import AclOperation, ResourceType


def cluster_operations(context: RequestContext) -> int:
    """The operations that the client may do on the cluster, a bit each (KIP-430); none unless it may describe it."""
    if not context.is_allowed(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return 0
    return context.authorized_operations(ResourceType.CLUSTER)


def refusal_to_create(context: RequestContext, topic: str) -> AuthorizationError | None:
    """The error if the client may create neither topics in general nor this one."""
    if context.is_allowed(AclOperation.CREATE, ResourceType.CLUSTER):
        return None
    return context.refusal(AclOperation.CREATE, ResourceType.TOPIC, topic)
