"""InitProducerId: ids for idempotent producers."""

from __future__ import annotations

import logging

from ....network.protocol.errors import (
    AuthorizationError,
    CoordinatorLoadInProgressError,
    KafkaStorageError,
    TransactionalIdAuthorizationFailedError,
)
from ....network.protocol.messages.records.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves

_log = logging.getLogger(__name__)


# Version 6 is for transactions in two phases, which need a transaction coordinator.
@serves(InitProducerIdRequest, max_version=5, waits=True)
def handle(broker: BrokerServices, context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Returns a new id, unique in this cluster. Rejects a transactional id, because transactions are not supported."""
    error = context.injected_error("") or _refusal(context, request.transactional_id)
    if error is None and request.transactional_id is not None:
        error = TransactionalIdAuthorizationFailedError("this broker has no transactions")
    if error is not None:
        return InitProducerIdResponse(error_code=error.code, producer_epoch=-1)
    try:
        return InitProducerIdResponse(producer_id=broker.producer_ids.next_id(), producer_epoch=0)
    except KafkaStorageError as failed:
        # Kafka's error if its controller hands out no ids: clients retry.
        _log.warning("broker %d has no producer ids left: %s", broker.node_id, failed)
        return InitProducerIdResponse(error_code=CoordinatorLoadInProgressError.code, producer_epoch=-1)


def _refusal(context: RequestContext, transactional_id: str | None) -> AuthorizationError | None:
    """A client that may write to any topic may use idempotence (KIP-679)."""
    if transactional_id is not None:
        return context.refusal(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    refusal = context.refusal(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
    return None if context.may_on_any(AclOperation.WRITE, ResourceType.TOPIC) else refusal
