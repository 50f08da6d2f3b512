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
    61     records, compressed as one block if the attributes say so
"""

from __future__ import annotations

import struct

from .crc import crc32c

#: Bytes of the base offset and the length, which stand before every batch of any format.
LOG_OVERHEAD = 12
MAGIC_V2 = 2
LENGTH_OFFSET = 8
PARTITION_LEADER_EPOCH_OFFSET = 12
MAGIC_OFFSET = 16
CRC_OFFSET = 17
ATTRIBUTES_OFFSET = 21
LAST_OFFSET_DELTA_OFFSET = 23
BASE_TIMESTAMP_OFFSET = 27
MAX_TIMESTAMP_OFFSET = 35
PRODUCER_ID_OFFSET = 43
PRODUCER_EPOCH_OFFSET = 51
BASE_SEQUENCE_OFFSET = 53
RECORDS_COUNT_OFFSET = 57
#: Bytes of the header: where the records of a batch begin.
RECORD_BATCH_OVERHEAD = 61

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40

#: The timestamp of records that have none, and of a batch without records.
TIMESTAMP_UNKNOWN = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
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
    """Fill the header of a v2 batch whose records already stand in ``buffer[61:size]``, and set its CRC.

    `size` is the whole batch in bytes; the buffer may be longer. Timestamps are milliseconds since 1970.
    Runs on any thread that owns the buffer; `struct.error` if a value doesn't fit into its field.
    Source: ``DefaultRecordBatch.writeHeader``.
    """
    _HEADER.pack_into(
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
    _UINT32.pack_into(buffer, CRC_OFFSET, crc32c(memoryview(buffer)[ATTRIBUTES_OFFSET:size]))
