"""AlterUserScramCredentials: stores and removes SCRAM credentials (Kafka's ScramControlManager)."""

from __future__ import annotations

from ....network.protocol.errors import BrokerResponseError
from ....network.protocol.messages.security.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ...controller.controller_api import ScramDeletion, ScramUpsertion
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves


@serves(AlterUserScramCredentialsRequest, waits=True)
def handle(
    broker: BrokerServices, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Returns per user the errors of `ControllerApi.alter_scram`. Needs ALTER on the cluster."""
    deletions = [ScramDeletion(each.name, each.mechanism) for each in request.deletions]
    upsertions = [
        ScramUpsertion(each.name, each.mechanism, each.iterations, bytes(each.salt), bytes(each.salted_password))
        for each in request.upsertions
    ]
    names = dict.fromkeys([each.name for each in (*deletions, *upsertions)])
    refused = context.injected_error("") or context.refusal(AclOperation.ALTER, ResourceType.CLUSTER)
    try:
        errors: dict[str, BrokerResponseError] = (
            broker.controller.alter_scram(deletions, upsertions) if refused is None else dict.fromkeys(names, refused)
        )
    except BrokerResponseError as failed:
        errors = dict.fromkeys(names, failed)
    return AlterUserScramCredentialsResponse(results=[_result(name, errors.get(name)) for name in names])


def _result(name: str, error: BrokerResponseError | None) -> AlterUserScramCredentialsResult:
    if error is None:
        return AlterUserScramCredentialsResult(user=name)
    return AlterUserScramCredentialsResult(user=name, error_code=error.code, error_message=str(error))
