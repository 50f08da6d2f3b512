"""Records survive another implementation's writer with this reader, and this writer with the other's reader."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from headrace.network import _build
from headrace.network.records import reader_cy
from headrace.network.records.batch import RecordBatch, read_batches, write_header
from headrace.network.records.compression import Compression, compress, decompress, has_lz4_levels
from headrace.network.records.legacy import build_message_set
from headrace.network.records.record import Record

INTERPRETED = _build.interpreted("headrace.network.records.reader_cy")

# Sizes around the steps of varints matter more than long ones: the codecs have their own samples.
payloads = st.none() | st.binary(max_size=40) | st.sampled_from([63, 64, 8191, 8192]).map(bytes)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=80)), max_size=4)
timestamps = st.integers(min_value=-(1 << 61), max_value=1 << 61)
records = st.lists(st.tuples(timestamps, payloads, payloads, headers), min_size=1, max_size=20)
dated = st.integers(min_value=0, max_value=(1 << 63) - 1)
plain_records = st.lists(st.tuples(dated, payloads, payloads), min_size=1, max_size=20)


def batch_of_kafka_python(fields: list, codec: Compression) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 30)
    for offset, (timestamp, key, value, pairs) in enumerate(fields):
        builder.append(offset, timestamp, key, value, pairs)
    return bytes(builder.build())


def expected(fields: list) -> list[Record]:
    return [Record(offset, each[0], each[1], each[2], tuple(each[3])) for offset, each in enumerate(fields)]


@given(records)
@settings(deadline=None)
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_batches_of_kafka_pythons(codec: Compression, fields: list):
    batch = RecordBatch(batch_of_kafka_python(fields, codec))
    batch.validate()
    assert list(batch.records()) == expected(fields)
    assert batch.count == len(fields)
    assert batch.max_timestamp == max(each[0] for each in fields)


@given(records)
@settings(deadline=None)
def test_the_interpreted_reader_reads_the_same(fields: list):
    data = batch_of_kafka_python(fields, Compression.NONE)[61:]
    arguments = (data, len(fields), 0, fields[0][0], None)
    assert list(INTERPRETED.RecordIterator(*arguments)) == list(reader_cy.RecordIterator(*arguments))


@given(records, st.sampled_from(list(Compression)), st.integers(0, 1 << 40), st.integers(-1, 1 << 20))
@settings(deadline=None)
def test_batches_with_our_header_and_codec(fields: list, codec: Compression, base_offset: int, epoch: int):
    source = RecordBatch(batch_of_kafka_python(fields, Compression.NONE))
    buffer = bytearray(61) + compress(codec, source.buffer[61:])
    write_header(
        buffer,
        size=len(buffer),
        base_offset=base_offset,
        partition_leader_epoch=epoch,
        attributes=codec,
        last_offset_delta=source.last_offset_delta,
        base_timestamp=source.base_timestamp,
        max_timestamp=source.max_timestamp,
        producer_id=source.producer_id,
        producer_epoch=source.producer_epoch,
        base_sequence=source.base_sequence,
        count=source.count,
    )
    (batch,) = read_batches(buffer)
    batch.validate()
    assert batch.partition_leader_epoch == epoch
    assert [record._replace(offset=record.offset - base_offset) for record in batch.records()] == expected(fields)


@given(plain_records, st.integers(0, 1 << 40))
@settings(deadline=None)
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_kafka_python_reads_message_sets(magic: int, codec: Compression, fields: list, base_offset: int):
    data = build_message_set(fields, magic=magic, compression=codec, base_offset=base_offset)
    read = MemoryRecords(data)
    found = []
    while (batch := read.next_batch()) is not None:
        assert batch.validate_crc()
        found += [(record.offset, record.timestamp, record.key, record.value) for record in batch]
    assert found == [
        (base_offset + index, timestamp if magic else None, key, value)
        for index, (timestamp, key, value) in enumerate(fields)
    ]


@given(plain_records)
@settings(deadline=None)
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_message_sets_of_kafka_pythons(magic: int, codec: Compression, fields: list):
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 30)
    for offset, (timestamp, key, value) in enumerate(fields):
        builder.append(offset, timestamp, key, value)
    found = []
    for batch in read_batches(bytes(builder.build())):
        batch.validate()
        found += batch.records()
    assert found == [
        Record(index, timestamp if magic else -1, key, value) for index, (timestamp, key, value) in enumerate(fields)
    ]


@given(plain_records, st.integers(0, 1 << 40), st.sampled_from([0, 1]))
@settings(deadline=None)
@pytest.mark.parametrize("codec", [codec for codec in Compression if codec != Compression.ZSTD])
def test_message_sets_of_every_codec(codec: Compression, fields: list, base_offset: int, magic: int):
    data = build_message_set(fields, magic=magic, compression=codec, base_offset=base_offset)
    assert [record for batch in read_batches(data) for record in batch.records()] == [
        Record(base_offset + index, timestamp if magic else -1, key, value)
        for index, (timestamp, key, value) in enumerate(fields)
    ]


@given(st.data())
@settings(deadline=None)
@pytest.mark.parametrize("codec", list(Compression))
def test_any_bytes_at_any_level(codec: Compression, data: st.DataObject):
    pieces = data.draw(st.lists(st.tuples(st.binary(max_size=20), st.integers(1, 9000)), max_size=4))
    content = b"".join(piece * times for piece, times in pieces)
    levels = codec.levels
    level = data.draw(st.none() | st.integers(max(levels.minimum, -9), min(levels.maximum, 9))) if levels else None
    if levels and (level not in levels or (codec == Compression.LZ4 and not has_lz4_levels())):
        level = None
    assert decompress(codec, compress(codec, content, level), len(content)) == content
