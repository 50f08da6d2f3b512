"""The broker's side of SASL on one connection (Kafka's SaslServerAuthenticator; KIP-152, KIP-368).

Theory of operation. A connection of a SASL listener has an authenticator:

    HANDSHAKE -> AUTHENTICATE, once per message of the mechanism -> COMPLETE
    COMPLETE -> AUTHENTICATE -> COMPLETE, for a re-authentication
    HANDSHAKE, AUTHENTICATE -> FAILED, after which nothing more is read

The server asks `refusal` about each request before it decodes it: until COMPLETE, ApiVersions and SaslHandshake are
served, then SaslAuthenticate, and nothing else. A request after the session's end closes the connection. Only
SaslHandshake is served then: it begins a re-authentication, at most once per second. The handlers of SaslHandshake and
SaslAuthenticate pass the messages to `handshake` and `authenticate`. After version 0 of SaslHandshake the messages are
frames without headers, which the server passes to `take_token`.

Everything runs on the network thread that owns the connection. No I/O.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from ...network.clock import NEVER_MS, Clock
from ...network.protocol.api_keys import ApiKey
from ...network.protocol.errors import (
    IllegalSaslStateError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from ...network.protocol.messages.security.sasl_authenticate import SaslAuthenticateResponse
from ...network.protocol.messages.security.sasl_handshake import SaslHandshakeResponse
from ...network.security.mechanism import ServerMechanism
from ..config.sasl_keys import SaslListener
from .mechanisms import MECHANISMS, FindUsers

#: A connection re-authenticates at most once in this time (KafkaChannel).
MIN_REAUTH_INTERVAL_MS = 1000.0

_BEFORE_HANDSHAKE = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)


class _State(enum.Enum):
    HANDSHAKE = "handshake"
    AUTHENTICATE = "authenticate"
    COMPLETE = "complete"
    FAILED = "failed"


class SaslServerAuthenticator:
    """The state of one connection. Belongs to its network thread."""

    def __init__(
        self, listener: SaslListener, users: FindUsers, clock: Clock, on_principal: Callable[[str], None]
    ) -> None:
        """Begin with an unauthenticated client; `on_principal` receives its name once it is authenticated."""
        self.listener = listener
        self._users = users
        self._clock = clock
        self._on_principal = on_principal
        self._state = _State.HANDSHAKE
        self._mechanism: ServerMechanism | None = None
        self._mechanism_name = ""
        self._previous: tuple[str, str] | None = None  # mechanism and name of the session that is renewed
        self._bad_mechanism = ""
        self._name = ""
        self._session_ends_ms = NEVER_MS
        self._reauthenticated_ms: float | None = None
        #: Whether the messages of the mechanism are frames without headers.
        self.takes_tokens = False

    @property
    def has_failed(self) -> bool:
        """Whether the connection is to be closed after the response."""
        return self._state is _State.FAILED

    @property
    def is_complete(self) -> bool:
        """Whether the client is authenticated, and not about to authenticate again."""
        return self._state is _State.COMPLETE

    def refusal(self, api_key: ApiKey, now_ms: float) -> str | None:
        """Why this request closes the connection; None if it may be handled."""
        if self._state is _State.COMPLETE:
            if api_key is not ApiKey.SASL_HANDSHAKE and now_ms > self._session_ends_ms:
                return "its session has ended, and it has not authenticated again"
            return None
        if self._state is _State.HANDSHAKE and api_key not in _BEFORE_HANDSHAKE:
            return f"{api_key.name} before SASL authentication; the client may have another security.protocol"
        if self._state is _State.AUTHENTICATE and api_key is not ApiKey.SASL_AUTHENTICATE:
            return f"{api_key.name} during SASL authentication"
        return None

    def handshake(self, mechanism: str, version: int) -> SaslHandshakeResponse:
        """Answer SaslHandshake."""
        now_ms = self._clock.now_ms()
        if self._state is _State.COMPLETE:
            too_soon = (
                self._reauthenticated_ms is not None and now_ms - self._reauthenticated_ms < MIN_REAUTH_INTERVAL_MS
            )
            if self._session_ends_ms == NEVER_MS or too_soon:
                return SaslHandshakeResponse(error_code=IllegalSaslStateError.code, mechanisms=[])
            self._reauthenticated_ms = now_ms
            self._previous = (self._mechanism_name, self._name)
        offered = list(self.listener.mechanisms)
        if mechanism not in offered:
            self._state = _State.FAILED
            return SaslHandshakeResponse(error_code=UnsupportedSaslMechanismError.code, mechanisms=offered)
        if self._previous is not None and mechanism != self._previous[0]:
            self._bad_mechanism = (
                f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of "
                f"mechanism '{self._previous[0]}'"
            )
        self._state = _State.AUTHENTICATE
        self._mechanism_name = mechanism
        self._mechanism = MECHANISMS[mechanism](self.listener, self._users)
        self.takes_tokens = version == 0
        return SaslHandshakeResponse(mechanisms=offered)

    def authenticate(self, message: bytes) -> SaslAuthenticateResponse:
        """Answer SaslAuthenticate."""
        if self._state is not _State.AUTHENTICATE:
            return SaslAuthenticateResponse(
                error_code=IllegalSaslStateError.code,
                error_message="SaslAuthenticate request received after successful authentication",
            )
        try:
            answer = self._respond(message)
        except SaslAuthenticationFailedError as error:
            self._state = _State.FAILED
            return SaslAuthenticateResponse(error_code=error.code, error_message=str(error))
        return SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=self._lifetime_ms())

    def take_token(self, token: bytes) -> bytes | None:
        """Answer a message in a frame of its own; None if the connection is to be closed."""
        try:
            answer = self._respond(token)
        except SaslAuthenticationFailedError:
            self._state = _State.FAILED
            return None
        self._lifetime_ms()
        return answer

    def _respond(self, message: bytes) -> bytes:
        mechanism = self._mechanism
        assert mechanism is not None
        if self._bad_mechanism:
            raise SaslAuthenticationFailedError(self._bad_mechanism)
        answer = mechanism.respond(message)
        if not mechanism.is_complete:
            return answer
        name = mechanism.principal_name
        if self._previous is not None and self._previous[1] != name:
            raise SaslAuthenticationFailedError(
                f"Cannot change principals during re-authentication from User.{self._previous[1]}: User.{name}"
            )
        self._name = name
        self._state = _State.COMPLETE
        self.takes_tokens = False
        self._on_principal(name)
        return answer

    def _lifetime_ms(self) -> int:
        """Begin the session and return how long it lasts; 0 if it has no end or has not begun."""
        mechanism = self._mechanism
        if self._state is not _State.COMPLETE or mechanism is None:
            return 0
        lifetimes: list[float] = []
        most_ms = self.listener.max_reauth_ms[self._mechanism_name]
        if most_ms > 0:
            lifetimes.append(most_ms)
        if mechanism.expires_ms is not None:
            lifetimes.append(max(mechanism.expires_ms - self._clock.wall_ms(), 0))
        self._mechanism = None
        if not lifetimes:
            self._session_ends_ms = NEVER_MS
            return 0
        self._session_ends_ms = self._clock.now_ms() + min(lifetimes)
        return int(min(lifetimes))
