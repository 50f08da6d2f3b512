"""The checks of a batch before it is appended (Kafka's `LogValidator`).

The CRC covers every record, so a batch that passes it has the bytes that its producer wrote. Uncompressed records are
also checked by their sizes. Records are parsed only if the topic's configuration requires it. Kafka parses every
record, after decompression if need be; that would cost more than the rest of the broker's produce path.
"""

from __future__ import annotations

from ...network.protocol.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageSizeTooLargeError,
)
from ...network.records.batch import ATTRIBUTES_OFFSET, RecordBatch, write_header
from ...network.records.compression import COMPRESSION_MASK, Compression, compress, decompress
from ...network.records.crc import crc32c
from ...network.records.record import MAX_RECORDS_BYTES, TIMESTAMP_UNKNOWN, TimestampType
from ..config.topic_config import TopicConfig
from .batch_header import HEADER_BYTES, BatchHeader, read_header

_CODECS = frozenset(Compression)


class RejectedRecords:
    """Base of the errors for a batch rejected because of some records. `indexes` are their indexes (KIP-467)."""

    indexes: list[int]


class RecordsOutOfTimeError(RejectedRecords, InvalidTimestampError):
    """A batch was rejected because of the timestamps of some records."""

    def __init__(self, indexes: list[int], earliest_ms: int, latest_ms: int) -> None:
        super().__init__(
            f"the topic accepts timestamps from {earliest_ms} to {latest_ms} only (message.timestamp.before.max.ms, "
            "message.timestamp.after.max.ms)"
        )
        self.indexes = indexes


class RecordsWithoutKeyError(RejectedRecords, InvalidRecordError):
    """A batch was rejected because some records have no key."""

    def __init__(self, indexes: list[int]) -> None:
        super().__init__("a compacted topic accepts no record without a key")
        self.indexes = indexes


def check_client_batch(records: memoryview, config: TopicConfig, wall_ms: int) -> BatchHeader:
    """Check the single batch that a producer sent for a partition. Returns its header.

    Needs no lock; the CRC is computed with the GIL released. Raises InvalidRecordError, CorruptRecordError,
    MessageSizeTooLargeError, InvalidTimestampError, UnsupportedForMessageFormatError.
    """
    size_bytes = len(records)
    if size_bytes < HEADER_BYTES:
        raise InvalidRecordError(f"a record batch has at least {HEADER_BYTES} bytes, not {size_bytes}")
    header = read_header(records)
    if header.size_bytes != size_bytes:
        if header.size_bytes < size_bytes:
            raise InvalidRecordError("a producer sends exactly one batch per partition; more bytes follow the first")
        raise InvalidRecordError(f"the batch's header says {header.size_bytes} bytes, but {size_bytes} were sent")
    if size_bytes > config.max_message_bytes:
        raise MessageSizeTooLargeError(
            f"the batch has {size_bytes} bytes, but the topic accepts at most {config.max_message_bytes} "
            "(max.message.bytes)"
        )
    if header.crc != crc32c(records[ATTRIBUTES_OFFSET:]):
        raise CorruptRecordError(f"the batch's CRC is not {header.crc:#010x}: it was damaged in transit")
    if header.base_offset != 0:
        raise InvalidRecordError(f"a producer's batch has base offset 0, not {header.base_offset}")
    if header.is_control:
        raise InvalidRecordError("clients can't write control batches")
    if header.count <= 0 or header.count != header.last_offset_delta + 1:
        raise InvalidRecordError(f"{header.count} records can't end at offset delta {header.last_offset_delta}")
    if header.compression not in _CODECS:
        raise InvalidRecordError(f"unknown compression codec {header.compression}")
    if header.is_transactional and header.producer_id < 0:
        raise InvalidRecordError("a batch in a transaction has a producer id")
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise InvalidRecordError(
            f"producer {header.producer_id} has no epoch or sequence: {header.producer_epoch}, {header.base_sequence}"
        )
    if header.compression == Compression.NONE:
        try:
            RecordBatch(records).records().check_sizes()
        except CorruptRecordError as damaged:
            raise InvalidRecordError(str(damaged)) from None
    if config.message_timestamp_type == "CreateTime":
        _check_timestamps(records, header, config, wall_ms)
    if config.is_compacted:
        without_key = [at for at, record in enumerate(RecordBatch(records).records()) if record.key is None]
        if without_key:
            raise RecordsWithoutKeyError(without_key)
    return header


def recompressed(batch: memoryview, header: BatchHeader, config: TopicConfig) -> tuple[memoryview, BatchHeader]:
    """Recompress a valid batch with its topic's codec (`compression.type`), if it differs. Returns batch and header.

    Raises CorruptRecordError, MessageSizeTooLargeError.
    """
    codec = config.codec
    if codec is None or codec == header.compression:
        return batch, header
    plain = decompress(Compression(header.compression), batch[HEADER_BYTES:], MAX_RECORDS_BYTES)
    buffer = bytearray(HEADER_BYTES) + compress(codec, plain, config.codec_level)
    if len(buffer) > config.max_message_bytes:
        raise MessageSizeTooLargeError(
            f"with {codec.label} the batch has {len(buffer)} bytes, but the topic accepts at most "
            f"{config.max_message_bytes} "
            "(max.message.bytes)"
        )
    write_header(
        buffer,
        size=len(buffer),
        base_offset=header.base_offset,
        partition_leader_epoch=header.partition_leader_epoch,
        attributes=header.attributes & ~COMPRESSION_MASK | codec,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        count=header.count,
    )
    return memoryview(buffer), read_header(buffer)


def _check_timestamps(records: memoryview, header: BatchHeader, config: TopicConfig, wall_ms: int) -> None:
    """Raise RecordsOutOfTimeError unless the topic accepts the timestamps of all records.

    Records are parsed only if the header does not suffice: it has the largest timestamp, but not the smallest.
    """
    earliest_ms = wall_ms - config.message_timestamp_before_max_ms
    latest_ms = wall_ms + config.message_timestamp_after_max_ms
    if earliest_ms <= 0 and header.max_timestamp <= latest_ms:
        return
    out_of_time = [
        at
        for at, record in enumerate(RecordBatch(records).records())
        if record.timestamp != TIMESTAMP_UNKNOWN and not earliest_ms <= record.timestamp <= latest_ms
    ]
    if out_of_time:
        raise RecordsOutOfTimeError(out_of_time, earliest_ms, latest_ms)


def assign(
    batch: memoryview, header: BatchHeader, first_offset: int, leader_epoch: int, append_time: int
) -> BatchHeader:
    """Set the fields that the leader decides: offset, epoch and, unless `append_time` is -1, the timestamp."""
    view = RecordBatch(batch)
    view.set_base_offset(first_offset)
    view.set_partition_leader_epoch(leader_epoch)
    if append_time == TIMESTAMP_UNKNOWN:
        return header._replace(base_offset=first_offset, partition_leader_epoch=leader_epoch)
    view.set_max_timestamp(TimestampType.LOG_APPEND_TIME, append_time)
    return read_header(batch)


def check_replicated_batches(records: memoryview) -> tuple[list[BatchHeader], int]:
    """Check the whole batches that a leader sent. Returns their headers and total size. Raises CorruptRecordError."""
    headers: list[BatchHeader] = []
    position, size_bytes = 0, len(records)
    while size_bytes - position >= HEADER_BYTES:
        header = read_header(records, position)
        end = position + header.size_bytes
        if end > size_bytes:
            break
        if header.crc != crc32c(records[position + ATTRIBUTES_OFFSET : end]):
            raise CorruptRecordError(
                f"the CRC of the batch at offset {header.base_offset} doesn't match what the leader sent"
            )
        headers.append(header)
        position = end
    return headers, position
