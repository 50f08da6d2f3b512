"""TLS faults between a producer and a server: typed errors in time, no busy loop, no plaintext on the wire."""

from __future__ import annotations

import contextlib
import resource
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from support.tls import Credentials

from headrace.broker import EmbeddedCluster
from headrace.network.addresses import Address
from headrace.network.client.blocking_connection import BlockingConnection
from headrace.network.client.tls_socket import tls_opener
from headrace.network.clock import SYSTEM_CLOCK
from headrace.network.protocol.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    SslAuthenticationError,
)
from headrace.network.protocol.messages.topics.metadata import MetadataRequest
from headrace.network.security import stores
from headrace.network.sockets.selector_cy import Selector
from headrace.producer import KafkaProducer

BLOCK_MS = 1_500


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    return Credentials(Path(tmp_path_factory.mktemp("tls")))


@pytest.fixture
def listen() -> Iterator[Callable[..., str]]:
    """Starts a server that runs a function per connection; returns its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        held: list[socket.socket] = []

        def start(serve: Callable[[socket.socket], object]) -> str:
            def run() -> None:
                while True:
                    try:
                        sock, _ = listener.accept()
                    except OSError:
                        return
                    held.append(sock)
                    with contextlib.suppress(OSError):
                        serve(sock)

            threading.Thread(target=run, daemon=True).start()
            return f"127.0.0.1:{listener.getsockname()[1]}"

        yield start
        listener.shutdown(socket.SHUT_RDWR)
        for sock in held:
            sock.close()


def failure(bootstrap: str, **keys: Any) -> KafkaError:
    """What a send fails with; within max.block.ms, and without using the processor meanwhile."""
    settings = {"security_protocol": "SSL", "max_block_ms": BLOCK_MS, "reconnect_backoff_max_ms": 200, **keys}
    before = _process_seconds()
    started_ms = SYSTEM_CLOCK.now_ms()
    with KafkaProducer(bootstrap_servers=bootstrap, **settings) as producer, pytest.raises(KafkaError) as caught:
        producer.send("t", b"secret value").get(10)
    elapsed_ms = SYSTEM_CLOCK.now_ms() - started_ms
    used_s = _process_seconds() - before
    assert elapsed_ms < BLOCK_MS + 5_000
    # a busy loop would use all of the time
    assert used_s < max(elapsed_ms / 1000.0 * 0.7, 0.7)
    return caught.value


def _process_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def cluster(credentials: Credentials, **keys: Any) -> EmbeddedCluster:
    settings = {"listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0", "ssl_keystore_location": credentials.server}
    return EmbeddedCluster(**{**settings, **keys})


# --- Certificates ---


def test_an_authority_that_is_not_trusted(credentials: Credentials) -> None:
    with cluster(credentials) as broker:
        error = failure(broker.bootstrap_servers)
        assert isinstance(error, SslAuthenticationError)
        assert "the system's store" in str(error)
        assert "Headrace throw-away authority" in str(error)


def test_a_self_signed_certificate(credentials: Credentials, tmp_path: Path) -> None:
    authority = trustme.CA()
    path = tmp_path / "self.pem"
    path.write_bytes(authority.private_key_pem.bytes() + authority.cert_pem.bytes())
    with cluster(credentials, ssl_keystore_location=str(path)) as broker:
        error = failure(broker.bootstrap_servers, ssl_cafile=credentials.ca)
        assert isinstance(error, SslAuthenticationError)
        assert "self-signed" in str(error) or "self signed" in str(error)


def test_a_certificate_of_another_host(credentials: Credentials) -> None:
    path = credentials.authority.issue_server(["broker.example.com"], name="other")
    with cluster(credentials, ssl_keystore_location=str(path)) as broker:
        error = failure(broker.bootstrap_servers, ssl_cafile=credentials.ca)
        assert isinstance(error, SslAuthenticationError)
        assert "names: broker.example.com" in str(error)


def test_a_required_client_certificate(credentials: Credentials) -> None:
    with cluster(credentials, ssl_client_auth="required", ssl_truststore_location=credentials.ca) as broker:
        for version in ("TLSv1.2", "TLSv1.3"):
            error = failure(broker.bootstrap_servers, ssl_cafile=credentials.ca, ssl_enabled_protocols=version)
            assert isinstance(error, SslAuthenticationError)
            assert "demand" in str(error)
        with KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol="SSL",
            ssl_cafile=credentials.ca,
            ssl_keystore_location=credentials.client,
        ) as producer:
            producer.send("t", b"v").get(10)


def test_the_producer_recovers_when_the_certificate_is_replaced(credentials: Credentials, tmp_path: Path) -> None:
    """A failed authentication is tried again with backoff: files may be replaced, on either end."""
    current = tmp_path / "current.pem"
    current.write_bytes(credentials.authority.issue_server(["elsewhere"], name="elsewhere").read_bytes())
    with (
        cluster(credentials, ssl_keystore_location=str(current)) as broker,
        KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, security_protocol="SSL", ssl_cafile=credentials.ca
        ) as producer,
    ):
        with pytest.raises(SslAuthenticationError):
            producer.send("t", b"v").get(10)
        current.write_bytes(Path(credentials.server).read_bytes())
        deadline_ms = SYSTEM_CLOCK.now_ms() + 20_000
        while True:
            try:
                producer.send("t", b"v").get(10)
                return
            except SslAuthenticationError:
                assert SYSTEM_CLOCK.now_ms() < deadline_ms


# --- The wrong protocol ---


def test_tls_to_a_plaintext_listener(credentials: Credentials) -> None:
    with cluster(credentials) as broker:
        port = broker.broker(1).server.ports["PLAINTEXT"]
        error = failure(f"127.0.0.1:{port}", ssl_cafile=credentials.ca)
        assert isinstance(error, KafkaTimeoutError)
        assert "closed the connection during the TLS handshake" in str(error)


def test_plaintext_to_a_tls_listener(credentials: Credentials, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with cluster(credentials) as broker:
        error = failure(broker.bootstrap_servers, security_protocol="PLAINTEXT")
        assert "security.protocol" in str(error)
    lines = [record.message for record in caplog.records if "does not speak TLS" in record.message]
    assert len(lines) == 1  # and not one per attempt


def test_a_server_that_answers_in_plaintext(credentials: Credentials, listen: Callable[..., str]) -> None:
    def serve(sock: socket.socket) -> None:
        sock.recv(1)
        sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    error = failure(listen(serve), ssl_cafile=credentials.ca)
    assert isinstance(error, SslAuthenticationError)
    assert "answers without TLS" in str(error)


# --- Servers that stall or cut ---


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 0.99])
@pytest.mark.parametrize("then", ["stall", "cut"])
def test_a_server_that_stops_in_the_handshake(
    credentials: Credentials, listen: Callable[..., str], share: float, then: str
) -> None:
    def serve(sock: socket.socket) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = credentials.server_contexts()._context.wrap_bio(incoming, outgoing, server_side=True)
        incoming.write(sock.recv(65536))
        with contextlib.suppress(ssl.SSLWantReadError):
            server.do_handshake()
        flight = outgoing.read()
        sock.sendall(flight[: int(len(flight) * share)])
        if then == "cut":
            sock.close()

    error = failure(listen(serve), ssl_cafile=credentials.ca, socket_connection_setup_timeout_ms=300)
    assert isinstance(error, KafkaTimeoutError)
    assert isinstance(error.__cause__, KafkaConnectionError)
    assert ("did not complete the TLS handshake within" if then == "stall" else "TLS handshake") in str(error)


def test_a_blocking_connection_to_a_server_that_stalls(credentials: Credentials, listen: Callable[..., str]) -> None:
    host, _, port = listen(lambda sock: sock.recv(1)).partition(":")
    connection = BlockingConnection(
        Address(host, int(port)),
        client_id="c",
        timeout_ms=300,
        max_response_bytes=1000,
        open_socket=tls_opener(credentials.client_contexts()),
    )
    with pytest.raises(KafkaConnectionError, match="did not complete the TLS handshake within 300 ms"):
        connection.request(MetadataRequest(topics=[]))


def test_a_blocking_connection(credentials: Credentials) -> None:
    with cluster(credentials) as broker:
        host, _, port = broker.bootstrap_servers.partition(":")
        contexts = credentials.client_contexts()
        connection = BlockingConnection(
            Address(host, int(port)),
            client_id="c",
            timeout_ms=10_000,
            max_response_bytes=1_000_000,
            open_socket=tls_opener(contexts),
        )
        for _ in range(2):
            assert connection.request(MetadataRequest(topics=[])).brokers[0].node_id == 1
        connection.interrupt()
        connection.close()
        connection.rearm()
        assert connection.request(MetadataRequest(topics=[])).brokers[0].node_id == 1
        connection.close()


def test_a_client_that_stalls_is_dropped_by_the_broker(credentials: Credentials) -> None:
    with cluster(credentials, socket_connection_setup_timeout_ms=200) as broker:
        host, _, port = broker.bootstrap_servers.partition(":")
        with socket.create_connection((host, int(port))) as sock:
            sock.sendall(b"\x16\x03\x01\x02\x00")
            sock.settimeout(10)
            assert sock.recv(100) == b""
        with KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, security_protocol="SSL", ssl_cafile=credentials.ca
        ) as producer:
            producer.send("t", b"v").get(10)


# --- The wire ---


def test_no_plaintext_on_the_wire(credentials: Credentials) -> None:
    """Everything between a producer and a broker passes through a relay that keeps it."""
    captured = bytearray()
    relayed: list[socket.socket] = []
    pumps: list[threading.Thread] = []
    with cluster(credentials) as broker, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        host, _, port = broker.bootstrap_servers.partition(":")
        advertised = listener.getsockname()[1]

        def pump(source: socket.socket, sink: socket.socket) -> None:
            while True:
                try:
                    data = source.recv(65536)
                    captured.extend(data)
                    if not data:
                        sink.shutdown(socket.SHUT_WR)
                        return
                    sink.sendall(data)
                except OSError:
                    return

        def accept() -> None:
            while True:
                try:
                    inside, _ = listener.accept()
                except OSError:
                    return
                outside = socket.create_connection((host, int(port)))
                relayed.extend((inside, outside))
                for pair in ((inside, outside), (outside, inside)):
                    pumps.append(threading.Thread(target=pump, args=pair))
                    pumps[-1].start()

        acceptor = threading.Thread(target=accept)
        acceptor.start()
        # the broker sends clients to the relay
        broker._brokers[1]._advertised = {"SSL": ("127.0.0.1", advertised)}
        broker.controller.register_brokers([(broker.broker(1).endpoint, broker.broker(1).apply_image)])
        with KafkaProducer(
            bootstrap_servers=f"127.0.0.1:{advertised}",
            security_protocol="SSL",
            ssl_cafile=credentials.ca,
            client_id="planted-client",
            batch_size=400_000,
            max_request_size=4_000_000,
        ) as producer:
            futures = [
                producer.send("planted-topic", b"planted-value" * size, key=b"planted-key")
                for size in (1, 100, 3_000, 30_000)
                for _ in range(40)
            ]
            for future in futures:
                future.get(20)
        listener.shutdown(socket.SHUT_RDWR)
        acceptor.join()
    for thread in pumps:
        thread.join()
    for sock in relayed:
        sock.close()
    assert len(captured) > 40 * 30_000 * 13
    assert b"planted" not in captured


def test_files_are_not_read_on_the_sender_thread(
    credentials: Credentials, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Files on a slow disk delay only the connection that waits for them."""
    ca = tmp_path / "ca.pem"
    ca.write_bytes(Path(credentials.ca).read_bytes())
    threads: list[str] = []
    original = stores.read_file

    def recording(path: str, key: str) -> bytes:
        threads.append(threading.current_thread().name)
        return original(path, key)

    monkeypatch.setattr(stores, "read_file", recording)
    with (
        cluster(credentials) as broker,
        KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, security_protocol="SSL", ssl_cafile=str(ca)
        ) as producer,
    ):
        producer.send("t", b"v").get(10)
        at_first = len(threads)
        ca.write_bytes(ca.read_bytes() + b"\n")
        broker.close_connections(1)
        producer.send("t", b"v").get(10)
        deadline_ms = SYSTEM_CLOCK.now_ms() + 10_000
        while len(threads) == at_first and SYSTEM_CLOCK.now_ms() < deadline_ms:
            broker.close_connections(1)
            producer.send("t", b"v").get(10)
    assert threads[at_first:]
    assert all(name.startswith("headrace-names") for name in threads[at_first:])


def test_selectors_over_tls(credentials: Credentials) -> None:
    """Both ends of the selector, with a queue of sends larger than the socket's buffers."""
    client_tls, server_tls = credentials.client_contexts(), credentials.server_contexts()
    client = Selector(clock=SYSTEM_CLOCK, max_receive_bytes=10_000_000, transport=client_tls.transport)
    server = Selector(clock=SYSTEM_CLOCK, max_receive_bytes=10_000_000, transport=server_tls.transport)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        server.listen(listener.dup(), lambda sock, address: server.register("client", sock))
        client.connect("server", socket.AF_INET, listener.getsockname(), host="localhost")
        frames = [size.to_bytes(4, "big") + bytes(size) for size in (5, 3_000_000, 10, 700_000, 0)]
        for each in frames:
            client.send("server", [each[:4], each[4:]])
        received: list[int] = []
        deadline_ms = SYSTEM_CLOCK.now_ms() + 20_000
        while len(received) < len(frames) and SYSTEM_CLOCK.now_ms() < deadline_ms:
            client.poll(1)
            server.poll(1)
            assert not client.disconnected
            received += [receive.payload.nbytes for receive in server.completed_receives]
        assert received == [5, 3_000_000, 10, 700_000, 0]
    client.close()
    server.close()
