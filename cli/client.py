"""What the commands say to brokers: one request at a time over plain blocking sockets."""

from __future__ import annotations

import argparse
import socket
import struct
from collections.abc import Iterable
from typing import Any

from ..network.addresses import DEFAULT_PORT, Address, parse_address
from ..network.client.api_versions import CLIENT_SOFTWARE_NAME, NodeApiVersions, client_software_version
from ..network.protocol.errors import (
    DisconnectedError,
    InvalidMetadataError,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaError,
    NotKafkaError,
    UnknownTopicOrPartitionError,
    make_error,
)
from ..network.protocol.frames import decode_response, encode_request
from ..network.protocol.message import Request
from ..network.protocol.messages.api_versions import ApiVersionsRequest
from ..network.protocol.messages.topics.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

DEFAULT_SERVER = f"localhost:{DEFAULT_PORT}"
TIMEOUT_S = 30.0
#: No broker answers these commands with more: fetches are asked for in far smaller pieces.
_MAX_ANSWER_BYTES = 256 * 2**20


def add_bootstrap_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the option that says where the cluster is."""
    parser.add_argument(
        "--bootstrap-server",
        "-b",
        default=DEFAULT_SERVER,
        metavar="HOST[:PORT]",
        help=f"one or more brokers of the cluster, with commas between; without the port it is {DEFAULT_PORT} "
        f"(default: {DEFAULT_SERVER})",
    )


class _Connection:
    """A socket to one broker, and the versions it speaks."""

    def __init__(self, address: Address) -> None:
        try:
            self._socket = socket.create_connection(address, TIMEOUT_S)
        except OSError as failed:
            raise KafkaConnectionError(f"can't reach {address}: {failed.strerror or failed}") from failed
        self._address = address
        self._file = self._socket.makefile("rb")
        self._correlation_id = 0
        try:
            self._versions = NodeApiVersions.from_response(self._handshake(), name=str(address))
        except BaseException:
            self.close()
            raise

    def _handshake(self) -> Any:
        request = ApiVersionsRequest(
            client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=client_software_version()
        )
        for version in (3, 0):
            answer = self._exchange(request, version)
            if answer.error_code == 0:
                return answer
        raise make_error(answer.error_code)

    def ask(self, request: Request) -> Any:
        """The answer to a request, in the newest version that both sides know."""
        return self._exchange(request, self.version_of(type(request)))

    def version_of(self, request_class: type[Request]) -> int:
        """The version that `ask` takes for an API."""
        return self._versions.usable_version(request_class)

    def _exchange(self, request: Request, version: int) -> Any:
        self._correlation_id += 1
        frame = encode_request(
            request, version=version, correlation_id=self._correlation_id, client_id=CLIENT_SOFTWARE_NAME
        )
        try:
            self._socket.sendall(b"".join(frame))
            size = self._file.read(4)
            if len(size) < 4:
                raise DisconnectedError(f"{self._address} closed the connection; is it a Kafka broker without TLS?")
            (length,) = struct.unpack(">i", size)
            if not 0 <= length <= _MAX_ANSWER_BYTES:
                raise NotKafkaError(f"what answers at {self._address} does not speak Kafka: it sent {size!r}")
            body = self._file.read(length)
        except TimeoutError as late:
            raise KafkaConnectionError(f"{self._address} did not answer in {TIMEOUT_S:.0f} s") from late
        except OSError as failed:
            raise DisconnectedError(f"the connection to {self._address} failed: {failed.strerror}") from failed
        if len(body) < length:
            raise DisconnectedError(f"{self._address} closed the connection in the midst of an answer")
        return decode_response(type(request), version, body)[1]

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class Client:
    """A cluster, spoken to in one request and answer after the other. A context manager; for one thread.

    Every method raises KafkaError where there is no broker, or its answer is an error.
    """

    def __init__(self, bootstrap: str) -> None:
        """`bootstrap`: HOST[:PORT] of one or more brokers, with commas between; the first that answers is taken."""
        self._connections: dict[int, _Connection] = {}
        self._addresses: dict[int, Address] = {}
        self._bootstrap = self._connect_to_any(bootstrap)

    @staticmethod
    def _connect_to_any(bootstrap: str) -> _Connection:
        try:
            addresses = [parse_address(text, DEFAULT_PORT) for text in bootstrap.split(",") if text.strip()]
        except ValueError as wrong:
            raise KafkaConfigurationError(f"--bootstrap-server: {wrong}") from wrong
        failures = []
        for address in addresses:
            try:
                return _Connection(address)
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

    def ask(self, request: Request, node_id: int | None = None) -> Any:
        """The answer of one broker; without `node_id` of the one that was reached first."""
        return self._connection(node_id).ask(request)

    def version_of(self, request_class: type[Request], node_id: int | None = None) -> int:
        """The version in which `ask` would send such a request."""
        return self._connection(node_id).version_of(request_class)

    def _connection(self, node_id: int | None) -> _Connection:
        if node_id is None:
            return self._bootstrap
        connection = self._connections.get(node_id)
        if connection is None:
            if node_id not in self._addresses:
                raise KafkaConnectionError(f"broker {node_id} is not there; is it down?")
            connection = self._connections[node_id] = _Connection(self._addresses[node_id])
        return connection

    def metadata(self, topics: Iterable[str] | None = None) -> MetadataResponse:
        """The brokers, and all topics or those named. Raises the error of a named topic."""
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        answer: MetadataResponse = self.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
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
        """The broker to send changes to; None: any."""
        controller_id = self.metadata([]).controller_id
        return controller_id if controller_id in self._addresses else None


def topic_error(topic: str, code: int, message: str | None = None) -> KafkaError:
    """The error a broker answered about a topic, with the topic's name."""
    error = make_error(code, message)
    if message is None:
        error = make_error(code, f"{topic}: {error}")
    return error


def leaders_of(topic: Any) -> dict[int, int]:
    """The leader of each partition of a topic's metadata. Raises InvalidMetadataError where there is none."""
    leaders = {partition.partition_index: partition.leader_id for partition in topic.partitions}
    missing = sorted(index for index, leader in leaders.items() if leader < 0)
    if missing:
        raise InvalidMetadataError(f"{topic.name}: partitions {missing} have no leader now")
    return dict(sorted(leaders.items()))
