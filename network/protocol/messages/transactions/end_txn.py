"""EndTxn: commits or aborts a transaction (KIP-98, KIP-890)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response
from ...types import Bool, Int16, Int32, Int64, String


@request(api_key=ApiKey.END_TXN, versions="0-5", flexible="3+")
class EndTxnRequest(Request):
    """Ends the open transaction. `committed` is False for an abort."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


@response(of=EndTxnRequest, client_throttles="1+")
class EndTxnResponse(Response):
    """The result. Since version 5 it has the producer id and epoch of the next transaction."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = field(versions="5+", ignorable=True, default=-1)
    producer_epoch: Int16 = field(versions="5+", ignorable=True, default=-1)
