"""DescribeTopicPartitions: topics and their partitions, page by page (KIP-966)."""

from __future__ import annotations

from collections.abc import Iterator

from ....network.protocol.errors import (
    BrokerResponseError,
    InvalidRequestError,
    InvalidTopicError,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)
from ....network.protocol.messages.topics.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ....network.topic_names import validate_topic_name
from ...metadata import NO_LEADER, ClusterImage, TopicState
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves


@serves(DescribeTopicPartitionsRequest, waits=True)
def handle(
    broker: BrokerServices, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Returns topics sorted by name, starting at the cursor. A requested topic that doesn't exist is an error in the
    response; none is created."""
    image = broker.image
    cursor = request.cursor
    names = {each.name for each in request.topics} or set(image.topics)
    if cursor is not None:
        if cursor.partition_index < 0:
            return _refusal(request, InvalidRequestError("the cursor's partition is negative"))
        if request.topics and cursor.topic_name not in names:
            return _refusal(request, InvalidRequestError("the cursor's topic is not one of the requested topics"))
        names = {name for name in names if name >= cursor.topic_name}
    refused: list[DescribeTopicPartitionsResponseTopic] = []
    if context.has_authorizer:
        refusals = {name: context.refusal(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in names}
        names = {name for name, refusal in refusals.items() if refusal is None}
        if request.topics:
            # Whether these topics exist isn't disclosed. They come last, and don't count toward the limit.
            refused = [
                DescribeTopicPartitionsResponseTopic(error_code=refusal.code, name=name, partitions=[])
                for name, refusal in refusals.items()
                if refusal is not None
            ]
    left = max(min(request.response_partition_limit, broker.config.max_request_partition_size_limit), 1)
    response = DescribeTopicPartitionsResponse(topics=[])
    for name in sorted(names):
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        topic = _describe(image, name, context, first, left)
        response.topics.append(topic)
        left -= len(topic.partitions)
        state = image.topics.get(name)
        if topic.error_code == 0 and state is not None and first + len(topic.partitions) < len(state.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=first + len(topic.partitions))
            break
    response.topics += refused
    return response


def _refusal(request: DescribeTopicPartitionsRequest, error: BrokerResponseError) -> DescribeTopicPartitionsResponse:
    # The response has no top-level error.
    topics = [
        DescribeTopicPartitionsResponseTopic(error_code=error.code, name=each.name, partitions=[])
        for each in request.topics
    ]
    return DescribeTopicPartitionsResponse(topics=topics)


def _describe(
    image: ClusterImage, name: str, context: RequestContext, first: int, limit: int
) -> DescribeTopicPartitionsResponseTopic:
    operations = context.authorized_operations(ResourceType.TOPIC, name)
    try:
        error = context.injected_error(name)
        if error is not None:
            raise error
        state = image.topics.get(name)
        if state is None:
            validate_topic_name(name)
            raise UnknownTopicOrPartitionError(f"there is no topic {name!r}")
    except (BrokerResponseError, InvalidTopicError) as refused:
        return DescribeTopicPartitionsResponseTopic(
            error_code=refused.code, name=name, partitions=[], topic_authorized_operations=operations
        )
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=state.topic_id,
        is_internal=state.is_internal,
        partitions=list(_partitions(image, state, first, limit)),
        topic_authorized_operations=operations,
    )


def _partitions(
    image: ClusterImage, state: TopicState, first: int, limit: int
) -> Iterator[DescribeTopicPartitionsResponsePartition]:
    alive = image.brokers
    for index, partition in enumerate(state.partitions[first : first + limit], first):
        has_leader = partition.leader in alive
        yield DescribeTopicPartitionsResponsePartition(
            error_code=0 if has_leader else LeaderNotAvailableError.code,
            partition_index=index,
            leader_id=partition.leader if has_leader else NO_LEADER,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            eligible_leader_replicas=[],
            last_known_elr=[],
            offline_replicas=[node for node in partition.replicas if node not in alive],
        )
