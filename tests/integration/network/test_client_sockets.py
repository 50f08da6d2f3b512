"""NetworkClient over real sockets: its errors when the peer is no broker, and its success when it is one."""

from __future__ import annotations

import contextlib
import functools
import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest
from support.client_harness import api_versions_response
from support.mock_client import metadata_response
from support.requests import decode_request
from support.serving import Serve, serve
from support.waiting import wait_until

from headrace.network.client.network_client_cy import NetworkClient
from headrace.network.clock import SYSTEM_CLOCK
from headrace.network.cluster import TopicPartition
from headrace.network.metadata import Metadata
from headrace.network.protocol.errors import (
    DisconnectedError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NotKafkaError,
    UnresolvableHostError,
)
from headrace.network.protocol.frames import encode_response
from headrace.network.protocol.messages.api_versions import ApiVersionsRequest
from headrace.network.protocol.messages.topics.metadata import MetadataRequest
from headrace.network.sockets.name_lookups import NameLookups
from headrace.network.sockets.resolver import ResolvedAddress, canonical_host_names, resolve_host
from headrace.network.sockets.selector_cy import Selector

__all__ = ["serve"]

LookUp = Callable[[str, int], Sequence[ResolvedAddress]]


class Running:
    """A client that polls on its own thread, as a sender does."""

    def __init__(self, *servers: tuple[str, int], look_up: LookUp = resolve_host) -> None:
        self.metadata = Metadata(
            clock=SYSTEM_CLOCK,
            bootstrap_servers=servers,
            refresh_backoff_ms=20,
            refresh_backoff_max_ms=100,
            max_age_ms=300_000,
            max_idle_ms=300_000,
        )
        selector = Selector(clock=SYSTEM_CLOCK, max_receive_bytes=1_000_000)
        self.client = NetworkClient(
            selector=selector,
            metadata=self.metadata,
            clock=SYSTEM_CLOCK,
            client_id="test",
            max_in_flight_requests_per_connection=5,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=100,
            request_timeout_ms=30_000,
            connection_setup_timeout_ms=100,
            connection_setup_timeout_max_ms=5_000,
            resolver=NameLookups(look_up, SYSTEM_CLOCK, on_answer=selector.wakeup).find,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.client.poll(1000, SYSTEM_CLOCK.now_ms())
        self.client.close()

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.client.wakeup()
        self._thread.join(30)

    def fetch(self, timeout_ms: float = 30_000) -> None:
        """Wait for another metadata response."""
        version = self.metadata.request_update(reset_backoff=True)
        self.client.wakeup()
        self.metadata.await_update(version, timeout_ms)

    def failure(self, wanted: type[KafkaError]) -> KafkaError:
        """Wait for metadata, several times, until a `wanted` is the reason for the failure."""
        for _ in range(100):
            with pytest.raises(KafkaTimeoutError) as caught:
                self.metadata.await_update(self.metadata.version, 100)
            if isinstance(caught.value.__cause__, wanted):
                assert str(caught.value.__cause__) in str(caught.value)
                return caught.value.__cause__
        raise AssertionError(f"the last error is {self.metadata.last_error!r}")


def http(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def garbage(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"\x00\x00\x00\x08\xde\xad\xbe\xef\x00\x01\x02\x03")


def broker(connection: socket.socket, name: str | None = None) -> None:
    """Answer ApiVersions and Metadata as a cluster of one broker, under its address or `name`."""
    stream = connection.makefile("rwb")
    while length := stream.read(4):
        header, message = decode_request(stream.read(int.from_bytes(length, "big")))
        if isinstance(message, ApiVersionsRequest):
            response = api_versions_response()
        else:
            assert isinstance(message, MetadataRequest)
            response = metadata_response({"topic": 3})
            response.brokers[0].host, response.brokers[0].port = connection.getsockname()
            response.brokers[0].host = name or response.brokers[0].host
        for part in encode_response(response, version=header.api_version, correlation_id=header.correlation_id):
            stream.write(part)
        stream.flush()


def test_a_broker(serve: Serve) -> None:
    with Running(("127.0.0.1", serve(broker))) as running:
        running.metadata.await_update(0, 30_000)
        assert running.metadata.cluster.cluster_id == "mock-cluster"
        running.metadata.add_topic("topic", SYSTEM_CLOCK.now_ms())
        running.client.wakeup()
        running.metadata.await_update(1, 30_000)
        cluster = running.metadata.cluster
        assert cluster.partition_count("topic") == 3
        assert cluster.partition(TopicPartition("topic", 2)).leader == cluster.nodes[0]


@pytest.mark.parametrize(
    ("treat", "wanted", "says"),
    [
        (http, NotKafkaError, "HTTP"),
        (garbage, NotKafkaError, "not Kafka"),
        (lambda connection: None, DisconnectedError, "had not answered anything"),
    ],
    ids=["HTTP", "garbage", "closes"],
)
def test_something_that_is_no_broker(
    serve: Serve, treat: Callable[[socket.socket], None], wanted: type[KafkaError], says: str
) -> None:
    port = serve(treat)
    with Running(("localhost", port)) as running:
        error = running.failure(wanted)
        assert f"localhost:{port}" in str(error)
        assert says in str(error)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with Running(("127.0.0.1", port)) as running:
        assert f"127.0.0.1:{port}" in str(running.failure(KafkaConnectionError))


def test_a_name_without_addresses() -> None:
    with Running(("no-such-host.invalid", 9092)) as running, pytest.raises(UnresolvableHostError) as caught:
        running.metadata.await_update(0, 60_000)
    assert "no-such-host.invalid" in str(caught.value)


def test_a_bad_server_does_not_hide_a_good_one(serve: Serve) -> None:
    with Running(("127.0.0.1", serve(http)), ("127.0.0.1", serve(broker))) as running:
        running.metadata.await_update(0, 30_000)
        assert running.metadata.last_error is None


class Names:
    """A name service that maps names to ports of this machine."""

    def __init__(self, **ports: list[int]) -> None:
        self.ports = ports
        self.asked: list[str] = []

    def __call__(self, host: str, port: int) -> Sequence[ResolvedAddress]:
        self.asked.append(host)
        return [ResolvedAddress(socket.AF_INET, ("127.0.0.1", number)) for number in self.ports[host]]


@pytest.fixture
def refusing() -> int:
    """A port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that answers no connection attempt, as behind a firewall that drops packets: its backlog is full."""
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def broker_called(name: str) -> Callable[[socket.socket], None]:
    """A broker that advertises itself under this name."""
    return functools.partial(broker, name=name)


def test_every_address_of_a_name_is_tried(serve: Serve, refusing: int, silent: int) -> None:
    names = Names(cluster=[refusing, silent, refusing, serve(broker_called("cluster"))])
    with Running(("cluster", 9092), look_up=names) as running:
        running.metadata.await_update(0, 30_000)
        assert names.asked == ["cluster"], "in one round"


def test_a_name_is_resolved_anew_when_its_connection_is_lost(serve: Serve) -> None:
    connections: list[socket.socket] = []
    gone = threading.Event()

    def first(connection: socket.socket) -> None:
        connections.append(connection)
        if not gone.is_set():
            with contextlib.suppress(OSError):
                broker(connection, name="cluster")

    names = Names(cluster=[serve(first)])
    with Running(("cluster", 9092), look_up=names) as running:
        running.metadata.await_update(0, 30_000)
        running.fetch()
        names.ports["cluster"] = [serve(broker_called("cluster"))]
        gone.set()
        for connection in list(connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        running.fetch()


def test_what_only_answers_after_the_time_for_connecting_gets_longer(
    serve: Serve, silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names(cluster=[silent])
    tries: list[str] = []
    running = Running(("cluster", 9092), look_up=names)
    failed_update = running.metadata.failed_update

    def failed(now_ms: float, error: KafkaError | None = None) -> None:
        # collects every error, because polling could miss one
        if error is not None:
            tries.append(str(error))
        failed_update(now_ms, error)

    monkeypatch.setattr(running.metadata, "failed_update", failed)
    with running:
        wait_until(lambda: len(tries) >= 3)
        waited = [int(re.findall(r"within (\d+) ms", said)[0]) for said in tries[:3]]
        assert waited[0] < 130
        assert waited[1] > waited[0] * 1.2
        assert waited[2] > waited[1] * 1.2
        names.ports["cluster"] = [serve(broker_called("cluster"))]
        running.metadata.await_update(0, 30_000)


def test_loopback_has_a_canonical_name() -> None:
    assert len(canonical_host_names("127.0.0.1", 9092)) == 1
