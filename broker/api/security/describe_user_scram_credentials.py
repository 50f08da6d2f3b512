"""DescribeUserScramCredentials: the SCRAM mechanisms of users (Kafka's ScramImage)."""

from __future__ import annotations

from collections import Counter

from ....network.protocol.messages.security.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialInfo,
)
from ....network.protocol.other_errors import DuplicateResourceError, ResourceNotFoundError
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...security.users import Users
from ...services.services import BrokerServices
from ..registry import serves


@serves(DescribeUserScramCredentialsRequest, waits=True)
def handle(
    broker: BrokerServices, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Returns RESOURCE_NOT_FOUND for a user without credentials, DUPLICATE_RESOURCE for one that is named twice. Needs
    DESCRIBE on the cluster."""
    error = context.injected_error("") or context.refusal(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    if error is not None:
        return DescribeUserScramCredentialsResponse(error_code=error.code, error_message=str(error), results=[])
    users = broker.controller.image.users
    names = [each.name for each in request.users or ()] or sorted({name for name, _ in users.scram})
    counts = Counter(names)
    return DescribeUserScramCredentialsResponse(results=[_describe(users, name, counts[name]) for name in counts])


def _describe(users: Users, name: str, times: int) -> DescribeUserScramCredentialsResult:
    found = users.scram_of(name)
    if times > 1:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=DuplicateResourceError.code,
            error_message=f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}",
            credential_infos=[],
        )
    if not found:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ResourceNotFoundError.code,
            error_message=f"Attempt to describe a user credential that does not exist: {name}",
            credential_infos=[],
        )
    return DescribeUserScramCredentialsResult(
        user=name,
        credential_infos=[
            ScramCredentialInfo(mechanism=mechanism.type_id, iterations=each.iterations)
            for mechanism, each in found.items()
        ],
    )
