"""GetTelemetrySubscriptions: which of its metrics a client is to push, and how often (KIP-714)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response
from ...types import ZERO_UUID, Bool, Int8, Int16, Int32, String, Uuid


@request(api_key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest(Request):
    """Requests the subscription of a client instance; `ZERO_UUID` asks for an id as well."""

    client_instance_id: Uuid = ZERO_UUID


@response(of=GetTelemetrySubscriptionsRequest)
class GetTelemetrySubscriptionsResponse(Response):
    """The subscription.

    `requested_metrics` are prefixes of metric names; none asks for no metrics, ``*`` or an empty prefix for all.
    `accepted_compression_types` are numbers of codecs, the preferred one first.
    """

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: Uuid = ZERO_UUID
    subscription_id: Int32 = 0
    accepted_compression_types: list[Int8] = field(default_factory=list)
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: Bool = False
    requested_metrics: list[String] = field(default_factory=list)
