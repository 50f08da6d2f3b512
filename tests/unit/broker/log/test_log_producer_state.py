"""Duplicates, gaps and fencing of idempotent producers, and the snapshot file."""

from __future__ import annotations

import struct
from typing import NamedTuple

import pytest

from headrace.broker.log.producer_state import (
    CorruptSnapshotError,
    ProducerStateManager,
    decode_snapshot,
    encode_snapshot,
)
from headrace.network.protocol.errors import InvalidProducerEpochError, OutOfOrderSequenceNumberError
from headrace.network.records.batch import MAX_SEQUENCE


class Batch(NamedTuple):
    base_sequence: int
    count: int = 1
    base_offset: int = 0
    producer_epoch: int = 0
    producer_id: int = 7
    max_timestamp: int = 1000
    is_transactional: bool = False

    @property
    def last_offset_delta(self) -> int:
        return self.count - 1


@pytest.fixture
def producers(tmp_path):
    return ProducerStateManager(tmp_path, expiration_ms=5000)


def write(producers, *batches):
    for batch in batches:
        producers.check(batch)
        producers.update(batch)


def test_a_new_producer_may_begin_anywhere(producers):
    producers.check(Batch(17))


def test_what_follows_is_taken_and_a_gap_is_not(producers):
    write(producers, Batch(0, 3, 0), Batch(3, 2, 3))
    producers.check(Batch(5))
    with pytest.raises(OutOfOrderSequenceNumberError, match="sequence 6 after 4"):
        producers.check(Batch(6))


def test_the_last_five_batches_are_recognised(producers):
    write(producers, *(Batch(number, 1, number) for number in range(6)))
    assert producers.find_duplicate(Batch(5)).base_offset == 5
    assert producers.find_duplicate(Batch(1)).base_offset == 1
    assert producers.find_duplicate(Batch(0)) is None
    assert producers.find_duplicate(Batch(1, 2)) is None
    assert producers.find_duplicate(Batch(1, producer_epoch=1)) is None


def test_an_older_epoch_is_fenced_and_a_newer_begins_at_zero(producers):
    write(producers, Batch(0, producer_epoch=3))
    with pytest.raises(InvalidProducerEpochError, match="epoch 2"):
        producers.check(Batch(1, producer_epoch=2))
    with pytest.raises(OutOfOrderSequenceNumberError, match="instead of 0"):
        producers.check(Batch(1, producer_epoch=4))
    write(producers, Batch(0, producer_epoch=4), Batch(1, producer_epoch=4))


def test_sequences_wrap(producers):
    write(producers, Batch(MAX_SEQUENCE - 1, 2), Batch(0, 4))
    producers.check(Batch(4))
    wrapped = Batch(MAX_SEQUENCE, 3, producer_id=8)
    write(producers, wrapped)
    assert producers.find_duplicate(wrapped) is not None
    producers.check(Batch(2, producer_id=8))


def test_quiet_producers_are_forgotten(producers):
    write(producers, Batch(0, max_timestamp=1000))
    producers.expire(5999)
    assert 7 in producers.producers
    producers.expire(6000)
    assert 7 not in producers.producers


def test_the_snapshot_is_kafkas(producers):
    write(producers, Batch(5, 2, 40, producer_epoch=1))
    content = encode_snapshot(producers.producers.values())
    version, _crc, count = struct.unpack_from(">hIi", content)
    assert (version, count) == (1, 1)
    assert struct.unpack_from(">qhiqiqiq", content, 10) == (7, 1, 6, 41, 1, 1000, -1, -1)


def test_a_snapshot_brings_the_state_back(producers, tmp_path):
    write(producers, Batch(0, 3, 0), Batch(3, 2, 3))
    producers.end_offset = 5
    producers.take_snapshot()
    again = ProducerStateManager(tmp_path, expiration_ms=5000)
    again.load_snapshot(at_most=9, at_least=0, wall_ms=2000)
    assert again.end_offset == 5
    assert again.find_duplicate(Batch(3, 2)).base_offset == 3
    again.check(Batch(5))
    with pytest.raises(OutOfOrderSequenceNumberError):
        again.check(Batch(7))


def test_a_damaged_snapshot_is_passed_over(producers, tmp_path):
    write(producers, Batch(0))
    producers.end_offset = 1
    producers.take_snapshot()
    producers.snapshot_path(9).write_bytes(b"\0\1nonsense")
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(producers.snapshot_path(9).read_bytes())
    producers.load_snapshot(at_most=9, at_least=0, wall_ms=2000)
    assert producers.end_offset == 1
    assert producers.snapshot_offsets() == [1]
