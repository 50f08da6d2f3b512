"""The client's SASL authentication of one connection, and when to repeat it (KIP-152, KIP-368).

Theory of operation. After ApiVersions, `SaslClientAuthenticator` yields one request at a time, and takes its response:

    BEGIN -> HANDSHAKE -> AUTHENTICATE, once per message of the mechanism -> COMPLETE

In BEGIN it asks the credentials for the client's half of a mechanism. If they are still being fetched, `next_request`
returns None and stays in BEGIN; the owner calls it again once the credentials have called their wakeup. Any error ends
the authentication, and the owner closes the connection. Nothing else is in flight meanwhile, so responses need no
further matching.

A re-authentication is the same exchange on the same connection with a new authenticator. Its owner first lets the
requests in flight finish. The broker processes requests in order, so it could also follow them directly, but then a
rejected re-authentication would close the connection under them.

The owners are `NetworkClient`, which never blocks, and `BlockingConnection`.

Source: Kafka's SaslClientAuthenticator.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..chance import random_unit as any_unit
from ..protocol.errors import (
    AuthenticationError,
    IllegalSaslStateError,
    IllegalStateError,
    KafkaError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
    make_error,
)
from ..protocol.message import Request
from ..protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ..protocol.messages.security.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ..security.mechanism import ClientMechanism, Credentials
from .api_versions import NodeApiVersions

#: The shares of a session after which it is renewed: at random between them, so that the connections of many clients
#: do not renew theirs together (Kafka's constants).
EARLIEST_RENEWAL = 0.85
LATEST_RENEWAL = 0.95

#: How often credentials that cannot be had are asked for again while the session still lasts.
RETRY_MS = 1000.0

#: Brokers refuse to renew a session more than once in a second (KafkaChannel); this is a little more.
MIN_RENEWAL_MS = 1020.0

#: What Kafka's brokers answer if the name has changed, as it may behind a token (SaslServerAuthenticator).
_OTHER_PRINCIPAL = "Cannot change principals during re-authentication"

#: Versions before this one of SaslHandshake are followed by frames without headers (Kafka before 1.0).
_FIRST_WITH_FRAMES = 1


class _Step(enum.Enum):
    BEGIN = "begin"
    HANDSHAKE = "handshake"
    AUTHENTICATE = "authenticate"
    COMPLETE = "complete"
    FAILED = "failed"


class SaslClientAuthenticator:
    """One authentication of one connection. Belongs to the thread of the connection."""

    def __init__(self, credentials: Credentials, host: str, address: str) -> None:
        """Begin an authentication with the broker at `host`; `address` is how messages name the broker."""
        self._credentials = credentials
        self._host = host
        self._address = address
        self._mechanism: ClientMechanism | None = None
        self._message: bytes | None = None
        self._step = _Step.BEGIN
        #: How long the session lasts from its completion, in milliseconds; 0 if it has no end.
        self.session_lifetime_ms = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether the broker has accepted the client, and the client the broker."""
        return self._step is _Step.COMPLETE

    @property
    def awaits_credentials(self) -> bool:
        """Whether the credentials are still being fetched."""
        return self._step is _Step.BEGIN

    def describe(self) -> str:
        """What it waits for, in words."""
        if self._step is _Step.BEGIN:
            return f"the {self._credentials.mechanism} credentials, which are still being fetched"
        api = "SaslHandshake" if self._step is _Step.HANDSHAKE else "SaslAuthenticate"
        return f"the broker's answer to {api} ({self._credentials.mechanism})"

    def next_request(self, versions: NodeApiVersions) -> Request | None:
        """The next request; None while the credentials are being fetched.

        Raises the errors of credentials that could not be fetched, and UnsupportedVersionError for a broker that is too
        old.
        """
        if self._step is _Step.BEGIN:
            if versions.usable_version(SaslHandshakeRequest) < _FIRST_WITH_FRAMES:
                self._step = _Step.FAILED
                raise UnsupportedVersionError(
                    f"{self._address} supports SASL only in the form before Kafka 1.0 (SaslHandshake version 0), which "
                    "this client does not: connect to a newer broker, or to a listener without SASL"
                )
            self._mechanism = self._credentials.begin(self._host)
            if self._mechanism is None:
                return None
            self._message = self._mechanism.initial_message()
            self._step = _Step.HANDSHAKE
            return SaslHandshakeRequest(mechanism=self._credentials.mechanism)
        if self._step is not _Step.AUTHENTICATE or self._message is None:
            raise IllegalStateError(f"no SASL request is due ({self._step.value})")
        message, self._message = self._message, None
        return SaslAuthenticateRequest(auth_bytes=message)

    def handle(self, response: Any) -> None:
        """Take the response to the last request. Raises AuthenticationError; the connection is to be closed then."""
        step, self._step = self._step, _Step.FAILED
        if step is _Step.HANDSHAKE and isinstance(response, SaslHandshakeResponse):
            self._check_handshake(response)
            self._step = _Step.AUTHENTICATE
        elif step is _Step.AUTHENTICATE and isinstance(response, SaslAuthenticateResponse):
            self._step = self._exchanged(response)
        else:
            raise IllegalSaslStateError(f"{self._address} answered SASL out of turn ({step.value})")

    def _check_handshake(self, response: SaslHandshakeResponse) -> None:
        if response.error_code == 0:
            return
        mechanism = self._credentials.mechanism
        error = make_error(response.error_code)
        if isinstance(error, UnsupportedSaslMechanismError):
            raise UnsupportedSaslMechanismError(
                f"{self._address} does not offer the SASL mechanism {mechanism}, but {_listed(response.mechanisms)}; "
                "change sasl.mechanism"
            )
        if isinstance(error, IllegalSaslStateError):
            raise IllegalSaslStateError(
                f"{self._address} does not expect SASL there: {str(error).rstrip('.')}. Check security.protocol "
                "against the listener's"
            )
        raise _authentication_error(error, f"{self._address} answered SaslHandshake with: {error}")

    def _exchanged(self, response: SaslAuthenticateResponse) -> _Step:
        mechanism = self._mechanism
        assert mechanism is not None
        if response.error_code != 0:
            error = make_error(response.error_code)
            reason = response.error_message or str(error)
            raise _authentication_error(
                error, f"{self._address} rejected the {self._credentials.mechanism} credentials: {reason}"
            )
        try:
            answer = mechanism.respond(bytes(response.auth_bytes))
        except SaslAuthenticationFailedError as error:
            raise SaslAuthenticationFailedError(f"{self._address}: {error}") from error
        if answer is not None:
            self._message = answer
            return _Step.AUTHENTICATE
        if not mechanism.is_complete:
            raise SaslAuthenticationFailedError(
                f"{self._address} ended the {self._credentials.mechanism} exchange before it was complete"
            )
        self.session_lifetime_ms = float(max(response.session_lifetime_ms, 0))
        return _Step.COMPLETE


def _listed(mechanisms: Sequence[str]) -> str:
    return " and ".join(mechanisms) if mechanisms else "none"


def _authentication_error(error: KafkaError, message: str) -> AuthenticationError:
    kind = type(error) if isinstance(error, AuthenticationError) else SaslAuthenticationFailedError
    return kind(message)


def needs_new_connection(error: KafkaError) -> bool:
    """Whether a re-authentication failed for a reason that a new connection has not: the name is another one, or the
    broker does not renew sessions, or not as often."""
    return isinstance(error, IllegalSaslStateError) or (
        isinstance(error, SaslAuthenticationFailedError) and _OTHER_PRINCIPAL in str(error)
    )


class Session(NamedTuple):
    """The session of an authenticated connection, in monotonic milliseconds."""

    renew_at_ms: float
    ends_ms: float

    def postponed(self, now_ms: float) -> Session:
        """The session with its renewal tried again soon, before it ends."""
        return self._replace(renew_at_ms=min(now_ms + RETRY_MS, max(self.ends_ms, now_ms)))


def session_of(
    authenticator: SaslClientAuthenticator, now_ms: float, random_unit: Callable[[], float] = any_unit
) -> Session | None:
    """The session that begins now; None if it has no end."""
    lifetime_ms = authenticator.session_lifetime_ms
    if lifetime_ms <= 0:
        return None
    share = EARLIEST_RENEWAL + (LATEST_RENEWAL - EARLIEST_RENEWAL) * random_unit()
    return Session(now_ms + max(lifetime_ms * share, min(lifetime_ms, MIN_RENEWAL_MS)), now_ms + lifetime_ms)
