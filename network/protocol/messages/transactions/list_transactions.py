"""ListTransactions: the transactions that a broker coordinates (KIP-664, KIP-994)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Int16, Int32, Int64, String


@request(api_key=ApiKey.LIST_TRANSACTIONS, versions="0-2", flexible="0+")
class ListTransactionsRequest(Request):
    """Requests transactions. An empty filter, a negative duration and no pattern match all.

    `duration_filter` is in milliseconds. `transactional_id_pattern` is an RE2 expression for whole ids (KIP-1152).
    """

    state_filters: list[String]
    producer_id_filters: list[Int64]
    duration_filter: Int64 = field(versions="1+", default=-1)
    transactional_id_pattern: String | None = field(versions="2+", nullable="2+", default=None)


@struct
class ListedTransaction:
    """One transaction."""

    transactional_id: String
    producer_id: Int64
    transaction_state: String


@response(of=ListTransactionsRequest, client_throttles="0+")
class ListTransactionsResponse(Response):
    """The transactions found, and the filters that name no state."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[String]
    transaction_states: list[ListedTransaction]
