"""Selector: one limit bounds the memory for incomplete frames of all connections."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from headrace.network.clock import MockClock
from headrace.network.protocol.errors import DisconnectedError
from headrace.network.sockets.selector_cy import Selector

LIMIT = 300_000
FRAME_BYTES = 200_000


class Peers:
    """A selector, and the other ends of its channels."""

    def __init__(self) -> None:
        self.selector = Selector(clock=MockClock(), max_receive_bytes=1_000_000, max_unfinished_bytes=LIMIT)
        self.ends: dict[str, socket.socket] = {}
        self.gone: dict[str, Exception] = {}
        self.arrived: list[tuple[str, int]] = []

    def begin(self, channel_id: str, size: int) -> None:
        """Open a connection on which all but the last byte of a frame arrives."""
        ours, theirs = socket.socketpair()
        self.ends[channel_id] = theirs
        self.selector.register(channel_id, ours)
        theirs.setblocking(False)
        content = memoryview(struct.pack(">i", size) + bytes(size - 1))
        while content and channel_id not in self.gone:
            try:
                content = content[theirs.send(content) :]
            except BlockingIOError:
                pass
            except BrokenPipeError:
                return
            self.poll()

    def poll(self) -> None:
        self.selector.poll(0)
        self.gone.update(self.selector.disconnected)
        self.arrived += [(each.channel_id, len(each.payload)) for each in self.selector.completed_receives]

    def finish(self, channel_id: str) -> None:
        self.ends[channel_id].send(b"\0")
        self.poll()


@pytest.fixture
def peers() -> Iterator[Peers]:
    peers = Peers()
    yield peers
    peers.selector.close()
    for end in peers.ends.values():
        end.close()


def test_the_connection_that_holds_most_is_closed(peers: Peers) -> None:
    peers.begin("small", 20_000)
    peers.begin("large", FRAME_BYTES)
    assert peers.gone == {}
    peers.begin("too much", 150_000)
    assert list(peers.gone) == ["large"]
    assert isinstance(peers.gone["large"], DisconnectedError)
    assert "unfinished requests take" in str(peers.gone["large"])
    peers.finish("small")
    peers.finish("too much")
    assert peers.arrived == [("small", 20_000), ("too much", 150_000)]


def test_one_frame_that_is_too_much_by_itself(peers: Peers) -> None:
    peers.begin("small", 20_000)
    peers.begin("huge", 900_000)
    assert list(peers.gone) == ["huge"]
    peers.finish("small")
    assert peers.arrived == [("small", 20_000)]


def test_what_has_arrived_and_what_is_gone_counts_no_more(peers: Peers) -> None:
    for number in range(20):
        peers.begin(f"finished {number}", FRAME_BYTES)
        peers.finish(f"finished {number}")
        peers.begin(f"closed {number}", FRAME_BYTES)
        peers.selector.close_channel(f"closed {number}")
        peers.begin(f"broken {number}", FRAME_BYTES)
        peers.ends[f"broken {number}"].close()
        peers.poll()
    assert len(peers.arrived) == 20
    assert {name.split()[0] for name in peers.gone} == {"broken"}
    assert not any("unfinished requests take" in str(error) for error in peers.gone.values())
