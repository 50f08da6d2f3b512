"""A broker's connection to another broker."""

from __future__ import annotations

import secrets
import socket
from functools import partial
from typing import Any, Protocol

from ...network.addresses import Address
from ...network.client.blocking_connection import BlockingConnection, OpenSocket, open_plaintext_socket
from ...network.protocol.errors import (
    AuthenticationError,
    KafkaConnectionError,
    MalformedMessageError,
    NotKafkaError,
)
from ...network.protocol.message import Request
from ...network.security.mechanism import Credentials
from ..config.broker_config import BrokerConfig
from ..metadata import BrokerEndpoint
from ..security.listener_tls import inter_broker_opener

#: Why a request to another broker fails, none of which is a defect of this one: no connection, rejected credentials, or
#: a peer that is no broker.
UNREACHABLE = (AuthenticationError, KafkaConnectionError, MalformedMessageError, NotKafkaError)

_MAX_RESPONSE_BYTES = 2**30
#: Prefix of the client ids of brokers.
CLIENT_ID_PREFIX = "headrace-broker-"


def broker_client_id(node_id: int, token: str) -> str:
    """The client id with which a broker connects to the others of its cluster. `token` is the cluster's."""
    return f"{CLIENT_ID_PREFIX}{node_id}.{token}"


def without_broker_token(client_id: str | None, token: str) -> str | None:
    """The client id of a broker of this cluster, without the token; None for any other client.

    The token proves that the connection is a broker's: a broker's requests are always authorized, and no broker acts as
    an older release toward another.
    """
    if client_id is None or not token or not client_id.startswith(CLIENT_ID_PREFIX):
        return None
    own, _, given = client_id.rpartition(".")
    return own if secrets.compare_digest(given.encode(), token.encode()) else None


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
        open_socket: OpenSocket,
        links: Links,
        token: str,
        credentials: Credentials | None = None,
    ) -> None:
        """`token` is the image's `broker_token`. `credentials` are for a listener with SASL."""
        address = Address(peer.host, peer.port)
        super().__init__(
            address,
            client_id=broker_client_id(own_id, token),
            timeout_ms=timeout_ms,
            max_response_bytes=_MAX_RESPONSE_BYTES,
            peer=f"broker {peer.node_id} ({address})",
            open_socket=open_socket,
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


class InterBrokerConnector:
    """Makes a broker's connections to others, with the security of the listener between them. Any thread."""

    def __init__(
        self, own_id: int, config: BrokerConfig, links: Links, listener: str, credentials: Credentials | None
    ) -> None:
        """Raises KafkaConfigurationError."""
        self._own_id = own_id
        self._timeout_ms = config.replica_socket_timeout_ms
        self._open_socket = inter_broker_opener(
            config, listener, partial(_open_socket, config.replica_socket_receive_buffer_bytes)
        )
        self._links = links
        self._credentials = credentials

    def connection_to(self, peer: BrokerEndpoint, token: str) -> InterBrokerConnection:
        """A connection that opens on its first request. `token` is the image's `broker_token`."""
        return InterBrokerConnection(
            self._own_id,
            peer,
            timeout_ms=self._timeout_ms,
            open_socket=self._open_socket,
            links=self._links,
            token=token,
            credentials=self._credentials,
        )


def _open_socket(receive_buffer_bytes: int, address: Address, timeout_s: float) -> socket.socket:
    sock = open_plaintext_socket(address, timeout_s)
    if receive_buffer_bytes >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    return sock
