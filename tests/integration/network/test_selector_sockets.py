"""Selector on real loopback sockets: the cases that only a kernel produces."""

from __future__ import annotations

import contextlib
import errno
import http.server
import logging
import math
import os
import random
import resource
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.connection_pair import frame
from support.descriptors import none_is_left

from headrace.network.clock import SYSTEM_CLOCK, MockClock
from headrace.network.protocol.errors import DisconnectedError, KafkaConnectionError, NotKafkaError
from headrace.network.repeats import QUIET_MS
from headrace.network.sockets.channel_cy import KafkaChannel, NetworkReceive, NetworkSend
from headrace.network.sockets.plaintext_transport_cy import PlaintextTransport
from headrace.network.sockets.selector_cy import Selector
from headrace.network.sockets.transport import FileRegion

LIMIT = 50_000_000


@pytest.fixture(autouse=True)
def no_descriptor_is_left() -> Iterator[None]:
    with none_is_left():
        yield


@pytest.fixture
def selector() -> Iterator[Selector]:
    selector = Selector(clock=SYSTEM_CLOCK, max_receive_bytes=LIMIT)
    yield selector
    selector.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def poll_until(condition: Callable[[], object], *selectors: Selector) -> None:
    """Poll all of them in turn until the condition holds. pytest's timeout bounds it."""
    while not condition():
        for each in selectors:
            each.poll(5)


def connected(selector: Selector, channel_id: str, listener: socket.socket, **options: int) -> socket.socket:
    """Connect a channel to a listener, and return the accepted socket at its other end."""
    selector.connect(channel_id, listener.family, listener.getsockname(), **options)
    accepted, _ = listener.accept()
    poll_until(lambda: channel_id in selector.connected, selector)
    return accepted


def receive(selector: Selector, count: int) -> list[NetworkReceive]:
    receives: list[NetworkReceive] = []
    while len(receives) < count:
        selector.poll(math.inf)
        assert not selector.disconnected
        receives += selector.completed_receives
    return receives


def disconnection(selector: Selector, channel_id: str) -> Exception:
    poll_until(lambda: channel_id in selector.disconnected, selector)
    return selector.disconnected[channel_id]


def reset(sock: socket.socket) -> None:
    """Close with a reset."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


# --- Connecting ---


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_request_and_answer(selector: Selector, family: int, host: str) -> None:
    try:
        listener = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip(f"no {host} on this machine")
    with listener, connected(selector, "node", listener) as accepted:
        selector.send("node", [frame(b"request")])
        assert accepted.recv(100) == frame(b"request")
        accepted.sendall(frame(b"answer"))
        (answer,) = receive(selector, 1)
        assert (answer.channel_id, answer.payload) == ("node", b"answer")


@pytest.mark.parametrize(
    ("family", "host", "text"), [(socket.AF_INET, "127.0.0.1", "127.0.0.1"), (socket.AF_INET6, "::1", "[::1]")]
)
def test_nobody_listens(selector: Selector, family: int, host: str, text: str) -> None:
    try:
        # bound but not listening: connections to the port fail, and no other process gets it
        holder = socket.socket(family)
        holder.bind((host, 0))
    except OSError:
        pytest.skip(f"no {host} on this machine")
    with holder:
        port = holder.getsockname()[1]
        selector.connect("node", family, (host, port))
        error = disconnection(selector, "node")
    assert type(error) is KafkaConnectionError
    assert f"{text}:{port}" in str(error)
    assert "refused" in str(error)
    assert not selector.connected


def test_sockets_are_set_up_for_requests_and_answers(selector: Selector, listener: socket.socket) -> None:
    with connected(selector, "node", listener, send_buffer_bytes=20_000, receive_buffer_bytes=30_000) as accepted:
        selector.register("accepted", accepted.dup())
        for channel_id in ("node", "accepted"):
            channel = selector.channel(channel_id)
            assert channel is not None
            with socket.socket(fileno=os.dup(channel.fd)) as sock:
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                assert not os.get_blocking(channel.fd)
                if channel_id == "node":
                    # the kernel doubles the requested size
                    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (20_000, 40_000)
                    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (30_000, 60_000)


def test_a_socket_connected_to_itself_is_a_refused_one() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.connect(sock.getsockname())
        channel = KafkaChannel(
            "node",
            sock,
            PlaintextTransport(sock),
            peer="127.0.0.1",
            initiated=True,
            scratch=bytearray(100),
            max_receive_bytes=100,
        )
        with pytest.raises(ConnectionRefusedError):
            channel.finish_connect()


def test_a_connection_in_the_making_can_be_given_up(selector: Selector) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        # a full backlog: the kernel answers no further SYN, so the last of these stay pending
        for i in range(5):
            selector.connect(str(i), socket.AF_INET, listener.getsockname())
        poll_until(lambda: selector.is_channel_ready("0"), selector)
        assert not selector.is_channel_ready("4")
        for i in range(5):
            selector.close_channel(str(i))
        selector.poll(0)
        assert not selector.disconnected


# --- Sending ---


def test_a_long_gather_list_through_a_tiny_send_buffer(selector: Selector, listener: socket.socket) -> None:
    with connected(selector, "node", listener, send_buffer_bytes=4096) as accepted:
        parts = [bytes([i % 251]) * (i * 7 % 1500) for i in range(3000)]
        send = selector.send("node", parts)
        assert 0 < send.remaining_bytes < send.size_bytes
        received = bytearray()
        completed: list[NetworkSend] = []
        accepted.setblocking(False)
        while len(received) < send.size_bytes:
            with contextlib.suppress(BlockingIOError):
                received += accepted.recv(100_000)
            selector.poll(5)
            completed += selector.completed_sends
        assert received == b"".join(parts)
        assert completed == [send]


def test_file_regions_between_bytes(selector: Selector, listener: socket.socket, tmp_path: Path) -> None:
    content = os.urandom(4_000_000)
    (tmp_path / "segment.log").write_bytes(content)
    with (tmp_path / "segment.log").open("rb") as log, connected(selector, "node", listener) as accepted:
        selector.register("fetcher", accepted.dup())
        payload_bytes = 3_000_000 + 500_000 + 4
        regions = [FileRegion(log, 5, 3_000_000), b"gap", FileRegion(log, 3_400_000, 500_000), b"."]
        selector.send("node", [payload_bytes.to_bytes(4, "big"), *regions])
        (received,) = receive(selector, 1)
        assert received.payload == content[5:3_000_005] + b"gap" + content[3_400_000:3_900_000] + b"."


def test_a_file_that_was_truncated_ends_the_connection(
    selector: Selector, listener: socket.socket, tmp_path: Path
) -> None:
    path = tmp_path / "segment.log"
    path.write_bytes(bytes(1000))
    with path.open("rb") as log, connected(selector, "node", listener) as accepted:
        selector.send("node", [(2000).to_bytes(4, "big"), FileRegion(log, 0, 2000)])
        error = disconnection(selector, "node")
        assert isinstance(error, DisconnectedError)
        assert "1000 bytes early" in str(error)
        assert len(accepted.recv(10_000)) == 1004
        assert accepted.recv(10_000) == b""


# --- The end of connections ---


def test_a_reset_is_called_so(selector: Selector, listener: socket.socket) -> None:
    reset(connected(selector, "node", listener))
    error = disconnection(selector, "node")
    assert isinstance(error, DisconnectedError)
    assert "reset" in str(error)
    assert f":{listener.getsockname()[1]}" in str(error)


def test_a_reset_with_a_send_under_way_says_what_was_not_sent(selector: Selector, listener: socket.socket) -> None:
    accepted = connected(selector, "node", listener)
    send = selector.send("node", [bytes(30_000_000)])
    reset(accepted)
    error = disconnection(selector, "node")
    assert selector.failed_sends == [send]
    assert f"{send.remaining_bytes} of 30000000 bytes were not sent" in str(error)


def test_frames_before_a_reset_are_delivered(selector: Selector, listener: socket.socket) -> None:
    accepted = connected(selector, "node", listener)
    accepted.sendall(frame(b"one") + frame(b"two"))
    reset(accepted)
    assert [each.payload for each in receive(selector, 2)] == [b"one", b"two"]
    assert isinstance(disconnection(selector, "node"), DisconnectedError)


def test_a_half_close_is_the_end(selector: Selector, listener: socket.socket) -> None:
    with connected(selector, "node", listener) as accepted:
        accepted.sendall(frame(b"answer") + frame(b"unfinished")[:7])
        accepted.shutdown(socket.SHUT_WR)
        assert [each.payload for each in receive(selector, 1)] == [b"answer"]
        error = disconnection(selector, "node")
        assert "3 of its 10 bytes" in str(error)
        assert accepted.recv(1) == b""


def test_an_http_server_is_recognised(selector: Selector) -> None:
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    try:
        selector.connect("node", socket.AF_INET, server.server_address)
        poll_until(lambda: selector.connected, selector)
        selector.send("node", [frame(b"\0\x12\0\x04\0\0\0\x01\0\x04test\n\n")])
        error = disconnection(selector, "node")
        assert isinstance(error, NotKafkaError)
        assert "HTTP" in str(error)
        assert f":{server.server_port}" in str(error)
    finally:
        selector.close()
        thread.join()
        server.server_close()


# --- Accepting ---


def test_no_descriptors_left_pauses_accepting_and_nothing_else(
    listener: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    clock = MockClock()
    selector = Selector(clock=clock, max_receive_bytes=LIMIT)
    accepted: list[object] = []

    def on_accept(sock: socket.socket, address: object) -> None:
        accepted.append(address)
        selector.register(str(address), sock)

    selector.listen(listener.dup(), on_accept)
    ours, theirs = socket.socketpair()
    selector.register("before", ours)
    clients = [socket.create_connection(listener.getsockname()) for _ in range(3)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(theirs.fileno())
    os.close(lowest_free)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
        with caplog.at_level(logging.WARNING):
            for _ in range(10):
                selector.poll(0)
        assert len(caplog.records) == 1  # it does not spin
        with caplog.at_level(logging.WARNING):
            for pause_ms in (*[100] * 10, QUIET_MS):
                assert len(caplog.records) == 1  # a lasting problem is logged once a minute
                clock.advance(pause_ms)
                selector.poll(0)  # accepting continues, and the next poll retries
                selector.poll(0)
            assert len(caplog.records) == 2
        assert "ulimit -n" in caplog.text
        assert not accepted
        theirs.sendall(frame(b"served nevertheless"))
        assert [each.payload for each in receive(selector, 1)] == [b"served nevertheless"]
        selector.connect("node", socket.AF_INET, listener.getsockname())
        selector.poll(0)
        assert type(selector.disconnected["node"]) is KafkaConnectionError
        assert os.strerror(errno.EMFILE) in str(selector.disconnected["node"])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    selector.poll(0)
    assert not accepted
    clock.advance(100)
    poll_until(lambda: len(accepted) == 3, selector)
    for sock in [*clients, theirs]:
        sock.close()
    selector.close()


# --- Many of everything ---


def test_many_connections_echo_frames_of_all_sizes(listener: socket.socket) -> None:
    """A client's and a server's selector on two threads, with load in both directions. As a broker does, the server
    mutes connections with too many unsent responses."""
    clients, frames_each = 30, 40
    sizes = random.Random(1)
    payloads = {
        str(i): [os.urandom(4) * sizes.choice([0, 1, 30, 3000, 5000, 100_000]) for _ in range(frames_each)]
        for i in range(clients)
    }
    server = Selector(clock=SYSTEM_CLOCK, max_receive_bytes=LIMIT, connections_max_idle_ms=600_000)
    stopping = threading.Event()
    problems: list[object] = []

    def serve() -> None:
        names: list[str] = []

        def on_accept(sock: socket.socket, address: object) -> None:
            names.append(f"{address}")
            server.register(names[-1], sock)

        server.listen(listener.dup(), on_accept)
        while not stopping.is_set():
            server.poll(math.inf)
            for received in server.completed_receives:
                server.send(received.channel_id, [len(received.payload).to_bytes(4, "big"), received.payload])
            for name in names:
                channel = server.channel(name)
                if channel is None:
                    problems.append(name)
                elif len(channel.sends) > 3:
                    server.mute(name)
                else:
                    server.unmute(name)
            problems.extend(server.disconnected.values())

    thread = threading.Thread(target=serve)
    thread.start()
    selector = Selector(clock=SYSTEM_CLOCK, max_receive_bytes=LIMIT)
    received: dict[str, list[memoryview]] = defaultdict(list)
    try:
        for channel_id in payloads:
            selector.connect(channel_id, socket.AF_INET, listener.getsockname())
        to_send = {channel_id: [*reversed(each)] for channel_id, each in payloads.items()}
        while sum(map(len, received.values())) < clients * frames_each:
            selector.poll(math.inf)
            assert not selector.disconnected
            for each in selector.completed_receives:
                received[each.channel_id].append(each.payload)
            for channel_id in [*selector.connected, *(send.channel_id for send in selector.completed_sends)]:
                if to_send[channel_id]:
                    selector.send(channel_id, [frame(to_send[channel_id].pop())])
    finally:
        stopping.set()
        server.wakeup()
        thread.join()
        selector.close()
        server.close()
    assert received == payloads
    assert not problems
