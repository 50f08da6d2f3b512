"""Frames arrive whole and in order under every fragmentation, in the assembler alone and through two channels."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from itertools import cycle

from hypothesis import given, settings
from hypothesis import strategies as st
from support.connection_pair import ConnectionPair, frame

from headrace.network.sockets.channel_cy import (
    DIRECT_READ_BYTES,
    FIRST_ALLOCATION_BYTES,
    FrameAssembler,
    InvalidLength,
    NetworkReceive,
    NetworkSend,
)
from headrace.network.sockets.plaintext_transport_cy import PlaintextTransport

SIZES = st.one_of(
    st.integers(0, 300),
    st.integers(DIRECT_READ_BYTES - 300, DIRECT_READ_BYTES + 300),
    st.sampled_from(
        [FIRST_ALLOCATION_BYTES - 1, FIRST_ALLOCATION_BYTES + DIRECT_READ_BYTES, 3 * FIRST_ALLOCATION_BYTES]
    ),
)
PIECES = st.lists(st.one_of(st.integers(1, 9), st.integers(1, 5000), st.integers(1, 3_000_000)), min_size=1)


def payload(index: int, size: int) -> bytes:
    return (index.to_bytes(2, "big") * (size // 2 + 1))[:size]


@settings(deadline=None)
@given(sizes=st.lists(SIZES, max_size=8), pieces=PIECES, scratch_bytes=st.integers(4, 40_000))
def test_any_fragmentation_gives_the_frames_back(sizes: list[int], pieces: list[int], scratch_bytes: int) -> None:
    payloads = [payload(i, size) for i, size in enumerate(sizes)]
    stream = b"".join(map(frame, payloads))
    if len(stream) / max(pieces) > 20_000:
        pieces = [*pieces, 100_000]
    assembler = FrameAssembler("node", bytearray(scratch_bytes), 1 << 30)
    receives: list[NetworkReceive] = []
    position = 0
    for piece in cycle(pieces):
        if position == len(stream):
            break
        target = assembler.target()
        count = min(piece, len(target), len(stream) - position)
        target[:count] = stream[position : position + count]
        assembler.received(count, receives)
        position += count
    assert [receive.payload for receive in receives] == payloads
    assert assembler.unfinished() == ""


@settings(deadline=None)
@given(data=st.binary(max_size=400), pieces=st.lists(st.integers(1, 50), min_size=1), limit=st.integers(0, 1000))
def test_any_bytes_are_frames_or_a_typed_end(data: bytes, pieces: list[int], limit: int) -> None:
    """Compared with a plain parser of the same bytes: never a hang, a different error or a different frame."""
    expected: list[bytes] = []
    bad_length = False
    rest = data
    while len(rest) >= 4:
        length = int.from_bytes(rest[:4], "big", signed=True)
        if not 0 <= length <= limit:
            bad_length = True
            break
        if len(rest) < 4 + length:
            break
        expected.append(rest[4 : 4 + length])
        rest = rest[4 + length :]

    assembler = FrameAssembler("node", bytearray(64), limit)
    receives: list[NetworkReceive] = []
    position = 0
    invalid = False
    for piece in cycle(pieces):
        if position == len(data):
            break
        target = assembler.target()
        count = min(piece, len(target), len(data) - position)
        target[:count] = data[position : position + count]
        position += count
        try:
            assembler.received(count, receives)
        except InvalidLength:
            invalid = True
            break
    assert [receive.payload for receive in receives] == expected
    assert invalid == bad_length


class MoodyTransport(PlaintextTransport):
    """Reads and writes at most as many bytes per call as `moods` lists; 0 means none."""

    def __init__(self, sock: socket.socket, moods: list[int]) -> None:
        super().__init__(sock)
        self._moods = cycle([*moods, 100_000])

    def read_into(self, buffer: memoryview) -> int | None:
        mood = next(self._moods)
        return super().read_into(buffer[:mood]) if mood else None

    def write(self, buffers: Sequence[memoryview], *, more: bool = False) -> int:
        mood = next(self._moods)
        if mood >= sum(map(len, buffers)):
            return super().write(buffers, more=more)
        return super().write((memoryview(b"".join(buffers)[:mood]),)) if mood else 0


@settings(deadline=None, max_examples=50)
@given(
    sizes=st.lists(st.integers(0, 40_000), min_size=1, max_size=6),
    moods=st.lists(st.integers(0, 20_000), max_size=10),
    parts=st.integers(1, 5),
)
def test_any_mood_of_the_transports_delivers_the_frames(sizes: list[int], moods: list[int], parts: int) -> None:
    payloads = [payload(i, size) for i, size in enumerate(sizes)]
    with ConnectionPair(transport=lambda sock: MoodyTransport(sock, moods), scratch_bytes=5000) as pair:
        for data in map(frame, payloads):
            step = len(data) // parts + 1
            pair.client.sends.append(NetworkSend("client", [data[i : i + step] for i in range(0, len(data), step)]))
        completed: list[NetworkSend] = []
        receives: list[NetworkReceive] = []
        while len(receives) < len(payloads):
            pair.client.write(completed)
            pair.server.read(receives)
        assert [receive.payload for receive in receives] == payloads
        assert len(completed) == len(payloads)
        assert not pair.client.sends
