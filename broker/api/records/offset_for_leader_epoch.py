"""OffsetForLeaderEpoch: the end offset of an epoch, with which a reader detects log truncation (KIP-320)."""

from __future__ import annotations

from ....network.protocol.errors import BrokerResponseError
from ....network.protocol.messages.records.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves


@serves(OffsetForLeaderEpochRequest)
def handle(
    broker: BrokerServices, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Answers immediately."""
    topics = []
    is_broker = context.is_allowed(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    for topic in request.topics:
        partitions = []
        refusal = None if is_broker else context.refusal_for_topic(AclOperation.DESCRIBE, topic.topic)
        for asked in topic.partitions:
            result = EpochEndOffset(partition=asked.partition)
            try:
                refused = context.injected_error(topic.topic, asked.partition) or refusal
                if refused is not None:
                    raise refused
                partition = broker.replicas.partition((topic.topic, asked.partition))
                partition.check_leader(asked.current_leader_epoch)
                log = partition.log
                result.leader_epoch, result.end_offset = log.leader_epochs.end_offset_for(
                    asked.leader_epoch, log.end.offset
                )
            except BrokerResponseError as error:
                result.error_code = error.code
            partitions.append(result)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return OffsetForLeaderEpochResponse(topics=topics)
