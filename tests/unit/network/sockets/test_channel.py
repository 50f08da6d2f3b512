"""KafkaChannel: both directions together, and the errors that explain the end of a connection."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import selectors
import socket
import weakref
from collections.abc import Iterator

import pytest
from support.connection_pair import ConnectionPair, frame, ready_channel

from headrace.network.protocol.errors import (
    DisconnectedError,
    InvalidReceiveError,
    KafkaConnectionError,
    KafkaError,
    NotKafkaError,
)
from headrace.network.sockets.channel_cy import InvalidLength, KafkaChannel, NetworkReceive, NetworkSend
from headrace.network.sockets.plaintext_transport_cy import PlaintextTransport


class Peer:
    """A channel and the raw socket at its other end."""

    def __init__(self, *, initiated: bool = True, max_receive_bytes: int = 1_000_000) -> None:
        ours, self.socket = socket.socketpair()
        self.channel = ready_channel("node", ours, initiated=initiated, max_receive_bytes=max_receive_bytes)
        self.receives: list[NetworkReceive] = []

    def read_until_broken(self) -> KafkaError:
        """Read until the connection fails, and return the error that the selector would report."""
        try:
            while self.channel.read(self.receives):
                pass
        except (OSError, InvalidLength, KafkaError) as error:
            return self.channel.failure(error)
        raise AssertionError("the connection did not fail")

    def close(self) -> None:
        self.channel.close()
        self.socket.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.close()


@pytest.mark.parametrize("to_client", [False, True])
def test_a_pair_talks_both_ways(to_client: bool) -> None:
    large = os.urandom(3_000_000)
    with ConnectionPair() as pair:
        receives = pair.transfer([frame(b"first"), frame(large), frame(b"last")], to_client=to_client)
        assert [receive.channel_id for receive in receives] == ["client" if to_client else "server"] * 3
        assert [receive.payload for receive in receives] == [b"first", large, b"last"]


def test_one_read_brings_every_frame_that_is_there(peer: Peer) -> None:
    peer.socket.sendall(b"".join(frame(b"%d" % i) for i in range(1000)))
    peer.channel.read(peer.receives)
    assert [receive.payload for receive in peer.receives] == [b"%d" % i for i in range(1000)]


def test_nothing_to_read_is_no_error(peer: Peer) -> None:
    assert peer.channel.read(peer.receives) == 0


def test_sends_wait_for_each_other() -> None:
    with ConnectionPair() as pair:
        sends = [NetworkSend("client", [frame(bytes([65 + i]) * 300_000)]) for i in range(5)]
        pair.client.sends.extend(sends)
        completed: list[NetworkSend] = []
        receives: list[NetworkReceive] = []
        while len(receives) < 5:
            pair.client.write(completed)
            pair.server.read(receives)
        assert completed == sends
        assert [receive.payload[0] for receive in receives] == [65, 66, 67, 68, 69]


def test_a_channel_wants_to_write_only_while_it_has_something(peer: Peer) -> None:
    assert peer.channel.wanted_events() == selectors.EVENT_READ
    peer.channel.sends.append(NetworkSend("node", [b"x"]))
    assert peer.channel.wanted_events() == selectors.EVENT_READ | selectors.EVENT_WRITE
    peer.channel.muted = True
    assert peer.channel.wanted_events() == selectors.EVENT_WRITE


# --- The end of a connection ---


def test_closed_before_any_answer_tells_a_client_what_to_check(peer: Peer) -> None:
    peer.socket.close()
    error = peer.read_until_broken()
    assert isinstance(error, DisconnectedError)
    assert "node.test:9092 closed the connection" in str(error)
    assert "security.protocol" in str(error)


def test_closed_by_a_client_is_nothing_to_explain() -> None:
    peer = Peer(initiated=False)
    peer.socket.close()
    assert str(peer.read_until_broken()) == "node.test:9092 closed the connection"
    peer.close()


def test_closed_after_answers_is_nothing_to_explain(peer: Peer) -> None:
    peer.socket.sendall(frame(b"answer"))
    peer.socket.close()
    assert str(peer.read_until_broken()) == "node.test:9092 closed the connection"
    assert [receive.payload for receive in peer.receives] == [b"answer"]


@pytest.mark.parametrize(("arrived", "text"), [(6, "2 of its 10 bytes"), (2, "inside a frame's length")])
def test_closed_inside_of_a_frame(peer: Peer, arrived: int, text: str) -> None:
    peer.socket.sendall(frame(bytes(10))[:arrived])
    peer.socket.shutdown(socket.SHUT_WR)  # half-close: we could still send, but the rest will never come
    error = peer.read_until_broken()
    assert isinstance(error, DisconnectedError)
    assert text in str(error)


def test_an_error_says_how_much_was_not_sent(peer: Peer) -> None:
    peer.channel.sends.append(NetworkSend("node", [bytes(10_000_000)]))
    peer.channel.write([])
    unsent = peer.channel.sends[0].remaining_bytes
    assert 0 < unsent < 10_000_000
    error = peer.channel.failure(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
    assert isinstance(error, DisconnectedError)
    assert "Connection reset by peer" in str(error)
    assert f"{unsent} of 10000000 bytes were not sent" in str(error)
    assert isinstance(error.__cause__, ConnectionResetError)


def test_an_error_holds_on_to_nothing_of_the_connection(peer: Peer) -> None:
    class Payload(bytearray):
        pass

    def failing_read(local: Payload) -> None:
        raise ConnectionResetError(errno.ECONNRESET, "reset")

    payload = Payload(b"large")
    alive = weakref.ref(payload)
    try:
        failing_read(payload)
    except OSError as error:
        kept = peer.channel.failure(error)
    del payload
    gc.collect()
    assert alive() is None
    assert "reset" in str(kept)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (errno.ECONNREFUSED, "nothing listens there"),
        (errno.ETIMEDOUT, "firewalls"),
        (errno.EMFILE, "ulimit -n"),
        (errno.EIO, "check the address"),
    ],
)
def test_a_connection_that_never_stood(code: int, text: str) -> None:
    ours, theirs = socket.socketpair()
    channel = KafkaChannel(
        "node",
        ours,
        PlaintextTransport(ours),
        peer="10.0.0.7:9092",
        initiated=True,
        scratch=bytearray(100),
        max_receive_bytes=100,
    )
    error = channel.failure(OSError(code, os.strerror(code)))
    assert type(error) is KafkaConnectionError
    assert "cannot connect to 10.0.0.7:9092" in str(error)
    assert os.strerror(code) in str(error)
    assert text in str(error)
    channel.close()
    theirs.close()


def test_closing_twice_is_fine(peer: Peer) -> None:
    peer.channel.close()
    peer.channel.close()
    assert not peer.channel.ready


# --- Bytes that are not Kafka's ---


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\r\n", "HTTP server"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "TLS"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
        (b"220 mail.example.com ESMTP Postfix\r\n", "plain text"),
        (b"-ERR unknown command\r\n", "plain text"),
    ],
)
def test_a_server_that_is_no_broker(peer: Peer, data: bytes, text: str) -> None:
    peer.socket.sendall(data)
    error = peer.read_until_broken()
    assert isinstance(error, NotKafkaError)
    assert "node.test:9092" in str(error)
    assert text in str(error)
    assert "check" in str(error) or "listener" in str(error)
    assert not peer.receives


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost:9092\r\n\r\n", "HTTP client"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP client"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "security.protocol"),
        (b"EHLO client\r\n", "plain text"),
    ],
)
def test_a_client_that_is_none_of_kafka(data: bytes, text: str) -> None:
    # 100 MiB is the default limit of a broker, socket.request.max.bytes
    peer = Peer(initiated=False, max_receive_bytes=104_857_600)
    peer.socket.sendall(data)
    error = peer.read_until_broken()
    assert isinstance(error, NotKafkaError)
    assert text in str(error)
    peer.close()


def test_the_first_bytes_are_recognised_when_they_come_one_by_one(peer: Peer) -> None:
    for byte in b"HTT":
        peer.socket.sendall(bytes([byte]))
        assert peer.channel.read(peer.receives) == 1
    peer.socket.sendall(b"P")
    assert isinstance(peer.read_until_broken(), NotKafkaError)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xff\xff\xff\xff\0\0\0\0", "-1, is negative"),
        (b"\x80\x00\x00\x00\0\0\0\0", "is negative"),
        (b"\x7f\xff\xff\xff\0\0\0\0", "2147483647, is above the limit of 1000000"),
        (b"\x00\x0f\x42\x41", "1000001, is above the limit of 1000000"),
    ],
)
def test_a_length_that_cannot_be(peer: Peer, data: bytes, text: str) -> None:
    peer.socket.sendall(data)
    error = peer.read_until_broken()
    assert type(error) is InvalidReceiveError
    assert text in str(error)
    assert "node.test:9092" in str(error)
    assert "security.protocol" in str(error)


def test_text_after_good_frames_is_a_damaged_stream_and_no_other_protocol(peer: Peer) -> None:
    peer.socket.sendall(frame(b"answer") + b"HTTP/1.1 400 Bad Request\r\n\r\n")
    error = peer.read_until_broken()
    assert type(error) is InvalidReceiveError
    assert [receive.payload for receive in peer.receives] == [b"answer"]


def test_the_errors_pickle(peer: Peer) -> None:
    peer.socket.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    error = peer.read_until_broken()
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is NotKafkaError
    assert str(copy) == str(error)
