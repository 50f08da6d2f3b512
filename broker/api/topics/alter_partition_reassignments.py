"""AlterPartitionReassignments: moves partitions to other replicas (KIP-455)."""

from __future__ import annotations

from ....network.protocol.errors import BrokerResponseError
from ....network.protocol.messages.topics.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ...controller.controller_api import Reassignment
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves


@serves(AlterPartitionReassignmentsRequest, waits=True)
def handle(
    broker: BrokerServices, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Starts each move independently; the response confirms only that, and ListPartitionReassignments lists the ongoing
    moves."""
    responses: list[ReassignableTopicResponse] = []
    asked: list[tuple[Reassignment, ReassignablePartitionResponse]] = []
    refusal = context.refusal(AclOperation.ALTER, ResourceType.CLUSTER)
    for topic in request.topics:
        partitions: list[ReassignablePartitionResponse] = []
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=partitions))
        for each in topic.partitions:
            response = ReassignablePartitionResponse(partition_index=each.partition_index)
            partitions.append(response)
            error = context.injected_error(topic.name, each.partition_index) or refusal
            if error is None:
                asked.append((Reassignment(topic.name, each.partition_index, each.replicas), response))
            else:
                response.error_code, response.error_message = error.code, str(error)
    if asked:
        outcomes = broker.controller.alter_reassignments(
            [change for change, _ in asked], allow_factor_change=request.allow_replication_factor_change
        )
        for (_, response), outcome in zip(asked, outcomes, strict=True):
            if isinstance(outcome, BrokerResponseError):
                response.error_code, response.error_message = outcome.code, str(outcome)
    return AlterPartitionReassignmentsResponse(
        error_code=0 if refusal is None else refusal.code,
        error_message=None if refusal is None else str(refusal),
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=responses,
    )
