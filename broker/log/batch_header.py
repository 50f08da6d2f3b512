"""The header of a v2 batch as the broker reads it: one unpack a batch, nothing a record."""

from __future__ import annotations

import struct
from typing import NamedTuple

from ...network.protocol.errors import CorruptRecordError, UnsupportedForMessageFormatError

HEADER_BYTES = 61
LOG_OVERHEAD_BYTES = 12
#: CRC, magic, attributes, two lengths: the least a message of format v0 has.
LEGACY_OVERHEAD_BYTES = 14
_LAYOUT = struct.Struct(">qiibIhiqqqhii")


class BatchHeader(NamedTuple):
    """All fields of a batch's header, in the order of the wire (layout: `network.records.batch`)."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # pyright: ignore[reportIncompatibleMethodOverride]  (a field hides tuple.count)

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        return self.attributes & 0x07

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & 0x10)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & 0x20)


def read_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """The header at `position`, which has at least 61 bytes after it.

    Raises CorruptRecordError where no batch can stand there, UnsupportedForMessageFormatError for v0 and v1. Sizes
    beyond the buffer and the CRC are for the caller.
    """
    header = BatchHeader._make(_LAYOUT.unpack_from(buffer, position))
    if header.magic in (0, 1) and header.batch_length >= LEGACY_OVERHEAD_BYTES:
        # Not damage, so recovery must not cut it away.
        raise UnsupportedForMessageFormatError(
            f"there is a record of message format v{header.magic} at byte {position}; this broker keeps v2 only: "
            "let Kafka convert the topic (message.format.version of Kafka before 4.0)"
        )
    if header.magic != 2 or header.batch_length < HEADER_BYTES - LOG_OVERHEAD_BYTES or header.last_offset_delta < 0:
        raise CorruptRecordError(
            f"no record batch of format v2 at byte {position}: magic {header.magic}, length {header.batch_length}, "
            f"last offset delta {header.last_offset_delta}"
        )
    return header
