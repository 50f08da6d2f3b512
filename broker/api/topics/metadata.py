"""Metadata: the brokers, the topics and their leaders; creates missing topics where that is allowed."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Sequence

from ....network.protocol.errors import (
    BrokerResponseError,
    InvalidRequestError,
    InvalidTopicError,
    LeaderNotAvailableError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from ....network.protocol.messages.topics.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ....network.protocol.types import ZERO_UUID
from ....network.topic_names import validate_topic_name
from ...metadata import NO_LEADER, ClusterImage, TopicState
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..authorized_operations import cluster_operations, refusal_to_create
from ..registry import serves

#: Topics that one request creates at most; the client gets LEADER_NOT_AVAILABLE for the rest, and retries.
_MOST_CREATED = 100


@serves(MetadataRequest, waits=True)
def handle(broker: BrokerServices, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """Answers from the broker's own image; creates missing topics first if both broker and request allow it."""
    asked = request.topics
    if asked is None or (context.api_version == 0 and not asked):
        image = broker.image
        topics = [
            _tell(image, state, context)
            for state in image.topics.values()
            if context.refusal_for_topic(AclOperation.DESCRIBE, state.name) is None
        ]
    else:
        # Each topic once: it may have many partitions.
        may_create = broker.config.auto_create_topics_enable and request.allow_auto_topic_creation
        creations = itertools.count(1) if may_create else None
        once = dict.fromkeys(_identities(asked, context))
        topics = [_look_up(broker, name, topic_id, creations, context) for name, topic_id in once]
    if request.include_topic_authorized_operations:
        for told in topics:
            if told.name is not None and told.error_code != TopicAuthorizationFailedError.code:
                told.topic_authorized_operations = context.authorized_operations(ResourceType.TOPIC, told.name)
    image = broker.image
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in context.endpoints()
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context)
    return response


def _identities(
    asked: Sequence[MetadataRequestTopic], context: RequestContext
) -> Iterator[tuple[str | None, uuid.UUID]]:
    """A name or an id for each topic. If any topic has an id, only ids count and names are ignored, because Java's
    admin client sends empty names along with ids."""
    by_id = context.api_version >= MetadataRequest.FIRST_VERSION_WITH_TOPIC_IDS and any(
        topic.topic_id != ZERO_UUID for topic in asked
    )
    for topic in asked:
        if not by_id:
            yield topic.name, topic.topic_id
        elif topic.topic_id != ZERO_UUID:
            yield None, topic.topic_id


def _look_up(
    broker: BrokerServices,
    name: str | None,
    topic_id: uuid.UUID,
    creations: Iterator[int] | None,
    context: RequestContext,
) -> MetadataResponseTopic:
    if context.api_version < MetadataRequest.FIRST_VERSION_WITH_TOPIC_IDS and (name is None or topic_id != ZERO_UUID):
        return MetadataResponseTopic(error_code=InvalidRequestError.code, name=name or "", partitions=[])
    by_id = name is None
    if name is None:
        name = broker.image.topic_names.get(topic_id)
        if name is None:
            return MetadataResponseTopic(
                error_code=UnknownTopicIdError.code, name=None, topic_id=topic_id, partitions=[]
            )
    error = context.injected_error(name)
    if error is not None:
        return MetadataResponseTopic(error_code=error.code, name=name, partitions=[])
    refusal = context.refusal_for_topic(AclOperation.DESCRIBE, name)
    if refusal is not None:
        # Without the right to describe a topic, nobody learns whether it exists, or the name of an id.
        told = None if by_id else name
        return MetadataResponseTopic(error_code=refusal.code, name=told, topic_id=topic_id, partitions=[])
    state = broker.image.topics.get(name)
    if state is None and by_id:
        return MetadataResponseTopic(error_code=UnknownTopicIdError.code, name=None, topic_id=topic_id, partitions=[])
    if state is None:
        try:
            state = _create(broker, name, creations, context)
        except BrokerResponseError as error:
            return MetadataResponseTopic(error_code=error.code, name=name, topic_id=ZERO_UUID, partitions=[])
    return _tell(broker.image, state, context)


def _create(broker: BrokerServices, name: str, creations: Iterator[int] | None, context: RequestContext) -> TopicState:
    """Create a topic, unless `creations` is None or has already counted `_MOST_CREATED` topics."""
    if creations is None:
        validate_topic_name(name)
        raise UnknownTopicOrPartitionError(f"there is no topic {name!r}")
    refusal = refusal_to_create(context, name)
    if refusal is not None:
        raise refusal
    if next(creations) > _MOST_CREATED:
        raise LeaderNotAvailableError(f"a request creates at most {_MOST_CREATED} topics; retry for {name!r}")
    try:
        return broker.controller.create_topic(name)
    except TopicAlreadyExistsError:
        # Another client has created it.
        state = broker.image.topics.get(name)
        if state is None:
            raise LeaderNotAvailableError(f"the topic {name!r} is being created") from None
        return state
    except InvalidTopicError:
        raise
    except BrokerResponseError as error:
        # Clients retry after this error, which Kafka returns, too, for example with too few brokers.
        raise LeaderNotAvailableError(f"the topic {name!r} can't be created now: {error}") from error


def _tell(image: ClusterImage, state: TopicState, context: RequestContext) -> MetadataResponseTopic:
    error = context.injected_error(state.name)
    if error is not None:
        return MetadataResponseTopic(error_code=error.code, name=state.name, partitions=[])
    alive = image.brokers
    return MetadataResponseTopic(
        name=state.name,
        topic_id=state.topic_id,
        is_internal=state.is_internal,
        partitions=[
            MetadataResponsePartition(
                error_code=0 if partition.leader in alive else LeaderNotAvailableError.code,
                partition_index=index,
                leader_id=partition.leader if partition.leader in alive else NO_LEADER,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=[node for node in partition.replicas if node not in alive],
            )
            for index, partition in enumerate(state.partitions)
        ],
    )
