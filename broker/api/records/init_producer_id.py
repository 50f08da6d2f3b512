"""InitProducerId: the id and epoch of an idempotent or transactional producer."""

from __future__ import annotations

from ....network.protocol.errors import (
    AuthorizationError,
    BrokerResponseError,
    InvalidProducerEpochError,
    InvalidRequestError,
    ProducerFencedError,
)
from ....network.protocol.messages.records.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ...log.producer_state import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ...transaction.transaction import ProducerIdAndEpoch
from ..registry import serves

_FIRST_VERSION_WITH_PRODUCER_FENCED = 4


# Version 6 is for transactions in two phases, which no release of Kafka supports.
@serves(InitProducerIdRequest, max_version=5, waits=True)
def handle(
    broker: BrokerServices, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | None:
    """Without a transactional id, returns a new producer id, unique in this cluster. With one, answers when the
    coordinator has written the producer's id and next epoch, and returns CONCURRENT_TRANSACTIONS while an open
    transaction of the id is being aborted."""

    def failed(error: BrokerResponseError) -> InitProducerIdResponse:
        if isinstance(error, ProducerFencedError) and context.api_version < _FIRST_VERSION_WITH_PRODUCER_FENCED:
            error = InvalidProducerEpochError(str(error))
        return InitProducerIdResponse(error_code=error.code, producer_epoch=NO_PRODUCER_EPOCH)

    def respond(error: BrokerResponseError | None, producer: ProducerIdAndEpoch) -> None:
        if error is not None:
            context.respond(failed(error))
        else:
            context.respond(
                InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)
            )

    error = context.injected_error("") or _refusal(context, request.transactional_id)
    if error is None and (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        error = InvalidRequestError("a producer has both an id and an epoch, or none of them")
    if error is not None:
        return failed(error)
    if request.transactional_id is None:
        try:
            return InitProducerIdResponse(producer_id=broker.next_producer_id(), producer_epoch=0)
        except BrokerResponseError as error:
            return failed(error)
    expected = None
    if request.producer_id != NO_PRODUCER_ID:
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    broker.transactions.init_producer_id(request.transactional_id, request.transaction_timeout_ms, expected, respond)
    return None


def _refusal(context: RequestContext, transactional_id: str | None) -> AuthorizationError | None:
    """A client that may write to any topic may use idempotence (KIP-679)."""
    if transactional_id is not None:
        return context.refusal(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    refusal = context.refusal(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
    return None if context.may_on_any(AclOperation.WRITE, ResourceType.TOPIC) else refusal
