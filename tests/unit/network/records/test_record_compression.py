"""The codecs: formats, levels, and what they reject before it takes memory."""

from __future__ import annotations

import gzip
import random
import struct
import tracemalloc
import zlib
from typing import Any

import cramjam
import lz4.frame
import pyarrow
import pytest

from headrace.network.protocol.errors import (
    CorruptRecordError,
    KafkaConfigurationError,
    UnsupportedCodecError,
    UnsupportedCompressionTypeError,
)
from headrace.network.records import compression
from headrace.network.records.compression import (
    Compression,
    _only_lz4_block,
    compress,
    decompress,
    has_lz4_levels,
)

CODECS = [codec for codec in Compression if codec != Compression.NONE]
LEVELS = {codec: codec.levels for codec in Compression if codec.levels is not None}
MIB = 1 << 20
RANDOM = random.Random(7)
#: Empty, smaller and larger than a block, and exactly a block, of compressible and incompressible data.
SAMPLES = {
    f"{kind}-{size}": make(size)
    for size in (0, 1, 500, 32 * 1024, 64 * 1024 + 1, 300_000)
    for kind, make in (("text", lambda size: (b"headrace " * (size // 9 + 1))[:size]), ("noise", RANDOM.randbytes))
}


@pytest.mark.parametrize("data", SAMPLES.values(), ids=SAMPLES)
@pytest.mark.parametrize("codec", list(Compression))
def test_what_was_compressed_comes_back(codec: Compression, data: bytes):
    compressed = compress(codec, data)
    assert decompress(codec, compressed, len(data)) == data
    assert decompress(codec, memoryview(bytearray(compressed)), len(data) + MIB) == data


@pytest.mark.parametrize("codec", list(Compression))
def test_any_kind_of_buffer_is_compressed(codec: Compression):
    data = SAMPLES["text-500"]
    for buffer in (bytearray(data), memoryview(b"xx" + data)[2:], memoryview(bytearray(data))):
        assert compress(codec, buffer) == compress(codec, data)


# without snappy: pyarrow can't read xerial's framing; Java's own bytes are in test_golden_batches
@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_another_implementation_reads_it(codec: Compression):
    data = SAMPLES["text-300000"]
    reader = pyarrow.Codec(codec.name.lower())
    assert reader.decompress(compress(codec, data), len(data)).to_pybytes() == data


@pytest.mark.parametrize("codec", CODECS)
def test_what_another_implementation_wrote_is_read(codec: Compression):
    data = SAMPLES["text-300000"]
    writer = pyarrow.Codec(codec.name.lower())
    assert decompress(codec, writer.compress(data).to_pybytes(), len(data)) == data


def test_the_numbers_are_those_of_the_attributes():
    assert [Compression.of_attributes(0xF8 | number) for number in range(5)] == list(Compression)
    with pytest.raises(UnsupportedCompressionTypeError, match="codec 5, which Headrace does not support"):
        Compression.of_attributes(5)


@pytest.mark.parametrize("codec", LEVELS)
def test_every_level_of_kafkas_is_taken(codec: Compression):
    data = SAMPLES["text-500"]
    levels = LEVELS[codec]
    for level in {*range(max(levels.minimum, -5), levels.maximum + 1), levels.minimum, levels.default}:
        assert decompress(codec, compress(codec, data, level), len(data)) == data


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        (Compression.GZIP, 0),
        (Compression.GZIP, 10),
        (Compression.GZIP, -2),
        (Compression.LZ4, 0),
        (Compression.LZ4, 18),
        (Compression.ZSTD, 23),
        (Compression.ZSTD, -131073),
        (Compression.ZSTD, "3"),
    ],
)
def test_no_other_level_is_taken(codec: Compression, level: int):
    with pytest.raises(KafkaConfigurationError, match=f"{codec.name.lower()} does not support compression level"):
        compress(codec, b"", level)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.SNAPPY])
def test_codecs_without_levels_say_so(codec: Compression):
    with pytest.raises(KafkaConfigurationError, match="has no compression levels"):
        compress(codec, b"", 1)


@pytest.mark.parametrize("codec", [codec for codec in LEVELS if codec != Compression.LZ4 or has_lz4_levels()])
def test_a_level_makes_a_difference(codec: Compression):
    words = [b"%x" % RANDOM.getrandbits(20) for _ in range(1000)]
    data = b" ".join(RANDOM.choice(words) for _ in range(20_000))
    fast = -131072 if codec == Compression.ZSTD else 9 if codec == Compression.LZ4 else 1
    strong = 12 if codec == Compression.LZ4 else LEVELS[codec].maximum
    assert len(compress(codec, data, strong)) < len(compress(codec, data, fast))


# --- Formats ---


def test_snappy_is_written_as_xerials_stream():
    data = bytes(2 * MIB + 1)
    compressed = compress(Compression.SNAPPY, data)
    assert compressed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    position, sizes = 16, []
    while position < len(compressed):
        (size,) = struct.unpack_from(">i", compressed, position)
        sizes.append(cramjam.snappy.decompress_raw_len(compressed[position + 4 : position + 4 + size]))
        position += 4 + size
    assert sizes == [MIB, MIB, 1]


def test_a_xerial_stream_with_little_endian_versions_is_read():
    compressed = bytearray(compress(Compression.SNAPPY, b"water"))
    compressed[8:16] = struct.pack("<ii", 1, 1)
    assert decompress(Compression.SNAPPY, compressed, 5) == b"water"


@pytest.mark.parametrize("level", [1, 9, 17] if has_lz4_levels() else [9])
def test_another_implementation_reads_the_lz4_frames_of_every_compressor(level: int):
    for data in SAMPLES.values():
        frame = compress(Compression.LZ4, data, level)
        assert pyarrow.Codec("lz4").decompress(frame, len(data)).to_pybytes() == data


def test_a_frame_that_is_cut_into_linked_blocks_gives_none_away():
    # cramjam before 2.14 wrote such frames for as little as 64 KiB: the first block alone would lose the rest
    frame = cramjam.lz4.compress(SAMPLES["noise-65537"], level=3)
    with pytest.raises(UnsupportedCodecError, match=r"install cramjam 2\.14 or newer"):
        _only_lz4_block(memoryview(frame))
    sized = bytes.fromhex("04224d18 68 40 0500000000000000 2b 05000080") + b"water" + bytes(4)
    with pytest.raises(UnsupportedCodecError):
        _only_lz4_block(memoryview(sized))


@pytest.mark.parametrize(
    ("level", "size", "header", "block_bytes"),
    [
        (None, 64 * 1024, "186040 82", 64 * 1024),  # as Java writes it
        (None, 64 * 1024 + 1, "186050 fb", 256 * 1024),
        (None, 256 * 1024 + 1, "186060 51", MIB),
        (None, MIB + 1, "186070 73", 4 * MIB),
        (None, 4 * MIB + 1, "186070 73", 4 * MIB),
        *([(3, 64 * 1024 + 1, "186040 82", 64 * 1024)] if has_lz4_levels() else []),
    ],
)
def test_lz4_frames_have_the_smallest_blocks_that_hold_all(level: int | None, size: int, header: str, block_bytes: int):
    data = RANDOM.randbytes(size)
    frame = compress(Compression.LZ4, data, level)
    # version 1, independent blocks, no other flag, the size of the blocks, the checksum of the header
    assert frame[:7] == bytes.fromhex("04224d" + header)
    blocks = [data[start : start + block_bytes] for start in range(0, size, block_bytes)]
    # the blocks are stored, since they don't get smaller
    stored = (struct.pack("<I", 0x80000000 | len(block)) + block for block in blocks)
    assert frame[7:] == b"".join(stored) + bytes(4)
    assert lz4.frame.decompress(frame) == data


def test_an_lz4_frame_of_format_v0_has_the_wrong_checksum_which_only_v0_takes():
    frame = compress(Compression.LZ4, b"water", magic=0)
    assert frame[:7].hex() == "04224d1860401a"
    assert decompress(Compression.LZ4, frame, 5, magic=0) == b"water"
    with pytest.raises(CorruptRecordError, match="header"):
        decompress(Compression.LZ4, frame, 5, magic=1)
    assert decompress(Compression.LZ4, compress(Compression.LZ4, b"water", magic=1), 5, magic=0) == b"water"


def test_lz4_frames_with_every_option_are_read():
    data = SAMPLES["text-300000"]
    frame = cramjam.lz4.Compressor(level=3, content_checksum=True, block_linked=True)
    frame.compress(data)
    linked = bytes(frame.finish())
    assert linked[4] & 0x34 == 0x14  # linked blocks with checksums, and a content checksum
    assert decompress(Compression.LZ4, linked, len(data)) == data
    sized = bytes.fromhex("04224d18 68 40 0500000000000000 2b 05000080") + b"water" + bytes(4)
    assert decompress(Compression.LZ4, sized, 5, magic=0) == b"water"


def test_several_gzip_members_and_zstd_frames_are_one_block():
    for codec in (Compression.GZIP, Compression.ZSTD):
        twice = compress(codec, b"head") + compress(codec, b"") + compress(codec, b"race")
        assert decompress(codec, twice, 8) == b"headrace"
        with pytest.raises(CorruptRecordError, match="larger than the 7 bytes allowed"):
            decompress(codec, twice, 7)


class CountingZlib:
    """zlib that counts the bytes that it is given, and those that it returns as unused."""

    def __init__(self) -> None:
        self.handled = 0
        self.error = zlib.error

    def decompressobj(self, window_bits: int) -> CountingMember:
        return CountingMember(self, zlib.decompressobj(window_bits))


class CountingMember:
    def __init__(self, counts: CountingZlib, member: Any) -> None:
        self.counts = counts
        self.member = member

    def decompress(self, data: memoryview, max_bytes: int) -> bytes:
        found = self.member.decompress(data, max_bytes)
        self.counts.handled += len(data) + len(self.member.unused_data)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.member, name)


def test_the_work_for_many_gzip_members_does_not_grow_with_their_square(monkeypatch: pytest.MonkeyPatch):
    members = 10_000
    block = compress(Compression.GZIP, b"a") * members
    counting = CountingZlib()
    monkeypatch.setattr(compression, "zlib", lambda: counting)
    assert decompress(Compression.GZIP, block, members) == b"a" * members
    # each returns a few KiB at most as unused; returning all that follow would be 10^9 bytes
    assert counting.handled < members * 10_000


@pytest.mark.parametrize("size", [0, 100, 4080, 5000, 70_000])
def test_gzip_members_larger_than_they_are_fed_and_what_follows_them(size: int):
    first = compress(Compression.GZIP, RANDOM.randbytes(size))
    expected = gzip.decompress(first)
    for more in (b"", b"x", b"y" * 9000):
        both = first + compress(Compression.GZIP, more)
        assert decompress(Compression.GZIP, both, size + len(more)) == expected + more
        for cut in (1, 8, 15):
            with pytest.raises(CorruptRecordError, match="ends too early"):
                decompress(Compression.GZIP, both[:-cut], 1 << 20)
        with pytest.raises(CorruptRecordError, match="not valid gzip data"):
            decompress(Compression.GZIP, both + b"no gzip at all", 1 << 20)


def test_a_zstd_frame_without_a_declared_size_leaves_room_for_the_next():
    # a compressed block may be up to 128 KiB long, but this one decompresses to 500 bytes
    undeclared = bytearray(compress(Compression.ZSTD, SAMPLES["text-500"]))
    assert undeclared[4] == 0x60  # one segment, its size in two bytes
    undeclared[4:7] = b"\x00\x58"
    assert decompress(Compression.ZSTD, undeclared + compress(Compression.ZSTD, b"more"), 504) == (
        SAMPLES["text-500"] + b"more"
    )


def test_zstd_frames_of_each_header_form_are_read():
    for size in (0, 1, 255, 256, 300, 65_535 + 256, 65_536 + 256, 200_000):
        data = SAMPLES["text-300000"][:size]
        assert decompress(Compression.ZSTD, compress(Compression.ZSTD, data), size) == data


def test_the_stored_and_the_run_blocks_of_zstd():
    window = b"\x28\xb5\x2f\xfd\x00\x58"
    stored = window + bytes([5 << 3, 0, 0]) + b"water" + bytes([1 | 1 << 1 | 4 << 3, 0, 0]) + b"!"
    assert decompress(Compression.ZSTD, stored, 9) == b"water!!!!"


# --- Bounds ---


@pytest.mark.parametrize("kind", ["text", "noise"])
@pytest.mark.parametrize("codec", list(Compression))
def test_one_byte_more_than_allowed_is_refused(codec: Compression, kind: str):
    for size in (1, 500, 300_000):
        compressed = compress(codec, SAMPLES[f"{kind}-{size}"])
        with pytest.raises(CorruptRecordError, match=f"larger than the {size - 1} bytes allowed"):
            decompress(codec, compressed, size - 1)


def zstd_run_bomb(size: int) -> bytes:
    """Blocks of 128 KiB encoded in four bytes each, without a declared size."""
    blocks, block = size // (128 * 1024), (128 * 1024 << 3 | 1 << 1).to_bytes(3, "little") + b"0"
    last = (1 | 1 << 1 | 1 << 3).to_bytes(3, "little") + b"0"
    return b"\x28\xb5\x2f\xfd\x00\x58" + block * blocks + last


BOMBS = {
    "gzip": (Compression.GZIP, gzip.compress(bytes(64 * MIB), 9)),
    "snappy": (Compression.SNAPPY, compress(Compression.SNAPPY, bytes(64 * MIB))),
    "raw snappy": (Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(bytes(64 * MIB)))),
    "lz4": (Compression.LZ4, compress(Compression.LZ4, bytes(64 * MIB))),
    "lz4 in one frame of 4 MiB blocks": (Compression.LZ4, pyarrow.Codec("lz4").compress(bytes(64 * MIB)).to_pybytes()),
    "zstd": (Compression.ZSTD, compress(Compression.ZSTD, bytes(64 * MIB))),
    "zstd runs": (Compression.ZSTD, zstd_run_bomb(64 * MIB)),
}


@pytest.mark.parametrize(("codec", "bomb"), BOMBS.values(), ids=BOMBS)
def test_a_bomb_is_refused_before_it_takes_memory(codec: Compression, bomb: bytes):
    bound = MIB
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError, match=f"larger than the {bound} bytes allowed"):
            decompress(codec, bomb, bound)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * bound + len(bomb)


LIES = {
    "snappy": (Compression.SNAPPY, b"\x80\x80\x80\x40" + b"\x04ab"),
    "a snappy block": (Compression.SNAPPY, b"\x82SNAPPY\x00" + bytes(8) + b"\x00\x00\x00\x07\x80\x80\x80\x40\x04ab"),
    "lz4": (
        Compression.LZ4,
        bytes.fromhex("04224d18 6840")
        + (64 * MIB).to_bytes(8, "little")
        + bytes.fromhex("00 05000080 7761746572 00000000"),
    ),
    "zstd": (
        Compression.ZSTD,
        b"\x28\xb5\x2f\xfd\xa0" + (64 * MIB).to_bytes(4, "little") + bytes([1 | 5 << 3, 0, 0]) + b"water",
    ),
}


@pytest.mark.parametrize(("codec", "lie"), LIES.values(), ids=LIES)
def test_a_declared_size_that_the_bytes_can_not_hold_is_refused(codec: Compression, lie: bytes):
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError, match="declare"):
            decompress(codec, lie, 256 * MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MIB


@pytest.mark.parametrize("codec", CODECS)
def test_every_truncation_is_refused(codec: Compression):
    data = SAMPLES["text-500"]
    compressed = compress(codec, data)
    for cut in range(len(compressed)):
        # a xerial stream without any block is complete
        if codec == Compression.SNAPPY and cut == 16:
            assert decompress(codec, compressed[:cut], len(data)) == b""
            continue
        with pytest.raises(CorruptRecordError):
            decompress(codec, compressed[:cut], len(data))


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_after_the_end_are_refused(codec: Compression):
    with pytest.raises(CorruptRecordError):
        decompress(codec, compress(codec, b"water") + b"\x01more", MIB)


DAMAGED = {
    "lz4 magic": (Compression.LZ4, "05224d18 604082 00000000", "header is wrong"),
    "lz4 version": (Compression.LZ4, "04224d18 a04082 00000000", "header is wrong"),
    "lz4 reserved bit": (Compression.LZ4, "04224d18 624082 00000000", "header is wrong"),
    "lz4 dictionary": (Compression.LZ4, "04224d18 614082 00000000", "header is wrong"),
    "lz4 block size of 16 KiB": (Compression.LZ4, "04224d18 603082 00000000", "wrong block size"),
    "lz4 block descriptor": (Compression.LZ4, "04224d18 604182 00000000", "wrong block size"),
    "lz4 block": (Compression.LZ4, "04224d18 604082 01000180", "larger than the frame's 65536"),
    "xerial header": (Compression.SNAPPY, "82534e41505059 00 00000001 000000", "header of xerial's stream is cut off"),
    "xerial block": (Compression.SNAPPY, "82534e41505059 00 00000001 00000001 ffffffff 00", "a block claims -1 bytes"),
    "xerial empty": (Compression.SNAPPY, "82534e41505059 00 00000001 00000001 00000000", "a block claims 0 bytes"),
    "zstd magic": (Compression.ZSTD, "27b52ffd 0058 010000", "magic number is wrong"),
    "zstd reserved bit": (Compression.ZSTD, "28b52ffd 0858 010000", "reserved bit"),
    "zstd reserved block": (Compression.ZSTD, "28b52ffd 0058 070000", "reserved kind"),
    "zstd block": (Compression.ZSTD, "28b52ffd 0058 091010", "larger than the format's 131072"),
    "zstd with a checksum": (Compression.ZSTD, "28b52ffd 0458 010000", "cut off"),
}


@pytest.mark.parametrize(("codec", "digits", "reason"), DAMAGED.values(), ids=DAMAGED)
def test_damage_is_named(codec: Compression, digits: str, reason: str):
    with pytest.raises(CorruptRecordError, match=reason):
        decompress(codec, bytes.fromhex(digits), MIB)
