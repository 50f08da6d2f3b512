"""DescribeTransactions: the state of transactions by transactional id."""

from __future__ import annotations

from ....network.protocol.errors import BrokerResponseError
from ....network.protocol.messages.transactions.describe_transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves


@serves(DescribeTransactionsRequest)
def handle(
    broker: BrokerServices, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Answers immediately, for the ids that this broker coordinates."""
    return DescribeTransactionsResponse(
        transaction_states=[_describe(broker, context, each) for each in request.transactional_ids]
    )


def _describe(broker: BrokerServices, context: RequestContext, transactional_id: str) -> DescribedTransaction:
    try:
        error = context.injected_error("") or context.refusal(
            AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id
        )
        if error is not None:
            raise error
        values = broker.transactions.describe(transactional_id)
    except BrokerResponseError as error:
        return DescribedTransaction(
            error_code=error.code,
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=[],
        )
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(values.partitions):
        if context.refusal_for_topic(AclOperation.DESCRIBE, topic) is not None:
            continue
        topics.setdefault(topic, []).append(index)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=values.state.label,
        transaction_timeout_ms=values.timeout_ms,
        transaction_start_time_ms=values.start_ms,
        producer_id=values.producer_id,
        producer_epoch=values.producer_epoch,
        topics=[DescribedTransactionTopic(topic=name, partitions=indexes) for name, indexes in topics.items()],
    )
