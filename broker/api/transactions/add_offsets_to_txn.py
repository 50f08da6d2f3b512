"""AddOffsetsToTxn: adds the offsets of a consumer group to a transaction."""

from __future__ import annotations

from ....network.protocol.errors import BrokerResponseError, InvalidProducerEpochError, ProducerFencedError
from ....network.protocol.messages.transactions.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from ...internal_topics import OFFSETS_TOPIC
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ...transaction.transaction import ProducerIdAndEpoch
from ..registry import serves
from .add_partitions_to_txn import FIRST_VERSION_WITH_PRODUCER_FENCED


@serves(AddOffsetsToTxnRequest)
def handle(
    broker: BrokerServices, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | None:
    """Adds the group's partition of the offsets topic. Answers when the coordinator has written it."""

    def done(error: BrokerResponseError | None) -> None:
        if isinstance(error, ProducerFencedError) and context.api_version < FIRST_VERSION_WITH_PRODUCER_FENCED:
            error = InvalidProducerEpochError(str(error))
        context.respond(AddOffsetsToTxnResponse(error_code=0 if error is None else error.code))

    injected = (
        context.injected_error("")
        or context.refusal(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        or context.refusal(AclOperation.READ, ResourceType.GROUP, request.group_id)
    )
    if injected is not None:
        return AddOffsetsToTxnResponse(error_code=injected.code)
    index = broker.offsets.internal_topic.index_of(request.group_id)
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    broker.transactions.add_partitions(request.transactional_id, producer, [(OFFSETS_TOPIC, index)], 0, done)
    return None
