"""The client that the commands use: one request at a time."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from ..network.acl_advice import missing_acl
from ..network.addresses import DEFAULT_PORT, Address, parse_address
from ..network.client.api_versions import CLIENT_SOFTWARE_NAME
from ..network.client.blocking_connection import BlockingConnection, OpenSocket, open_plaintext_socket
from ..network.clock import SYSTEM_CLOCK
from ..network.protocol.errors import (
    AuthenticationError,
    InvalidMetadataError,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    make_error,
)
from ..network.protocol.message import Request, first_version_with
from ..network.protocol.messages.topics.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ..network.security.client_config import ClientSecurityConfig
from ..network.security.sasl_config import credentials_of
from .arguments import DEFAULT_SERVER

_TIMEOUT_MS = 30_000.0
#: No response to these commands is larger: fetches limit their size to far less.
_MAX_RESPONSE_BYTES = 256 * 2**20


def add_bootstrap_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the options for the cluster's address and its security."""
    parser.add_argument(
        "--bootstrap-server",
        "-b",
        default=DEFAULT_SERVER,
        metavar="HOST[:PORT]",
        help=f"one or more brokers of the cluster, separated by commas; the default port is {DEFAULT_PORT} "
        f"(default: {DEFAULT_SERVER})",
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="a properties or TOML file with keys of the client, such as security.protocol=SSL and "
        "ssl.truststore.location=ca.pem",
    )


class ClientConfig(ClientSecurityConfig, env_prefix="HEADRACE_", listed_in="docs/securing.md"):
    """The keys of `--command-config`."""


class Client:
    """A blocking client of a cluster, with one request at a time. A context manager; for one thread.

    Every method raises KafkaError if no broker can be reached or the response is an error.
    """

    def __init__(
        self, bootstrap: str, command_config: str | None = None, *, security: ClientSecurityConfig | None = None
    ) -> None:
        """`bootstrap`: HOST[:PORT] of one or more brokers, separated by commas; the first that answers is used.

        `command_config`: the path of a file with the keys of `ClientConfig`. `security`: a configuration that has them,
        instead of the file.
        """
        if security is None:
            security = ClientConfig.resolve({} if command_config is None else {"config.file": command_config})
        self._open_socket = _socket_opener(security)
        self._credentials = credentials_of(security, SYSTEM_CLOCK)
        self._connections: dict[int, BlockingConnection] = {}
        self._addresses: dict[int, Address] = {}
        if self._credentials is not None:
            self._credentials.start(lambda: None)
        try:
            self._bootstrap = self._connect_to_any(bootstrap)
        except BaseException:
            self._close_credentials()
            raise

    def _connect_to_any(self, bootstrap: str) -> BlockingConnection:
        try:
            addresses = [parse_address(text, DEFAULT_PORT) for text in bootstrap.split(",") if text.strip()]
        except ValueError as wrong:
            raise KafkaConfigurationError(f"--bootstrap-server: {wrong}") from wrong
        failures: list[str] = []
        for address in addresses:
            connection = self._connection_to(address)
            try:
                connection.api_versions()
                return connection
            except AuthenticationError:
                raise  # the other brokers have the same certificates and passwords
            except KafkaError as failed:
                failures.append(str(failed))
        if not failures:
            raise KafkaConfigurationError(f"--bootstrap-server names no broker; write {DEFAULT_SERVER}, for instance")
        raise KafkaConnectionError(f"{'; '.join(failures)} (-b HOST:PORT says where the cluster is)")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._bootstrap.close()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._close_credentials()

    def _close_credentials(self) -> None:
        if self._credentials is not None:
            self._credentials.close()

    def ask(self, request: Request, node_id: int | None = None) -> Any:
        """The response of one broker; without `node_id`, of the bootstrap broker."""
        return self._connection(node_id).request(request)

    def version_of(self, request_class: type[Request], node_id: int | None = None) -> int:
        """The version in which `ask` sends a request of this class."""
        return self._connection(node_id).usable_version(request_class)

    def _connection(self, node_id: int | None) -> BlockingConnection:
        if node_id is None:
            return self._bootstrap
        connection = self._connections.get(node_id)
        if connection is None:
            if node_id not in self._addresses:
                raise KafkaConnectionError(f"broker {node_id} is not there; is it down?")
            connection = self._connections[node_id] = self._connection_to(self._addresses[node_id])
        return connection

    def _connection_to(self, address: Address) -> BlockingConnection:
        return BlockingConnection(
            address,
            client_id=CLIENT_SOFTWARE_NAME,
            timeout_ms=_TIMEOUT_MS,
            max_response_bytes=_MAX_RESPONSE_BYTES,
            open_socket=self._open_socket,
            credentials=self._credentials,
        )

    def metadata(self, topics: Iterable[str] | None = None) -> MetadataResponse:
        """The brokers, and all topics or the named ones. Raises the error of a named topic."""
        answer: MetadataResponse = self.ask(metadata_request(topics, self.version_of(MetadataRequest)))
        self._addresses = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        if topics is not None:
            for topic in answer.topics:
                if topic.error_code == UnknownTopicOrPartitionError.code:
                    raise UnknownTopicOrPartitionError(
                        f"there is no topic {topic.name!r}; `headrace topics list` shows those that there are"
                    )
                if topic.error_code:
                    raise topic_error(topic.name or "?", topic.error_code)
        return answer

    def controller(self) -> int | None:
        """The broker to send changes to, None for any."""
        controller_id = self.metadata([]).controller_id
        return controller_id if controller_id in self._addresses else None


def metadata_request(topics: Iterable[str] | None, version: int) -> MetadataRequest:
    """A request for all topics or the named ones, which creates none if the version can forbid it (Kafka 0.11)."""
    asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    may_create = version < first_version_with(MetadataRequest, "allow_auto_topic_creation")
    return MetadataRequest(topics=asked, allow_auto_topic_creation=may_create)


def _socket_opener(config: ClientSecurityConfig) -> OpenSocket:
    """What opens the connections, with TLS if the configuration has it. Raises KafkaConfigurationError."""
    if not config.uses_tls:
        return open_plaintext_socket
    from ..network.client.tls_socket import tls_opener  # noqa: PLC0415 - it imports ssl
    from ..network.security.tls import TlsContexts, TlsSettings  # noqa: PLC0415

    return tls_opener(TlsContexts(TlsSettings.of_client(config)))


def topic_error(
    topic: str, code: int, message: str | None = None, *, partition: int | None = None, operation: str = "DESCRIBE"
) -> KafkaError:
    """The error that a broker returned for a topic, with the topic's name (and the partition). `operation`: for which
    an ACL may be missing."""
    error = make_error(code, message)
    if message is not None:
        return error
    where = topic if partition is None else f"{topic}-{partition}"
    if isinstance(error, TopicAuthorizationFailedError):
        return make_error(code, f"{where}: {missing_acl(operation, 'TOPIC', topic)}")
    return make_error(code, f"{where}: {error}")


def leaders_of(topic: Any) -> dict[int, int]:
    """The leader of each partition in a topic's metadata. Raises InvalidMetadataError if a partition has none."""
    leaders = {partition.partition_index: partition.leader_id for partition in topic.partitions}
    missing = sorted(index for index, leader in leaders.items() if leader < 0)
    if missing:
        raise InvalidMetadataError(f"{topic.name}: partitions {missing} have no leader now")
    return dict(sorted(leaders.items()))
