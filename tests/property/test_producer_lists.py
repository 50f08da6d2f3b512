"""Whatever the lists, `send_many` writes the same bytes as `send` record by record, compiled and interpreted."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.column_bench import NOW_MS, PARTITIONS, Bench, FakeProducer

from headrace.network import _build
from headrace.network.records.columns_cy import Columns, column_over
from headrace.network.records.headers_cy import encode_headers
from headrace.producer import RecordFuture
from headrace.producer.accumulator.murmur2_cy import partition_for_key
from headrace.producer.accumulator.send_path_cy import SendPath
from headrace.producer.columns import lists

BATCH = 1 << 20
DATA = st.binary(max_size=20) | st.binary(max_size=20).map(bytearray) | st.binary(max_size=20).map(memoryview)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
PAIRS = st.lists(st.tuples(NAMES, st.none() | DATA), max_size=4)
HEADERS = st.none() | PAIRS | PAIRS.map(tuple) | PAIRS.map(lambda pairs: dict(pairs).items())
# the record's partition is fixed, because that of a record without a key or partition is drawn by lot
RECORDS = st.lists(
    st.tuples(
        st.none() | DATA,
        st.none() | DATA,
        HEADERS,
        st.integers(0, PARTITIONS - 1),
        st.none() | st.integers(0, 2**63 - 1 - NOW_MS),
    ),
    max_size=40,
)


class OneByOne(SendPath):
    """`send` without a producer: what isn't sent directly is encoded and appended here."""

    def __init__(self) -> None:
        self.bench = Bench(batch_size=BATCH)
        super().__init__(self.bench.clock, keys_choose=True)
        self._use(self.bench.accumulator.topics, (), direct=True, max_direct_bytes=BATCH)

    def _send_serialized(
        self, topic: str, value: Any, key: Any, headers: Any, partition: Any, timestamp_ms: Any, callback: Any
    ) -> RecordFuture:
        packed = encode_headers(headers) if headers else None
        timestamp = NOW_MS if timestamp_ms is None else timestamp_ms
        chosen = partition_for_key(key, PARTITIONS) if partition is None else partition
        accumulator = self.bench.accumulator
        return accumulator.append(self.bench.queues, chosen, timestamp, key, value, packed, callback, 0.0)


def in_log(bench: Bench) -> dict[int, bytes]:
    return {batch.partition: b"".join(batch.builder.finish()) for batch in bench.batches()}


@given(records=RECORDS, slice_rows=st.integers(1, 50), slice_bytes=st.integers(1, 200), keyed=st.booleans())
def test_the_same_bytes_as_sent_one_by_one(
    records: list[tuple], slice_rows: int, slice_bytes: int, keyed: bool
) -> None:
    if keyed:
        records = [(value, key or b"", headers, None, at) for value, key, headers, _, at in records]
    many, single = FakeProducer(bench=Bench(batch_size=BATCH)), OneByOne()
    before = lists.SLICE_ROWS, lists.SLICE_BYTES
    lists.SLICE_ROWS, lists.SLICE_BYTES = slice_rows, slice_bytes
    try:
        values, keys, headers, partitions, timestamps = (
            [list(column) for column in zip(*records, strict=True)] if records else ([],) * 5
        )
        future = many.send_many("t", values, keys, headers, partitions, timestamps)
    finally:
        lists.SLICE_ROWS, lists.SLICE_BYTES = before
    for record in records:
        single.send("t", *record)
    assert in_log(many.bench) == in_log(single.bench)
    assert future.done() == (not records)


@given(
    items=st.lists(st.none() | st.binary(max_size=10), max_size=30).map(tuple),
    first=st.integers(0, 30),
    rows=st.integers(0, 30),
    limit=st.integers(0, 60),
)
def test_a_column_is_the_same_compiled_and_interpreted(items: tuple, first: int, rows: int, limit: int) -> None:
    first = min(first, len(items))
    found = column_over(items, first, rows, limit)
    other = _build.interpreted("headrace.network.records.columns_cy").column_over(items, first, rows, limit)
    assert (found.length, found.total_bytes) == (other.length, other.total_bytes)
    bench = Bench(batch_size=BATCH)
    bench.append(Columns(found, None, None, None, memoryview(bytes(8 * found.length)).cast("q"), NOW_MS))
    producer = FakeProducer(bench=bench)
    producer.flush()
    assert [record[4] for record in producer.records()] == list(items[first : first + found.length])
    assert found.length <= rows
    assert found.total_bytes <= limit or found.total_bytes == len(items[first] or b"")
