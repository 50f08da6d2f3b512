"""NetworkSend: a gather list arrives whole and in order, however little the transport accepts at a time."""

from __future__ import annotations

import array
import os
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from headrace.network.protocol.errors import DisconnectedError
from headrace.network.sockets.channel_cy import NetworkSend
from headrace.network.sockets.plaintext_transport_cy import PlaintextTransport
from headrace.network.sockets.transport import IOV_MAX, FileRegion, Transport


class Sink:
    """A transport that keeps what is written, and accepts as many bytes per write as `takes` lists."""

    ready = True
    has_buffered_reads = False

    def __init__(self, takes: Iterable[int | None] = ()) -> None:
        self._takes = iter(takes)
        self.data = bytearray()
        self.writes: list[tuple[int, bool]] = []  # buffers, more
        self.pending = bytearray()
        self.holds_back = False

    @property
    def has_pending_writes(self) -> bool:
        return bool(self.pending)

    def handshake(self) -> int:
        return 0

    def read_into(self, buffer: memoryview) -> int | None:
        return None

    def write(self, buffers: Sequence[memoryview], *, more: bool = False) -> int:
        self.writes.append((len(buffers), more))
        take = next(self._takes, None)
        data = b"".join(buffers)[:take]
        if self.holds_back and data:
            self.pending += data
        else:
            self.data += self.pending + data
            self.pending.clear()
        return len(data)

    def write_file(self, region: FileRegion, start: int) -> int | None:
        assert isinstance(region.file, int)
        take = next(self._takes, None)
        if take == 0:
            return None
        data = os.pread(region.file, region.size_bytes - start, region.offset + start)[:take]
        self.data += data
        return len(data)

    def close(self) -> None:
        pass


def write_all(send: NetworkSend, transport: Transport) -> None:
    while not send.write_to(transport):
        pass


@pytest.fixture
def file(tmp_path: Path) -> Iterable[int]:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"0123456789" * 10)
    descriptor = os.open(path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def test_a_list_that_is_taken_at_once_is_one_write() -> None:
    sink = Sink()
    send = NetworkSend("node", [b"one", bytearray(b"two"), memoryview(b"three")])
    assert send.size_bytes == 11
    assert send.write_to(sink)
    assert sink.data == b"onetwothree"
    assert sink.writes == [(3, False)]
    assert send.remaining_bytes == 0


@pytest.mark.parametrize("take", [1, 2, 3, 4, 5, 7, 10])
def test_any_piece_may_be_taken(take: int) -> None:
    sink = Sink([take] * 100)
    send = NetworkSend("node", [b"one", b"", b"two", b"three", b"x"])
    while not send.write_to(sink):
        assert send.remaining_bytes == send.size_bytes - len(sink.data)
    assert sink.data == b"onetwothreex"


def test_a_transport_that_takes_nothing_is_asked_again_later() -> None:
    sink = Sink([0, 0])
    send = NetworkSend("node", [b"one"])
    assert not send.write_to(sink)
    assert not send.write_to(sink)
    assert send.write_to(sink)
    assert sink.data == b"one"


def test_no_more_write_after_one_that_was_cut_short() -> None:
    sink = Sink([2])
    assert not NetworkSend("node", [b"one"]).write_to(sink)
    assert len(sink.writes) == 1


def test_more_buffers_than_the_kernel_takes() -> None:
    sink = Sink()
    send = NetworkSend("node", [b"%d," % i for i in range(IOV_MAX * 2 + 5)])
    assert send.write_to(sink)
    assert sink.data == b"".join(b"%d," % i for i in range(IOV_MAX * 2 + 5))
    assert sink.writes == [(IOV_MAX, True), (IOV_MAX, True), (5, False)]


def test_views_of_wider_items_are_sent_as_their_bytes() -> None:
    numbers = array.array("I", [1, 2, 3])
    sink = Sink([5] * 10)
    send = NetworkSend("node", [numbers, memoryview(bytes(6)).cast("B", (2, 3))])
    assert send.size_bytes == 18
    while not send.write_to(sink):
        pass
    assert sink.data == numbers.tobytes() + bytes(6)


def test_nothing_to_send_is_completed_at_once() -> None:
    assert NetworkSend("node", [b"", b""]).write_to(Sink())


@pytest.mark.parametrize("wrong", ["text", 5, ["nested"], memoryview(b"abcdef")[::2]])
def test_what_is_not_bytes_is_refused_before_anything_is_sent(wrong: object) -> None:
    with pytest.raises(TypeError):
        NetworkSend("node", [b"good", wrong])


@pytest.mark.parametrize("take", [None, 1, 3, 8])
def test_file_regions_keep_their_place(file: int, take: int | None) -> None:
    sink = Sink([take, 0] * 100)
    send = NetworkSend(
        "node", [b"<", FileRegion(file, 3, 10), FileRegion(file, 0, 0), FileRegion(file, 95, 5), b"|", b">"]
    )
    assert send.size_bytes == 18
    while not send.write_to(sink):
        assert send.remaining_bytes == send.size_bytes - len(sink.data)
    assert sink.data == b"<345678901256789|>"


def test_bytes_before_a_file_region_say_that_more_follows(file: int) -> None:
    sink = Sink()
    assert NetworkSend("node", [b"head", FileRegion(file, 0, 5), b"tail"]).write_to(sink)
    assert sink.writes == [(1, True), (1, False)]


def test_a_file_that_ends_too_early_breaks_the_connection(file: int) -> None:
    send = NetworkSend("node", [FileRegion(file, 95, 10)])
    sink = Sink()
    with pytest.raises(DisconnectedError, match="5 bytes early"):
        write_all(send, sink)


def test_a_region_of_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match="size=-1"):
        FileRegion(0, 0, -1)


def test_a_send_is_complete_only_when_the_transport_holds_nothing_back() -> None:
    sink = Sink()
    sink.holds_back = True
    send = NetworkSend("node", [b"secret"])
    assert not send.write_to(sink)
    sink.holds_back = False
    assert send.write_to(sink)
    assert sink.data == b"secret"


def test_the_buffers_are_let_go_when_they_are_sent() -> None:
    pooled = bytearray(b"pooled")
    send = NetworkSend("node", [pooled])
    with pytest.raises(BufferError):
        pooled.extend(b"!")
    assert send.write_to(Sink())
    pooled.extend(b"!")


class NoSendfile(PlaintextTransport):
    """As on a file system without support for sendfile."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._sendfile = False


@pytest.mark.parametrize("transport", [PlaintextTransport, NoSendfile])
def test_a_file_region_through_a_socket(transport: type[PlaintextTransport], tmp_path: Path, file: int) -> None:
    content = os.urandom(1_000_000)
    path = tmp_path / "segment.log"
    path.write_bytes(content)
    ours, theirs = socket.socketpair()
    with ours, theirs, path.open("rb") as segment:
        subject = transport(ours)
        send = NetworkSend("node", [b"head", FileRegion(segment, 10, 900_000), b"tail"])
        received = bytearray()
        done = send.write_to(subject)
        assert not done  # larger than a socket buffer
        while len(received) < send.size_bytes:
            received += theirs.recv(65536)
            done = done or send.write_to(subject)
        assert done
        assert received == b"head" + content[10:900_010] + b"tail"


@pytest.mark.parametrize("transport", [PlaintextTransport, NoSendfile])
def test_a_truncated_file_through_a_socket(transport: type[PlaintextTransport], file: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send = NetworkSend("node", [FileRegion(file, 50, 51)])
        subject = transport(ours)
        with pytest.raises(DisconnectedError, match="1 bytes early"):
            write_all(send, subject)
        assert len(theirs.recv(100)) == 50
