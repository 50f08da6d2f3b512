"""The view of a v2 batch: what a broker changes in place, and bytes that are no batch."""

from __future__ import annotations

import struct

import pytest

from headrace.network.protocol.errors import CorruptRecordError, UnsupportedCompressionTypeError
from headrace.network.records.batch import RecordBatch, increment_sequence, read_batches, write_header
from headrace.network.records.crc import crc32c
from headrace.network.records.legacy import build_message_set
from headrace.network.records.record import Record, TimestampType

#: Size 10, attributes, timestamp delta 0, offset delta 0, key "k", value "val", no headers.
RECORD = bytes.fromhex("14 00 00 00 02 6b 06 76616c 00")
NEXT_RECORD = bytes.fromhex("14 00 04 02 02 6c 06 76616c 00")


def a_batch(records: bytes = RECORD + NEXT_RECORD, count: int = 2, attributes: int = 0) -> bytearray:
    buffer = bytearray(61) + records
    write_header(
        buffer,
        size=len(buffer),
        base_offset=100,
        partition_leader_epoch=-1,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp=5_000,
        max_timestamp=5_002,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        count=count,
    )
    return buffer


def test_write_header_leaves_a_buffer_that_can_grow():
    buffer = a_batch()
    buffer += b"more"
    assert buffer.endswith(b"more")


def test_write_header_refuses_a_value_that_does_not_fit():
    with pytest.raises(struct.error):
        a_batch(count=1 << 31)


def test_the_crc_covers_the_bytes_from_the_attributes_to_the_size_given():
    buffer = a_batch()
    assert struct.unpack_from(">I", buffer, 17) == (crc32c(buffer[21:]),)
    # the check value of CRC-32C
    assert crc32c(b"123456789") == 0xE3069283


def test_records_come_in_order_and_outlive_the_buffer():
    buffer = a_batch()
    records = list(RecordBatch(buffer).records())
    buffer[:] = bytes(len(buffer))
    assert records == [Record(100, 5_000, b"k", b"val"), Record(101, 5_002, b"l", b"val")]


def test_a_view_ends_where_its_batch_does():
    batch = RecordBatch(a_batch() + b"\xff" * 10)
    batch.validate()
    assert len(batch.buffer) == batch.size_bytes
    assert len(list(batch.records())) == 2


def test_the_broker_assigns_offset_and_epoch_without_touching_the_crc():
    buffer = a_batch()
    batch = RecordBatch(buffer)
    crc = batch.crc
    batch.set_base_offset(7_000_000_000)
    batch.set_partition_leader_epoch(12)
    assert (batch.base_offset, batch.next_offset, batch.partition_leader_epoch) == (7_000_000_000, 7_000_000_002, 12)
    assert batch.crc == crc
    batch.validate()
    assert [record.offset for record in RecordBatch(buffer).records()] == [7_000_000_000, 7_000_000_001]


def test_log_append_time_replaces_all_timestamps_and_the_crc():
    buffer = a_batch(attributes=0x10)
    batch = RecordBatch(buffer)
    crc = batch.crc
    batch.set_max_timestamp(TimestampType.LOG_APPEND_TIME, 9_000)
    assert batch.crc != crc
    batch.validate()
    assert (batch.timestamp_type, batch.max_timestamp) == (TimestampType.LOG_APPEND_TIME, 9_000)
    assert batch.is_transactional
    assert [record.timestamp for record in batch.records()] == [9_000, 9_000]
    batch.set_max_timestamp(TimestampType.CREATE_TIME, 5_002)
    assert bytes(buffer) == bytes(a_batch(attributes=0x10))


def test_the_same_timestamp_again_changes_nothing():
    buffer = a_batch()
    struct.pack_into(">I", buffer, 17, 1)  # a wrong CRC, which a recomputation would correct
    RecordBatch(buffer).set_max_timestamp(TimestampType.CREATE_TIME, 5_002)
    assert RecordBatch(buffer).crc == 1


def test_the_delete_horizon_takes_the_place_of_the_base_timestamp():
    batch = RecordBatch(a_batch(attributes=0x40))
    assert batch.delete_horizon_ms == 5_000


def test_a_header_alone_can_be_read_but_holds_no_records():
    buffer = a_batch()
    batch = RecordBatch(bytearray(buffer[:61]))
    assert (batch.last_offset, batch.count, batch.size_bytes) == (101, 2, len(buffer))
    for needs_all in (batch.validate, batch.records, lambda: batch.set_max_timestamp(TimestampType.LOG_APPEND_TIME, 1)):
        with pytest.raises(CorruptRecordError, match=f"has {len(buffer)} bytes, only 61 are here"):
            needs_all()


def test_a_changed_byte_fails_the_crc():
    buffer = a_batch()
    buffer[-2] ^= 1
    with pytest.raises(CorruptRecordError, match=r"offset 100 is damaged: its CRC is 0x[0-9a-f]{8}, but its bytes"):
        RecordBatch(buffer).validate()


def test_too_few_bytes_are_no_batch():
    with pytest.raises(CorruptRecordError, match="at least 61 bytes, not 60"):
        RecordBatch(a_batch()[:60])


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_another_magic_is_no_v2_batch(magic: int):
    buffer = a_batch()
    buffer[16] = magic
    with pytest.raises(CorruptRecordError, match=f"its magic is {magic}"):
        RecordBatch(buffer)


@pytest.mark.parametrize("length", [48, 0, -1, -(1 << 31)])
def test_a_length_below_the_headers_is_no_batch(length: int):
    buffer = a_batch()
    struct.pack_into(">i", buffer, 8, length)
    with pytest.raises(CorruptRecordError, match=f"claims {length + 12} bytes"):
        RecordBatch(buffer)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_named(codec: int):
    with pytest.raises(UnsupportedCompressionTypeError, match=f"codec {codec}"):
        RecordBatch(a_batch(attributes=codec)).records()


def test_compressed_records_may_swell_to_the_limit_only():
    values = b"".join((RECORD, NEXT_RECORD))
    buffer = a_batch(records=bytes([len(values), (len(values) - 1) << 2]) + values, attributes=2)  # one snappy literal
    batch = RecordBatch(buffer)
    assert len(list(batch.records(max_bytes=len(values)))) == 2
    with pytest.raises(CorruptRecordError, match=f"larger than the {len(values) - 1} bytes allowed"):
        batch.records(max_bytes=len(values) - 1)


def test_sequence_numbers_go_around_after_two_to_the_31():
    assert increment_sequence(5, 3) == 8
    assert increment_sequence(2147483647, 0) == 2147483647
    assert increment_sequence(2147483647, 1) == 0
    assert increment_sequence(2147483640, 2147483647) == 2147483639


def test_batches_are_read_up_to_the_first_that_is_cut_off():
    first, second = bytes(a_batch()), bytes(a_batch(records=RECORD, count=1))
    for cut in range(len(second)):
        counts = [batch.count for batch in read_batches(first + second[:cut])]
        assert counts == [2]
    assert [batch.count for batch in read_batches(first + second)] == [2, 1]


def test_no_bytes_are_no_batches():
    assert list(read_batches(b"")) == []


def test_a_message_of_the_smallest_size_is_read():
    data = build_message_set([(-1, None, None)], magic=0)
    assert len(data) == 12 + 14
    assert [record for batch in read_batches(data) for record in batch.records()] == [Record(0, -1, None, None)]


def test_zeros_after_the_batches_are_an_error():
    batches = read_batches(a_batch() + bytes(64))
    next(batches)
    with pytest.raises(CorruptRecordError, match=r"no batch at byte 83: it would have a length of 0"):
        next(batches)


@pytest.mark.parametrize("magic", [3, 127, 255])
def test_an_unknown_format_is_an_error(magic: int):
    buffer = a_batch()
    buffer[16] = magic
    with pytest.raises(CorruptRecordError, match="no batch at byte 0: its format would be"):
        next(read_batches(buffer))
