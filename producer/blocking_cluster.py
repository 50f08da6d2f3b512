"""Single requests to the brokers of a cluster, on the caller's thread and with the producer's security. Internal.

Spark's driver uses it to end transactions and to read the log of commits; no record goes this way.
"""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from ..network.addresses import Address
from ..network.backoff import ExponentialBackoff
from ..network.client.blocking_connection import BlockingConnection, OpenSocket, open_plaintext_socket
from ..network.clock import SYSTEM_CLOCK, Clock
from ..network.protocol.errors import KafkaError, KafkaTimeoutError, RetriableError, make_error
from ..network.protocol.message import Request
from ..network.protocol.messages.topics.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ..network.security.client_config import ClientSecurityConfig
from ..network.security.sasl_config import credentials_of
from .config import ProducerConfig

_log = logging.getLogger(__name__)

#: Bytes of a response above which it is not one to these requests.
MAX_RESPONSE_BYTES = 64 * 2**20
BACKOFF_MS = 50.0
MAX_BACKOFF_MS = 1000.0

T = TypeVar("T")


class BlockingCluster:
    """Connections to the brokers of a cluster, opened when needed. A context manager; for one thread at a time.

    `config`: the addresses, the security, `client.id` and `request.timeout.ms` of a producer. `timeout_ms`:
    milliseconds for which `retrying` retries.
    """

    def __init__(self, config: ProducerConfig, *, timeout_ms: float, clock: Clock = SYSTEM_CLOCK) -> None:
        """Connect to nothing yet. Raises KafkaConfigurationError for files of keys and certificates."""
        self._config = config
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._open_socket = _socket_opener(config)
        self._credentials = credentials_of(config, clock)
        self._connections: dict[Address, BlockingConnection] = {}
        self._bootstrap = 0

    def __enter__(self) -> BlockingCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections, and stop fetching credentials."""
        self._close_connections()
        if self._credentials is not None:
            self._credentials.close()

    @contextlib.contextmanager
    def for_another_thread(self) -> Iterator[BlockingCluster]:
        """One with connections of its own, and the credentials of this one."""
        other = copy.copy(self)
        other._connections = {}
        try:
            yield other
        finally:
            other._close_connections()

    def _close_connections(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def connection(self, address: Address | None = None) -> BlockingConnection:
        """The connection to a broker, by default to one of the bootstrap servers."""
        if address is None:
            servers = self._config.bootstrap_servers
            address = servers[self._bootstrap % len(servers)]
        known = self._connections.get(address)
        if known is None:
            known = self._connections[address] = BlockingConnection(
                address,
                client_id=self._config.client_id,
                timeout_ms=float(self._config.request_timeout_ms),
                max_response_bytes=MAX_RESPONSE_BYTES,
                open_socket=self._open_socket,
                credentials=self._credentials,
                clock=self._clock,
            )
        return known

    def ask(self, request: Request, address: Address | None = None) -> Any:
        """The response of a broker, by default of a bootstrap server. Raises what `BlockingConnection.request` does."""
        return self.connection(address).request(request)

    def metadata(self, topics: Iterable[str] = ()) -> MetadataResponse:
        """The brokers, and the named topics with their errors. Raises KafkaError."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False
        )
        response: MetadataResponse = self.ask(request)
        if response.error_code:
            raise make_error(response.error_code)
        return response

    def brokers(self) -> dict[int, Address]:
        """The addresses of all brokers, by id. Raises KafkaError."""
        return {broker.node_id: Address(broker.host, broker.port) for broker in self.metadata().brokers}

    def retrying(self, what: str, attempt: Callable[[], T]) -> T:
        """Call `attempt` until it raises no RetriableError. Errors of connections are retriable.

        `what` completes "... did not succeed". Raises KafkaTimeoutError after `timeout_ms`, with the last error as the
        cause: the outcome is unknown. Raises the other errors of `attempt` at once.
        """
        backoff = ExponentialBackoff(BACKOFF_MS, MAX_BACKOFF_MS)
        deadline_ms = self._clock.now_ms() + self._timeout_ms
        attempts = 0
        while True:
            try:
                return attempt()
            except KafkaError as error:
                if not isinstance(error, RetriableError):
                    raise
                delay_ms = backoff.backoff_ms(attempts)
                if self._clock.now_ms() + delay_ms >= deadline_ms:
                    raise KafkaTimeoutError(
                        f"{what} did not succeed within {self._timeout_ms:.0f} ms: {error}"
                    ) from error
                _log.debug("%s: %s", what, error)
            # a connection that broke opens again with the next request
            self._bootstrap += 1
            self._clock.sleep(delay_ms)
            attempts += 1


def _socket_opener(config: ClientSecurityConfig) -> OpenSocket:
    """What opens the connections, with TLS if the configuration has it. Raises KafkaConfigurationError."""
    if not config.uses_tls:
        return open_plaintext_socket
    from ..network.client.tls_socket import tls_opener  # noqa: PLC0415 - it imports ssl
    from ..network.security.tls import TlsContexts, TlsSettings  # noqa: PLC0415

    return tls_opener(TlsContexts(TlsSettings.of_client(config)))
