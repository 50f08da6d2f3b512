"""The errors of a client's connections, with the node's address as the user knows it and what to check."""

from __future__ import annotations

from ..protocol.errors import (
    DisconnectedError,
    KafkaConnectionError,
    KafkaError,
    NotKafkaError,
    ProtocolError,
)
from ..sockets.name_lookups import RESOLVE_PATIENCE_MS
from .connection_states_cy import ConnectionState

#: A hint for a node that does not answer ApiVersions: Kafka 0.8 disconnects on an unknown request, 0.9 ignores it.
MAYBE_TOO_OLD = "brokers older than Kafka 0.10 do so too, and are not supported"

#: A hint for a node that disconnects during authentication.
_DURING_SASL = (
    "during SASL authentication; some brokers reject credentials so, and a listener with another security.protocol may"
)


#: A hint for a node that answers ApiVersions and disconnects on the first request after it.
_MAYBE_SASL = "before it answered a request: if its listener expects SASL, set security.protocol and sasl.mechanism"


def explained(reason: KafkaError, address: str, state: ConnectionState, *, maybe_sasl: bool = False) -> KafkaError:
    """The selector's error `reason`, which becomes the cause, for a connection in `state`.

    `maybe_sasl`: whether the client has no credentials and the node has answered nothing since it was ready.
    """
    text = str(reason)
    where = "" if text.startswith(f"{address} ") else f"{address}: "
    never_ready = not state.was_ready
    if isinstance(reason, NotKafkaError) or (never_ready and isinstance(reason, ProtocolError)):
        error: KafkaError = NotKafkaError(f"{address} answered with something that is not Kafka: {reason}")
    elif state is ConnectionState.CHECKING_API_VERSIONS and isinstance(reason, DisconnectedError):
        error = DisconnectedError(f"{where}{text} ({MAYBE_TOO_OLD})")
    elif state is ConnectionState.AUTHENTICATING and isinstance(reason, DisconnectedError):
        error = DisconnectedError(f"{where}{text} ({_DURING_SASL})")
    elif maybe_sasl and isinstance(reason, DisconnectedError):
        error = DisconnectedError(f"{where}{text} {_MAYBE_SASL}")
    else:
        error = type(reason)(f"{where}{text}")
    error.__cause__ = reason
    return error


def undecodable(error: ProtocolError, address: str, state: ConnectionState) -> KafkaError:
    """The error for a response that could not be decoded, because of `error`."""
    if state is ConnectionState.CHECKING_API_VERSIONS:
        failure: KafkaError = NotKafkaError(f"{address} answered with something that is not Kafka: {error}")
    else:
        failure = type(error)(f"{address} sent a response that cannot be decoded: {error}")
    failure.__cause__ = error
    return failure


def setup_timed_out(
    address: str, state: ConnectionState, timeout_ms: float, *, in_handshake: bool
) -> KafkaConnectionError:
    """The error for a connection that was not established in time."""
    if state is ConnectionState.RESOLVING:
        return KafkaConnectionError(
            f"the name of {address} was not resolved within {RESOLVE_PATIENCE_MS:.0f} ms: this machine's name service "
            "does not answer; the lookup continues"
        )
    if in_handshake:
        return handshake_timed_out(address, timeout_ms)
    return KafkaConnectionError(
        f"{address} could not be connected to within {timeout_ms:.0f} ms (socket.connection.setup.timeout.ms): nothing "
        "answers at that address, or a firewall drops it"
    )


def handshake_timed_out(address: str, timeout_ms: float) -> KafkaConnectionError:
    """The error for a TLS handshake that was not completed in time."""
    return KafkaConnectionError(
        f"{address} accepted the connection, but did not complete the TLS handshake within {timeout_ms:.0f} ms "
        "(socket.connection.setup.timeout.ms): check that an SSL or SASL_SSL listener of a Kafka broker is there"
    )


def authentication_timed_out(address: str, waited_for: str, timeout_ms: float) -> KafkaConnectionError:
    """The error for a connection that was not authenticated in time. `waited_for` is what did not arrive."""
    return KafkaConnectionError(
        f"{address} did not authenticate this client within {timeout_ms:.0f} ms "
        f"(socket.connection.setup.timeout.ms): it waited for {waited_for}"
    )


def not_answered(address: str, state: ConnectionState, waited: str) -> DisconnectedError:
    """The error for a connection whose oldest request timed out. `waited` is a clause about that request."""
    hint = f" ({MAYBE_TOO_OLD})" if state is ConnectionState.CHECKING_API_VERSIONS else ""
    return DisconnectedError(f"{address} did not answer in time{waited}{hint}")
