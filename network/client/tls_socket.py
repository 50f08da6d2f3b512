"""A blocking socket over TLS, for `BlockingConnection`: the same transport as that of the selector, driven by waits."""

from __future__ import annotations

import select
import socket
from typing import Any

from ..addresses import Address
from ..clock import SYSTEM_CLOCK
from ..protocol.errors import KafkaError
from ..security.tls import TlsContexts
from ..sockets.poller_cy import EVENT_READ, EVENT_WRITE
from ..sockets.tls_transport_cy import TlsTransport
from .blocking_connection import OpenSocket, open_plaintext_socket
from .connection_errors import handshake_timed_out

_POLL_EVENTS = {EVENT_READ: select.POLLIN, EVENT_WRITE: select.POLLOUT, EVENT_READ | EVENT_WRITE: select.POLLIN}


class TlsSocket:
    """The methods of a socket that a `BlockingConnection` uses. For one thread, except `shutdown`.

    Timeouts are those of a socket: the longest wait of each call, after which TimeoutError is raised.
    """

    def __init__(self, sock: socket.socket, transport: TlsTransport) -> None:
        """Take over a connected socket and its transport, whose handshake is complete or about to begin."""
        self._socket = sock
        self._transport = transport
        self._poll = select.poll()
        self._fd = sock.fileno()
        self._timeout_s: float | None = None

    @property
    def ssl_object(self) -> Any:
        """The SSL object, for the broker's certificate, the version and the cipher; None before the handshake."""
        return self._transport.ssl_object

    def handshake(self) -> None:
        """Perform the handshake within the timeout. Raises TimeoutError, OSError and KafkaError."""
        deadline_ms = self._deadline_ms()
        while not self._transport.ready:
            events = self._transport.handshake()
            if events:
                self._wait(events, deadline_ms)

    def settimeout(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s

    def sendall(self, data: Any) -> None:
        """Encrypt and send all of `data`. Raises TimeoutError, OSError and KafkaError."""
        deadline_ms = self._deadline_ms()
        view = memoryview(data)
        while view or self._transport.has_pending_writes:
            view = view[self._transport.write((view,) if view else ()) :]
            if self._transport.has_pending_writes:
                self._wait(EVENT_WRITE, deadline_ms)

    def recv_into(self, buffer: Any) -> int:
        """Read at least one byte, or 0 at the end of the stream. Raises TimeoutError, OSError and KafkaError."""
        deadline_ms = self._deadline_ms()
        while True:
            count = self._transport.read_into(memoryview(buffer))
            if count is not None:
                return count
            self._wait(EVENT_READ, deadline_ms)

    def shutdown(self, how: int) -> None:
        """Shut the socket down beneath TLS, so that a waiting call ends. Any thread."""
        self._socket.shutdown(how)

    def close(self) -> None:
        self._transport.close()

    def _deadline_ms(self) -> float | None:
        return None if self._timeout_s is None else SYSTEM_CLOCK.now_ms() + self._timeout_s * 1000.0

    def _wait(self, events: int, deadline_ms: float | None) -> None:
        left_ms = None if deadline_ms is None else deadline_ms - SYSTEM_CLOCK.now_ms()
        if left_ms is not None and left_ms <= 0:
            raise TimeoutError("timed out")
        self._poll.register(self._fd, _POLL_EVENTS[events])
        if not self._poll.poll(left_ms):
            raise TimeoutError("timed out")


def tls_opener(contexts: TlsContexts, open_socket: OpenSocket = open_plaintext_socket) -> OpenSocket:
    """The `open_socket` of a `BlockingConnection` over TLS. `open_socket` opens the connection beneath."""

    def open_tls_socket(address: Address, timeout_s: float) -> Any:
        contexts.refresh()
        sock = open_socket(address, timeout_s)
        assert isinstance(sock, socket.socket)
        opened = TlsSocket(sock, contexts.transport(sock, address.host))
        try:
            opened.settimeout(timeout_s)
            opened.handshake()
        except TimeoutError:
            opened.close()
            raise handshake_timed_out(str(address), timeout_s * 1000.0) from None
        except KafkaError as error:
            opened.close()
            raise type(error)(f"{address}: {error}") from error
        except BaseException:
            opened.close()
            raise
        return opened

    return open_tls_socket
