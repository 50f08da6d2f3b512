"""Message formats v0 and v1: wrappers, their offsets, and damage inside and outside them."""

from __future__ import annotations

import struct
import zlib

import pytest

from headrace.network.protocol.errors import (
    CorruptRecordError,
    EncodeError,
    KafkaConfigurationError,
    UnsupportedCompressionTypeError,
)
from headrace.network.records.compression import Compression, compress
from headrace.network.records.legacy import LegacyBatch, build_message_set
from headrace.network.records.record import Record, TimestampType

RECORDS = [(5_000, b"k", b"one"), (5_001, None, b"two"), (4_999, b"", None)]


def message(body: bytes, offset: int = 0, crc: int | None = None) -> bytes:
    """A message around the bytes that its CRC covers."""
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body) if crc is None else crc) + body


def body(magic: int, attributes: int, key: bytes | None, value: bytes | None, timestamp: int = 5_000) -> bytes:
    out = struct.pack(">bbq", magic, attributes, timestamp) if magic else struct.pack(">bb", magic, attributes)
    for part in (key, value):
        out += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return out


def wrapper(inside: bytes, offset: int = 0, magic: int = 1, attributes: int = 1) -> LegacyBatch:
    value = compress(Compression(attributes & 7), inside, magic=magic)
    return LegacyBatch(message(body(magic, attributes, None, value), offset))


def test_golden_bytes_of_format_v0():
    data = build_message_set([(5_000, b"key", b"value")], magic=0, base_offset=7)
    # offset, size, CRC, magic and attributes, key, value; as written by kafka-python 3.0.12
    assert data.hex() == "0000000000000007000000162356c1370000000000036b65790000000576616c7565"
    assert list(LegacyBatch(data).records()) == [Record(7, -1, b"key", b"value")]


def test_golden_bytes_of_format_v1():
    data = build_message_set([(5_000, None, b"value")], magic=1, base_offset=7)
    assert data.hex() == "00000000000000070000001b77f54d9501000000000000001388ffffffff0000000576616c7565"
    assert list(LegacyBatch(data).records()) == [Record(7, 5_000, None, b"value")]


def test_a_message_answers_what_a_batch_answers():
    batch = LegacyBatch(build_message_set(RECORDS[:1], magic=1, base_offset=7) + b"more")
    assert (batch.base_offset, batch.last_offset, batch.next_offset, batch.count) == (7, 7, 8, 1)
    assert (batch.magic, batch.attributes, batch.size_bytes) == (1, 0, len(batch.buffer))
    assert (batch.compression, batch.timestamp_type) == (Compression.NONE, TimestampType.CREATE_TIME)
    assert batch.max_timestamp == 5_000
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (-1, -1, -1, -1)
    assert (batch.partition_leader_epoch, batch.delete_horizon_ms) == (-1, None)
    assert not batch.is_transactional
    assert not batch.is_control


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_tells_its_first_offset_but_not_how_many_it_holds(magic: int):
    data = build_message_set(RECORDS, magic=magic, compression=Compression.GZIP, base_offset=100)
    batch = LegacyBatch(data)
    assert (batch.base_offset, batch.last_offset, batch.next_offset, batch.count) == (100, 102, 103, None)
    assert batch.max_timestamp == (5_001 if magic else -1)
    assert batch.timestamp_type == (TimestampType.CREATE_TIME if magic else TimestampType.NO_TIMESTAMP_TYPE)


def test_a_wrapper_that_a_broker_moved_moves_what_is_in_it():
    data = bytearray(build_message_set(RECORDS, magic=1, compression=Compression.LZ4))
    struct.pack_into(">q", data, 0, 1_000_002)
    batch = LegacyBatch(data)
    batch.validate()
    assert [record.offset for record in batch.records()] == [1_000_000, 1_000_001, 1_000_002]


def test_a_wrapper_of_librdkafkas_at_offset_zero_keeps_the_offsets_in_it():
    inside = build_message_set(RECORDS, magic=1, base_offset=0)
    assert [record.offset for record in wrapper(inside, offset=0).records()] == [0, 1, 2]


def test_after_compaction_the_offsets_in_a_wrapper_have_gaps():
    inside = message(body(1, 0, b"a", b"1"), 0) + message(body(1, 0, b"b", b"2"), 7)
    assert [record.offset for record in wrapper(inside, offset=107).records()] == [100, 107]


def test_a_message_of_format_v0_in_a_wrapper_of_v1_has_no_timestamp():
    inside = message(body(0, 0, b"a", b"1"), 0) + message(body(1, 0, b"b", b"2", timestamp=6), 1)
    records = list(wrapper(inside, offset=11, attributes=1 | 8).records())
    # log-append time: the wrapper's 5000, for the message whose format has a timestamp
    assert [(record.offset, record.timestamp) for record in records] == [(10, -1), (11, 5_000)]


@pytest.mark.parametrize("magic", [0, 1])
def test_no_records_are_no_bytes(magic: int):
    assert build_message_set([], magic=magic) == b""
    assert build_message_set([], magic=magic, compression=Compression.GZIP) == b""


def test_what_can_not_be_written():
    with pytest.raises(EncodeError, match="not v2"):
        build_message_set(RECORDS, magic=2)
    with pytest.raises(UnsupportedCompressionTypeError, match="does not support zstd"):
        build_message_set(RECORDS, magic=1, compression=Compression.ZSTD)
    with pytest.raises(EncodeError, match="milliseconds since 1970, or -1 for none, not -2"):
        build_message_set([(-2, None, b"")], magic=1)
    with pytest.raises(EncodeError, match="doesn't fit into message format v1"):
        build_message_set([(1 << 63, None, b"")], magic=1)
    with pytest.raises(KafkaConfigurationError, match="level 99"):
        build_message_set(RECORDS, magic=1, compression=Compression.GZIP, level=99)


def test_a_changed_byte_fails_the_crc():
    data = bytearray(build_message_set(RECORDS[:1], magic=1, base_offset=7))
    LegacyBatch(data).validate()
    data[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="message at offset 7 is damaged: its CRC"):
        LegacyBatch(data).validate()


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_needs_its_fixed_fields_and_all_its_bytes(magic: int):
    data = build_message_set([(1, None, None)], magic=magic)
    for cut in range(len(data)):
        with pytest.raises(CorruptRecordError, match="here"):
            LegacyBatch(data[:cut])
    struct.pack_into(">i", smaller := bytearray(data), 8, len(data) - 13)
    with pytest.raises(CorruptRecordError, match=f"claims {len(data) - 1} bytes; it needs {len(data)}"):
        LegacyBatch(smaller)


def test_another_magic_is_no_message():
    data = bytearray(build_message_set(RECORDS[:1], magic=1))
    data[16] = 2
    with pytest.raises(CorruptRecordError, match="its magic is 2"):
        LegacyBatch(data)


@pytest.mark.parametrize("size", [-2, 100, (1 << 31) - 1])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_key_or_a_value_beyond_the_message(magic: int, size: int):
    at = 26 if magic else 18
    data = bytearray(build_message_set([(1, b"key", b"value")], magic=magic))
    struct.pack_into(">i", data, at, size)
    with pytest.raises(CorruptRecordError, match=f"its key has size {size}, and 12 bytes are left"):
        LegacyBatch(data).records()
    data = bytearray(build_message_set([(1, b"key", b"value")], magic=magic))
    struct.pack_into(">i", data, at + 7, size)
    with pytest.raises(CorruptRecordError, match=f"its value has size {size}, and 5 bytes are left"):
        LegacyBatch(data).records()


def test_a_key_that_leaves_no_room_for_the_values_size():
    data = LegacyBatch(message(struct.pack(">bbi", 0, 0, 4) + bytes(4) + b"xx"))
    with pytest.raises(CorruptRecordError, match="its value has size 0, and -2 bytes are left"):
        data.records()


def test_bytes_after_the_value():
    with pytest.raises(CorruptRecordError, match="3 bytes follow its value"):
        LegacyBatch(message(body(1, 0, b"k", b"v") + b"xyz")).records()


def test_a_wrapper_without_messages():
    with pytest.raises(CorruptRecordError, match="has no messages in it"):
        LegacyBatch(message(body(1, 1, None, None))).records()
    with pytest.raises(CorruptRecordError, match="has no messages in it"):
        wrapper(b"").records()


def test_a_wrapper_in_a_wrapper():
    inner = build_message_set(RECORDS, magic=1, compression=Compression.GZIP)
    with pytest.raises(CorruptRecordError, match="is compressed again"):
        list(wrapper(inner, offset=2).records())


def test_a_wrapper_before_the_messages_in_it():
    inside = message(body(1, 0, None, b""), 9)
    with pytest.raises(CorruptRecordError, match="offset 8 is damaged: the last message in it is at 9 after the first"):
        wrapper(inside, offset=8).records()


def test_a_cut_off_message_in_a_wrapper():
    inside = build_message_set(RECORDS, magic=1)
    for cut in (1, 12, len(inside) - 1):
        with pytest.raises(CorruptRecordError, match="here"):
            wrapper(inside[:-cut]).records()


def test_a_message_of_format_v2_in_a_wrapper():
    with pytest.raises(CorruptRecordError, match="its magic is 2"):
        wrapper(message(body(2, 0, None, b""))).records()


def test_a_damaged_message_in_a_wrapper():
    batch = wrapper(message(body(1, 0, None, b"fine"), 0) + message(body(1, 0, None, b"not"), 1, crc=1), offset=1)
    records = batch.records()
    assert next(records).value == b"fine"
    with pytest.raises(CorruptRecordError, match="message at offset 1 is damaged: its CRC is 0x00000001"):
        next(records)


@pytest.mark.parametrize(("attributes", "reason"), [(4, "does not support zstd"), (5, "codec 5")])
def test_a_codec_that_the_format_can_not_have(attributes: int, reason: str):
    batch = LegacyBatch(message(body(1, attributes, None, b"x")))
    with pytest.raises(UnsupportedCompressionTypeError, match=reason):
        batch.records()


def test_a_wrapper_may_swell_to_the_limit_only():
    inside = build_message_set(RECORDS, magic=1)
    batch = wrapper(inside, offset=2)
    assert len(list(batch.records(max_bytes=len(inside)))) == 3
    with pytest.raises(CorruptRecordError, match=f"larger than the {len(inside) - 1} bytes allowed"):
        batch.records(max_bytes=len(inside) - 1)
