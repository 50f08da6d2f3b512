"""Message formats v0 and v1: message sets, as brokers before 0.11 and old segments have them.

A message set is messages in a row. A compressed one is a single wrapper message whose value is the compressed set.
Source: KIP-31, KIP-32 and Kafka's ``LegacyRecord``, ``AbstractLegacyRecordBatch``. Big-endian; position, size, field::

     0  8  offset         of a wrapper: that of its last message
     8  4  size           bytes after this field
    12  4  crc            CRC-32 of everything after it
    16  1  magic          0 or 1
    17  1  attributes     bits: 0-2 codec, 3 log-append time (v1)
    18  8  timestamp      v1 only; of a wrapper: the largest
    ..  4  key size       -1 for none, then the key
    ..  4  value size     -1 for none, then the value

Inside a wrapper v0 has the offsets themselves, v1 offsets that count from the first message, so that a broker assigns
offsets without compressing again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import ClassVar

from ..protocol.errors import CorruptRecordError, EncodeError, UnsupportedCompressionTypeError
from .compression import CODECS, COMPRESSION_MASK, Compression, compress, decompress
from .crc import crc32
from .record import (
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAX_RECORDS_BYTES,
    TIMESTAMP_TYPE_MASK,
    TIMESTAMP_UNKNOWN,
    Record,
    TimestampType,
)

CRC_OFFSET = 12
ATTRIBUTES_OFFSET = 17
TIMESTAMP_OFFSET = 18
#: Where the key's size stands in each format.
_KEY_SIZE_OFFSET = (18, 26)

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_UINT32 = struct.Struct(">I")


class LegacyBatch:
    """One message of format v0 or v1, with the messages in it if it is a wrapper, seen in the buffer it lies in.

    It answers what a `RecordBatch` answers. Nothing is copied: the properties read the buffer. Invariants: the message
    is all there, long enough for its fixed fields, and its magic is 0 or 1.
    Source: Kafka's ``AbstractLegacyRecordBatch``.
    """

    #: The length field of the smallest message: v0 without key and value.
    MIN_LENGTH: ClassVar[int] = 14

    # What these formats don't have yet.
    partition_leader_epoch: ClassVar[int] = -1
    producer_id: ClassVar[int] = -1
    producer_epoch: ClassVar[int] = -1
    base_sequence: ClassVar[int] = -1
    last_sequence: ClassVar[int] = -1
    is_transactional: ClassVar[bool] = False
    is_control: ClassVar[bool] = False
    delete_horizon_ms: ClassVar[int | None] = None

    __slots__ = ("buffer",)

    def __init__(self, buffer: bytes | bytearray | memoryview) -> None:
        """See the message at the start of `buffer`; CorruptRecordError if there isn't a whole one."""
        view = memoryview(buffer)
        if len(view) <= MAGIC_OFFSET:
            raise CorruptRecordError(f"a message has more than {MAGIC_OFFSET} bytes, here are {len(view)}")
        magic = view[MAGIC_OFFSET]
        if magic not in (0, 1):
            raise CorruptRecordError(f"this is no message of format v0 or v1: its magic is {magic}")
        size = LOG_OVERHEAD + _INT32.unpack_from(view, LENGTH_OFFSET)[0]
        least = _KEY_SIZE_OFFSET[magic] + 2 * _INT32.size
        if not least <= size <= len(view):
            raise CorruptRecordError(
                f"a message of format v{magic} claims {size} bytes; it needs {least}, and {len(view)} are here"
            )
        self.buffer = view[:size]

    @property
    def last_offset(self) -> int:
        return _INT64.unpack_from(self.buffer, 0)[0]

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def base_offset(self) -> int:
        """The offset of the first message; a wrapper is decompressed for it, with the errors of `records`."""
        if self.compression == Compression.NONE:
            return self.last_offset
        return next(self.records()).offset

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole message, its offset and size fields included."""
        return len(self.buffer)

    @property
    def magic(self) -> int:
        return self.buffer[MAGIC_OFFSET]

    @property
    def crc(self) -> int:
        return _UINT32.unpack_from(self.buffer, CRC_OFFSET)[0]

    @property
    def attributes(self) -> int:
        return self.buffer[ATTRIBUTES_OFFSET]

    @property
    def compression(self) -> Compression:
        """UnsupportedCompressionTypeError if there is no such codec, or these formats can't have it."""
        codec = Compression.of_attributes(self.attributes)
        first_magic = CODECS[codec].first_magic
        if self.magic < first_magic:
            raise UnsupportedCompressionTypeError(
                f"message format v{self.magic} does not support {codec.label}; v{first_magic} does"
            )
        return codec

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP_TYPE
        if self.attributes & TIMESTAMP_TYPE_MASK:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def max_timestamp(self) -> int:
        """Milliseconds since 1970; -1 in format v0."""
        return TIMESTAMP_UNKNOWN if self.magic == 0 else _INT64.unpack_from(self.buffer, TIMESTAMP_OFFSET)[0]

    @property
    def count(self) -> int | None:
        """1, or None for a wrapper, which doesn't say how many messages it holds."""
        return 1 if self.compression == Compression.NONE else None

    def validate(self) -> None:
        """CorruptRecordError if the CRC doesn't fit the bytes."""
        stored, computed = self.crc, crc32(self.buffer[MAGIC_OFFSET:])
        if stored != computed:
            raise CorruptRecordError(
                f"the message at offset {self.last_offset} is damaged: its CRC is {stored:#010x}, "
                f"that of its bytes is {computed:#010x}"
            )

    def records(self, max_bytes: int = MAX_RECORDS_BYTES) -> Iterator[Record]:
        """The messages, one at a time; those in a wrapper are decompressed here, into at most `max_bytes` bytes.

        CorruptRecordError, here or from the iterator, if the bytes are no messages or the CRC of one in a wrapper is
        wrong; UnsupportedCompressionTypeError for an unknown codec. Runs on any thread.
        """
        key, value = self._key_and_value()
        codec = self.compression
        if codec == Compression.NONE:
            key_bytes = None if key is None else bytes(key)
            value_bytes = None if value is None else bytes(value)
            return iter((Record(self.last_offset, self.max_timestamp, key_bytes, value_bytes),))
        if value is None:
            raise CorruptRecordError(f"the wrapper message at offset {self.last_offset} has no messages in it")
        data = memoryview(decompress(codec, value, max_bytes, magic=self.magic))
        return self._inner_records(data, self._inner_base_offset(data))

    def _inner_base_offset(self, data: memoryview) -> int:
        """What to add to the offsets inside this wrapper."""
        last = None
        for message in _messages(data):
            last = message
        if last is None:
            raise CorruptRecordError(f"the wrapper message at offset {self.last_offset} has no messages in it")
        # some versions of librdkafka leave a wrapper's offset at 0 when they produce
        if self.magic == 0 or self.last_offset == 0:
            return 0
        base_offset = self.last_offset - last.last_offset
        if base_offset < 0:
            raise CorruptRecordError(
                f"the wrapper message at offset {self.last_offset} is damaged: the last message in it is at "
                f"{last.last_offset} after the first"
            )
        return base_offset

    def _inner_records(self, data: memoryview, base_offset: int) -> Iterator[Record]:
        is_append_time = self.timestamp_type == TimestampType.LOG_APPEND_TIME
        for message in _messages(data):
            if message.attributes & COMPRESSION_MASK:
                raise CorruptRecordError(
                    f"a message inside the wrapper at offset {self.last_offset} is compressed again"
                )
            message.validate()
            for record in message.records():
                timestamp = self.max_timestamp if is_append_time and message.magic == 1 else record.timestamp
                yield record._replace(offset=base_offset + record.offset, timestamp=timestamp)

    def _key_and_value(self) -> tuple[memoryview | None, memoryview | None]:
        key, position = self._sized_bytes(_KEY_SIZE_OFFSET[self.magic], "key")
        value, position = self._sized_bytes(position, "value")
        if position != len(self.buffer):
            raise CorruptRecordError(
                f"the message at offset {self.last_offset} is damaged: "
                f"{len(self.buffer) - position} bytes follow its value"
            )
        return key, value

    def _sized_bytes(self, position: int, what: str) -> tuple[memoryview | None, int]:
        start = position + _INT32.size
        left = len(self.buffer) - start
        size = _INT32.unpack_from(self.buffer, position)[0] if left >= 0 else 0
        if size == -1:
            return None, start
        if not 0 <= size <= left:
            raise CorruptRecordError(
                f"the message at offset {self.last_offset} is damaged: its {what} has size {size}, "
                f"and {left} bytes are left"
            )
        return self.buffer[start : start + size], start + size

    def __repr__(self) -> str:
        return (
            f"LegacyBatch(v{self.magic}, last offset {self.last_offset}, {self.size_bytes} bytes, "
            f"attributes {self.attributes:#x})"
        )


def _messages(data: memoryview) -> Iterator[LegacyBatch]:
    """The messages of a decompressed set, which has to be whole."""
    position = 0
    while position < len(data):
        message = LegacyBatch(data[position:])
        yield message
        position += message.size_bytes


def build_message_set(
    records: Iterable[tuple[int, bytes | None, bytes | None]],
    *,
    magic: int,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    base_offset: int = 0,
) -> bytes:
    """The message set of ``(timestamp, key, value)`` records, in format v0 (which drops the timestamps) or v1.

    With a codec it is one wrapper message, otherwise a message a record; nothing if there are no records.
    EncodeError for what can't be written, UnsupportedCompressionTypeError for a codec that the format doesn't support,
    KafkaConfigurationError for a level the codec doesn't take. Runs on any thread. Source: ``MemoryRecordsBuilder``.
    """
    if magic not in (0, 1):
        raise EncodeError(f"a message set has format v0 or v1, not v{magic}")
    first_magic = CODECS[compression].first_magic
    if magic < first_magic:
        raise UnsupportedCompressionTypeError(
            f"message format v{magic} does not support {compression.label}; use another codec, or format v{first_magic}"
        )
    first = 0 if magic == 1 and compression != Compression.NONE else base_offset
    messages: list[bytes] = []
    max_timestamp = TIMESTAMP_UNKNOWN
    for timestamp, key, value in records:
        if timestamp < TIMESTAMP_UNKNOWN:
            raise EncodeError(f"a timestamp is milliseconds since 1970, or -1 for none, not {timestamp}")
        max_timestamp = max(max_timestamp, timestamp)
        body = _message_body(magic, Compression.NONE, timestamp, key, value)
        messages.append(_message(first + len(messages), body))
    joined = b"".join(messages)
    if compression == Compression.NONE or not messages:
        return joined
    wrapped = compress(compression, joined, level, magic=magic)
    body = _message_body(magic, compression, max_timestamp, None, wrapped)
    return _message(base_offset + len(messages) - 1, body)


def _message_body(magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None) -> bytes:
    """A message from its magic on, which is what its CRC covers."""
    try:
        fields = [struct.pack(">bbq", magic, attributes, timestamp) if magic else struct.pack(">bb", magic, attributes)]
        for part in (key, value):
            fields += (_INT32.pack(-1),) if part is None else (_INT32.pack(len(part)), part)
    except struct.error as error:
        raise EncodeError(f"a record doesn't fit into message format v{magic}: {error}") from error
    return b"".join(fields)


def _message(offset: int, body: bytes) -> bytes:
    return struct.pack(">qiI", offset, _UINT32.size + len(body), crc32(body)) + body
