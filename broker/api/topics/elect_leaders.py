"""ElectLeaders: preferred and unclean leader elections (KIP-460)."""

from __future__ import annotations

from ....network.protocol.errors import BrokerResponseError, InvalidRequestError
from ....network.protocol.messages.topics.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ...controller.controller_api import ElectionOutcome
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves

_PREFERRED, _UNCLEAN = 0, 1


@serves(ElectLeadersRequest, waits=True)
def handle(broker: BrokerServices, context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Elects for each partition independently. For a request for all partitions, the response has only those that
    needed an election."""
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        return ElectLeadersResponse(error_code=InvalidRequestError.code, replica_election_results=[])
    refusal = context.refusal(AclOperation.ALTER, ResourceType.CLUSTER)
    if refusal is not None:
        return _refused(request, refusal)
    outcomes: list[ElectionOutcome] = []
    asked: list[tuple[str, int]] | None = None
    if request.topic_partitions is not None:
        asked = []
        for key in dict.fromkeys((each.topic, at) for each in request.topic_partitions for at in each.partitions):
            error = context.injected_error(*key)
            if error is None:
                asked.append(key)
            else:
                outcomes.append(ElectionOutcome(*key, error))
    if asked is None or asked:
        outcomes += broker.controller.elect_leaders(asked, is_unclean=request.election_type == _UNCLEAN)
    results: dict[str, ReplicaElectionResult] = {}
    for topic, index, error in outcomes:
        of_topic = results.setdefault(topic, ReplicaElectionResult(topic=topic, partition_result=[]))
        result = PartitionResult(partition_id=index)
        if error is not None:
            result.error_code, result.error_message = error.code, str(error)
        of_topic.partition_result.append(result)
    return ElectLeadersResponse(replica_election_results=list(results.values()))


def _refused(request: ElectLeadersRequest, error: BrokerResponseError) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=error.code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=each.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=error.code, error_message=str(error))
                    for index in each.partitions
                ],
            )
            for each in request.topic_partitions or ()
        ],
    )
