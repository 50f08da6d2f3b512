"""A blocking connection to a broker: one request, its response, then the next request.

The commands and the replica fetchers use it, each on a thread of their own. The producer's I/O goes through
`network_client_cy` instead, which never blocks. `open_socket` opens the socket, with TLS if it is `tls_opener`'s. With
`credentials` each connection authenticates after ApiVersions, and again before a request when its session is to be
renewed (KIP-368).
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any, Protocol

from ..addresses import Address
from ..clock import SYSTEM_CLOCK, Clock
from ..protocol.errors import AuthenticationError, CorrelationIdError, DisconnectedError, make_error
from ..protocol.frames import decode_response, encode_request
from ..protocol.message import Request
from ..protocol.messages.api_versions import ApiVersionsRequest
from ..security.mechanism import Credentials
from ..sockets.channel_cy import (
    NEVER_ANSWERED,
    SCRATCH_BYTES,
    FrameAssembler,
    InvalidLength,
    NetworkReceive,
    connect_error,
    invalid_frame_error,
)
from ..sockets.resolver import resolve_host
from .api_versions import NodeApiVersions, handshake_fallback, handshake_request
from .authenticator import SaslClientAuthenticator, Session, needs_new_connection, session_of

#: How often credentials that are still being fetched are asked for.
_CREDENTIALS_CHECK_MS = 20.0


class BlockingSocket(Protocol):
    """The methods of a socket that a connection uses: those of `socket.socket` or of a `TlsSocket`."""

    def settimeout(self, value: float | None, /) -> None: ...

    def sendall(self, data: Any, /) -> None: ...

    def recv_into(self, buffer: Any, /) -> int: ...

    def shutdown(self, how: int, /) -> None: ...

    def close(self) -> None: ...


#: Called with an address and a timeout in seconds. Returns a connected socket or raises KafkaConnectionError.
OpenSocket = Callable[[Address, float], BlockingSocket]


def open_plaintext_socket(address: Address, timeout_s: float) -> socket.socket:
    """Connect to the first address of the host that accepts. Blocks up to `timeout_s` per address.

    Raises KafkaConnectionError, or UnresolvableHostError if the name has no address.
    """
    failure = None
    for family, sockaddr in resolve_host(*address):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout_s)
            sock.connect(sockaddr)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError as error:
            sock.close()
            failure = error
    assert failure is not None
    raise connect_error(str(address), failure) from failure


class BlockingConnection:
    """A connection that opens on the first request, closes on a failure and reopens on the next request.

    Any thread may call `interrupt` and `rearm`. Everything else is for one thread at a time.
    """

    def __init__(
        self,
        address: Address,
        *,
        client_id: str,
        timeout_ms: float,
        max_response_bytes: int,
        peer: str | None = None,
        open_socket: OpenSocket = open_plaintext_socket,
        credentials: Credentials | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Store the settings; nothing is opened yet.

        `address` is the broker's host and port.
        `client_id` is sent in each request header.
        `timeout_ms` limits connecting, and separately each request with its response.
        `max_response_bytes` is the limit above which a response is an error.
        `peer` is how messages name the broker, its address by default.
        `open_socket` opens the socket.
        `credentials` are what it authenticates with over SASL; their owner starts and closes them.
        `clock` measures the timeout.
        """
        self._address = address
        self._peer = str(address) if peer is None else peer
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._max_response_bytes = max_response_bytes
        self._open_socket = open_socket
        self._credentials = credentials
        self._session: Session | None = None
        self._clock = clock
        self._lock = threading.Lock()
        self._socket: BlockingSocket | None = None
        self._interrupted = False
        self._scratch = bytearray(SCRATCH_BYTES)
        self._assembler = self._new_assembler()
        self._versions: NodeApiVersions | None = None
        self._correlation_id = 0

    def request(self, message: Request, version: int | None = None) -> Any:
        """Send a request and wait for its response. `version` defaults to the newest one that both sides support.

        Raises KafkaConnectionError, NotKafkaError, MalformedMessageError and AuthenticationError, which close the
        connection, and EncodeError and UnsupportedVersionError, which leave it as it was.
        """
        if self._credentials is not None:
            self._renew_session()
        return self._exchange(message, self.usable_version(type(message)) if version is None else version)

    def usable_version(self, request_class: type[Request]) -> int:
        """The newest version of an API that both sides support. Asks the broker once per connection.

        Raises UnsupportedVersionError if there is none, and the errors of `request`.
        """
        return self.api_versions().usable_version(request_class)

    def api_versions(self) -> NodeApiVersions:
        """The versions that the broker supports. Connects and asks it once per connection.

        Raises the errors of `request`.
        """
        if self._versions is None:
            versions = self._handshake()
            if self._credentials is not None:
                self._authenticate(self._credentials, versions)
            self._versions = versions
        return self._versions

    def close(self) -> None:
        """Close the connection. The next request opens another."""
        with self._lock:
            sock, self._socket = self._socket, None
        self._versions = None
        self._session = None
        if sock is not None:
            sock.close()

    def rearm(self) -> None:
        """Clear an interruption, so that requests work again. Any thread."""
        with self._lock:
            self._interrupted = False

    def interrupt(self) -> None:
        """Make the waiting request fail at once, and every other one until `rearm`. Any thread.

        The socket is shut down and not closed: a closed descriptor could be reused before the waiting thread notices.
        """
        with self._lock:
            self._interrupted = True
            if self._socket is not None:
                # A socket that is no longer connected cannot be shut down and need not be.
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    # --- One request ---

    def _handshake(self) -> NodeApiVersions:
        version = ApiVersionsRequest.versions.max
        while True:
            response = self._exchange(handshake_request(), version)
            if response.error_code == 0:
                return NodeApiVersions.from_response(response, name=self._peer)
            fallback = handshake_fallback(response, version)
            if fallback is None:
                self.close()
                error = make_error(response.error_code)
                raise type(error)(f"{self._peer} answered ApiVersions with: {error}")
            version = fallback

    def _renew_session(self) -> None:
        """Authenticate, or authenticate again if it is time."""
        assert self._credentials is not None
        session = self._session
        if self._versions is None:
            self.api_versions()
        elif session is not None and self._clock.now_ms() >= session.renew_at_ms:
            try:
                self._authenticate(self._credentials, self._versions)
            except AuthenticationError as error:
                if not needs_new_connection(error):
                    raise
                self.api_versions()  # on a new connection

    def _authenticate(self, credentials: Credentials, versions: NodeApiVersions) -> None:
        authenticator = SaslClientAuthenticator(credentials, self._address.host, self._peer)
        deadline_ms = self._clock.now_ms() + self._timeout_ms
        try:
            while not authenticator.is_complete:
                message = authenticator.next_request(versions)
                if message is not None:
                    authenticator.handle(self._exchange(message, versions.usable_version(type(message))))
                    continue
                self._check_interrupted()
                if self._clock.now_ms() >= deadline_ms:
                    raise DisconnectedError(
                        f"{self._peer} was not authenticated to within {self._timeout_ms:.0f} ms: it waited for "
                        f"{authenticator.describe()}"
                    )
                self._clock.sleep(_CREDENTIALS_CHECK_MS)
        except BaseException:
            self.close()
            raise
        self._session = session_of(authenticator, self._clock.now_ms())

    def _exchange(self, message: Request, version: int) -> Any:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        frame = encode_request(message, version=version, correlation_id=self._correlation_id, client_id=self._client_id)
        try:
            sock = self._connected()
            deadline_ms = self._clock.now_ms() + self._timeout_ms
            try:
                sock.settimeout(self._timeout_ms / 1000.0)
                sock.sendall(b"".join(frame))
                payload = self._receive(sock, deadline_ms)
            except TimeoutError as late:
                raise DisconnectedError(f"{self._peer} did not answer within {self._timeout_ms:.0f} ms") from late
            except OSError as failed:
                self._check_interrupted()
                reason = failed.strerror or failed
                raise DisconnectedError(f"the connection to {self._peer} broke: {reason}") from failed
            answered_id, response = decode_response(type(message), version, payload)
            if answered_id != self._correlation_id:
                raise CorrelationIdError(
                    f"{self._peer} answered request {answered_id}, but {self._correlation_id} was expected"
                )
            return response
        except BaseException:
            self.close()
            raise

    def _connected(self) -> BlockingSocket:
        sock = self._socket
        if sock is None:
            self._check_interrupted()
            sock = self._open_socket(self._address, self._timeout_ms / 1000.0)
            self._assembler = self._new_assembler()
            with self._lock:
                self._socket = sock
        self._check_interrupted()
        return sock

    def _new_assembler(self) -> FrameAssembler:
        return FrameAssembler(self._peer, self._scratch, self._max_response_bytes)

    def _check_interrupted(self) -> None:
        with self._lock:
            if self._interrupted:
                raise DisconnectedError(f"the request to {self._peer} was interrupted")

    def _receive(self, sock: BlockingSocket, deadline_ms: float) -> memoryview:
        assembler = self._assembler
        frames: list[NetworkReceive] = []
        while not frames:
            left_ms = deadline_ms - self._clock.now_ms()
            if left_ms <= 0:
                raise TimeoutError
            sock.settimeout(left_ms / 1000.0)
            count = sock.recv_into(assembler.target())
            if not count:
                self._check_interrupted()
                why = assembler.unfinished() or ("" if assembler.frames_begun else NEVER_ANSWERED)
                raise DisconnectedError(f"{self._peer} closed the connection" + (f"; {why}" if why else ""))
            try:
                assembler.received(count, frames)
            except InvalidLength as wrong:
                raise invalid_frame_error(
                    self._peer,
                    wrong,
                    is_first=not assembler.frames_begun,
                    initiated=True,
                    max_receive_bytes=self._max_response_bytes,
                ) from None
        if len(frames) > 1:
            raise CorrelationIdError(f"{self._peer} sent {len(frames)} responses to one request")
        return frames[0].payload
