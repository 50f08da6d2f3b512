"""SaslHandshake: chooses the SASL mechanism of a connection."""

from __future__ import annotations

from ....network.protocol.errors import IllegalSaslStateError
from ....network.protocol.messages.security.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ...requests.request import RequestContext
from ...services.services import BrokerServices
from ..registry import serves
from .sasl_authenticate import fail_later


@serves(SaslHandshakeRequest)
def handle(
    broker: BrokerServices, context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse | None:
    """Returns ILLEGAL_SASL_STATE on a listener without SASL, or if the client is authenticated and may not be again;
    UNSUPPORTED_SASL_MECHANISM, and then closes the connection."""
    authenticator = context.connection.authenticator
    if authenticator is None:
        return SaslHandshakeResponse(error_code=IllegalSaslStateError.code, mechanisms=[])
    error = context.injected_error("")
    if error is not None:
        return SaslHandshakeResponse(error_code=error.code, mechanisms=list(authenticator.listener.mechanisms))
    response = authenticator.handshake(request.mechanism, context.api_version)
    if authenticator.has_failed:
        fail_later(broker, context, response)
        return None
    return response
