"""SaslAuthenticate: carries the messages of a SASL mechanism."""

from __future__ import annotations

import logging

from ....network.protocol.errors import IllegalSaslStateError
from ....network.protocol.message import Response
from ....network.protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ...requests.request import RequestContext
from ...services.services import BrokerServices
from ..registry import serves

_log = logging.getLogger(__name__)


@serves(SaslAuthenticateRequest)
def handle(
    broker: BrokerServices, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse | None:
    """Returns ILLEGAL_SASL_STATE outside of an exchange; SASL_AUTHENTICATION_FAILED, and then closes the connection."""
    authenticator = context.connection.authenticator
    if authenticator is None:
        return SaslAuthenticateResponse(
            error_code=IllegalSaslStateError.code, error_message="this listener has no SASL"
        )
    error = context.injected_error("")
    if error is not None:
        return SaslAuthenticateResponse(error_code=error.code, error_message=str(error))
    response = authenticator.authenticate(bytes(request.auth_bytes))
    if authenticator.has_failed:
        _log.info(
            "broker %d: %s failed to authenticate: %s", broker.node_id, context.connection.id, response.error_message
        )
        fail_later(broker, context, response)
        return None
    return response


def fail_later(broker: BrokerServices, context: RequestContext, response: Response) -> None:
    """Answer after `connection.failed.authentication.delay.ms`, then close the connection: guessing takes time."""
    authenticator = context.connection.authenticator
    assert authenticator is not None
    context.closes_connection = True
    delay_ms = authenticator.listener.failure_delay_ms
    if delay_ms:
        broker.after(delay_ms, lambda: context.respond(response))
    else:
        context.respond(response)
