"""A broker's connection to another broker."""

from __future__ import annotations

import socket
from functools import partial
from typing import Any, Protocol

from ...network.addresses import Address
from ...network.client.blocking_connection import BlockingConnection, open_plaintext_socket
from ...network.protocol.errors import KafkaConnectionError
from ...network.protocol.message import Request
from ...network.security.mechanism import Credentials
from ..metadata import BrokerEndpoint

_MAX_RESPONSE_BYTES = 2**30
#: Prefix of the client ids of brokers. A broker never acts as an older release toward these clients.
CLIENT_ID_PREFIX = "headrace-broker-"


class Links(Protocol):
    """Which brokers can reach each other. A test may cut links between some of them."""

    def is_cut(self, one: int, other: int) -> bool: ...


class CutLinks:
    """The links that a test has cut. Any thread may use it: the set is replaced, never changed."""

    def __init__(self) -> None:
        self.cut: frozenset[frozenset[int]] = frozenset()

    def is_cut(self, one: int, other: int) -> bool:
        return frozenset((one, other)) in self.cut


class InterBrokerConnection(BlockingConnection):
    """A `BlockingConnection` that a test may cut."""

    def __init__(
        self,
        own_id: int,
        peer: BrokerEndpoint,
        *,
        timeout_ms: float,
        receive_buffer_bytes: int,
        links: Links,
        credentials: Credentials | None = None,
    ) -> None:
        """`receive_buffer_bytes` is SO_RCVBUF; -1 leaves the system's default. `credentials` are for a listener with
        SASL."""
        address = Address(peer.host, peer.port)
        super().__init__(
            address,
            client_id=f"{CLIENT_ID_PREFIX}{own_id}",
            timeout_ms=timeout_ms,
            max_response_bytes=_MAX_RESPONSE_BYTES,
            peer=f"broker {peer.node_id} ({address})",
            open_socket=partial(_open_socket, receive_buffer_bytes),
            credentials=credentials,
        )
        self._own_id = own_id
        self._peer_id = peer.node_id
        self._links = links

    def request(self, message: Request, version: int | None = None) -> Any:
        """Like `BlockingConnection.request`, but raises KafkaConnectionError while the link is cut."""
        if self._links.is_cut(self._own_id, self._peer_id):
            self.close()
            raise KafkaConnectionError(f"broker {self._own_id} is cut off from broker {self._peer_id}")
        return super().request(message, version)


def _open_socket(receive_buffer_bytes: int, address: Address, timeout_s: float) -> socket.socket:
    sock = open_plaintext_socket(address, timeout_s)
    if receive_buffer_bytes >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    return sock
