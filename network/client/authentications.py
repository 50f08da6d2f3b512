"""The SASL authentications of a `NetworkClient`'s connections, and the renewal of their sessions (KIP-368).

Theory of operation. `begin` starts the authentication of a connection that has answered ApiVersions; the node is
AUTHENTICATING until it completes, and the connection setup timeout bounds that time. `handle` takes the responses.
`turn` runs once per poll and does what is due:

- It asks again for credentials that were still being fetched.
- It begins to renew sessions, each after 85 to 95 % of its life. The node becomes REAUTHENTICATING, so no new request
  is sent to it. Once its requests in flight are answered, the exchange takes place and the node is READY again. Records
  wait for the requests in flight and for the round trips of the mechanism, no longer.
- A node without requests in flight becomes LAPSED instead, and the next request that is wanted begins the exchange
  (`renew`). So a connection that is not used has no traffic, and `connections.max.idle.ms` ends it, as in Java
  (KafkaChannel.maybeBeginClientReauthentication). The broker accepts the exchange after the session's end, too.
- Without credentials for a renewal the connection stays in use until its session ends, and is then closed.

Nothing here blocks, and `delay_ms` says when the next renewal is due: the client neither polls for it nor misses it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from ..clock import NEVER_MS
from ..protocol.errors import AuthenticationError, DisconnectedError, KafkaError
from ..protocol.message import Request
from ..repeats import Repeats
from ..security.mechanism import Credentials
from .api_versions import NodeApiVersions
from .authenticator import SaslClientAuthenticator, Session, needs_new_connection, session_of

_log = logging.getLogger(__name__)


class Connections(Protocol):
    """The part of `NetworkClient` that authentications use."""

    def api_versions(self, node_id: int) -> NodeApiVersions | None: ...

    def in_flight_request_count(self, node_id: int | None = None) -> int: ...

    def send_sasl_request(self, node_id: int, message: Request, now_ms: float) -> KafkaError | None:
        """Send the message. Returns the error if it cannot be encoded."""
        ...

    def let_lapse(self, node_id: int) -> None:
        """Call `renew` before the next request to the node."""
        ...

    def hold_requests(self, node_id: int) -> None:
        """Send nothing but SASL requests to the node from now on."""
        ...

    def authenticated(self, node_id: int) -> None:
        """The node is ready."""
        ...


class Authentications:
    """Authenticators and sessions by node. Belongs to the client's I/O thread."""

    def __init__(
        self, credentials: Credentials, connections: Connections, random_unit: Callable[[], float], repeats: Repeats
    ) -> None:
        """Store the arguments. `credentials` must be started by the owner, with the client's wakeup."""
        self._credentials = credentials
        self._connections = connections
        self._random_unit = random_unit
        self._repeats = repeats
        self._running: dict[int, SaslClientAuthenticator] = {}
        self._addresses: dict[int, tuple[str, str]] = {}  # host and address
        self._sessions: dict[int, Session] = {}
        self._unsent: dict[int, Request] = {}  # first requests of renewals, which wait for requests in flight
        self._delayed: set[int] = set()  # due for renewal, without credentials
        self._next_renewal_ms = NEVER_MS

    def begin(self, node_id: int, host: str, address: str) -> None:
        """Authenticate a new connection; `turn` sends the first request."""
        self._addresses[node_id] = (host, address)
        self._running[node_id] = SaslClientAuthenticator(self._credentials, host, address)

    def forget(self, node_id: int) -> None:
        """The connection is closed."""
        self._running.pop(node_id, None)
        self._unsent.pop(node_id, None)
        self._delayed.discard(node_id)
        if self._sessions.pop(node_id, None) is not None:
            self._find_next_renewal()

    def waits_for(self, node_id: int) -> str:
        """What the node's authentication waits for, in words."""
        running = self._running.get(node_id)
        return "the broker" if running is None else running.describe()

    def delay_ms(self, now_ms: float) -> float:
        """How long until a session is to be renewed; infinity if none is."""
        return max(self._next_renewal_ms - now_ms, 0.0)

    def handle(self, node_id: int, response: Any, now_ms: float) -> KafkaError | None:
        """Take a response of a broker. Returns the error with which the connection is to be closed."""
        running = self._running.get(node_id)
        if running is None:
            return None
        try:
            running.handle(response)
            if not running.is_complete:
                return self._advance(node_id, running, now_ms)
        except KafkaError as error:
            return self._failure(node_id, error)
        del self._running[node_id]
        self._repeats.over((node_id, "credentials"))
        session = session_of(running, now_ms, self._random_unit)
        if session is None:
            self._sessions.pop(node_id, None)
        else:
            self._sessions[node_id] = session
            _log.debug("The session with node %d is renewed in %.0f ms", node_id, session.renew_at_ms - now_ms)
        self._find_next_renewal()
        self._connections.authenticated(node_id)
        return None

    def turn(self, now_ms: float) -> Iterable[tuple[int, KafkaError]]:
        """Send what is due. Returns the connections to close, with their errors."""
        if not self._running and not self._delayed and now_ms < self._next_renewal_ms:
            return ()
        failed: list[tuple[int, KafkaError]] = []
        for node_id, running in list(self._running.items()):
            if not running.awaits_credentials:
                continue
            try:
                error = self._advance(node_id, running, now_ms)
            except KafkaError as wrong:
                error = wrong
            if error is not None:
                failed.append((node_id, error))
        due = [node_id for node_id, session in self._sessions.items() if session.renew_at_ms <= now_ms]
        for node_id in {*due, *self._delayed}:
            if node_id not in self._delayed and self._connections.in_flight_request_count(node_id) == 0:
                self._sessions[node_id] = self._sessions[node_id]._replace(renew_at_ms=NEVER_MS)
                self._connections.let_lapse(node_id)
                self._find_next_renewal()
                continue
            error = self._renew(node_id, now_ms)
            if error is not None:
                failed.append((node_id, error))
        for node_id in list(self._unsent):
            if self._connections.in_flight_request_count(node_id) == 0:
                error = self._connections.send_sasl_request(node_id, self._unsent.pop(node_id), now_ms)
                if error is not None:
                    failed.append((node_id, error))
        return failed

    def renew(self, node_id: int, now_ms: float) -> KafkaError | None:
        """Renew a session that has lapsed. Returns the error with which the connection is to be closed."""
        error = self._renew(node_id, now_ms)
        request = self._unsent.pop(node_id, None)
        if request is not None:
            return self._connections.send_sasl_request(node_id, request, now_ms)
        if error is None:
            # there are no credentials, but the session still lasts
            self._connections.authenticated(node_id)
        return error

    def _advance(self, node_id: int, running: SaslClientAuthenticator, now_ms: float) -> KafkaError | None:
        versions = self._connections.api_versions(node_id)
        assert versions is not None
        request = running.next_request(versions)
        return None if request is None else self._connections.send_sasl_request(node_id, request, now_ms)

    def _renew(self, node_id: int, now_ms: float) -> KafkaError | None:
        """Begin to renew a session, or put it off while there are no credentials."""
        session = self._sessions[node_id]
        host, address = self._addresses[node_id]
        versions = self._connections.api_versions(node_id)
        assert versions is not None
        running = SaslClientAuthenticator(self._credentials, host, address)
        failure: KafkaError | None = None
        request: Request | None = None
        try:
            request = running.next_request(versions)
        except KafkaError as error:
            failure = error
        if request is not None:
            self._delayed.discard(node_id)
            self._sessions[node_id] = session._replace(renew_at_ms=NEVER_MS)
            self._running[node_id] = running
            self._unsent[node_id] = request
            self._connections.hold_requests(node_id)
        elif now_ms < session.ends_ms:
            if failure is not None:
                level = self._repeats.level((node_id, "credentials"), logging.WARNING, now_ms)
                _log.log(level, "The session with %s cannot be renewed yet: %s", address, failure)
            self._delayed.add(node_id)
            self._sessions[node_id] = session.postponed(now_ms)
        else:
            what = running.describe() if failure is None else str(failure)
            return DisconnectedError(f"the session with {address} has ended, and renewing it waits for {what}")
        self._find_next_renewal()
        return None

    def _failure(self, node_id: int, error: KafkaError) -> KafkaError:
        if node_id not in self._sessions:
            return error
        if needs_new_connection(error):
            # once: the new connection has no session, so what it fails with is final
            return DisconnectedError(f"the session is not renewed on this connection: {error}")
        if isinstance(error, AuthenticationError):
            return type(error)(f"re-authentication: {error}")
        return error

    def _find_next_renewal(self) -> None:
        self._next_renewal_ms = min((each.renew_at_ms for each in self._sessions.values()), default=NEVER_MS)
