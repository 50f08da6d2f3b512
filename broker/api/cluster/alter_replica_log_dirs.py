"""AlterReplicaLogDirs: moves replicas to other directories of this broker (KIP-113)."""

from __future__ import annotations

from ....network.protocol.errors import (
    BrokerResponseError,
    NotLeaderForPartitionError,
    ReplicaNotAvailableError,
)
from ....network.protocol.messages.cluster.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves


@serves(AlterReplicaLogDirsRequest, waits=True)
def handle(
    broker: BrokerServices, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Moves each replica independently; DescribeLogDirs reports the progress. If this broker has no such replica yet,
    it will create it in the directory, and returns Kafka's error, REPLICA_NOT_AVAILABLE."""
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    refusal = context.refusal(AclOperation.ALTER, ResourceType.CLUSTER)
    for directory in request.dirs:
        for topic in directory.topics:
            result = results.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=[]))
            for index in topic.partitions:
                error = context.injected_error(topic.name, index) or refusal
                error = error or _move(broker, directory.path, topic.name, index)
                result.partitions.append(
                    AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=0 if error is None else error.code
                    )
                )
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _move(broker: BrokerServices, path: str, topic: str, index: int) -> BrokerResponseError | None:
    try:
        broker.move_replica((topic, index), path)
    except NotLeaderForPartitionError as elsewhere:
        return ReplicaNotAvailableError(str(elsewhere))
    except BrokerResponseError as refused:
        return refused
    return None
