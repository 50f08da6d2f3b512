"""Reading a damaged batch gives records or a typed error; with the original CRC, always an error.

The CRC is also recomputed after the damage, so that the parsers behind it see what it would have caught.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder

from headrace.network import _build
from headrace.network.protocol.errors import CorruptRecordError, UnsupportedCompressionTypeError
from headrace.network.records import reader_cy
from headrace.network.records.batch import RecordBatch, read_batches, write_header
from headrace.network.records.compression import Compression, compress, decompress
from headrace.network.records.crc import crc32c
from headrace.network.records.legacy import LegacyBatch, build_message_set

INTERPRETED = _build.interpreted("headrace.network.records.reader_cy")
TYPED = (CorruptRecordError, UnsupportedCompressionTypeError)
MAX_BYTES = 1 << 20

TIME_MS = 1_600_000_000_000


def some_records() -> bytes:
    """Three records: one with headers, one without a key, one without a value."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    builder.append(0, TIME_MS, b"k0", b"water", [("a", b"vv"), ("seconds", None)])
    builder.append(1, TIME_MS + 2, None, b"headrace" * 3, [])
    builder.append(2, TIME_MS - 500, b"k2", None, [])
    return bytes(builder.build()[61:])


RECORDS = some_records()
HEADER_FIELDS = {
    "base_offset": 1 << 40,
    "partition_leader_epoch": 3,
    "last_offset_delta": 2,
    "base_timestamp": TIME_MS,
    "max_timestamp": TIME_MS + 2,
    "producer_id": 7,
    "producer_epoch": 0,
    "base_sequence": 5,
    "count": 3,
}


def a_batch(codec: Compression) -> bytes:
    buffer = bytearray(61) + compress(codec, RECORDS)
    write_header(buffer, size=len(buffer), attributes=codec, **HEADER_FIELDS)
    return bytes(buffer)


def a_message(codec: Compression, magic: int) -> bytes:
    records = [(TIME_MS, b"k0", b"water"), (TIME_MS + 2, None, b"headrace" * 3)]
    return build_message_set(records[: 1 if codec == Compression.NONE else 2], magic=magic, compression=codec)


BATCHES = {codec.name: a_batch(codec) for codec in Compression}
MESSAGES = {
    f"v{magic} {codec.name}": a_message(codec, magic) for magic in (0, 1) for codec in Compression if codec.value < 4
}

damages = st.lists(
    st.tuples(
        st.sampled_from(["change", "cut", "insert", "repeat"]),
        st.floats(0, 0.999999),
        st.binary(min_size=1, max_size=6),
    ),
    min_size=1,
    max_size=3,
)


def damaged(data: bytes, changes: list[tuple[str, float, bytes]]) -> bytes:
    """Change, remove or insert bytes, or insert some of the data's own, each at a position given as a fraction."""
    out = bytearray(data)
    for kind, place, new in changes:
        at = int(place * len(out))
        if kind == "change":
            out[at : at + len(new)] = new[: len(out) - at]
        elif kind == "cut":
            del out[at : at + len(new)]
        elif kind == "insert":
            out[at:at] = new
        else:
            out[at:at] = out[at : at + len(new)]
    return bytes(out)


def outcome(read: Callable[[], list]) -> list | str:
    """The records read, or the text of the typed error. Any other error fails the test."""
    try:
        return read()
    except TYPED as error:
        return str(error)


def read_all(data: bytes) -> list:
    found = []
    for batch in read_batches(data):
        found += batch.records(MAX_BYTES)
    return found


def test_the_samples_are_sound():
    for data in (*BATCHES.values(), *MESSAGES.values()):
        for batch in read_batches(data):
            batch.validate()
            assert len(list(batch.records())) == (batch.count or 2)


@pytest.mark.parametrize("name", BATCHES)
def test_every_truncation_of_a_batch(name: str):
    data = BATCHES[name]
    for size in range(len(data)):
        assert list(read_batches(data[:size])) == []
        if size < 61:
            with pytest.raises(CorruptRecordError):
                RecordBatch(data[:size])
            continue
        batch = RecordBatch(data[:size])
        for use in (batch.validate, batch.records):
            with pytest.raises(CorruptRecordError):
                use()


@pytest.mark.parametrize("name", BATCHES)
def test_every_truncation_of_the_records_with_a_crc_that_fits(name: str):
    data = BATCHES[name]
    for size in range(61, len(data)):
        buffer = bytearray(data[:size])
        write_header(buffer, size=size, attributes=Compression[name], **HEADER_FIELDS)
        batch = RecordBatch(buffer)
        batch.validate()
        with pytest.raises(CorruptRecordError):
            list(batch.records())


@pytest.mark.parametrize("name", MESSAGES)
def test_every_truncation_of_a_message(name: str):
    data = MESSAGES[name]
    for size in range(len(data)):
        assert list(read_batches(data[:size])) == []
        with pytest.raises(CorruptRecordError):
            LegacyBatch(data[:size])


@pytest.mark.parametrize("name", BATCHES)
def test_every_flipped_bit_is_caught_by_the_crc(name: str):
    data = BATCHES[name]
    # the CRC doesn't cover the fields before it: those that the leader assigns, the length and the magic
    for bit in range(17 * 8, len(data) * 8):
        buffer = bytearray(data)
        buffer[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptRecordError):
            RecordBatch(buffer).validate()


@pytest.mark.parametrize("name", MESSAGES)
def test_every_flipped_bit_of_a_message_is_caught_by_the_crc(name: str):
    data = MESSAGES[name]
    for bit in range(12 * 8, len(data) * 8):
        buffer = bytearray(data)
        buffer[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptRecordError):
            LegacyBatch(buffer).validate()


@given(damages)
@settings(deadline=None)
@pytest.mark.parametrize("name", [*BATCHES, *MESSAGES])
def test_a_damaged_buffer_gives_records_or_a_typed_error(name: str, changes: list):
    outcome(lambda: read_all(damaged((BATCHES | MESSAGES)[name] * 2, changes)))


@given(damages)
@settings(deadline=None)
@pytest.mark.parametrize("name", BATCHES)
def test_a_damaged_batch_whose_size_and_crc_fit(name: str, changes: list):
    buffer = bytearray(damaged(BATCHES[name], changes))
    buffer += bytes(max(61 - len(buffer), 0))
    struct.pack_into(">i", buffer, 8, len(buffer) - 12)
    buffer[16] = 2
    struct.pack_into(">I", buffer, 17, crc32c(buffer[21:]))
    batch = RecordBatch(buffer)
    batch.validate()
    outcome(lambda: list(batch.records(MAX_BYTES)))


@given(damages)
@settings(deadline=None)
@pytest.mark.parametrize("name", BATCHES)
def test_damaged_records_whose_codec_is_sound(name: str, changes: list):
    records = damaged(RECORDS, changes)
    buffer = bytearray(61) + compress(Compression[name], records)
    write_header(buffer, size=len(buffer), attributes=Compression[name], **HEADER_FIELDS)
    uncompressed = outcome(lambda: list(reader_cy.RecordIterator(records, 3, 1 << 40, TIME_MS, None)))
    assert outcome(lambda: list(RecordBatch(buffer).records())) == uncompressed


@given(damages)
@settings(deadline=None)
@pytest.mark.parametrize("name", MESSAGES)
def test_a_damaged_message_whose_size_and_crc_fit(name: str, changes: list):
    magic = int(name[1])
    buffer = bytearray(damaged(MESSAGES[name], changes))
    buffer += bytes(max(34 - len(buffer), 0))
    struct.pack_into(">i", buffer, 8, len(buffer) - 12)
    buffer[16] = magic
    struct.pack_into(">I", buffer, 12, zlib.crc32(buffer[16:]))
    batch = LegacyBatch(buffer)
    batch.validate()
    outcome(lambda: list(batch.records(MAX_BYTES)))


@given(damages | st.binary(max_size=60), st.integers(-3, 10))
@settings(deadline=None, max_examples=300)
def test_the_compiled_and_the_interpreted_reader_agree_on_damage(changes: list | bytes, count: int):
    data = changes if isinstance(changes, bytes) else damaged(RECORDS, changes)
    arguments = (data, count, 1 << 62, TIME_MS, None)
    compiled, interpreted = (
        outcome(lambda module=module: list(module.RecordIterator(*arguments))) for module in (reader_cy, INTERPRETED)
    )
    assert compiled == interpreted


@given(st.binary(max_size=60), st.integers(0, 9))
@settings(deadline=None)
@pytest.mark.parametrize("prefix", ["", "82534e4150505900", "04224d18604082", "28b52ffd", "1f8b0800000000000003"])
@pytest.mark.parametrize("codec", list(Compression))
def test_any_bytes_decompress_within_the_bound_or_are_corrupt(
    codec: Compression, prefix: str, content: bytes, max_bytes: int
):
    for magic in (0, 2):
        found = outcome(lambda magic=magic: decompress(codec, bytes.fromhex(prefix) + content, max_bytes, magic=magic))
        assert isinstance(found, str) or len(found) <= max_bytes


@given(damages, st.sampled_from([0, 10, 500, MAX_BYTES]))
@settings(deadline=None)
@pytest.mark.parametrize("codec", [codec for codec in Compression if codec != Compression.NONE])
def test_damaged_compressed_bytes_stay_within_the_bound(codec: Compression, changes: list, max_bytes: int):
    content = RECORDS * 4 + bytes(200)
    found = outcome(lambda: decompress(codec, damaged(compress(codec, content), changes), max_bytes))
    assert isinstance(found, str) or len(found) <= max_bytes
