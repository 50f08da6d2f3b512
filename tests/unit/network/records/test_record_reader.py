"""The reader of records: every way a record can be damaged, in the compiled and the interpreted module."""

from __future__ import annotations

from types import ModuleType

import pytest

from headrace.network import _build
from headrace.network.protocol.errors import CorruptRecordError
from headrace.network.records import reader_cy
from headrace.network.records.record import Record

INT64_MAX = (1 << 63) - 1


@pytest.fixture(
    params=[reader_cy, _build.interpreted("headrace.network.records.reader_cy")], ids=["as is", "interpreted"]
)
def reader(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


def varint(value: int) -> bytes:
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes(out) + bytes([raw])


def record(*fields: bytes | int) -> bytes:
    """A record whose size is computed from the fields; numbers become varints."""
    body = b"".join(varint(field) if isinstance(field, int) else field for field in fields)
    return varint(len(body)) + body


def read(
    reader: ModuleType, data: bytes, count: int = 1, base_offset: int = 10, base_timestamp: int = 1000, append=None
):
    return list(reader.RecordIterator(data, count, base_offset, base_timestamp, append))


def assert_damaged(reader: ModuleType, data: bytes, reason: str, **arguments: int) -> None:
    with pytest.raises(CorruptRecordError, match=reason):
        read(reader, data, **arguments)


#: Attributes, timestamp delta 1, offset delta 2, key "k", value null.
START = (b"\x00", 1, 2, 1, b"k", -1)


def test_a_record(reader: ModuleType):
    assert read(reader, record(*START, 0)) == [Record(12, 1001, b"k", None, ())]


def test_a_record_with_headers(reader: ModuleType):
    data = record(*START, 3, 1, b"a", 2, b"vv", 0, -1, 2, "ä".encode(), 0)
    assert read(reader, data)[0].headers == (("a", b"vv"), ("", None), ("ä", b""))


def test_a_headers_name_that_is_not_utf8_is_replaced_as_in_java(reader: ModuleType):
    assert read(reader, record(*START, 1, 2, b"a\xff", -1))[0].headers == (("a\ufffd", None),)


def test_deltas_of_full_width(reader: ModuleType):
    (first,) = read(reader, record(b"\x00", INT64_MAX, 0, -1, -1, 0), base_timestamp=-5)
    assert first.timestamp == INT64_MAX - 5
    (first,) = read(reader, record(b"\x00", -INT64_MAX - 1, (1 << 31) - 1, -1, -1, 0), base_timestamp=0)
    assert (first.timestamp, first.offset) == (-INT64_MAX - 1, 10 + (1 << 31) - 1)


def test_append_time_stands_for_every_timestamp(reader: ModuleType):
    data = record(b"\x00", 5, 0, -1, -1, 0) + record(b"\x00", INT64_MAX, 1, -1, -1, 0)
    assert [each.timestamp for each in read(reader, data, count=2, append=77)] == [77, 77]


def test_the_iterator_reads_any_kind_of_buffer(reader: ModuleType):
    data = record(*START, 0)
    for buffer in (data, bytearray(data), memoryview(b"x" + data)[1:], memoryview(bytearray(data))):
        assert read(reader, buffer) == read(reader, data)  # type: ignore[arg-type]


def test_no_records(reader: ModuleType):
    assert read(reader, b"", count=0) == []


def test_records_that_just_fill_the_batch_pass_by_their_sizes(reader: ModuleType):
    long = record(b"\x00", 0, 1, -1, 300, bytes(300), 0)
    reader.RecordIterator(record(*START, 0) + long, 2, 10, 1000, None).check_sizes()
    reader.RecordIterator(b"", 0, 10, 1000, None).check_sizes()


@pytest.mark.parametrize(
    ("data", "count", "reason"),
    [
        (bytes(20), 1, "its size is 0"),
        (record(*START, 0) + varint(5) + bytes(20), 2, "its size is 5"),
        (record(*START, 0) + varint(-1) + bytes(20), 2, "its size is -1"),
        (record(*START, 0) + varint(30) + bytes(29), 2, "its size is 30, and 29 bytes are left"),
        (record(*START, 0), 2, "it claims 2 records"),
        (record(*START, 0) * 2, 1, "8 bytes follow the last one"),
        (record(*START, 0) * 2 + b"\x80" * 7, 3, "ends within a number|too many bits"),
    ],
)
def test_what_is_no_records_does_not_pass_by_its_sizes(reader: ModuleType, data: bytes, count: int, reason: str):
    with pytest.raises(CorruptRecordError, match=reason):
        reader.RecordIterator(data, count, 10, 1000, None).check_sizes()


def test_a_number_can_not_run_out_of_the_record(reader: ModuleType):
    assert_damaged(reader, b"\x0e" + b"\x80" * 7, "record 0 of 1 of the batch at offset 10 is damaged: it ends within")


def test_a_varint_has_no_more_than_32_bits(reader: ModuleType):
    assert read(reader, record(b"\x00", 0, b"\xfe\xff\xff\xff\x0f", -1, -1, 0))[0].offset == 10 + (1 << 31) - 1
    for overlong in (b"\xfe\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x00", b"\xff\xff\xff\xff\x8f\x00"):
        assert_damaged(reader, record(b"\x00", 0, overlong, -1, -1, 0), "too many bits")


def test_a_varlong_has_no_more_than_64_bits(reader: ModuleType):
    data = record(b"\x00", b"\xfe" + b"\xff" * 8 + b"\x01", 0, -1, -1, 0)
    assert read(reader, data, base_timestamp=0)[0].timestamp == INT64_MAX
    for overlong in (b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\x00", b"\xff" * 9 + b"\x81\x00"):
        assert_damaged(reader, record(b"\x00", overlong, 0, -1, -1, 0), "too many bits")


@pytest.mark.parametrize("count", [-1, -(1 << 31), 2, (1 << 31) - 1])
def test_a_count_that_the_bytes_can_not_hold(reader: ModuleType, count: int):
    assert_damaged(reader, bytes(13), f"it claims {count} records in 13 bytes", count=count)


def test_bytes_without_records(reader: ModuleType):
    assert_damaged(reader, b"\x00", "it claims no records, and has 1 bytes of them", count=0)


@pytest.mark.parametrize("size", [-1, -(1 << 31), 7, 1 << 20, (1 << 31) - 1])
def test_a_record_with_a_size_beyond_the_batch(reader: ModuleType, size: int):
    data = varint(size) + bytes(6)
    assert_damaged(reader, data, rf"its size is {size}, and 6 bytes are left" if len(data) == 7 else "its size is")


def test_an_empty_record(reader: ModuleType):
    assert_damaged(reader, bytes(7), "it is empty")


def test_a_record_that_is_shorter_than_its_fields(reader: ModuleType):
    # the size ends the record, even though the batch goes on
    assert_damaged(reader, b"\x02" + bytes(20), "it ends within a number")


@pytest.mark.parametrize("size", [-2, -(1 << 31), 3, (1 << 31) - 1])
def test_a_key_or_a_value_beyond_the_record(reader: ModuleType, size: int):
    assert_damaged(reader, record(b"\x00", 0, 0, size, -1, 0) + bytes(50), f"its key has size {size}, and 2 bytes are")
    assert_damaged(reader, record(b"\x00", 0, 0, -1, size, 0, 0) + bytes(50), f"its value has size {size}, and 2 byte")


@pytest.mark.parametrize("count", [-1, 2, (1 << 31) - 1])
def test_more_headers_than_bytes(reader: ModuleType, count: int):
    assert_damaged(reader, record(*START, count, bytes(3)), f"it claims {count} headers, and 3 bytes are left")


@pytest.mark.parametrize("size", [-1, 2, (1 << 31) - 1])
def test_a_headers_name_beyond_the_record(reader: ModuleType, size: int):
    assert_damaged(reader, record(*START, 1, size, b"n") + bytes(50), f"its header name has size {size}, and 1 byte")


@pytest.mark.parametrize("size", [-2, 1])
def test_a_headers_value_beyond_the_record(reader: ModuleType, size: int):
    assert_damaged(
        reader, record(*START, 1, 0, size) + bytes(50), f"its header value has size {size}, and 0 bytes are left"
    )


def test_bytes_after_the_headers(reader: ModuleType):
    assert_damaged(reader, record(*START, 0, b"xy"), "2 bytes follow its headers")


def test_bytes_after_the_last_record(reader: ModuleType):
    good = record(*START, 0)
    iterator = reader.RecordIterator(good + good + b"\x00", 2, 10, 1000, None)
    assert next(iterator).key == b"k"
    with pytest.raises(CorruptRecordError, match=r"record 1 of 2 .* it is the last one, and 1 bytes follow it"):
        next(iterator)


def test_fewer_records_than_claimed(reader: ModuleType):
    assert_damaged(reader, record(*START, 0) + record(b"\x00", 0, 0, -1, 8, bytes(8), 0), "record 2 of 3", count=3)


@pytest.mark.parametrize(("base", "delta"), [(1, INT64_MAX), (INT64_MAX, 1), (-2, -INT64_MAX), (-INT64_MAX - 1, -1)])
def test_a_timestamp_out_of_64_bits(reader: ModuleType, base: int, delta: int):
    data = record(b"\x00", delta, 0, -1, -1, 0)
    assert_damaged(reader, data, f"its timestamp delta {delta} leads out of 64 bits", base_timestamp=base)


def test_an_offset_before_the_batch_or_out_of_64_bits(reader: ModuleType):
    assert_damaged(reader, record(b"\x00", 0, -1, -1, -1, 0), "its offset delta is -1")
    assert_damaged(reader, record(b"\x00", 0, 1, -1, -1, 0), "its offset delta is 1", base_offset=INT64_MAX)


def test_an_error_comes_again_instead_of_an_end(reader: ModuleType):
    iterator = reader.RecordIterator(record(*START, 0) + record(*START, 0, b"x"), 2, 10, 1000, None)
    next(iterator)
    for _ in range(3):
        with pytest.raises(CorruptRecordError, match=r"record 1 of 2 .* 1 bytes follow its headers"):
            next(iterator)


def test_an_iterator_that_has_ended_stays_so(reader: ModuleType):
    iterator = reader.RecordIterator(record(*START, 0), 1, 10, 1000, None)
    assert iter(iterator) is iterator
    assert len(list(iterator)) == 1
    assert list(iterator) == []
