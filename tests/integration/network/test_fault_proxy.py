"""The fault proxy itself: each fault works as documented, and nothing else changes the bytes."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from support.connection_pair import frame
from support.descriptors import none_is_left
from support.fault_proxy import Direction, FaultProxy, SeenRequest
from support.waiting import wait_until

from headrace.network.clock import SYSTEM_CLOCK

PRODUCE, FETCH, METADATA = 0, 1, 3


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    with none_is_left():
        yield
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fault-proxy")]


def request(api_key: int, correlation_id: int, body: bytes = b"") -> bytes:
    return frame(struct.pack(">hhi", api_key, 7, correlation_id) + body)


def answer(correlation_id: int, body: bytes = b"") -> bytes:
    return frame(struct.pack(">i", correlation_id) + body)


class Server:
    """Answers each request with its own body, and echoes bytes without frames. One thread per connection."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self.listener.getsockname()
        self.received: list[bytes] = []
        self.ends: list[str] = []
        self.ended = threading.Semaphore(0)
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self.listener.accept()
                self._threads.append(threading.Thread(target=self._serve, args=(sock,)))
                self._threads[-1].start()

    def _serve(self, sock: socket.socket) -> None:
        with sock:
            try:
                self._answer(sock)
                self.ends.append("close")
            except ConnectionError:
                self.ends.append("reset")
            self.ended.release()

    def _answer(self, sock: socket.socket) -> None:
        with sock.makefile("rb") as stream:
            while start := stream.read(4):
                length = int.from_bytes(start, "big")
                if length > 1 << 28:
                    sock.sendall(start)
                    while data := stream.read1(1000):
                        sock.sendall(data)
                    return
                body = stream.read(length)
                self.received.append(start + body)
                if len(body) < length:
                    return
                sock.sendall(answer(int.from_bytes(body[4:8], "big"), body[8:]))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def proxy(server: Server) -> Iterator[FaultProxy]:
    with FaultProxy(server.address) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[socket.socket]:
    with connect(proxy) as client:
        yield client


def connect(proxy: FaultProxy) -> socket.socket:
    client = socket.create_connection((proxy.host, proxy.port), timeout=60)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def read(sock: socket.socket, size_bytes: int) -> bytes:
    data = b""
    while len(data) < size_bytes and (piece := sock.recv(size_bytes - len(data))):
        data += piece
    return data


def ask(sock: socket.socket, api_key: int, correlation_id: int, body: bytes = b"") -> None:
    """Send a request, and check its whole response."""
    sock.sendall(request(api_key, correlation_id, body))
    expected = answer(correlation_id, body)
    assert read(sock, len(expected)) == expected


def end_of(sock: socket.socket) -> tuple[bytes, str]:
    """The remaining bytes, and how the connection ends."""
    data = bytearray()
    try:
        while piece := sock.recv(1_000_000):
            data += piece
    except ConnectionResetError:
        return bytes(data), "reset"
    return bytes(data), "close"


def is_silent(sock: socket.socket) -> bool:
    sock.settimeout(0.05)
    try:
        return not sock.recv(1)
    except TimeoutError:
        return True
    finally:
        sock.settimeout(60)


def test_without_faults_it_is_a_wire(proxy: FaultProxy, server: Server, client: socket.socket) -> None:
    bodies = [b"", b"small", os.urandom(3_000_000), b"after"]
    for i, body in enumerate(bodies):
        ask(client, i, i, body)
    with connect(proxy) as second:
        ask(second, PRODUCE, 0, b"second")
    assert server.received == [request(i, i, body) for i, body in enumerate(bodies)] + [request(PRODUCE, 0, b"second")]
    assert proxy.requests[1] == SeenRequest(1, 1, 7, 1, 17)
    assert [each.connection for each in proxy.requests] == [1, 1, 1, 1, 2]
    assert proxy.connection_count == 2


def test_a_close_passes_in_both_directions(proxy: FaultProxy, server: Server, client: socket.socket) -> None:
    ask(client, PRODUCE, 1)
    client.shutdown(socket.SHUT_WR)
    assert end_of(client) == (b"", "close")
    assert server.ended.acquire(timeout=60)
    assert server.ends == ["close"]


def test_what_is_unfinished_at_the_end_passes(server: Server, client: socket.socket) -> None:
    client.sendall(request(PRODUCE, 1, b"body")[:9])
    client.shutdown(socket.SHUT_WR)
    assert end_of(client) == (b"", "close")
    assert server.received == [request(PRODUCE, 1, b"body")[:9]]


def test_a_stream_without_frames_passes(client: socket.socket) -> None:
    client.sendall(b"GET / HTTP/1.1\r\n")
    assert read(client, 16) == b"GET / HTTP/1.1\r\n"
    client.sendall(b"more")
    assert read(client, 4) == b"more"


# --- Connections ---


def test_refusing_and_healing(proxy: FaultProxy, client: socket.socket) -> None:
    ask(client, PRODUCE, 1)
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    ask(client, PRODUCE, 2)
    proxy.heal()
    with connect(proxy) as second:
        ask(second, PRODUCE, 3)


def test_nobody_behind_it_is_a_reset(proxy: FaultProxy, server: Server) -> None:
    server.close()
    # the reset may come before the client's connect() has returned
    with pytest.raises(ConnectionResetError), connect(proxy) as client:
        client.recv(1)


def test_going_to_another_broker(proxy: FaultProxy, client: socket.socket) -> None:
    ask(client, PRODUCE, 1, b"to the first")
    other = Server()
    proxy.upstream = other.address
    with connect(proxy) as second:
        ask(second, PRODUCE, 1, b"to the other")
    assert other.received == [request(PRODUCE, 1, b"to the other")]
    other.close()


def test_resetting(proxy: FaultProxy, server: Server, client: socket.socket) -> None:
    ask(client, PRODUCE, 1)
    proxy.reset()
    assert end_of(client) == (b"", "reset")
    assert server.ended.acquire(timeout=60)
    assert server.ends == ["reset"]
    with connect(proxy) as second:
        ask(second, PRODUCE, 2)


def test_closing(proxy: FaultProxy, server: Server, client: socket.socket) -> None:
    ask(client, PRODUCE, 1)
    proxy.close_connections()
    assert end_of(client) == (b"", "close")
    client.sendall(request(PRODUCE, 2))  # accepted, but not delivered
    client.close()
    assert server.ended.acquire(timeout=60)
    assert server.ends == ["close"]
    assert server.received == [request(PRODUCE, 1)]


def test_half_closing_towards_the_client(proxy: FaultProxy, server: Server, client: socket.socket) -> None:
    ask(client, PRODUCE, 1)
    proxy.half_close(Direction.TO_CLIENT)
    assert end_of(client) == (b"", "close")
    client.sendall(request(PRODUCE, 2))
    proxy.wait_for_requests(2)
    client.close()
    assert server.ended.acquire(timeout=60)
    assert server.received == [request(PRODUCE, 1), request(PRODUCE, 2)]


def test_half_closing_towards_the_broker(proxy: FaultProxy, server: Server, client: socket.socket) -> None:
    proxy.response(PRODUCE).delay(20)
    client.sendall(request(PRODUCE, 1))
    proxy.wait_for_requests(1)
    proxy.half_close(Direction.TO_BROKER)
    assert end_of(client) == (answer(1), "close")
    assert server.ends == ["close"]


# --- Bytes ---


@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("size_bytes", [0, 1, 8, 12, 13, 20])
def test_cutting_after_some_bytes_of_answers(
    proxy: FaultProxy, client: socket.socket, how: str, size_bytes: int
) -> None:
    answers = answer(1, b"body") + answer(2, b"body")
    fault = proxy.cut_after(size_bytes, Direction.TO_CLIENT, how=how)  # pyright: ignore[reportArgumentType]
    client.sendall(request(PRODUCE, 1, b"body") + request(PRODUCE, 2, b"body"))
    assert end_of(client) == (answers[:size_bytes], how)
    fault.wait()
    with connect(proxy) as second:  # one connection only
        ask(second, PRODUCE, 3, b"body" * 10)


def test_cutting_after_some_bytes_of_requests(proxy: FaultProxy, server: Server, client: socket.socket) -> None:
    ask(client, PRODUCE, 1, b"does not count")
    proxy.cut_after(20, Direction.TO_BROKER, how="close")
    client.sendall(request(PRODUCE, 2, b"1234") + request(PRODUCE, 3, b"1234"))
    assert end_of(client)[1] == "close"
    client.close()
    assert server.ended.acquire(timeout=60)
    assert server.received[1:] == [request(PRODUCE, 2, b"1234"), request(PRODUCE, 3, b"1234")[:4]]


def test_a_trickle_changes_nothing_but_the_pace(proxy: FaultProxy, client: socket.socket) -> None:
    ask(client, PRODUCE, 0)
    proxy.trickle()
    ask(client, PRODUCE, 1, b"body")
    proxy.trickle(Direction.TO_CLIENT)
    client.sendall(request(PRODUCE, 2, b"body" * 2000))
    expected = answer(2, b"body" * 2000)
    first = client.recv(len(expected))
    assert len(first) < len(expected)
    assert first + read(client, len(expected) - len(first)) == expected


def test_a_stall_holds_everything_until_it_is_healed(proxy: FaultProxy, server: Server, client: socket.socket) -> None:
    proxy.stall()
    with connect(proxy) as second:
        for sock in (client, second):
            sock.sendall(request(PRODUCE, 1))
        assert is_silent(client)
        assert is_silent(second)
        assert not server.received
        proxy.heal()
        for sock in (client, second):
            assert read(sock, 8) == answer(1)


def test_a_stall_in_one_direction(proxy: FaultProxy, server: Server, client: socket.socket) -> None:
    proxy.stall(Direction.TO_CLIENT)
    client.sendall(request(PRODUCE, 1))
    wait_until(lambda: server.received)
    assert server.received == [request(PRODUCE, 1)]
    assert is_silent(client)
    proxy.heal()
    assert read(client, 8) == answer(1)


def test_a_stalled_sender_feels_it(proxy: FaultProxy, client: socket.socket) -> None:
    proxy.stall(Direction.TO_BROKER)
    client.settimeout(0.5)
    with pytest.raises(TimeoutError):
        client.sendall(request(PRODUCE, 1, bytes(20_000_000)))


def test_a_delay_passes(proxy: FaultProxy, client: socket.socket) -> None:
    proxy.delay(50, Direction.TO_CLIENT)
    start_ms = SYSTEM_CLOCK.now_ms()
    ask(client, PRODUCE, 1)
    assert SYSTEM_CLOCK.now_ms() - start_ms >= 50
    proxy.delay(3_600_000)
    client.sendall(request(PRODUCE, 2))
    assert is_silent(client)
    proxy.heal()
    assert read(client, 8) == answer(2)


# --- Requests and answers ---


def test_losing_the_answer_to_the_nth_request(proxy: FaultProxy, server: Server, client: socket.socket) -> None:
    fault = proxy.response(PRODUCE, nth=2).drop()
    for correlation_id, api_key in enumerate([PRODUCE, METADATA, FETCH]):
        ask(client, api_key, correlation_id)
    assert not fault.happened
    client.sendall(request(PRODUCE, 10))
    fault.wait()
    ask(client, PRODUCE, 11)
    assert fault.count == 1
    assert len(server.received) == 5


def test_losing_a_request(proxy: FaultProxy, server: Server, client: socket.socket) -> None:
    fault = proxy.request(PRODUCE).drop()
    client.sendall(request(PRODUCE, 1))
    fault.wait()
    ask(client, PRODUCE, 2)
    assert server.received == [request(PRODUCE, 2)]
    assert [each.correlation_id for each in proxy.requests] == [1, 2]


def test_losing_several(proxy: FaultProxy, server: Server, client: socket.socket) -> None:
    fault = proxy.request(PRODUCE, nth=2, times=2).drop()
    ask(client, PRODUCE, 1)
    client.sendall(request(PRODUCE, 2) + request(PRODUCE, 3))
    ask(client, PRODUCE, 4)
    assert fault.count == 2
    proxy.request(times=math.inf).drop()
    client.sendall(b"".join(request(PRODUCE, i) for i in range(5, 20)))
    proxy.wait_for_requests(19)
    proxy.heal()
    ask(client, PRODUCE, 20)
    assert server.received == [request(PRODUCE, i) for i in (1, 4, 20)]


@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("at", [0, 3, 4, 10])
def test_cutting_an_answer(proxy: FaultProxy, server: Server, client: socket.socket, how: str, at: int) -> None:
    fault = proxy.response(PRODUCE, nth=3).cut(at=at, how=how)  # pyright: ignore[reportArgumentType]
    with connect(proxy) as second:  # counted over all connections
        ask(second, PRODUCE, 1)
        ask(client, PRODUCE, 2)
        ask(client, METADATA, 3)
        client.sendall(request(PRODUCE, 4, b"body"))
        assert end_of(client) == (answer(4, b"body")[:at], how)
        fault.wait()
        ask(second, PRODUCE, 5)
    assert request(PRODUCE, 4, b"body") in server.received


def test_cutting_a_request(proxy: FaultProxy, server: Server, client: socket.socket) -> None:
    proxy.request(PRODUCE).cut(at=10, how="close")
    client.sendall(request(PRODUCE, 1, b"body") + request(PRODUCE, 2, b"never sent on"))
    assert end_of(client) == (b"", "close")
    client.close()
    assert server.ended.acquire(timeout=60)
    assert server.received == [request(PRODUCE, 1, b"body")[:10]]


def test_holding_an_answer(proxy: FaultProxy, client: socket.socket) -> None:
    fault = proxy.response(PRODUCE).hold()
    client.sendall(request(PRODUCE, 1) + request(METADATA, 2))
    fault.wait()
    assert is_silent(client)
    with connect(proxy) as second:
        ask(second, PRODUCE, 3)
    proxy.release(fault)
    assert read(client, 16) == answer(1) + answer(2)


def test_delaying_and_trickling_one_answer(proxy: FaultProxy, client: socket.socket) -> None:
    slow = proxy.response(PRODUCE).delay(50)
    thin = proxy.response(PRODUCE, nth=2).trickle()
    start_ms = SYSTEM_CLOCK.now_ms()
    ask(client, PRODUCE, 1)
    assert SYSTEM_CLOCK.now_ms() - start_ms >= 50
    ask(client, PRODUCE, 2, bytes(100))
    slow.wait()
    thin.wait()


def test_answers_out_of_order_are_those_of_their_requests(proxy: FaultProxy) -> None:
    """Responses match requests by correlation id, not by position: Produce with acks=0 has no response."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy.upstream = listener.getsockname()
        proxy.response(METADATA).drop()
        with connect(proxy) as client, listener.accept()[0] as broker:
            client.sendall(request(PRODUCE, 1) + request(METADATA, 2) + request(FETCH, 3))
            proxy.wait_for_requests(3)
            broker.sendall(answer(3) + answer(2))
            assert read(client, 8) == answer(3)
            assert is_silent(client)


def test_the_brokers_port_is_replaced_where_answers_name_it(proxy: FaultProxy, client: socket.socket) -> None:
    port = proxy.upstream[1].to_bytes(4, "big")
    for api_key, host, replaced in [
        (METADATA, b"127.0.0.1", True),
        (METADATA, b"localhost", True),
        (METADATA, b"elsewhere", False),
        (PRODUCE, b"127.0.0.1", True),
        (FETCH, b"127.0.0.1", False),  # these bytes might be records
    ]:
        client.sendall(request(api_key, 1, b"<" + host + port + b">"))
        new_port = proxy.port.to_bytes(4, "big") if replaced else port
        expected = answer(1, b"<" + host + new_port + b">")
        assert read(client, len(expected)) == expected


# --- The proxy itself ---


def test_waiting_for_what_never_comes_fails(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.fault_proxy._PATIENCE_S", 0.01)
    fault = proxy.response(PRODUCE, nth=3).cut(at=10)
    with pytest.raises(AssertionError, match="cut at byte 10 the answer to request 3 of API 0"):
        fault.wait()
    with pytest.raises(AssertionError, match="API 3"):
        proxy.wait_for_requests(1, METADATA)
    with pytest.raises(ValueError, match="from 1"):
        proxy.response(nth=0)


def test_closing_twice_is_fine_and_ends_connections(server: Server) -> None:
    proxy = FaultProxy(server.address)
    with connect(proxy) as client:
        ask(client, PRODUCE, 1)
        proxy.close()
        proxy.close()
        assert end_of(client) == (b"", "close")
    with pytest.raises(AssertionError, match="closed"):
        proxy.reset()
