"""murmur2 against the vectors of Kafka's UtilsTest, and the compiled against the interpreted code."""

from __future__ import annotations

import kafka.partitioner.default as kafka_python
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.network import _build
from headrace.producer.accumulator.murmur2_cy import murmur2, partition_for_key

#: Java prints the hash as a signed integer.
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}

interpreted = _build.interpreted("headrace.producer.accumulator.murmur2_cy")


def signed(value: int) -> int:
    return value - 2**32 if value >= 2**31 else value


@pytest.mark.parametrize(("data", "expected"), VECTORS.items())
def test_javas_vectors(data: bytes, expected: int) -> None:
    assert signed(murmur2(data)) == expected
    assert signed(interpreted.murmur2(data)) == expected


@pytest.mark.parametrize(("data", "expected"), VECTORS.items())
@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_the_partition_is_javas(data: bytes, expected: int, count: int) -> None:
    assert partition_for_key(data, count) == (expected & 0x7FFFFFFF) % count


@given(st.binary(max_size=200))
@example(b"")
@example(b"\xff\xff\xff\xff\xff")
@example(b"\x80" * 7)
def test_compiled_interpreted_and_kafka_python_agree(data: bytes) -> None:
    assert murmur2(data) == interpreted.murmur2(data) == kafka_python.murmur2(data) & 0xFFFFFFFF


@given(st.binary(max_size=50), st.integers(1, 10_000))
def test_every_key_has_a_partition(data: bytes, count: int) -> None:
    assert 0 <= partition_for_key(data, count) < count
    assert partition_for_key(data, count) == interpreted.partition_for_key(data, count)
