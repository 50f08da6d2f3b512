"""Record batches of message format v2 (magic 2): the layout and the header.

Source: KIP-98 and Kafka's ``DefaultRecordBatch``. Big-endian; position, size, field::

     0  8  base_offset                assigned by the leader, outside the CRC
     8  4  batch_length               bytes after this field
    12  4  partition_leader_epoch     assigned by the leader, outside the CRC
    16  1  magic                      2
    17  4  crc                        CRC-32C of everything from the attributes to the end
    21  2  attributes                 bits: 0-2 codec, 3 log-append time, 4 transactional, 5 control, 6 delete horizon
    23  4  last_offset_delta
    27  8  base_timestamp             of the first record, or the delete horizon
    35  8  max_timestamp
    43  8  producer_id
    51  2  producer_epoch
    53  4  base_sequence
    57  4  count
    61     records, compressed as one block if the attributes name a codec
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..protocol.errors import CorruptRecordError
from .compression import Compression, decompress
from .crc import crc32c
from .reader_cy import RecordIterator
from .record import (
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAX_RECORDS_BYTES,
    TIMESTAMP_TYPE_MASK,
    TIMESTAMP_UNKNOWN,  # noqa: F401  the writer imports it from here, with the layout
    TimestampType,
)

if TYPE_CHECKING:
    from .legacy import LegacyBatch

MAGIC_V2 = 2
PARTITION_LEADER_EPOCH_OFFSET = 12
CRC_OFFSET = 17
ATTRIBUTES_OFFSET = 21
LAST_OFFSET_DELTA_OFFSET = 23
BASE_TIMESTAMP_OFFSET = 27
MAX_TIMESTAMP_OFFSET = 35
PRODUCER_ID_OFFSET = 43
PRODUCER_EPOCH_OFFSET = 51
BASE_SEQUENCE_OFFSET = 53
RECORDS_COUNT_OFFSET = 57
#: The size of the header, after which the records begin.
RECORD_BATCH_OVERHEAD = 61

TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40

NO_SEQUENCE = -1
MAX_SEQUENCE = 0x7FFFFFFF

HEADER_LAYOUT = struct.Struct(">qiibIhiqqqhii")
_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_UINT32 = struct.Struct(">I")


def write_header(
    buffer: bytearray | memoryview,
    *,
    size: int,
    base_offset: int,
    partition_leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    count: int,
) -> None:
    """Write the header of a v2 batch, with its CRC. The records are already in ``buffer[61:size]``.

    `buffer` may be longer than `size`, the number of the batch's bytes. `attributes` include the
    codec, `last_offset_delta` and `count` describe the records, and timestamps are milliseconds since 1970. The other
    arguments are the header fields of those names; -1 stands for none.

    Any thread that owns the buffer. Raises `struct.error` if a value does not fit into its field.
    Source: ``DefaultRecordBatch.writeHeader``.
    """
    HEADER_LAYOUT.pack_into(
        buffer,
        0,
        base_offset,
        size - LOG_OVERHEAD,
        partition_leader_epoch,
        MAGIC_V2,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    crc = crc32c(memoryview(buffer)[ATTRIBUTES_OFFSET:size])
    _UINT32.pack_into(buffer, CRC_OFFSET, crc)


def joined(parts: Sequence[memoryview]) -> bytes | memoryview:
    """A batch in one piece, which is a copy unless it has only one part."""
    return parts[0] if len(parts) == 1 else b"".join(parts)


def increment_sequence(sequence: int, increment: int) -> int:
    """The sequence number `increment` records after `sequence`. It wraps from 2^31 - 1 to 0."""
    return (sequence + increment) & MAX_SEQUENCE


class RecordBatch:
    """A view of a record batch of format v2 in a buffer.

    Nothing is copied or cached: every property reads the buffer, so that all views of the same bytes agree. The buffer
    may end before the batch does, so that a header can be read by itself. `validate` and `records` raise then.
    Invariants: the magic is 2, the 61 bytes of the header are present, and no byte after the batch is read. The owner
    of the buffer serialises changes.
    Source: Kafka's ``DefaultRecordBatch``.
    """

    __slots__ = ("buffer",)

    def __init__(self, buffer: bytes | bytearray | memoryview) -> None:
        """View the batch at the start of `buffer`. Raises CorruptRecordError if there is none."""
        view = memoryview(buffer)
        if len(view) < RECORD_BATCH_OVERHEAD:
            raise CorruptRecordError(f"a record batch has at least {RECORD_BATCH_OVERHEAD} bytes, not {len(view)}")
        if view[MAGIC_OFFSET] != MAGIC_V2:
            raise CorruptRecordError(f"this is not a record batch of format v2: its magic is {view[MAGIC_OFFSET]}")
        self.buffer = view
        size = self.size_bytes
        if size < RECORD_BATCH_OVERHEAD:
            raise CorruptRecordError(
                f"the batch at offset {self.base_offset} claims {size} bytes, fewer than its header has"
            )
        if size < len(view):
            self.buffer = view[:size]

    @property
    def base_offset(self) -> int:
        return _INT64.unpack_from(self.buffer, 0)[0]

    @property
    def batch_length(self) -> int:
        """The length field: the number of bytes after it."""
        return _INT32.unpack_from(self.buffer, LENGTH_OFFSET)[0]

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch in bytes, according to its header."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def partition_leader_epoch(self) -> int:
        return _INT32.unpack_from(self.buffer, PARTITION_LEADER_EPOCH_OFFSET)[0]

    @property
    def magic(self) -> int:
        return self.buffer[MAGIC_OFFSET]

    @property
    def crc(self) -> int:
        return _UINT32.unpack_from(self.buffer, CRC_OFFSET)[0]

    @property
    def attributes(self) -> int:
        return _INT16.unpack_from(self.buffer, ATTRIBUTES_OFFSET)[0]

    @property
    def compression(self) -> Compression:
        """The codec. Raises UnsupportedCompressionTypeError if it does not exist."""
        return Compression.of_attributes(self.attributes)

    @property
    def timestamp_type(self) -> TimestampType:
        if self.attributes & TIMESTAMP_TYPE_MASK:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_MASK != 0

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a transaction marker or another control record of the broker, and no user data."""
        return self.attributes & CONTROL_MASK != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When its tombstones may be removed, if the cleaner set that in place of the base timestamp (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_MASK else None

    @property
    def last_offset_delta(self) -> int:
        return _INT32.unpack_from(self.buffer, LAST_OFFSET_DELTA_OFFSET)[0]

    @property
    def base_timestamp(self) -> int:
        """The timestamp to which the records' deltas are added."""
        return _INT64.unpack_from(self.buffer, BASE_TIMESTAMP_OFFSET)[0]

    @property
    def max_timestamp(self) -> int:
        return _INT64.unpack_from(self.buffer, MAX_TIMESTAMP_OFFSET)[0]

    @property
    def producer_id(self) -> int:
        return _INT64.unpack_from(self.buffer, PRODUCER_ID_OFFSET)[0]

    @property
    def producer_epoch(self) -> int:
        return _INT16.unpack_from(self.buffer, PRODUCER_EPOCH_OFFSET)[0]

    @property
    def base_sequence(self) -> int:
        return _INT32.unpack_from(self.buffer, BASE_SEQUENCE_OFFSET)[0]

    @property
    def last_sequence(self) -> int:
        base = self.base_sequence
        return NO_SEQUENCE if base == NO_SEQUENCE else increment_sequence(base, self.last_offset_delta)

    @property
    def count(self) -> int:
        """The number of records. After compaction it is smaller than the range of offsets."""
        return _INT32.unpack_from(self.buffer, RECORDS_COUNT_OFFSET)[0]

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    def set_base_offset(self, offset: int) -> None:
        """Move the batch to `offset`. The CRC stays valid."""
        _INT64.pack_into(self.buffer, 0, offset)

    def set_partition_leader_epoch(self, epoch: int) -> None:
        """Set the leader epoch. The CRC stays valid."""
        _INT32.pack_into(self.buffer, PARTITION_LEADER_EPOCH_OFFSET, epoch)

    def set_max_timestamp(self, timestamp_type: TimestampType, timestamp: int) -> None:
        """Set the timestamp type and the largest timestamp. With LOG_APPEND_TIME it applies to every record.

        Recomputes the CRC if anything changes. Raises CorruptRecordError if the batch is incomplete.
        """
        attributes = self.attributes & ~TIMESTAMP_TYPE_MASK
        if timestamp_type == TimestampType.LOG_APPEND_TIME:
            attributes |= TIMESTAMP_TYPE_MASK
        if attributes == self.attributes and timestamp == self.max_timestamp:
            return
        self._ensure_whole()
        _INT16.pack_into(self.buffer, ATTRIBUTES_OFFSET, attributes)
        _INT64.pack_into(self.buffer, MAX_TIMESTAMP_OFFSET, timestamp)
        _UINT32.pack_into(self.buffer, CRC_OFFSET, crc32c(self.buffer[ATTRIBUTES_OFFSET:]))

    def validate(self) -> None:
        """Raise CorruptRecordError if bytes are missing or the CRC does not match. Does not check the records."""
        self._ensure_whole()
        stored, computed = self.crc, crc32c(self.buffer[ATTRIBUTES_OFFSET:])
        if stored != computed:
            raise CorruptRecordError(
                f"the batch at offset {self.base_offset} is damaged: its CRC is {stored:#010x}, "
                f"but its bytes have {computed:#010x}"
            )

    def records(self, max_bytes: int = MAX_RECORDS_BYTES) -> RecordIterator:
        """Iterate over the records. Compressed records are decompressed here, into at most `max_bytes` bytes.

        Raises CorruptRecordError, here or from the iterator, if the bytes are not records, even if the CRC matches.
        Raises UnsupportedCompressionTypeError for an unknown codec. Any thread.
        """
        self._ensure_whole()
        data: bytes | bytearray | memoryview = self.buffer[RECORD_BATCH_OVERHEAD:]
        codec = self.compression
        if codec != Compression.NONE and len(data):
            data = decompress(codec, data, max_bytes)
        is_append_time = self.timestamp_type == TimestampType.LOG_APPEND_TIME
        append_time = self.max_timestamp if is_append_time else None
        return RecordIterator(data, self.count, self.base_offset, self.base_timestamp, append_time)

    def _ensure_whole(self) -> None:
        if len(self.buffer) < self.size_bytes:
            raise CorruptRecordError(
                f"the batch at offset {self.base_offset} has {self.size_bytes} bytes, only {len(self.buffer)} are here"
            )

    def __repr__(self) -> str:
        return (
            f"RecordBatch(offsets {self.base_offset} to {self.last_offset}, {self.count} records, "
            f"{self.size_bytes} bytes, attributes {self.attributes:#x}, producer {self.producer_id} epoch "
            f"{self.producer_epoch} sequence {self.base_sequence}, leader epoch {self.partition_leader_epoch})"
        )


def read_batches(buffer: bytes | bytearray | memoryview) -> Iterator[RecordBatch | LegacyBatch]:
    """Iterate over the batches of any format in a fetch response or a segment, up to the first incomplete one.

    They are views of the buffer. Raises CorruptRecordError at the first position that cannot be a batch. Does not check
    CRCs. Source: ``ByteBufferLogInputStream``.
    """
    from .legacy import LegacyBatch  # noqa: PLC0415 - a producer reads only batches that it wrote itself

    view = memoryview(buffer)
    position = 0
    while len(view) - position >= LOG_OVERHEAD:
        (length,) = _INT32.unpack_from(view, position + LENGTH_OFFSET)
        if length < LegacyBatch.MIN_LENGTH:
            raise CorruptRecordError(f"there is no batch at byte {position}: it would have a length of {length}")
        if len(view) - position <= MAGIC_OFFSET:
            return
        (magic,) = _INT8.unpack_from(view, position + MAGIC_OFFSET)
        if not 0 <= magic <= MAGIC_V2:
            raise CorruptRecordError(f"there is no batch at byte {position}: its format would be v{magic}")
        end = position + LOG_OVERHEAD + length
        if end > len(view):
            return
        yield RecordBatch(view[position:end]) if magic == MAGIC_V2 else LegacyBatch(view[position:end])
        position = end
