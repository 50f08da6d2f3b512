"""The header of a v2 batch as the broker reads it: one unpack per batch, no work per record."""

from __future__ import annotations

from typing import NamedTuple

from ...network.protocol.errors import CorruptRecordError, UnsupportedForMessageFormatError
from ...network.records.batch import (
    CONTROL_MASK,
    HEADER_LAYOUT,
    MAGIC_V2,
    TRANSACTIONAL_MASK,
)
from ...network.records.batch import RECORD_BATCH_OVERHEAD as HEADER_BYTES
from ...network.records.compression import COMPRESSION_MASK
from ...network.records.legacy import LegacyBatch
from ...network.records.record import LOG_OVERHEAD


class BatchHeader(NamedTuple):
    """All fields of a batch's header, in wire order (layout: `network.records.batch`)."""

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
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_MASK)


def read_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """Parse the header at `position`. At least 61 bytes must follow.

    Raises CorruptRecordError if the bytes can't be a batch, UnsupportedForMessageFormatError for v0 and v1. The caller
    checks the CRC and sizes beyond the buffer.
    """
    header = BatchHeader._make(HEADER_LAYOUT.unpack_from(buffer, position))
    if header.magic in (0, 1) and header.batch_length >= LegacyBatch.MIN_LENGTH:
        # Not damage, so recovery must not truncate it.
        raise UnsupportedForMessageFormatError(
            f"found a record of message format v{header.magic}, but this broker stores v2 only: let Kafka convert the "
            "topic (message.format.version of Kafka before 4.0)"
        )
    if header.magic != MAGIC_V2 or header.batch_length < HEADER_BYTES - LOG_OVERHEAD or header.last_offset_delta < 0:
        raise CorruptRecordError(
            f"not a record batch of format v2: magic {header.magic}, length {header.batch_length}, last offset "
            f"delta {header.last_offset_delta}"
        )
    return header
