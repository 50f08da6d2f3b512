"""A broker's own connection to another broker: one request at a time, blocking."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
from typing import Any, Protocol

from ...network.protocol.errors import DisconnectedError, InvalidReceiveError, KafkaConnectionError
from ...network.protocol.frames import decode_response, encode_request
from ...network.protocol.message import Request
from ..metadata import BrokerEndpoint

_LENGTH = struct.Struct(">i")
_MAX_ANSWER_BYTES = 2**30
#: How the client ids of brokers begin, for whom a broker never acts as an older one.
CLIENT_ID_PREFIX = "headrace-broker-"


class Links(Protocol):
    """Which brokers can reach which: a test may cut some off."""

    def is_cut(self, one: int, other: int) -> bool: ...


class CutLinks:
    """Which brokers a test has cut off from which. Any thread: the set is replaced, never changed."""

    def __init__(self) -> None:
        self.cut: frozenset[frozenset[int]] = frozenset()

    def is_cut(self, one: int, other: int) -> bool:
        return frozenset((one, other)) in self.cut


class InterBrokerConnection:
    """Connects at the first request, and again after a failure. `request` and `close` are for one thread,
    `interrupt` for any."""

    def __init__(
        self,
        own_id: int,
        peer: BrokerEndpoint,
        *,
        timeout_ms: float,
        receive_buffer_bytes: int,
        links: Links,
        client_id: str,
    ) -> None:
        self._receive_buffer_bytes = receive_buffer_bytes
        self._own_id = own_id
        self._peer = peer
        self._timeout_s = timeout_ms / 1000.0
        self._links = links
        self._client_id = client_id
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._interrupted = False
        self._correlation_ids = itertools.count()

    def request(self, message: Request, version: int) -> Any:
        """Send a request and wait for its answer. Raises KafkaConnectionError, MalformedMessageError; after that the
        connection is closed."""
        if self._links.is_cut(self._own_id, self._peer.node_id):
            self.close()
            raise KafkaConnectionError(f"broker {self._own_id} is cut off from broker {self._peer.node_id}")
        correlation_id = next(self._correlation_ids) & 0x7FFFFFFF
        buffers = encode_request(message, version=version, correlation_id=correlation_id, client_id=self._client_id)
        sock = None
        try:
            sock = self._connected()
            sock.sendall(b"".join(buffers))
            answer = self._receive(sock)
            answered_id, response = decode_response(type(message), version, answer)
            if answered_id != correlation_id:
                raise InvalidReceiveError(f"broker {self._peer.node_id} answered another request")
            return response
        except OSError as failed:
            self.close()
            raise DisconnectedError(f"no answer from broker {self._peer.node_id}: {failed}") from failed
        except BaseException:
            self.close()
            raise

    def _connected(self) -> socket.socket:
        sock = self._socket
        if sock is None:
            sock = socket.create_connection((self._peer.host, self._peer.port), self._timeout_s)
            # Kept before anything else is done with it: the peer may be gone by then, and `request` closes what fails.
            with self._lock:
                self._socket = sock
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._receive_buffer_bytes >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
        with self._lock:
            if self._interrupted:
                raise DisconnectedError("the request was interrupted before it was sent")
        return sock

    def _receive(self, sock: socket.socket) -> memoryview:
        (size,) = _LENGTH.unpack(self._read(sock, _LENGTH.size))
        if not 0 <= size <= _MAX_ANSWER_BYTES:
            raise InvalidReceiveError(f"broker {self._peer.node_id} announced an answer of {size} bytes")
        return self._read(sock, size)

    def _read(self, sock: socket.socket, size: int) -> memoryview:
        buffer = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            count = sock.recv_into(buffer[filled:])
            if not count:
                raise DisconnectedError(f"broker {self._peer.node_id} closed the connection")
            filled += count
        return buffer

    def close(self) -> None:
        """End the connection. For the thread that makes the requests."""
        with self._lock:
            sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()

    def rearm(self) -> None:
        """Forget interruptions: what has led to them is known by now."""
        with self._lock:
            self._interrupted = False

    def interrupt(self) -> None:
        """Make the request that waits fail at once, and every other until `rearm`. Any thread.

        The socket is shut down, not closed: its descriptor could be another's before the waiting thread has noticed.
        """
        with self._lock:
            self._interrupted = True
            if self._socket is not None:
                # What isn't connected any more can't be shut down, and needn't be.
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
