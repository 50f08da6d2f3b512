"""ListPartitionReassignments: lists ongoing moves of partitions (KIP-455)."""

from __future__ import annotations

from ....network.protocol.messages.topics.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves


@serves(ListPartitionReassignmentsRequest, waits=True)
def handle(
    broker: BrokerServices, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Answers from the broker's own image; partitions that are not moving, or don't exist, are left out."""
    error = context.injected_error("") or context.refusal(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    if error is not None:
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=str(error), topics=[])
    asked = None if request.topics is None else {each.name: set(each.partition_indexes) for each in request.topics}
    topics = []
    for state in broker.image.topics.values():
        partitions = [
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding),
                removing_replicas=list(partition.removing),
            )
            for index, partition in enumerate(state.partitions)
            if partition.is_moving and (asked is None or index in asked.get(state.name, ()))
        ]
        if partitions:
            topics.append(OngoingTopicReassignment(name=state.name, partitions=partitions))
    return ListPartitionReassignmentsResponse(topics=topics)
