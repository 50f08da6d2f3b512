"""AddPartitionsToTxn: adds partitions to a transaction, or verifies that they are in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ....network.protocol.errors import (
    BrokerResponseError,
    InvalidProducerEpochError,
    OperationNotAttemptedError,
    ProducerFencedError,
    UnknownTopicOrPartitionError,
)
from ....network.protocol.message import first_version_with
from ....network.protocol.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ...metadata import FEATURES, TRANSACTION_VERSION, PartitionKey
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ...transaction.transaction import ProducerIdAndEpoch
from ..registry import serves

#: The first version for brokers. It has several transactions.
_FIRST_VERSION_OF_BROKERS = first_version_with(AddPartitionsToTxnRequest, "transactions")
FIRST_VERSION_WITH_PRODUCER_FENCED = 2

Codes = Mapping[PartitionKey, int]


@serves(AddPartitionsToTxnRequest)
def handle(
    broker: BrokerServices, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | None:
    """Answers when the coordinator has written all partitions of all transactions. A transaction with an unknown
    partition gets none."""
    is_broker = context.api_version >= _FIRST_VERSION_OF_BROKERS
    transactions = request.transactions
    if not is_broker:
        transactions = [
            AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
        ]
    error = context.injected_error("")
    if is_broker and error is None:
        error = context.refusal(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    if is_broker and error is not None:
        return AddPartitionsToTxnResponse(error_code=error.code)
    results: list[AddPartitionsToTxnResult | None] = [None] * len(transactions)
    if not transactions:
        return AddPartitionsToTxnResponse()

    def finish(at: int, codes: Codes) -> None:
        results[at] = _result(transactions[at], codes)
        done = [each for each in results if each is not None]
        if len(done) < len(results):
            return
        if is_broker:
            context.respond(AddPartitionsToTxnResponse(results_by_transaction=done))
        else:
            context.respond(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=done[0].topic_results))

    for at, transaction in enumerate(transactions):
        _handle_one(broker, context, transaction, is_broker, partial(finish, at))
    return None


def _handle_one(
    broker: BrokerServices,
    context: RequestContext,
    transaction: AddPartitionsToTxnTransaction,
    is_broker: bool,
    finish: Callable[[Codes], None],
) -> None:
    keys = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    refusal = None
    if not is_broker:
        refusal = context.refusal(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id)
    if refusal is not None:
        finish(dict.fromkeys(keys, refusal.code))
        return
    failed: dict[PartitionKey, int] = {}
    for key in keys:
        error = context.injected_error(*key)
        if error is None and not is_broker:
            error = context.refusal_for_topic(AclOperation.WRITE, key[0])
        if error is None and broker.image.partition(*key) is None:
            error = UnknownTopicOrPartitionError(f"there is no partition {key[0]}-{key[1]}")
        if error is not None:
            failed[key] = error.code
    if failed:
        finish({key: failed.get(key, OperationNotAttemptedError.code) for key in keys})
        return
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)

    def done(error: BrokerResponseError | None) -> None:
        if isinstance(error, ProducerFencedError) and context.api_version < FIRST_VERSION_WITH_PRODUCER_FENCED:
            error = InvalidProducerEpochError(str(error))
        finish(dict.fromkeys(keys, 0 if error is None else error.code))

    if not transaction.verify_only:
        level = FEATURES[TRANSACTION_VERSION] if is_broker else 0
        broker.transactions.add_partitions(transaction.transactional_id, producer, keys, level, done)
        return
    try:
        missing = broker.transactions.verify_partitions(transaction.transactional_id, producer, keys)
    except BrokerResponseError as error:
        done(error)
    else:
        finish({key: missing[key].code if key in missing else 0 for key in keys})


def _result(transaction: AddPartitionsToTxnTransaction, codes: Codes) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=codes[topic.name, index]
                    )
                    for index in topic.partitions
                ],
            )
            for topic in transaction.topics
        ],
    )
