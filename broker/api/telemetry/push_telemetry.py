"""PushTelemetry: a client's metrics."""

from __future__ import annotations

from ....network.protocol.errors import BrokerResponseError
from ....network.protocol.messages.telemetry.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ...requests.request import RequestContext
from ...services.services import BrokerServices
from ..registry import serves
from .get_telemetry_subscriptions import client_of


@serves(PushTelemetryRequest)
def handle(broker: BrokerServices, context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Returns UNKNOWN_SUBSCRIPTION_ID, THROTTLING_QUOTA_EXCEEDED, TELEMETRY_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE,
    INVALID_RECORD or INVALID_REQUEST."""
    error = context.injected_error("")
    if error is None:
        try:
            broker.telemetry.push(request, client_of(context))
        except BrokerResponseError as refused:
            error = refused
    return PushTelemetryResponse(error_code=0 if error is None else error.code)
