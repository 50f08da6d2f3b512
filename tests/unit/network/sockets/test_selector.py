"""Selector: what it reports about its connections. Socketpairs and Unix sockets replace the network."""

from __future__ import annotations

import math
import os
import selectors
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.connection_pair import frame
from support.descriptors import none_is_left

from headrace.network.clock import MockClock
from headrace.network.protocol.errors import (
    DisconnectedError,
    IllegalStateError,
    KafkaConnectionError,
    NotKafkaError,
)
from headrace.network.sockets.channel_cy import SCRATCH_BYTES, NetworkSend
from headrace.network.sockets.plaintext_transport_cy import PlaintextTransport
from headrace.network.sockets.selector_cy import Selector, describe_address
from headrace.network.sockets.transport import FileRegion

LIMIT = 10_000_000


@pytest.fixture(autouse=True)
def no_descriptor_is_left() -> Iterator[None]:
    with none_is_left():
        yield


class World:
    """A selector, and raw sockets as the peers of its channels."""

    def __init__(self, **options: object) -> None:
        self.clock = MockClock()
        arguments: dict[str, object] = {"clock": self.clock, "max_receive_bytes": LIMIT, **options}
        self.selector = Selector(**arguments)  # pyright: ignore[reportArgumentType]
        self._peers: list[socket.socket] = []

    def channel(self, channel_id: str) -> socket.socket:
        """Register a connected socket, and return its other end."""
        ours, theirs = socket.socketpair()
        self._peers.append(theirs)
        self.selector.register(channel_id, ours)
        return theirs

    def poll(self) -> list[tuple[str, bytes]]:
        """Poll without waiting, and return what was received."""
        self.selector.poll(0)
        return [(receive.channel_id, bytes(receive.payload)) for receive in self.selector.completed_receives]

    def close(self) -> None:
        self.selector.close()
        for peer in self._peers:
            peer.close()


@pytest.fixture
def make_world() -> Iterator[Callable[..., World]]:
    worlds: list[World] = []

    def make(**options: object) -> World:
        worlds.append(World(**options))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()


@pytest.fixture
def unix_listener(tmp_path: Path) -> Iterator[socket.socket]:
    """A listening socket to which connecting succeeds at once, as it may for a local TCP port."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "broker"))
        listener.listen()
        yield listener


# --- Receiving ---


def test_all_frames_of_one_read_are_delivered_in_order(world: World) -> None:
    peer = world.channel("a")
    peer.sendall(frame(b"one") + frame(b"") + frame(b"three") + frame(b"four")[:5])
    assert world.poll() == [("a", b"one"), ("a", b""), ("a", b"three")]
    assert world.poll() == []
    peer.sendall(frame(b"four")[5:])
    assert world.poll() == [("a", b"four")]


def test_several_channels_in_one_poll(world: World) -> None:
    peers = {channel_id: world.channel(channel_id) for channel_id in "abc"}
    for channel_id, peer in peers.items():
        peer.sendall(frame(channel_id.encode() * 3)[:5])
    assert world.poll() == []
    for channel_id, peer in peers.items():
        peer.sendall(frame(channel_id.encode() * 3)[5:])
    assert sorted(world.poll()) == [("a", b"aaa"), ("b", b"bbb"), ("c", b"ccc")]


def test_a_talkative_channel_does_not_starve_the_others(world: World) -> None:
    loud, quiet = world.channel("loud"), world.channel("quiet")
    loud.setblocking(False)
    sent = loud.send(frame(bytes(100)) * 10_000)
    assert sent > SCRATCH_BYTES
    quiet.sendall(frame(b"quiet"))
    first = world.poll()
    assert ("quiet", b"quiet") in first
    assert len(first) - 1 == SCRATCH_BYTES // 104  # one read of the busy one
    assert len(world.poll()) > 0


def test_a_large_frame_in_many_pieces(world: World) -> None:
    peer = world.channel("a")
    payload = os.urandom(3_000_000)
    data = frame(payload)
    received: list[tuple[str, bytes]] = []
    position = 0
    while not received:
        position += peer.send(data[position : position + 50_000]) if position < len(data) else 0
        received = world.poll()
    assert received == [("a", payload)]


def test_the_lists_of_a_poll_are_the_callers_to_keep(world: World) -> None:
    peer = world.channel("a")
    peer.sendall(frame(b"one"))
    world.poll()
    kept = world.selector.completed_receives
    peer.sendall(frame(b"two"))
    world.poll()
    assert [bytes(receive.payload) for receive in kept] == [b"one"]


# --- Muting ---


def test_a_muted_channel_is_not_read(world: World) -> None:
    peer = world.channel("a")
    world.selector.mute("a")
    world.selector.mute("a")
    peer.sendall(frame(b"later"))
    peer.shutdown(socket.SHUT_WR)
    assert world.poll() == []
    assert not world.selector.disconnected
    world.selector.unmute("a")
    world.selector.unmute("a")
    assert world.poll() == [("a", b"later")]
    world.poll()
    assert isinstance(world.selector.disconnected["a"], DisconnectedError)


def test_a_muted_channel_can_be_written(world: World) -> None:
    peer = world.channel("a")
    world.selector.mute("a")
    world.selector.send("a", [bytes(5_000_000)])
    received = 0
    while received < 5_000_000:
        world.poll()
        received += len(peer.recv(1_000_000))
    world.poll()
    peer.sendall(frame(b"still muted"))
    assert world.poll() == []


def test_muting_a_connection_that_has_ended_is_fine(world: World) -> None:
    world.channel("a").close()
    world.poll()
    world.selector.mute("a")
    world.selector.unmute("a")
    world.selector.mute("never there")


# --- Sending ---


def test_a_send_leaves_at_once_and_the_next_poll_says_so(world: World) -> None:
    peer = world.channel("a")
    send = world.selector.send("a", [frame(b"request")])
    assert peer.recv(100) == frame(b"request")
    world.selector.poll(math.inf)  # does not wait
    assert world.selector.completed_sends == [send]
    assert send.channel_id == "a"
    world.poll()
    assert world.selector.completed_sends == []


def test_completed_sends_that_were_taken_are_not_listed_again(world: World) -> None:
    world.channel("peer")
    send = world.selector.send("peer", [frame(b"abc")])
    assert world.selector.take_completed_sends() == [send]
    assert world.selector.take_completed_sends() == []
    world.poll()
    assert world.selector.completed_sends == []


def test_what_does_not_fit_follows_as_the_peer_reads(world: World) -> None:
    peer = world.channel("a")
    data = os.urandom(2_000_000)
    sends = [world.selector.send("a", [data[:1_000_000], data[1_000_000:]]), world.selector.send("a", [b"last"])]
    channel = world.selector.channel("a")
    assert channel is not None
    assert list(channel.sends) == sends
    received = bytearray()
    completed: list[NetworkSend] = []
    while len(received) < len(data) + 4:
        received += peer.recv(100_000)
        world.poll()
        completed += world.selector.completed_sends
    assert received == data + b"last"
    assert completed == sends
    assert not channel.sends
    assert channel.watched_events == selectors.EVENT_READ  # otherwise every poll would return at once


def test_a_file_region_is_sent(world: World, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"0123456789")
    peer = world.channel("a")
    with (tmp_path / "log").open("rb") as log:
        world.selector.send("a", [b"<", FileRegion(log, 2, 5), b">"])
    assert peer.recv(100) == b"<23456>"


def test_sending_where_no_connection_is_says_so(world: World) -> None:
    with pytest.raises(IllegalStateError, match="'nowhere'"):
        world.selector.send("nowhere", [b"x"])


def test_answering_a_connection_that_ended_with_its_last_request_is_a_failed_send(world: World) -> None:
    peer = world.channel("a")
    peer.sendall(frame(b"request") + b"garbage")
    assert world.poll() == [("a", b"request")]
    assert "a" in world.selector.disconnected
    pooled = bytearray(b"answer")
    send = world.selector.send("a", [pooled])
    pooled.clear()
    world.poll()
    assert world.selector.failed_sends == [send]
    assert world.selector.disconnected == {}
    with pytest.raises(IllegalStateError):
        world.selector.send("a", [b"much later"])


def test_a_send_that_fails_is_reported_by_the_next_poll(world: World) -> None:
    peer = world.channel("a")
    peer.close()
    sends = [world.selector.send("a", [b"x"]), world.selector.send("a", [b"y"])]
    world.selector.poll(math.inf)
    assert isinstance(world.selector.disconnected["a"], DisconnectedError)
    assert "2 of 2 bytes were not sent" in str(world.selector.disconnected["a"])
    assert world.selector.failed_sends == sends
    assert world.selector.completed_sends == []
    assert world.selector.channel("a") is None


def test_sends_in_progress_are_reported_on_disconnection(world: World) -> None:
    peer = world.channel("a")
    done = world.selector.send("a", [b"small"])
    world.poll()
    assert world.selector.completed_sends == [done]
    pooled = bytearray(5_000_000)
    partial = world.selector.send("a", [pooled])
    waiting = world.selector.send("a", [b"after it"])
    peer.close()
    world.poll()
    assert world.selector.failed_sends == [partial, waiting]
    assert 0 < partial.remaining_bytes < partial.size_bytes
    pooled.clear()  # no reference to its memory remains


def test_an_answer_that_came_before_a_failed_write_is_delivered(world: World) -> None:
    peer = world.channel("a")
    peer.sendall(frame(b"the last answer"))
    peer.close()
    world.selector.send("a", [b"too late"])
    assert world.poll() == [("a", b"the last answer")]
    assert isinstance(world.selector.disconnected["a"], DisconnectedError)


def test_what_a_stranger_said_before_a_failed_write_is_the_reason(world: World) -> None:
    peer = world.channel("a")
    peer.sendall(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    peer.close()
    world.selector.send("a", [b"too late"])
    world.poll()
    assert isinstance(world.selector.disconnected["a"], NotKafkaError)


# --- The end of connections ---


def test_frames_before_the_end_are_delivered_with_it(world: World) -> None:
    peer = world.channel("a")
    peer.sendall(frame(b"one") + frame(b"two"))
    peer.close()
    assert world.poll() == [("a", b"one"), ("a", b"two")]
    world.poll()
    assert isinstance(world.selector.disconnected["a"], DisconnectedError)
    world.poll()
    assert world.selector.disconnected == {}


def test_frames_before_garbage_are_delivered_with_the_error(world: World) -> None:
    peer = world.channel("a")
    peer.sendall(frame(b"good") + b"\xff\xff\xff\xff")
    assert world.poll() == [("a", b"good")]
    assert "-1" in str(world.selector.disconnected["a"])


def test_one_broken_connection_leaves_the_others_alone(world: World) -> None:
    peers = [world.channel(str(i)) for i in range(10)]
    for peer in peers[::2]:
        peer.close()
    for peer in peers[1::2]:
        peer.sendall(frame(b"well"))
    received = world.poll()
    assert sorted(world.selector.disconnected) == ["0", "2", "4", "6", "8"]
    assert sorted(received) == [(str(i), b"well") for i in (1, 3, 5, 7, 9)]


def test_closing_a_channel_is_silent_and_idempotent(world: World) -> None:
    peer = world.channel("a")
    pooled = bytearray(b"request")
    world.selector.send("a", [pooled])
    world.selector.close_channel("a")
    world.selector.close_channel("a")
    pooled.clear()
    assert peer.recv(100) == b"request"
    assert peer.recv(100) == b""
    world.poll()
    assert world.selector.completed_sends == world.selector.failed_sends == []
    assert world.selector.disconnected == {}


def test_closing_a_channel_with_a_send_under_way_lets_its_buffers_go(world: World) -> None:
    world.channel("a")
    pooled = bytearray(5_000_000)
    world.selector.send("a", [pooled])
    world.selector.close_channel("a")
    pooled.clear()
    world.poll()


def test_an_id_can_be_used_again_at_once(world: World) -> None:
    first = world.channel("a")
    first.sendall(frame(b"old"))
    world.selector.close_channel("a")
    second = world.channel("a")
    second.sendall(frame(b"new"))
    assert world.poll() == [("a", b"new")]


def test_an_old_failure_does_not_hit_the_new_connection_of_the_same_id(world: World) -> None:
    world.channel("a").close()
    world.selector.send("a", [b"fails"])
    world.selector.close_channel("a")
    world.channel("a").sendall(frame(b"new"))
    assert world.poll() == [("a", b"new")]
    assert world.selector.disconnected == {}


def test_an_id_that_is_in_use_is_refused_and_the_socket_left_alone(world: World) -> None:
    world.channel("a")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        with pytest.raises(IllegalStateError, match="'a'"):
            world.selector.register("a", ours)
        theirs.sendall(b"x")
        assert ours.recv(1) == b"x"
    with pytest.raises(IllegalStateError, match="'a'"):
        world.selector.connect("a", socket.AF_INET, ("127.0.0.1", 1))


def test_closing_the_selector_closes_everything_once(world: World, unix_listener: socket.socket) -> None:
    peer = world.channel("a")
    pooled = bytearray(5_000_000)
    world.selector.send("a", [pooled])
    listener = unix_listener.dup()
    world.selector.listen(listener, lambda sock, address: sock.close())
    world.selector.close()
    world.selector.close()
    assert listener.fileno() == -1
    pooled.clear()
    while peer.recv(1_000_000):
        pass
    world.selector.wakeup()
    with pytest.raises(IllegalStateError, match="closed"):
        world.selector.poll(0)
    with pytest.raises(IllegalStateError, match="closed"):
        world.selector.connect("b", socket.AF_INET, ("127.0.0.1", 1))


# --- Connecting ---


def test_a_connection_that_stands_immediately(world: World, unix_listener: socket.socket) -> None:
    world.selector.connect("node", socket.AF_UNIX, unix_listener.getsockname())
    assert not world.selector.is_channel_ready("node")
    world.selector.send("node", [frame(b"early")])
    world.selector.poll(math.inf)
    assert world.selector.connected == ["node"]
    assert world.selector.is_channel_ready("node")
    accepted, _ = unix_listener.accept()
    with accepted:
        assert accepted.recv(100) == frame(b"early")
        accepted.sendall(frame(b"answer"))
        assert world.poll() == [("node", b"answer")]
        assert world.selector.connected == []


def test_a_connection_that_is_closed_before_it_was_reported(world: World, unix_listener: socket.socket) -> None:
    world.selector.connect("node", socket.AF_UNIX, unix_listener.getsockname())
    world.selector.close_channel("node")
    world.poll()
    assert world.selector.connected == []
    assert world.selector.disconnected == {}


def test_connecting_to_nothing_is_reported_and_not_raised(world: World, tmp_path: Path) -> None:
    address = str(tmp_path / "nobody")
    world.selector.connect("node", socket.AF_UNIX, address)
    send = world.selector.send("node", [b"hopeful"])
    world.selector.poll(math.inf)
    error = world.selector.disconnected["node"]
    assert type(error) is KafkaConnectionError
    assert address in str(error)
    assert "No such file" in str(error)
    assert world.selector.failed_sends == [send]
    assert not world.selector.is_channel_ready("node")


def test_a_family_that_does_not_exist_is_reported_and_not_raised(world: World) -> None:
    world.selector.connect("node", 9999, ("10.0.0.1", 9092))
    world.selector.poll(math.inf)
    assert "10.0.0.1:9092" in str(world.selector.disconnected["node"])


# --- Accepting ---


def test_on_accept_decides_what_becomes_of_a_connection(world: World, unix_listener: socket.socket) -> None:
    accepted: list[str] = []

    def on_accept(sock: socket.socket, address: object) -> None:
        if len(accepted) == 2:
            sock.close()
        else:
            accepted.append(f"connection-{len(accepted)}")
            world.selector.register(accepted[-1], sock)

    listener = unix_listener.dup()
    world.selector.listen(listener, on_accept)
    clients = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    for i, client in enumerate(clients):
        client.connect(unix_listener.getsockname())
        client.sendall(frame(b"%d" % i))
    world.poll()
    assert sorted(world.poll()) == [("connection-0", b"0"), ("connection-1", b"1")]
    assert world.selector.connected == []  # accepted connections are not reported: the caller registered them
    with pytest.raises(ConnectionError):
        clients[2].recv(10)
    for client in clients:
        client.close()


def test_on_accept_may_close_and_mute_channels_that_have_events_in_the_same_poll(
    make_world: Callable[..., World], unix_listener: socket.socket
) -> None:
    world = make_world(connections_max_idle_ms=1000)

    def on_accept(sock: socket.socket, address: object) -> None:
        sock.close()
        world.selector.close_channel("closed")
        world.selector.mute("muted")

    world.selector.listen(unix_listener.dup(), on_accept)
    closed, muted = world.channel("closed"), world.channel("muted")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(unix_listener.getsockname())  # first, so that the kernel reports it first
        closed.sendall(frame(b"too late"))
        muted.sendall(frame(b"not now"))
        assert world.poll() == []
    assert world.selector.disconnected == {}
    world.selector.unmute("muted")
    assert world.poll() == [("muted", b"not now")]
    world.clock.advance(1000)
    world.poll()
    assert list(world.selector.disconnected) == ["muted"]


def test_an_error_in_on_accept_is_loud_and_leaks_nothing(world: World, unix_listener: socket.socket) -> None:
    def on_accept(sock: socket.socket, address: object) -> None:
        raise RuntimeError("a mistake of the server's")

    world.selector.listen(unix_listener.dup(), on_accept)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(unix_listener.getsockname())
        with pytest.raises(RuntimeError, match="mistake"):
            world.poll()
        assert client.recv(1) == b""
    assert world.poll() == []


# --- Idle connections ---


def test_idle_connections_are_closed_least_recently_used_first(make_world: Callable[..., World]) -> None:
    world = make_world(connections_max_idle_ms=1000)
    peers = {channel_id: world.channel(channel_id) for channel_id in "abcd"}
    world.clock.advance(400)
    peers["b"].sendall(frame(b"alive"))
    world.poll()
    world.clock.advance(400)
    world.selector.send("a", [b"alive"])
    world.poll()
    world.clock.advance(199)
    world.poll()
    assert world.selector.disconnected == {}
    world.clock.advance(1)
    world.poll()
    assert list(world.selector.disconnected) == ["c", "d"]
    error = world.selector.disconnected["c"]
    assert isinstance(error, DisconnectedError)
    assert "1000 ms" in str(error)
    assert "connections.max.idle.ms" in str(error)
    world.clock.advance(1000)
    world.poll()
    assert list(world.selector.disconnected) == ["b", "a"]
    assert all(peers[channel_id].recv(100) in (b"", b"alive") for channel_id in "abcd")


def test_a_connection_that_just_spoke_is_not_idle(make_world: Callable[..., World]) -> None:
    world = make_world(connections_max_idle_ms=1000)
    peer = world.channel("a")
    world.clock.advance(5000)
    peer.sendall(frame(b"after a long time"))
    assert world.poll() == [("a", b"after a long time")]
    assert world.selector.disconnected == {}


def test_a_poll_does_not_wait_beyond_the_next_idle_connection(make_world: Callable[..., World]) -> None:
    world = make_world(connections_max_idle_ms=1000)
    world.channel("a")
    world.clock.advance(1000)
    world.selector.poll(math.inf)
    assert list(world.selector.disconnected) == ["a"]


def test_without_a_limit_nothing_is_ever_idle(world: World) -> None:
    world.channel("a")
    world.clock.advance(1e12)
    world.poll()
    assert world.selector.disconnected == {}


# --- Waking up ---


def test_a_wakeup_before_the_poll_counts(world: World) -> None:
    for _ in range(3):
        world.selector.wakeup()
    world.selector.poll(math.inf)


def test_a_wakeup_ends_the_poll_that_waits(world: World) -> None:
    polls = threading.Semaphore(0)
    go_on = threading.Event()

    def run() -> None:
        while not go_on.is_set():
            world.selector.poll(math.inf)
            polls.release()

    thread = threading.Thread(target=run)
    thread.start()
    for _ in range(200):
        world.selector.wakeup()
        assert polls.acquire(timeout=60)
    go_on.set()
    world.selector.wakeup()
    thread.join(60)
    assert not thread.is_alive()


def test_no_wakeup_is_lost_when_many_threads_wake(world: World) -> None:
    """Each thread adds an item, wakes the poller and waits until it has seen the item."""
    items: list[threading.Event] = []
    threads_done = threading.Semaphore(0)
    lost: list[str] = []

    def run() -> None:
        for _ in range(300):
            item = threading.Event()
            items.append(item)
            world.selector.wakeup()
            if not item.wait(60):
                lost.append("lost")
                break
        threads_done.release()
        world.selector.wakeup()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    done = 0
    while done < len(threads):
        world.selector.poll(math.inf)
        while items:
            items.pop().set()
        while threads_done.acquire(blocking=False):
            done += 1
    for thread in threads:
        thread.join()
    assert not lost


def test_wakeups_are_consumed(world: World) -> None:
    """After any number of wakeups a poll waits again, here until a signal handler wakes it."""
    woken: list[bool] = []

    def handler(number: int, stack: object) -> None:
        woken.append(True)
        world.selector.wakeup()

    thread = threading.Thread(target=lambda: [world.selector.wakeup() for _ in range(100)])
    thread.start()
    thread.join()
    world.selector.poll(math.inf)
    previous = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        world.selector.poll(math.inf)
        assert woken == [True]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


# --- Other transports ---


class SecretTransport(PlaintextTransport):
    """A toy TLS: a greeting in both directions, then inverted bytes, buffered in both directions."""

    ready = False  # pyright: ignore[reportAssignmentType]

    def __init__(self, sock: socket.socket, _host: str) -> None:
        super().__init__(sock)
        self._greeting = b"hello"
        self._expected = 5
        self._in = bytearray()
        self._out = bytearray()

    def handshake(self) -> int:
        if self._greeting:
            self._greeting = self._greeting[super().write((memoryview(self._greeting[:2]),)) :]
        buffer = bytearray(1000)
        count = super().read_into(memoryview(buffer)) or 0
        greeting = min(count, self._expected)
        self._expected -= greeting
        self._in += bytes(byte ^ 0xFF for byte in buffer[greeting:count])
        self.ready = not self._greeting and not self._expected  # pyright: ignore
        return (1 if self._expected else 0) | (2 if self._greeting else 0)

    @property
    def has_pending_writes(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return bool(self._out)

    @property
    def has_buffered_reads(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return bool(self._in)

    def read_into(self, buffer: memoryview) -> int | None:
        if not self._in:
            record = bytearray(1000)
            count = super().read_into(memoryview(record))
            if not count:
                return count
            self._in += bytes(byte ^ 0xFF for byte in record[:count])
        count = min(7, len(buffer), len(self._in))
        buffer[:count] = self._in[:count]
        del self._in[:count]
        return count

    def write(self, buffers: object, *, more: bool = False) -> int:
        data = b"".join(buffers)  # pyright: ignore
        self._out += bytes(byte ^ 0xFF for byte in data)
        del self._out[: super().write((memoryview(bytes(self._out[:900])),))]
        return len(data)


def test_a_transport_with_a_handshake_and_buffers_of_its_own(
    make_world: Callable[..., World], unix_listener: socket.socket
) -> None:
    client, server = make_world(transport=SecretTransport), make_world(transport=SecretTransport)
    server.selector.listen(unix_listener.dup(), lambda sock, address: server.selector.register("client", sock))
    client.selector.connect("server", socket.AF_UNIX, unix_listener.getsockname())
    request = client.selector.send("server", [frame(b"request") + frame(bytes(10_000))])
    connected: list[str] = []
    completed: list[NetworkSend] = []
    received: list[tuple[str, bytes]] = []
    for _ in range(1000):
        client.poll()
        connected += client.selector.connected
        completed += client.selector.completed_sends
        received += server.poll()
        assert not client.selector.disconnected
        assert not server.selector.disconnected
        if len(received) == 2:
            break
    assert connected == ["server"]
    assert received == [("client", b"request"), ("client", bytes(10_000))]
    assert completed == [request]
    server.selector.send("client", [frame(b"answer")])
    server.poll()
    assert client.poll() == [("server", b"answer")]


def test_a_request_that_came_with_the_end_of_the_handshake_is_read(make_world: Callable[..., World]) -> None:
    world = make_world(transport=SecretTransport)
    peer = world.channel("client")
    peer.sendall(b"hello" + bytes(byte ^ 0xFF for byte in frame(b"request")))
    received: list[tuple[str, bytes]] = []
    for _ in range(10):
        received += world.poll()
    assert received == [("client", b"request")]


def test_a_request_that_came_with_the_whole_handshake_is_read(make_world: Callable[..., World]) -> None:
    """The handshake is complete within `register`, after which no event reports the buffered bytes."""

    class Silent(SecretTransport):
        def __init__(self, sock: socket.socket, _host: str) -> None:
            super().__init__(sock, _host)
            self._greeting = b""

    world = make_world(transport=Silent)
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(b"hello" + bytes(byte ^ 0xFF for byte in frame(b"request")))
        world.selector.register("client", ours)
        assert world.poll() == [("client", b"request")]


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (("127.0.0.1", 9092), "127.0.0.1:9092"),
        (("::1", 9092, 0, 0), "[::1]:9092"),
        ("/run/broker", "/run/broker"),
        ("", "an unnamed socket"),
    ],
)
def test_addresses_as_people_write_them(address: object, text: str) -> None:
    assert describe_address(address) == text
