"""The compression codecs of record batches. The table `CODECS` holds all differences between them.

This is the only module that imports cramjam.

A batch is compressed in as few calls as its format allows: each call releases the GIL, and while other threads compute,
getting it back may take longer than compressing a block.

Data to decompress is not trusted, so the size of the result has two bounds: the caller's limit and, if the format
declares sizes, the maximum that the compressed bytes can hold. No more memory than that is allocated before the bytes
are verified. All functions run on any thread; the codecs release the GIL.

Formats, as written by the Java client (``org.apache.kafka.common.compress``):

- gzip: one member. Several can be read.
- snappy: xerial's stream (snappy-java's ``SnappyOutputStream``) with blocks of up to 1 MiB; Java writes 32 KiB. A
  single raw snappy block, as written by librdkafka, can be read too.
- lz4: an LZ4 frame of independent blocks (KIP-57). Its block size is the smallest that holds all data in one block;
  Java writes 64 KiB. Messages of format v0 have a wrong checksum in the frame's header, which brokers before 0.10
  require.
- zstd: one frame (KIP-110). Several can be read.
"""

import struct
from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ..protocol.errors import (
    CorruptRecordError,
    KafkaConfigurationError,
    UnsupportedCodecError,
    UnsupportedCompressionTypeError,
)
from .crc import zlib
from .workspace import Workspace

if TYPE_CHECKING:
    from cramjam import Buffer as _CramjamBuffer

    _Part = bytes | memoryview | _CramjamBuffer
else:
    _Part = Any


@cache
def cramjam() -> Any:
    """The library of all codecs except gzip. A producer without compression never imports it."""
    import cramjam as library  # noqa: PLC0415

    return library


#: The bits of a batch's attributes that hold the codec.
COMPRESSION_MASK = 0x07


class Compression(IntEnum):
    """A codec, by its number in a batch's attributes. `CODECS` has the details. Source: Kafka's ``CompressionType``."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of_attributes(cls, attributes: int) -> "Compression":
        """The codec in the attributes of a batch or message. Raises UnsupportedCompressionTypeError for 5, 6 and 7."""
        try:
            return cls(attributes & COMPRESSION_MASK)
        except ValueError:
            raise UnsupportedCompressionTypeError(
                f"the batch is compressed with codec {attributes & COMPRESSION_MASK}, which Headrace does not support "
                f"(it supports {', '.join(f'{codec.value} {codec.label}' for codec in cls)})"
            ) from None

    @classmethod
    def labelled(cls, label: str) -> "Compression":
        """The codec with that name in `compression.type`. Raises KeyError for an unknown name."""
        return _BY_LABEL[label]

    @property
    def label(self) -> str:
        """The name in configurations and messages, such as ``gzip``."""
        return CODECS[self].label

    @property
    def levels(self) -> "LevelRange | None":
        """The compression levels; None if the codec has none."""
        return CODECS[self].levels


class LevelRange:
    """The levels of a codec: from `minimum` to `maximum`, and `default`, which may be outside that range."""

    __slots__ = ("default", "maximum", "minimum")

    def __init__(self, *, minimum: int, maximum: int, default: int) -> None:
        self.minimum = minimum
        self.maximum = maximum
        self.default = default

    def __contains__(self, level: object) -> bool:
        return level == self.default or (isinstance(level, int) and self.minimum <= level <= self.maximum)

    def __str__(self) -> str:
        bounds = f"{self.minimum} to {self.maximum}"
        is_inside = self.minimum <= self.default <= self.maximum
        return bounds if is_inside else f"{bounds}, or {self.default} for the default"


_Buffer = bytes | bytearray | memoryview


class Codec(NamedTuple):
    """One codec: a row of `CODECS`."""

    #: The name in configurations.
    label: str
    #: The levels of Kafka's ``CompressionType`` (KIP-390); None if it has none.
    levels: LevelRange | None
    #: (data, level, magic of the batch, memory) -> the parts of the compressed block. The level is in `levels`, or 0
    #: without levels.
    compress: Callable[[_Buffer, int, int, Workspace], list[_Part]]
    #: (block, maximum size of the data, magic of the batch) -> the data. Raises CorruptRecordError.
    decompress: Callable[[memoryview, int, int], bytes | bytearray]
    #: The first message format that supports it.
    first_magic: int = 0
    #: The first version of Produce that supports it.
    first_produce_version: int = 0
    #: The release of Apache Kafka that added it; empty if every supported broker has it.
    first_release: str = ""


def prepare(codec: Compression) -> None:
    """Import what compressing with the codec needs. A thread that may still run at the interpreter's exit, where an
    import can fail, compresses only after this call. Any thread."""
    if codec is Compression.GZIP:
        zlib()
    elif codec is not Compression.NONE:
        cramjam()


def compress(codec: Compression, data: _Buffer, level: int | None = None, *, magic: int = 2) -> bytes:
    """Compress `data` as one block of a batch of format `magic`. `level` defaults to the codec's default.

    Raises KafkaConfigurationError if the codec does not support the level.
    """
    return b"".join(compress_parts(codec, data, level, magic, Workspace()))


def compress_parts(
    codec: Compression, data: _Buffer, level: int | None, magic: int, workspace: Workspace
) -> list[_Part]:
    """`compress`, without copying the block's parts into one. They are valid until `workspace` is used again."""
    row = CODECS[codec]
    levels = row.levels
    if levels is None:
        if level is not None:
            raise KafkaConfigurationError(f"{row.label} has no compression levels; leave the level out")
        return row.compress(data, 0, magic, workspace)
    if level is None:
        level = levels.default
    elif level not in levels:
        raise KafkaConfigurationError(f"{row.label} does not support compression level {level!r}; use {levels}")
    return row.compress(data, level, magic, workspace)


def decompress(codec: Compression, data: _Buffer, max_bytes: int, *, magic: int = 2) -> bytes | bytearray:
    """Decompress the block of a batch of format `magic` into at most `max_bytes` bytes.

    Raises CorruptRecordError if the bytes are not such a block or hold more than `max_bytes`. Memory use is bounded by
    `max_bytes` plus the codec's window, and by the maximum that the compressed bytes can hold.
    """
    return CODECS[codec].decompress(memoryview(data), max_bytes, magic)


def _too_large(codec: str, max_bytes: int) -> CorruptRecordError:
    return CorruptRecordError(
        f"the {codec} records are larger than the {max_bytes} bytes allowed here; "
        "raise the limit if this batch is expected to be this large"
    )


def _corrupt(codec: str, reason: object) -> CorruptRecordError:
    return CorruptRecordError(f"the records can't be decompressed, they are not valid {codec} data: {reason}")


def _decompress_into(
    function: Callable[[memoryview, bytearray], int], codec: str, view: memoryview, bound: int, max_bytes: int
) -> bytearray:
    """Decompress into a buffer of `bound` bytes, which is at most `max_bytes`, and cut off its unused end."""
    out = bytearray(bound)
    try:
        size = function(view, out)
    except cramjam().DecompressionError as error:
        if bound == max_bytes:
            raise CorruptRecordError(
                f"the {codec} records are either damaged, or larger than the {max_bytes} bytes allowed here: {error}"
            ) from error
        raise _corrupt(codec, error) from error
    del out[size:]
    return out


# --- none ---


def _copy(data: _Buffer, level: int, magic: int, workspace: Workspace) -> list[_Part]:
    return [bytes(data)]


def _copy_within(view: memoryview, max_bytes: int, magic: int) -> bytes:
    if len(view) > max_bytes:
        raise _too_large("uncompressed", max_bytes)
    return bytes(view)


# --- gzip ---

#: zlib's value for the gzip container (16) with a window of 32 KiB (15 bits).
_GZIP_WINDOW_BITS = 16 + 15
#: The size of a member's first chunk, doubled for each further one: zlib copies any input after the member's end.
_GZIP_FIRST_BYTES = 4096


def _compress_gzip(data: _Buffer, level: int, magic: int, workspace: Workspace) -> list[_Part]:
    gzip = zlib().compressobj(level, wbits=_GZIP_WINDOW_BITS)
    return [gzip.compress(data), gzip.flush()]


def _decompress_gzip(view: memoryview, max_bytes: int, magic: int) -> bytes:
    # zlib and not cramjam: zlib stops at the allowed size by itself, but cramjam needs the size beforehand
    parts: list[bytes] = []
    room = max_bytes
    position = 0
    while position < len(view) or not parts:
        member = zlib().decompressobj(_GZIP_WINDOW_BITS)
        step = _GZIP_FIRST_BYTES
        while not member.eof:
            fed = view[position : position + step]
            if not fed:
                raise _corrupt("gzip", "the data ends too early")
            try:
                data = member.decompress(fed, room + 1)
            except zlib().error as error:
                raise _corrupt("gzip", error) from error
            room -= len(data)
            if room < 0:
                raise _too_large("gzip", max_bytes)
            parts.append(data)
            position += len(fed)
            step *= 2
        position -= len(member.unused_data)
    return b"".join(parts)


# --- snappy ---

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
#: The magic, the format version and the oldest compatible version.
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 1024 * 1024
_INT32 = struct.Struct(">i")


def _compress_snappy(data: _Buffer, level: int, magic: int, workspace: Workspace) -> list[_Part]:
    view = memoryview(data)
    parts: list[_Part] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = cramjam().snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES])
        parts += (_INT32.pack(len(block)), block)
    return parts


def _decompress_snappy(view: memoryview, max_bytes: int, magic: int) -> bytearray:
    blocks = _xerial_blocks(view) if bytes(view[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC else [view]
    sizes = [_snappy_size(block) for block in blocks]
    total = sum(sizes)
    if total > max_bytes:
        raise _too_large("snappy", max_bytes)
    out = bytearray()
    for block, size in zip(blocks, sizes, strict=True):
        # into a bytearray: without the GIL the codec writes into no memoryview
        part = bytearray(size)
        try:
            cramjam().snappy.decompress_raw_into(block, part)
        except cramjam().DecompressionError as error:
            raise _corrupt("snappy", error) from error
        if out:
            out += part
        else:
            out = part
    return out


def _xerial_blocks(view: memoryview) -> list[memoryview]:
    """The snappy blocks of a xerial stream. The version is not checked: only one exists, and some use little-endian."""
    if len(view) < len(_XERIAL_HEADER):
        raise _corrupt("snappy", "the header of xerial's stream is cut off")
    blocks: list[memoryview] = []
    position = len(_XERIAL_HEADER)
    while position < len(view):
        start = position + _INT32.size
        if start > len(view):
            raise _corrupt("snappy", "the size of a block is cut off")
        (size,) = _INT32.unpack_from(view, position)
        position = start + size
        if size <= 0 or position > len(view):
            raise _corrupt("snappy", f"a block claims {size} bytes, but {len(view) - start} are left")
        blocks.append(view[start:position])
    return blocks


def _snappy_size(block: memoryview) -> int:
    """The size that a snappy block declares. Raises CorruptRecordError if a block of its length cannot hold that."""
    try:
        size = cramjam().snappy.decompress_raw_len(block)
    except cramjam().DecompressionError as error:
        raise _corrupt("snappy", error) from error
    # the densest element copies 64 bytes and takes three
    if size > 64 * (len(block) // 3 + 1):
        raise _corrupt("snappy", f"a block of {len(block)} bytes can't hold the {size} it declares")
    return size


# --- lz4 ---

_LZ4_LEVELS = LevelRange(minimum=1, maximum=17, default=9)
_LZ4_MAGIC = 0x184D2204
_LZ4_VERSION = 1
#: FLG bits: independent blocks, block checksums, content size, content checksum, and the bits that must be zero
#: (reserved, dictionary).
_LZ4_INDEPENDENT = 0x20
_LZ4_BLOCK_CHECKSUM, _LZ4_CONTENT_SIZE, _LZ4_CONTENT_CHECKSUM, _LZ4_UNSUPPORTED = 0x10, 0x08, 0x04, 0x03
_LZ4_STORED = 0x80000000
#: The sizes that the frame's header can name, by their codes.
_LZ4_BLOCK_BYTES = {4: 64 * 1024, 5: 256 * 1024, 6: 1024 * 1024, 7: 4 * 1024 * 1024}
#: Blocks of the high compressor, see `_lz4_high_block`.
_LZ4_HIGH_CODE = 4
#: The maximum number of bytes per compressed byte, in a long run of one value.
_LZ4_MAX_RATIO = 255
_LZ4_HEADER = struct.Struct("<IBB")
_LZ4_END = bytes(4)
_UINT32_LE = struct.Struct("<I")
_UINT64_LE = struct.Struct("<Q")


def _compress_lz4(data: _Buffer, level: int, magic: int, workspace: Workspace) -> list[_Part]:
    # not by cramjam's streaming compressor, which writes frames of independent blocks, too, but keeps the GIL
    view = memoryview(data)
    if level == _LZ4_LEVELS.default:
        block = _lz4_fast_block
        code = next((code for code, size in _LZ4_BLOCK_BYTES.items() if len(view) <= size), max(_LZ4_BLOCK_BYTES))
    else:
        block = _lz4_high_block
        code = _LZ4_HIGH_CODE
    block_bytes = _LZ4_BLOCK_BYTES[code]
    parts: list[_Part] = [_lz4_header(code, magic)]
    for start in range(0, len(view), block_bytes):
        # a second block must not overwrite the first
        parts += block(view[start : start + block_bytes], level, workspace if start == 0 else Workspace())
    parts.append(_LZ4_END)
    return parts


@cache
def _lz4_header(code: int, magic: int) -> bytes:
    """The header of a frame of independent blocks of that size, without options, with its checksum."""
    header = _LZ4_HEADER.pack(_LZ4_MAGIC, _LZ4_VERSION << 6 | _LZ4_INDEPENDENT, code << 4)
    # in format v0 the checksum includes the magic, unlike in LZ4's format
    return header + bytes([_lz4_header_checksum(header if magic == 0 else header[4:])])


def _lz4_fast_block(chunk: memoryview, level: int, workspace: Workspace) -> Iterable[_Part]:
    """A block with its size, from the fast compressor. In Java it is the default level, and it has no other."""
    # the largest result: LZ4_COMPRESSBOUND
    packed = workspace.packed(len(chunk) + len(chunk) // 255 + 16)
    size = cramjam().lz4.compress_block_into(chunk, packed, store_size=False)
    if size < len(chunk):
        return _UINT32_LE.pack(size), memoryview(packed)[:size]
    # a copy: the caller may write the parts to where the chunk is
    return _UINT32_LE.pack(len(chunk) | _LZ4_STORED), bytes(chunk)


def _lz4_high_block(chunk: memoryview, level: int, workspace: Workspace) -> Iterable[_Part]:
    """A block with its size, from the high compressor, which has levels 3 to 12.

    cramjam offers it for whole frames only, so this is the only block of a frame.
    """
    return (_only_lz4_block(memoryview(cramjam().lz4.compress(chunk, level=min(max(level, 3), 12)))),)


def has_lz4_levels() -> bool:
    """Whether the installed cramjam supports lz4 levels other than the default: 2.14 does, on Python 3.11."""
    try:
        _lz4_high_block(memoryview(bytes(_LZ4_BLOCK_BYTES[_LZ4_HIGH_CODE])), _LZ4_LEVELS.maximum, Workspace())
    except UnsupportedCodecError:
        return False
    return True


def _only_lz4_block(frame: memoryview) -> memoryview:
    """The only block of a frame, with its size. It therefore refers to no other block."""
    start = len(_lz4_header(_LZ4_HIGH_CODE, 2))
    (size,) = _UINT32_LE.unpack_from(frame, start)
    end = start + _UINT32_LE.size + (size & ~_LZ4_STORED)
    checksums = bool(frame[4] & _LZ4_BLOCK_CHECKSUM) + bool(frame[4] & _LZ4_CONTENT_CHECKSUM)
    if frame[4] & _LZ4_CONTENT_SIZE or len(frame) != end + len(_LZ4_END) + checksums * _UINT32_LE.size:
        raise UnsupportedCodecError(
            "this version of cramjam splits 64 KiB into several lz4 blocks, which Kafka does not accept at this level; "
            "install cramjam 2.14 or newer, or leave out the level"
        )
    return frame[start:end]


def _decompress_lz4(view: memoryview, max_bytes: int, magic: int) -> bytearray:
    header_end, bound = _lz4_bound(view, max_bytes)
    if magic == 0:
        # Java ignores the checksum in a v0 frame's header, but liblz4 checks it: replace it with the correct one.
        repaired = bytearray(view)
        repaired[header_end - 1] = _lz4_header_checksum(repaired[4 : header_end - 1])
        view = memoryview(repaired)
    return _decompress_into(cramjam().lz4.decompress_into, "lz4", view, bound, max_bytes)


def _lz4_bound(view: memoryview, max_bytes: int) -> tuple[int, int]:
    """Parse the single frame: (the end of its header, the maximum size of its content)."""
    try:
        mark, flags, block_descriptor = _LZ4_HEADER.unpack_from(view)
        if mark != _LZ4_MAGIC or flags >> 6 != _LZ4_VERSION or flags & _LZ4_UNSUPPORTED:
            raise _corrupt("lz4", "the frame's header is wrong, or has options that Kafka does not use")
        size_code = block_descriptor >> 4
        if not 4 <= size_code <= 7 or block_descriptor & 0x0F:
            raise _corrupt("lz4", "the frame's header has a wrong block size")
        max_block_bytes = 1 << (2 * size_code + 8)
        position = _LZ4_HEADER.size
        declared = None
        if flags & _LZ4_CONTENT_SIZE:
            (declared,) = _UINT64_LE.unpack_from(view, position)
            position += _UINT64_LE.size
        header_end = position = position + 1
        stored = packed = 0
        while True:
            (size,) = _UINT32_LE.unpack_from(view, position)
            position += _UINT32_LE.size
            if size == 0:
                break
            is_stored = size & _LZ4_STORED
            size &= ~_LZ4_STORED
            if size > max_block_bytes:
                raise _corrupt("lz4", f"a block of {size} bytes is larger than the frame's {max_block_bytes}")
            if is_stored:
                stored += size
            else:
                packed += min(max_block_bytes, _LZ4_MAX_RATIO * size)
            position += size + (_UINT32_LE.size if flags & _LZ4_BLOCK_CHECKSUM else 0)
    except struct.error:
        raise _corrupt("lz4", "the frame is cut off") from None
    if position + (_UINT32_LE.size if flags & _LZ4_CONTENT_CHECKSUM else 0) != len(view):
        raise _corrupt("lz4", "the frame doesn't end where the batch does")
    return header_end, _buffer_bytes("lz4", *_agreed("lz4", stored, stored + packed, declared), max_bytes)


def _agreed(codec: str, least: int, most: int, declared: int | None) -> tuple[int, int]:
    """The minimum and maximum content size of a frame, from its blocks and its declared size."""
    if declared is None:
        return least, most
    if not least <= declared <= most:
        raise _corrupt(codec, f"the frame declares {declared} bytes, and its blocks hold {least} to {most}")
    return declared, declared


def _buffer_bytes(codec: str, least: int, most: int, max_bytes: int) -> int:
    """The size of the buffer to decompress into."""
    if least > max_bytes:
        raise _too_large(codec, max_bytes)
    return min(most, max_bytes)


def _lz4_header_checksum(data: bytes | bytearray) -> int:
    """The second byte of XXH32 (seed 0), for an LZ4 frame header of fewer than 16 bytes."""
    mask = 0xFFFFFFFF
    value = 0x165667B1 + len(data)
    position = 0
    while position + 4 <= len(data):
        value = (value + int.from_bytes(data[position : position + 4], "little") * 0xC2B2AE3D) & mask
        value = ((value << 17 | value >> 15) * 0x27D4EB2F) & mask
        position += 4
    for byte in data[position:]:
        value = (value + byte * 0x165667B1) & mask
        value = ((value << 11 | value >> 21) * 0x9E3779B1) & mask
    value = ((value ^ value >> 15) * 0x85EBCA77) & mask
    value = ((value ^ value >> 13) * 0xC2B2AE3D) & mask
    return ((value ^ value >> 16) >> 8) & 0xFF


# --- zstd ---

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_MAX_BLOCK_BYTES = 128 * 1024
_ZSTD_STORED, _ZSTD_RUN, _ZSTD_PACKED = 0, 1, 2


def _compress_zstd(data: _Buffer, level: int, magic: int, workspace: Workspace) -> list[_Part]:
    packed = workspace.packed(len(data) + len(data) // 128 + 1024)
    return [memoryview(packed)[: cramjam().zstd.compress_into(data, packed, level=level)]]


def _decompress_zstd(view: memoryview, max_bytes: int, magic: int) -> bytearray:
    return _decompress_into(cramjam().zstd.decompress_into, "zstd", view, _zstd_bound(view, max_bytes), max_bytes)


def _zstd_bound(view: memoryview, max_bytes: int) -> int:
    """Parse the frames (RFC 8878): the maximum size of their content, limited to `max_bytes`."""
    position = least = most = 0
    while True:
        position, frame_least, frame_most = _zstd_frame(view, position)
        least += frame_least
        most += frame_most
        if position == len(view):
            return _buffer_bytes("zstd", least, most, max_bytes)


def _zstd_frame(view: memoryview, position: int) -> tuple[int, int, int]:
    """The end of the frame at `position`, and the minimum and maximum size of its content."""
    try:
        (mark,) = _UINT32_LE.unpack_from(view, position)
        if mark != _ZSTD_MAGIC:
            raise _corrupt("zstd", "the frame's magic number is wrong")
        descriptor = view[position + 4]
        single_segment = descriptor & 0x20
        if descriptor & 0x08:
            raise _corrupt("zstd", "the frame's header has a reserved bit set")
        # skip the window descriptor, which a single segment lacks, and the dictionary id, which the codec checks
        position += 5 + (not single_segment) + (0, 1, 2, 4)[descriptor & 0x03]
        size_bytes = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
        declared = None
        if size_bytes:
            field = view[position : position + size_bytes]
            if len(field) < size_bytes:
                raise IndexError
            # a two-byte size is stored minus 256, because smaller ones fit into one byte
            declared = int.from_bytes(field, "little") + (256 if size_bytes == 2 else 0)
            position += size_bytes
        least = most = last = 0
        while not last:
            header = view[position] | view[position + 1] << 8 | view[position + 2] << 16
            last, kind, size = header & 1, header >> 1 & 3, header >> 3
            if size > _ZSTD_MAX_BLOCK_BYTES:
                raise _corrupt("zstd", f"a block of {size} bytes is larger than the format's {_ZSTD_MAX_BLOCK_BYTES}")
            position += 3 + (1 if kind == _ZSTD_RUN else size)
            if kind == _ZSTD_PACKED:
                most += _ZSTD_MAX_BLOCK_BYTES
            elif kind in (_ZSTD_STORED, _ZSTD_RUN):
                least += size
                most += size
            else:
                raise _corrupt("zstd", "a block is of a reserved kind")
    except (struct.error, IndexError):
        raise _corrupt("zstd", "the frame is cut off") from None
    position += 4 if descriptor & 0x04 else 0
    if position > len(view):
        raise _corrupt("zstd", "the frame is cut off")
    return position, *_agreed("zstd", least, most, declared)


# --- The table ---

#: The keys of this table are `Compression` members.
CODECS: dict[int, Codec] = {
    Compression.NONE: Codec("none", None, _copy, _copy_within),
    Compression.GZIP: Codec("gzip", LevelRange(minimum=1, maximum=9, default=-1), _compress_gzip, _decompress_gzip),
    Compression.SNAPPY: Codec("snappy", None, _compress_snappy, _decompress_snappy),
    Compression.LZ4: Codec("lz4", _LZ4_LEVELS, _compress_lz4, _decompress_lz4),
    Compression.ZSTD: Codec(
        "zstd",
        LevelRange(minimum=-131072, maximum=22, default=3),
        _compress_zstd,
        _decompress_zstd,
        first_magic=2,
        first_produce_version=7,
        first_release="2.1",
    ),
}
_BY_LABEL = {codec.label: codec for codec in Compression}
