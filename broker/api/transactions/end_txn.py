"""EndTxn: commits or aborts a transaction."""

from __future__ import annotations

from ....network.protocol.errors import BrokerResponseError, InvalidProducerEpochError, ProducerFencedError
from ....network.protocol.message import first_version_with
from ....network.protocol.messages.transactions.end_txn import EndTxnRequest, EndTxnResponse
from ...metadata import FEATURES, TRANSACTION_VERSION
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ...transaction.transaction import ProducerIdAndEpoch
from ..registry import serves
from .add_partitions_to_txn import FIRST_VERSION_WITH_PRODUCER_FENCED

#: The first version whose clients get another epoch with each transaction (KIP-890).
_FIRST_VERSION_WITH_EPOCH_BUMP = first_version_with(EndTxnResponse, "producer_epoch")


# On the request thread: the coordinator may have to wait for a new producer id.
@serves(EndTxnRequest, waits=True)
def handle(broker: BrokerServices, context: RequestContext, request: EndTxnRequest) -> EndTxnResponse | None:
    """Answers when the decision is written; the markers follow."""

    def respond(error: BrokerResponseError | None, producer: ProducerIdAndEpoch) -> None:
        if isinstance(error, ProducerFencedError) and context.api_version < FIRST_VERSION_WITH_PRODUCER_FENCED:
            error = InvalidProducerEpochError(str(error))
        context.respond(
            EndTxnResponse(
                error_code=0 if error is None else error.code,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
            )
        )

    injected = context.injected_error("") or context.refusal(
        AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id
    )
    if injected is not None:
        return EndTxnResponse(error_code=injected.code)
    bumps = context.api_version >= _FIRST_VERSION_WITH_EPOCH_BUMP
    broker.transactions.end(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        FEATURES[TRANSACTION_VERSION] if bumps else 0,
        respond,
        is_commit=request.committed,
    )
    return None
