"""FrameAssembler: frames arrive whole, however the stream is fragmented."""

from __future__ import annotations

import pytest
from support.connection_pair import frame

from headrace.network.sockets.channel_cy import (
    DIRECT_READ_BYTES,
    FIRST_ALLOCATION_BYTES,
    FrameAssembler,
    InvalidLength,
    NetworkReceive,
)

SCRATCH = 64


def feed(assembler: FrameAssembler, data: bytes, cuts: list[int] | None = None) -> list[bytes]:
    """Feed `data` in pieces that end at `cuts`, or smaller ones if the assembler has less room."""
    receives: list[NetworkReceive] = []
    position = 0
    for end in [*(cuts or []), len(data)]:
        while position < end:
            target = assembler.target()
            assert len(target) > 0
            count = min(len(target), end - position)
            target[:count] = data[position : position + count]
            assembler.received(count, receives)
            position += count
    assert all(receive.channel_id == "node" for receive in receives)
    return [bytes(receive.payload) for receive in receives]


def assembler(scratch_bytes: int = SCRATCH, max_receive_bytes: int = 1 << 30) -> FrameAssembler:
    return FrameAssembler("node", bytearray(scratch_bytes), max_receive_bytes)


PAYLOADS = [b"", b"a", b"second", b"x" * 100, b"", b"0123456789" * 20, b"end"]
STREAM = b"".join(map(frame, PAYLOADS))


def test_many_frames_in_one_segment() -> None:
    assert feed(assembler(scratch_bytes=len(STREAM)), STREAM) == PAYLOADS


def test_one_byte_at_a_time() -> None:
    assert feed(assembler(), STREAM, list(range(1, len(STREAM)))) == PAYLOADS


def test_cut_at_every_byte() -> None:
    for cut in range(1, len(STREAM)):
        assert feed(assembler(scratch_bytes=len(STREAM)), STREAM, [cut]) == PAYLOADS, cut


def test_every_pair_of_cuts() -> None:
    payloads = [b"ab", b"", b"cde"]
    stream = b"".join(map(frame, payloads))
    for first in range(1, len(stream)):
        for second in range(first + 1, len(stream)):
            assert feed(assembler(), stream, [first, second]) == payloads, (first, second)


@pytest.mark.parametrize(
    "size",
    [
        DIRECT_READ_BYTES - 1,
        DIRECT_READ_BYTES,
        DIRECT_READ_BYTES + SCRATCH,
        FIRST_ALLOCATION_BYTES - 1,
        FIRST_ALLOCATION_BYTES + DIRECT_READ_BYTES - 1,
        FIRST_ALLOCATION_BYTES + DIRECT_READ_BYTES,
        5 * FIRST_ALLOCATION_BYTES + 3,
    ],
)
def test_large_frames_between_small_ones(size: int) -> None:
    large = bytes(range(256)) * (size // 256 + 1)
    payloads = [b"before", large[:size], b"after", large[:size]]
    assert feed(assembler(), b"".join(map(frame, payloads))) == payloads


def test_the_rest_of_a_large_frame_is_read_into_its_own_buffer() -> None:
    size = 3 * DIRECT_READ_BYTES
    subject = assembler(scratch_bytes=1024)
    feed(subject, frame(bytes(size))[:10])
    assert len(subject.target()) == size - 6


def test_a_small_rest_is_read_through_the_scratch_with_what_follows() -> None:
    subject = assembler(scratch_bytes=1024)
    feed(subject, frame(bytes(500))[:10])
    assert len(subject.target()) == 1024


def test_a_length_is_trusted_only_as_far_as_bytes_arrive() -> None:
    subject = assembler()
    feed(subject, (1 << 30).to_bytes(4, "big"))
    assert len(subject.target()) == FIRST_ALLOCATION_BYTES
    feed(subject, bytes(FIRST_ALLOCATION_BYTES))
    assert len(subject.target()) == FIRST_ALLOCATION_BYTES  # as much as has arrived
    feed(subject, bytes(FIRST_ALLOCATION_BYTES))
    assert len(subject.target()) == 2 * FIRST_ALLOCATION_BYTES


def test_payloads_share_no_memory_with_each_other_or_with_later_reads() -> None:
    subject = assembler(scratch_bytes=1024)
    receives: list[NetworkReceive] = []
    for data in (frame(b"aaaa") + frame(b"bbbb"), frame(b"cccc") + frame(b"dddd")):
        subject.target()[: len(data)] = data
        subject.received(len(data), receives)
    receives[0].payload[:] = b"over"
    assert [bytes(receive.payload) for receive in receives] == [b"over", b"bbbb", b"cccc", b"dddd"]


def test_several_assemblers_share_one_scratch() -> None:
    scratch = bytearray(SCRATCH)
    subjects = [FrameAssembler("node", scratch, 1000) for _ in range(3)]
    streams = [frame(bytes([65 + i]) * 30) + frame(bytes([97 + i]) * 7) for i in range(3)]
    received: list[list[bytes]] = [[], [], []]
    for position in range(len(streams[0])):
        for i, subject in enumerate(subjects):
            received[i] += feed(subject, streams[i][position : position + 1])
    assert received == [[bytes([65 + i]) * 30, bytes([97 + i]) * 7] for i in range(3)]


@pytest.mark.parametrize("length", [-1, -(1 << 31), 101, (1 << 31) - 1])
def test_an_impossible_length_comes_after_the_good_frames(length: int) -> None:
    subject = assembler(max_receive_bytes=100)
    data = frame(b"good") + length.to_bytes(4, "big", signed=True) + b"what follows"
    receives: list[NetworkReceive] = []
    subject.target()[: len(data)] = data
    with pytest.raises(InvalidLength) as caught:
        subject.received(len(data), receives)
    assert [bytes(receive.payload) for receive in receives] == [b"good"]
    assert caught.value.length == length
    assert caught.value.first_bytes == data[8:]


def test_a_frame_of_just_the_limit_is_good() -> None:
    assert feed(assembler(max_receive_bytes=100), frame(bytes(100))) == [bytes(100)]


def test_unfinished_says_what_had_arrived() -> None:
    subject = assembler()
    assert subject.unfinished() == ""
    feed(subject, b"\0\0")
    assert "length" in subject.unfinished()
    feed(subject, b"\0\x0aabc")
    assert "3 of its 10 bytes" in subject.unfinished()
    feed(subject, b"defghij")
    assert subject.unfinished() == ""
