"""InitProducerId: the id and the epoch of an idempotent or transactional producer (KIP-98, KIP-360)."""

from __future__ import annotations

from typing import ClassVar

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response
from ...types import Int16, Int32, Int64, String


@request(api_key=ApiKey.INIT_PRODUCER_ID, versions="0-5", flexible="2+")
class InitProducerIdRequest(Request):
    """Requests a new id, or the next epoch of the given id."""

    #: The transaction timeout of a producer without transactions.
    NO_TRANSACTION_TIMEOUT: ClassVar[int] = 0x7FFFFFFF

    transactional_id: String | None = field(nullable="0+", default=None)
    transaction_timeout_ms: Int32
    producer_id: Int64 = field(versions="3+", default=-1)
    producer_epoch: Int16 = field(versions="3+", default=-1)


@response(of=InitProducerIdRequest, client_throttles="1+")
class InitProducerIdResponse(Response):
    """The producer's id and epoch."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16
