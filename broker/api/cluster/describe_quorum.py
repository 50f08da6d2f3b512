"""DescribeQuorum: the quorum of the cluster's metadata (KIP-595).

There is no quorum here: the cluster has one controller, which clients can't reach. To them the broker with the lowest
id is the controller, as in Metadata and DescribeCluster. It is the only voter, and its log end offset is the version of
the current image.
"""

from __future__ import annotations

from ....network.protocol.errors import BrokerResponseError, UnknownTopicOrPartitionError
from ....network.protocol.messages.cluster.describe_quorum import (
    DescribedPartitionData,
    DescribedTopicData,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
)
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves

_TOPIC = "__cluster_metadata"
_ONLY_EPOCH = 1


@serves(DescribeQuorumRequest)
def handle(broker: BrokerServices, context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Describes the one partition of the metadata log; a request for anything else is an error."""
    error = context.injected_error("") or context.refusal(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    if error is not None:
        return DescribeQuorumResponse(error_code=error.code, error_message=str(error), topics=[])
    asked = [(topic.topic_name, each.partition_index) for topic in request.topics for each in topic.partitions]
    if asked != [(_TOPIC, 0)]:
        return _unknown(request, UnknownTopicOrPartitionError(f"only {_TOPIC}, partition 0, can be described"))
    image = broker.image
    now_ms = broker.clock.wall_ms()
    states = {
        node_id: ReplicaState(
            replica_id=node_id,
            log_end_offset=image.version,
            last_fetch_timestamp=-1 if node_id == image.controller_id else now_ms,
            last_caught_up_timestamp=now_ms,
        )
        for node_id in image.brokers
    }
    partition = DescribedPartitionData(
        partition_index=0,
        leader_id=image.controller_id,
        leader_epoch=_ONLY_EPOCH,
        high_watermark=image.version,
        current_voters=[state for node_id, state in states.items() if node_id == image.controller_id],
        observers=[state for node_id, state in states.items() if node_id != image.controller_id],
    )
    leader = context.endpoint(image.controller_id)
    nodes = []
    if leader is not None:
        at = Listener(name=context.connection.listener, host=leader.host, port=leader.port)
        nodes.append(Node(node_id=leader.node_id, listeners=[at]))
    topic = DescribedTopicData(topic_name=_TOPIC, partitions=[partition])
    return DescribeQuorumResponse(topics=[topic], nodes=nodes)


def _unknown(request: DescribeQuorumRequest, error: BrokerResponseError) -> DescribeQuorumResponse:
    topics = [
        DescribedTopicData(
            topic_name=topic.topic_name,
            partitions=[
                DescribedPartitionData(
                    partition_index=each.partition_index,
                    error_code=error.code,
                    error_message=str(error),
                    current_voters=[],
                    observers=[],
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return DescribeQuorumResponse(topics=topics)
