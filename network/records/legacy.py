"""Message formats v0 and v1: the message sets of brokers before 0.11 and of old segments.

A message set is a sequence of messages. A compressed one is a single wrapper message with the compressed set as value.
Source: KIP-31, KIP-32 and Kafka's ``LegacyRecord``, ``AbstractLegacyRecordBatch``. Big-endian; position, size, field::

     0  8  offset         in a wrapper: that of its last message
     8  4  size           bytes after this field
    12  4  crc            CRC-32 of everything after it
    16  1  magic          0 or 1
    17  1  attributes     bits: 0-2 codec, 3 log-append time (v1)
    18  8  timestamp      v1 only; in a wrapper: the largest
    ..  4  key size       -1 for none, then the key
    ..  4  value size     -1 for none, then the value

Inside a wrapper v0 has absolute offsets. v1 has offsets relative to the first message, so that a broker can assign
offsets without compressing again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import ClassVar

from ..protocol.errors import CorruptRecordError, EncodeError, UnsupportedCompressionTypeError
from .compression import CODECS, COMPRESSION_MASK, Compression, compress, decompress
from .crc import zlib
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

_crc32 = zlib().crc32

CRC_OFFSET = 12
ATTRIBUTES_OFFSET = 17
TIMESTAMP_OFFSET = 18
#: The position of the key size in each format.
_KEY_SIZE_OFFSET = (18, 26)

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_UINT32 = struct.Struct(">I")


class LegacyBatch:
    """A view of one message of format v0 or v1 in a buffer, with its inner messages if it is a wrapper.

    It has the interface of `RecordBatch`. Nothing is copied: the properties read the buffer. Invariants: the message is
    complete and long enough for its fixed fields, and its magic is 0 or 1.
    Source: Kafka's ``AbstractLegacyRecordBatch``.
    """

    #: The length field of the smallest message: v0 without key and value.
    MIN_LENGTH: ClassVar[int] = 14

    # Fields that these formats do not have.
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
        """View the message at the start of `buffer`. Raises CorruptRecordError if there is no complete one."""
        view = memoryview(buffer)
        if len(view) <= MAGIC_OFFSET:
            raise CorruptRecordError(f"a message has more than {MAGIC_OFFSET} bytes, but only {len(view)} are here")
        magic = view[MAGIC_OFFSET]
        if magic not in (0, 1):
            raise CorruptRecordError(f"this is not a message of format v0 or v1: its magic is {magic}")
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
        """The offset of the first message. A wrapper is decompressed to find it, with the errors of `records`."""
        if self.compression == Compression.NONE:
            return self.last_offset
        return next(self.records()).offset

    @property
    def size_bytes(self) -> int:
        """The size of the whole message in bytes, including its offset and size fields."""
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
        """The codec. Raises UnsupportedCompressionTypeError if it does not exist or the format does not support it."""
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
        """1, or None for a wrapper, which does not declare its number of messages."""
        return 1 if self.compression == Compression.NONE else None

    def validate(self) -> None:
        """Raise CorruptRecordError if the CRC does not match the bytes."""
        stored, computed = self.crc, _crc32(self.buffer[MAGIC_OFFSET:])
        if stored != computed:
            raise CorruptRecordError(
                f"the message at offset {self.last_offset} is damaged: its CRC is {stored:#010x}, "
                f"but its bytes have {computed:#010x}"
            )

    def records(self, max_bytes: int = MAX_RECORDS_BYTES) -> Iterator[Record]:
        """Iterate over the messages. A wrapper is decompressed here, into at most `max_bytes` bytes.

        Raises CorruptRecordError, here or from the iterator, if the bytes are not messages or the CRC of an inner
        message is wrong. Raises UnsupportedCompressionTypeError for an unknown codec. Any thread.
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
        """The number to add to the offsets inside this wrapper."""
        last = None
        for message in _messages(data):
            last = message
        if last is None:
            raise CorruptRecordError(f"the wrapper message at offset {self.last_offset} has no messages in it")
        # some versions of librdkafka leave a wrapper's offset at 0 when producing
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
    """The messages of a decompressed set, which must be complete."""
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
    """Build a message set of ``(timestamp, key, value)`` records, in format v0 (which drops timestamps) or v1.

    With a codec it is one wrapper message, otherwise one message per record; empty if there are no records. Raises
    EncodeError for values that do not fit the format, UnsupportedCompressionTypeError for a codec that the format does
    not support, and KafkaConfigurationError for a level that the codec does not support. Any thread.
    Source: ``MemoryRecordsBuilder``.
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
            raise EncodeError(f"a timestamp must be milliseconds since 1970, or -1 for none, not {timestamp}")
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
    """The part of a message from its magic to its end, which its CRC covers."""
    try:
        fields = [struct.pack(">bbq", magic, attributes, timestamp) if magic else struct.pack(">bb", magic, attributes)]
        for part in (key, value):
            fields += (_INT32.pack(-1),) if part is None else (_INT32.pack(len(part)), part)
    except struct.error as error:
        raise EncodeError(f"a record doesn't fit into message format v{magic}: {error}") from error
    return b"".join(fields)


def _message(offset: int, body: bytes) -> bytes:
    return struct.pack(">qiI", offset, _UINT32.size + len(body), _crc32(body)) + body
