"""PushTelemetry: a client's metrics, in OpenTelemetry's format (KIP-714)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, request, response
from ...types import Bool, Bytes, Int8, Int16, Int32, Uuid


@request(api_key=ApiKey.PUSH_TELEMETRY, versions="0", flexible="0+")
class PushTelemetryRequest(Request):
    """Pushes the metrics of a subscription: a compressed MetricsData of OTLP's protobuf schema, version 1.

    `terminating`: it is the last push of this client instance.
    """

    client_instance_id: Uuid
    subscription_id: Int32
    terminating: Bool
    compression_type: Int8
    metrics: Bytes


@response(of=PushTelemetryRequest)
class PushTelemetryResponse(Response):
    """The outcome."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
