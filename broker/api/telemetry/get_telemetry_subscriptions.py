"""GetTelemetrySubscriptions: which metrics a client is to push."""

from __future__ import annotations

from ....network.protocol.errors import BrokerResponseError
from ....network.protocol.messages.telemetry.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ...requests.request import RequestContext
from ...services.services import BrokerServices
from ...telemetry.collector import Client
from ..registry import serves


def client_of(context: RequestContext) -> Client:
    """Who sent a request."""
    name, version = context.connection.software
    return Client(context.client_id, name, version, context.client_host)


@serves(GetTelemetrySubscriptionsRequest)
def handle(
    broker: BrokerServices, context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Returns THROTTLING_QUOTA_EXCEEDED if the client asks again before the end of its interval."""
    error = context.injected_error("")
    if error is None:
        try:
            return broker.telemetry.subscribe(request.client_instance_id, client_of(context))
        except BrokerResponseError as refused:
            error = refused
    return GetTelemetrySubscriptionsResponse(error_code=error.code)
