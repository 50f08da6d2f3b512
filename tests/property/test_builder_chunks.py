"""A batch built in any chunks is the same batch as one built in a single buffer."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.network.records.batch import RecordBatch
from headrace.network.records.builder_cy import RecordBatchBuilder
from headrace.network.records.compression import Compression
from headrace.network.records.workspace import Workspace

#: It holds what earlier examples left in it.
WORKSPACE = Workspace()

RECORDS = st.tuples(
    st.integers(0, 2**41),
    st.none() | st.binary(max_size=40),
    st.none() | st.binary(max_size=300),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=2),
)


@given(
    records=st.lists(RECORDS, min_size=1, max_size=40),
    chunks=st.lists(st.integers(1, 900), max_size=30),
    first=st.integers(61, 600),
    limit=st.integers(61, 20_000),
    codec=st.sampled_from(list(Compression)),
)
def test_chunks_change_nothing(records: list[Any], chunks: list[int], first: int, limit: int, codec: int) -> None:
    builder = RecordBatchBuilder(bytearray(first), limit)
    taken = []
    sizes = iter(chunks)
    for record in records:
        while not builder.append(*record):
            size = next(sizes, None)
            if size is None:
                break
            before = builder.size_bytes
            builder.attach(bytearray(size))
            assert builder.size_bytes == before
        else:
            taken.append(record)
        assert builder.size_bytes <= limit
    single = RecordBatchBuilder(bytearray(61 + sum(len(str(record)) for record in records) + 60_000))
    for record in taken:
        assert single.append(*record)
    assert (builder.count, builder.size_bytes, builder.max_record_bytes) == (
        single.count,
        single.size_bytes,
        single.max_record_bytes,
    )
    compression = single.compress(Compression(codec))
    packed = builder.packed(Compression(codec), None, WORKSPACE)
    assert (packed is None) == (compression is Compression.NONE)
    if packed is not None:
        builder.replace_records(packed)
    ours = b"".join(builder.finish(compression=compression, producer_id=5, base_sequence=7))
    assert ours == b"".join(single.finish(compression=compression, producer_id=5, base_sequence=7))
    if taken:
        batch = RecordBatch(ours)
        batch.validate()
        assert [(each.timestamp, each.key, each.value) for each in batch.records()] == [each[:3] for each in taken]


def test_a_raised_limit_uses_the_rest_of_the_chunk() -> None:
    builder = RecordBatchBuilder(bytearray(1000), 100)
    assert builder.append(1, None, b"v" * 20)
    assert not builder.append(1, None, b"v" * 20)
    builder.raise_limit(120)
    assert builder.append(1, None, b"v" * 20)
    assert not builder.append(1, None, b"v" * 20)
    builder.raise_limit(2000)
    while builder.append(1, None, b"v" * 20):
        pass
    assert 970 < builder.size_bytes <= 1000
    builder.attach(bytearray(30))
    assert builder.append(1, None, b"v" * 20)
    assert not builder.append(1, None, b"v" * 20)
