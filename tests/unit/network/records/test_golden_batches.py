"""Batches written by other implementations decode to the records that were written.

The bytes are in golden/, next to the programs that wrote them with Apache Kafka's own classes and with librdkafka.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.network.records.batch import RecordBatch, read_batches, write_header
from headrace.network.records.compression import Compression
from headrace.network.records.legacy import LegacyBatch, build_message_set
from headrace.network.records.record import Record, TimestampType

BASE_OFFSET = 42
TIME_MS = 1_600_000_000_000
HEADERS = (("trace", b"\x00\x01"), ("empty", b""), ("none", None), ("поток", "вода".encode()))
#: (timestamp, key, value, headers) as the two programs in golden/ append them.
JAVA_RECORDS = [
    (TIME_MS, b"k0", b"v0", ()),
    (TIME_MS + 5, None, b"value", HEADERS),
    (TIME_MS - 3, b"", None, ()),
    (TIME_MS + 1_000_000, b"k3", b"water " * 50, ()),
]
LIBRDKAFKA_RECORDS = [JAVA_RECORDS[0], JAVA_RECORDS[1], (TIME_MS + 2, b"", None, ()), JAVA_RECORDS[3]]
LARGE_VALUE = b"headrace " * 16_000

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
LEGACY_CODECS = CODECS[:-1]


def golden(file: str) -> dict[str, bytes]:
    lines = Path(__file__).with_name("golden").joinpath(file).read_text().splitlines()
    return {name: bytes.fromhex(digits) for name, digits in map(str.split, lines)}


JAVA = golden("java_batches.txt")
LIBRDKAFKA = golden("librdkafka_batches.txt")


def only_batch(data: bytes) -> RecordBatch:
    (batch,) = read_batches(data)
    assert isinstance(batch, RecordBatch)
    return batch


def records_of(data: bytes) -> list[Record]:
    return [record for batch in read_batches(data) for record in batch.records()]


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_of_javas(codec: str):
    batch = only_batch(JAVA[f"v2-{codec}"])
    batch.validate()
    assert batch.compression == Compression[codec.upper()]
    assert list(batch.records()) == [Record(BASE_OFFSET + index, *fields) for index, fields in enumerate(JAVA_RECORDS)]


def test_the_header_of_a_batch_of_javas():
    batch = only_batch(JAVA["v2-none"])
    assert (batch.base_offset, batch.last_offset, batch.next_offset, batch.last_offset_delta) == (42, 45, 46, 3)
    assert (batch.magic, batch.size_bytes, batch.batch_length) == (2, 446, 434)
    assert (batch.count, batch.partition_leader_epoch) == (4, 7)
    assert (batch.producer_id, batch.producer_epoch) == (1000, 3)
    # sequence numbers wrap around: 2147483646, 2147483647, 0, 1
    assert (batch.base_sequence, batch.last_sequence) == (2147483646, 1)
    assert (batch.base_timestamp, batch.max_timestamp) == (TIME_MS, TIME_MS + 1_000_000)
    assert batch.timestamp_type == TimestampType.CREATE_TIME
    assert batch.is_transactional
    assert not batch.is_control
    assert batch.delete_horizon_ms is None


def test_the_header_of_a_batch_of_javas_is_written_the_same():
    expected = JAVA["v2-none"]
    buffer = bytearray(61) + expected[61:] + b"the buffer goes on"
    write_header(
        buffer,
        size=len(expected),
        base_offset=BASE_OFFSET,
        partition_leader_epoch=7,
        attributes=0x10,
        last_offset_delta=3,
        base_timestamp=TIME_MS,
        max_timestamp=TIME_MS + 1_000_000,
        producer_id=1000,
        producer_epoch=3,
        base_sequence=2147483646,
        count=4,
    )
    assert buffer == expected + b"the buffer goes on"


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_batch_of_javas_with_many_blocks(codec: str):
    batch = only_batch(JAVA[f"v2-{codec}-large"])
    batch.validate()
    assert list(batch.records()) == [Record(BASE_OFFSET, TIME_MS, None, LARGE_VALUE)]


def test_with_log_append_time_all_records_have_the_batchs_timestamp():
    batch = only_batch(JAVA["v2-gzip-append-time"])
    batch.validate()
    assert batch.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in batch.records()] == [TIME_MS + 77] * 4


def test_a_transaction_marker_is_a_control_batch():
    batch = only_batch(JAVA["v2-commit-marker"])
    batch.validate()
    assert batch.is_control
    assert batch.is_transactional
    (marker,) = batch.records()
    # version 0 and type 1, commit; version 0 and coordinator epoch 9
    assert (marker.key, marker.value) == (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x09")


def test_a_batch_whose_records_were_compacted_away_keeps_its_offsets():
    batch = only_batch(JAVA["v2-compacted-away"])
    batch.validate()
    assert (batch.base_offset, batch.last_offset, batch.count) == (42, 51, 0)
    assert list(batch.records()) == []


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_of_librdkafkas(codec: str):
    batch = only_batch(LIBRDKAFKA[codec])
    batch.validate()
    assert batch.compression == Compression[codec.upper()]
    assert list(batch.records()) == [Record(index, *fields) for index, fields in enumerate(LIBRDKAFKA_RECORDS)]


@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_set_of_javas(magic: int, codec: str):
    data = JAVA[f"v{magic}-{codec}"]
    for batch in read_batches(data):
        assert isinstance(batch, LegacyBatch)
        assert (batch.magic, batch.compression) == (magic, Compression[codec.upper()])
        batch.validate()
    assert records_of(data) == [
        Record(BASE_OFFSET + index, timestamp if magic else -1, key, value)
        for index, (timestamp, key, value, _) in enumerate(JAVA_RECORDS)
    ]


@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_set_of_javas_is_written_the_same(magic: int, codec: str):
    written = build_message_set(
        [fields[:3] for fields in JAVA_RECORDS],
        magic=magic,
        compression=Compression[codec.upper()],
        base_offset=BASE_OFFSET,
    )
    expected = JAVA[f"v{magic}-{codec}"]
    if codec == "gzip":
        # Java's gzip header names an unknown operating system, zlib's names this one, and the CRC covers it
        system = expected.index(b"\x1f\x8b\x08") + 9
        assert (written[:12], written[16:system], written[system + 1 :]) == (
            expected[:12],
            expected[16:system],
            expected[system + 1 :],
        )
    else:
        assert written == expected


def test_an_lz4_frame_of_format_v0_has_kafkas_wrong_checksum_and_many_blocks():
    (batch,) = read_batches(JAVA["v0-lz4-large"])
    assert list(batch.records()) == [Record(BASE_OFFSET, -1, None, LARGE_VALUE)]


def test_in_a_message_set_with_log_append_time_all_records_have_the_wrappers_timestamp():
    (batch,) = read_batches(JAVA["v1-gzip-append-time"])
    assert (batch.timestamp_type, batch.max_timestamp) == (TimestampType.LOG_APPEND_TIME, TIME_MS + 77)
    assert [(record.offset, record.timestamp) for record in batch.records()] == [
        (offset, TIME_MS + 77) for offset in range(42, 46)
    ]


def test_all_formats_are_read_from_one_buffer():
    names = ["v0-none", "v2-lz4", "v1-snappy", "v2-commit-marker", "v0-gzip", "v1-none"]
    data = b"".join(JAVA[name] for name in names)
    assert records_of(data) == [record for name in names for record in records_of(JAVA[name])]
