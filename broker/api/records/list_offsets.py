"""ListOffsets: the start and end of a partition, and the offset for a timestamp."""

from __future__ import annotations

from ....network.protocol.errors import BrokerResponseError, UnsupportedForMessageFormatError
from ....network.protocol.message import first_version_with
from ....network.protocol.messages.records.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ...log.index import TimestampOffset
from ...replica.partition import Partition
from ...requests.request import RequestContext
from ...security.acls import AclOperation
from ...services.services import BrokerServices
from ..registry import serves

_FIRST_VERSION_WITH_EPOCHS = first_version_with(ListOffsetsPartitionResponse, "leader_epoch")
_START = (ListOffsetsRequest.EARLIEST_TIMESTAMP, ListOffsetsRequest.EARLIEST_LOCAL_TIMESTAMP)
_REMOTE = (ListOffsetsRequest.LATEST_TIERED_TIMESTAMP, ListOffsetsRequest.EARLIEST_PENDING_UPLOAD_OFFSET)


@serves(ListOffsetsRequest)
def handle(broker: BrokerServices, context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Looks up each partition independently; blocks only to read a few batches."""
    topics = []
    for topic in request.topics:
        partitions = []
        refusal = context.refusal_for_topic(AclOperation.DESCRIBE, topic.name)
        for asked in topic.partitions:
            response = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
            try:
                error = context.injected_error(topic.name, asked.partition_index) or refusal
                if error is not None:
                    raise error
                partition = broker.replicas.partition((topic.name, asked.partition_index))
                _look_up(partition, asked, response, request.replica_id, request.isolation_level == 1)
            except BrokerResponseError as error:
                response.error_code = error.code
            if context.api_version < _FIRST_VERSION_WITH_EPOCHS:
                response.leader_epoch = -1
            partitions.append(response)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


def _look_up(
    partition: Partition,
    asked: ListOffsetsPartition,
    response: ListOffsetsPartitionResponse,
    replica_id: int,
    committed_only: bool,
) -> None:
    partition.check_leader(asked.current_leader_epoch)
    log = partition.log
    is_client = replica_id < 0
    end = partition.readable_offset(committed_only) if is_client else log.end.offset
    if asked.timestamp in _START:
        response.offset = log.log_start_offset
        response.leader_epoch = log.leader_epochs.epoch_for_offset(log.log_start_offset)
        return
    if asked.timestamp == ListOffsetsRequest.LATEST_TIMESTAMP:
        if is_client:
            partition.check_high_watermark_is_known()
        response.offset = end
        response.leader_epoch = partition.leader_epoch
        return
    if asked.timestamp in _REMOTE:
        # Without remote storage Kafka returns -1.
        return
    if asked.timestamp < ListOffsetsRequest.MAX_TIMESTAMP:
        raise UnsupportedForMessageFormatError(f"the special timestamp {asked.timestamp} is unknown")
    found: tuple[TimestampOffset, int] | None
    if asked.timestamp == ListOffsetsRequest.MAX_TIMESTAMP:
        found = log.offset_of_max_timestamp()
    else:
        found = log.offset_for_timestamp(asked.timestamp)
    if found is None or found[0].offset >= end:
        return
    (response.timestamp, response.offset), response.leader_epoch = found
