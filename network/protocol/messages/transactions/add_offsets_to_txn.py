"""AddOffsetsToTxn: adds a consumer group's offsets to an open transaction (KIP-98)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, request, response
from ...types import Int16, Int32, Int64, String


@request(api_key=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest(Request):
    """Announces offsets of a group, before TxnOffsetCommit carries them."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


@response(of=AddOffsetsToTxnRequest, client_throttles="1+")
class AddOffsetsToTxnResponse(Response):
    """The result."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
