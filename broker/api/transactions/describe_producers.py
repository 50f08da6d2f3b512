"""DescribeProducers: the producers that a partition remembers, and where their open transactions begin."""

from __future__ import annotations

from ....network.protocol.errors import BrokerResponseError
from ....network.protocol.messages.transactions.describe_producers import (
    ActiveProducer,
    DescribeProducersPartitionResult,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResult,
)
from ...requests.request import RequestContext
from ...security.acls import AclOperation
from ...services.services import BrokerServices
from ..registry import serves


@serves(DescribeProducersRequest)
def handle(
    broker: BrokerServices, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Answers immediately, for partitions that this broker leads."""
    return DescribeProducersResponse(
        topics=[
            DescribeProducersTopicResult(
                name=topic.name,
                partitions=[_describe(broker, context, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _describe(
    broker: BrokerServices, context: RequestContext, topic: str, index: int
) -> DescribeProducersPartitionResult:
    try:
        error = context.injected_error(topic, index) or context.refusal_for_topic(AclOperation.READ, topic)
        if error is not None:
            raise error
        partition = broker.replicas.partition((topic, index))
        partition.check_leader()
    except BrokerResponseError as error:
        return DescribeProducersPartitionResult(
            partition_index=index, error_code=error.code, error_message=str(error), active_producers=[]
        )
    log = partition.log
    with log.lock:
        producers = [
            ActiveProducer(
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                last_sequence=each.last_sequence,
                last_timestamp=each.last_timestamp,
                coordinator_epoch=each.coordinator_epoch,
                current_txn_start_offset=each.current_txn_first_offset,
            )
            for each in log.producers.producers.values()
        ]
    return DescribeProducersPartitionResult(partition_index=index, active_producers=producers)
