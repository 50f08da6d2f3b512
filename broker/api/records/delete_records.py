"""DeleteRecords: deletes all records before an offset (KIP-107)."""

from __future__ import annotations

from ....network.protocol.errors import BrokerResponseError, PolicyViolationError
from ....network.protocol.messages.records.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ....network.protocol.other_errors import OffsetOutOfRangeError
from ...requests.request import RequestContext
from ...security.acls import AclOperation
from ...services.services import BrokerServices
from ..registry import serves

_HIGH_WATERMARK = -1


@serves(DeleteRecordsRequest, waits=True)
def handle(broker: BrokerServices, context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Answers immediately with the leader's new log start offset; followers advance theirs with their next fetch."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_delete(broker, context, topic.name, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _delete(
    broker: BrokerServices, context: RequestContext, topic: str, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    try:
        refused = context.injected_error(topic, asked.partition_index)
        refused = refused or context.refusal_for_topic(AclOperation.DELETE, topic)
        if refused is not None:
            raise refused
        partition = broker.replicas.partition((topic, asked.partition_index))
        partition.check_leader()
        log = partition.log
        if "delete" not in log.config.cleanup_policy:
            raise PolicyViolationError(f"records of {topic!r} are not deleted by offset: cleanup.policy=compact")
        if asked.offset < _HIGH_WATERMARK:
            raise OffsetOutOfRangeError(f"there is no offset {asked.offset}")
        log.advance_log_start_offset(log.high_watermark if asked.offset == _HIGH_WATERMARK else asked.offset)
    except BrokerResponseError as error:
        return DeleteRecordsPartitionResult(
            partition_index=asked.partition_index, low_watermark=-1, error_code=error.code
        )
    return DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=log.log_start_offset)
