"""DescribeTransactions: the state of transactions by transactional id (KIP-664)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, request, response, struct
from ...types import Int16, Int32, Int64, String


@request(api_key=ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+")
class DescribeTransactionsRequest(Request):
    """Requests the state of each id."""

    transactional_ids: list[String]


@struct
class DescribedTransactionTopic:
    """The partitions of one topic that are in the transaction."""

    topic: String
    partitions: list[Int32]


@struct
class DescribedTransaction:
    """One transaction. While it is being ended, `topics` has the partitions still without a marker."""

    error_code: Int16 = 0
    transactional_id: String
    transaction_state: String
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: list[DescribedTransactionTopic]


@response(of=DescribeTransactionsRequest, client_throttles="0+")
class DescribeTransactionsResponse(Response):
    """The state of each transaction."""

    throttle_time_ms: Int32 = 0
    transaction_states: list[DescribedTransaction]
