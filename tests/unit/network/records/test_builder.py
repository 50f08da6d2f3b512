"""The writer of record batches: golden bytes, other implementations' readers, and compiled against interpreted code."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from headrace.network import _build
from headrace.network.protocol.errors import EncodeError
from headrace.network.records import builder_cy as compiled
from headrace.network.records.batch import RecordBatch
from headrace.network.records.builder_cy import RecordBatchBuilder, build_batch, encode_headers, encoded_size
from headrace.network.records.compression import Compression

interpreted = _build.interpreted("headrace.network.records.builder_cy")

INT64_MAX = 2**63 - 1

Rows = list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]

rows_strategy: st.SearchStrategy[Rows] = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 2**45), st.integers(0, INT64_MAX)),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=20)), max_size=3),
    ),
    min_size=1,
    max_size=20,
)


def fields_of(data: bytes) -> Rows:
    batch = RecordBatch(data)
    batch.validate()
    return [(record.timestamp, record.key, record.value, list(record.headers)) for record in batch.records()]


def test_golden_bytes_of_one_record() -> None:
    data = bytes(build_batch([(1_600_000_000_000, b"k", b"value", [("h", b"1")])], base_offset=5))
    assert data.hex() == (
        "0000000000000005"  # base offset
        "00000042"  # length of the rest
        "ffffffff"  # partition leader epoch: set by the broker
        "02"  # magic
        "c08b3f8d"  # CRC
        "0000"  # attributes
        "00000000"  # last offset delta
        "00000174876e8000"  # base timestamp
        "00000174876e8000"  # max timestamp
        "ffffffffffffffff"  # producer id
        "ffff"  # producer epoch
        "ffffffff"  # base sequence
        "00000001"  # records
        "20"  # length 16
        "00"  # attributes
        "00"  # timestamp delta
        "00"  # offset delta
        "026b"  # key
        "0a76616c7565"  # value
        "02"  # one header
        "0268"
        "0231"
    )
    RecordBatch(data).validate()


def test_golden_bytes_of_nulls_and_a_timestamp_that_goes_back() -> None:
    data = bytes(build_batch([(1000, None, None), (998, b"", b"")], producer_id=7, producer_epoch=1, base_sequence=9))
    assert (
        data[23:].hex()
        == (
            "00000001"  # last offset delta
            "00000000000003e8"
            "00000000000003e8"
            "0000000000000007"
            "0001"
            "00000009"
            "00000002"
            "0c0000000101" + "00"  # null key, null value
            "0c0003020000" + "00"  # 2 ms before the first, offset one higher, empty key, empty value
        )
    )


@settings(max_examples=150, deadline=None)
@given(rows_strategy, st.sampled_from([Compression.NONE, Compression.GZIP]))
def test_what_is_written_is_read_by_ourselves_and_by_kafka_python(rows: Rows, compression: Compression) -> None:
    data = bytes(build_batch(rows, compression=compression, base_offset=3))
    assert fields_of(data) == rows
    theirs = DefaultRecordBatch(data)
    assert theirs.validate_crc()
    records = list(theirs)
    assert [(record.timestamp, record.key, record.value, record.headers) for record in records] == rows
    assert [record.offset for record in records] == [3 + i for i in range(len(rows))]


@settings(max_examples=150, deadline=None)
@given(rows_strategy, st.integers(61, 2000))
def test_compiled_and_interpreted_write_the_same_and_stop_at_the_same_record(rows: Rows, capacity: int) -> None:
    ours, theirs = RecordBatchBuilder(bytearray(capacity)), interpreted.RecordBatchBuilder(bytearray(capacity))
    for row in rows:
        taken = ours.append(*row)
        assert taken == theirs.append(*row)
        assert (ours.size_bytes, ours.count) == (theirs.size_bytes, theirs.count)
    assert b"".join(ours.finish()) == b"".join(theirs.finish())


@settings(max_examples=150, deadline=None)
@given(rows_strategy)
def test_the_bound_of_a_records_size_is_one(rows: Rows) -> None:
    for timestamp, key, value, headers in rows:
        bound = encoded_size(key, value, encode_headers(headers) if headers else None)
        builder = RecordBatchBuilder(bytearray(bound))
        assert builder.append(timestamp, key, value, headers)
        assert builder.size_bytes <= bound


def test_the_bound_holds_for_the_last_record_of_a_long_batch_with_wild_timestamps() -> None:
    builder = RecordBatchBuilder(bytearray(4_000_000))
    for i in range(100_000):
        builder.append(0 if i % 2 else INT64_MAX, b"", b"")
    before = builder.size_bytes
    builder.append(0, b"k", b"v")
    assert builder.size_bytes - before + 61 <= encoded_size(b"k", b"v", None)


def test_a_record_that_does_not_fit_leaves_the_batch_as_it_was() -> None:
    builder = RecordBatchBuilder(bytearray(80))
    assert builder.append(1, None, b"12345")
    before = b"".join(builder.finish())
    assert not builder.append(1, None, b"too long for the rest of it")
    assert (builder.count, b"".join(builder.finish())) == (1, before)
    assert builder.append(1, None, b"")


def test_a_batch_is_filled_to_the_last_byte() -> None:
    size = len(build_batch([(0, None, b"x" * 10)]))
    assert RecordBatchBuilder(bytearray(size)).append(0, None, b"x" * 10)
    assert not RecordBatchBuilder(bytearray(size - 1)).append(0, None, b"x" * 10)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_records_that_do_not_get_smaller_stay_as_they_are(codec: Compression) -> None:
    builder = RecordBatchBuilder(bytearray(100))
    builder.append(0, None, bytes(range(20)))
    before = builder.size_bytes
    assert builder.compress(codec) == Compression.NONE
    assert builder.size_bytes == before
    assert fields_of(b"".join(builder.finish())) == [(0, None, bytes(range(20)), [])]


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_records_that_do_are_compressed_in_place(codec: Compression) -> None:
    builder = RecordBatchBuilder(bytearray(2000))
    builder.append(0, None, b"x" * 1500)
    assert builder.compress(codec) == codec
    data = b"".join(builder.finish(compression=codec))
    assert len(data) < 500
    assert RecordBatch(data).compression == codec
    assert fields_of(bytes(data)) == [(0, None, b"x" * 1500, [])]


def test_a_detached_builder_takes_nothing_and_keeps_its_sizes() -> None:
    buffer = bytearray(200)
    builder = RecordBatchBuilder(buffer)
    builder.append(1, None, b"a")
    position = builder.size_bytes
    builder.detach()
    assert builder.detach() is None
    assert not builder.append(1, None, b"b")
    assert (builder.count, builder.size_bytes) == (1, position)


@pytest.mark.parametrize("module", [compiled, interpreted], ids=["as installed", "interpreted"])
@pytest.mark.parametrize(
    ("headers", "message"),
    [
        (["ab c"], "pair"),
        ([("a", b"1", b"2")], "pair"),
        ([7], "pair"),
        ([(b"a", b"1")], "name"),
        ([("a", "1")], "value"),
        ([("a", 1)], "value"),
    ],
)
def test_headers_that_are_none_say_what_is_wrong(module, headers: list, message: str) -> None:
    with pytest.raises(EncodeError, match=message):
        module.encode_headers(headers)


def test_the_maximum_timestamp_is_the_greatest_wherever_it_stands() -> None:
    batch = RecordBatch(build_batch([(5, None, None), (9, None, None), (7, None, None)]))
    assert (batch.base_timestamp, batch.max_timestamp) == (5, 9)


class Interruption(Exception):
    """What a signal handler raises."""


class Raising(list):
    """A list in whose `append` a handler raises once, after it has appended."""

    left = 1

    def append(self, item: object) -> None:
        super().append(item)
        if self.left:
            self.left -= 1
            raise Interruption


@pytest.mark.parametrize("place", ["before the view of the next chunk", "after the sum of the last chunk"])
def test_a_handler_that_raises_on_the_way_to_the_next_chunk(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interpreted, that is possible after each call."""
    builder = interpreted.RecordBatchBuilder(bytearray(100), 10_000)
    builder.attach(bytearray(1000))
    assert builder.try_append(1, None, b"first", None)
    if place.startswith("before"):
        view_of = interpreted.view_of

        def interrupted(buffer: bytearray) -> object:
            monkeypatch.setattr(interpreted, "view_of", view_of)
            raise Interruption

        monkeypatch.setattr(interpreted, "view_of", interrupted)
    else:
        builder.used = Raising(builder.used)
    with pytest.raises(Interruption):
        builder.try_append(2, None, b"x" * 200, None)
    assert builder.try_append(3, None, b"y" * 200, None)
    data = b"".join(builder.finish(Compression.NONE, 0, -1, -1, -1, 0))
    assert fields_of(data) == [(1, None, b"first", []), (3, None, b"y" * 200, [])]
