"""The sparse indexes in Kafka's binary formats."""

from __future__ import annotations

import struct

import pytest

from headrace.broker.log.index import CorruptIndexError, OffsetIndex, OffsetPosition, TimeIndex, TimestampOffset


@pytest.fixture
def offset_index(tmp_path):
    return OffsetIndex(tmp_path / "00000000000000000100.index", 100, 80)


def test_the_offset_index_file_has_relative_offset_and_position(offset_index):
    offset_index.append(122, 656)
    offset_index.append(126, 838)
    offset_index.write_out()
    assert offset_index.path.read_bytes() == struct.pack(">iiii", 22, 656, 26, 838)


def test_lookup_finds_the_last_entry_not_after_the_offset(offset_index):
    for offset, position in ((122, 656), (126, 838), (128, 1050)):
        offset_index.append(offset, position)
    assert offset_index.lookup(100) == OffsetPosition(100, 0)
    assert offset_index.lookup(121) == OffsetPosition(100, 0)
    assert offset_index.lookup(122) == OffsetPosition(122, 656)
    assert offset_index.lookup(125) == OffsetPosition(122, 656)
    assert offset_index.lookup(10**9) == OffsetPosition(128, 1050)


def test_entries_survive_a_reload_and_go_on(offset_index, tmp_path):
    offset_index.append(122, 656)
    offset_index.write_out()
    again = OffsetIndex(offset_index.path, 100, 80)
    again.append(130, 900)
    again.write_out()
    third = OffsetIndex(offset_index.path, 100, 80)
    assert [third.entry(0), third.entry(1)] == [(122, 656), (130, 900)]


def test_the_zeros_of_a_preallocated_file_are_no_entries(tmp_path):
    path = tmp_path / "0.index"
    path.write_bytes(struct.pack(">ii", 5, 4200) + bytes(80))
    index = OffsetIndex(path, 0, 800)
    assert len(index) == 1
    index.append(9, 8400)
    index.write_out()
    assert path.read_bytes() == struct.pack(">iiii", 5, 4200, 9, 8400)


def test_offsets_have_to_ascend_and_to_fit(offset_index):
    offset_index.append(122, 656)
    with pytest.raises(ValueError, match="doesn't follow"):
        offset_index.append(122, 700)
    with pytest.raises(ValueError, match="doesn't follow"):
        offset_index.append(100 + 2**31, 700)
    assert not offset_index.can_append_offset(100 + 2**31)
    assert offset_index.can_append_offset(99 + 2**31)


def test_truncation_reaches_the_file(offset_index):
    for offset, position in ((122, 656), (126, 838), (128, 1050)):
        offset_index.append(offset, position)
    offset_index.write_out()
    offset_index.truncate_to(126)
    assert len(offset_index) == 1
    assert offset_index.path.stat().st_size == 8
    offset_index.append(127, 840)
    offset_index.write_out()
    assert offset_index.path.read_bytes() == struct.pack(">iiii", 22, 656, 27, 840)


def test_an_index_is_full_at_its_size(offset_index):
    for number in range(10):
        assert not offset_index.is_full
        offset_index.append(101 + number, 100 * number)
    assert offset_index.is_full


def test_a_broken_offset_index_is_found(tmp_path):
    path = tmp_path / "0.index"
    path.write_bytes(b"12345")
    with pytest.raises(CorruptIndexError, match="not a multiple"):
        OffsetIndex(path, 0, 80)
    path.write_bytes(struct.pack(">iiii", 9, 10, 5, 20))
    with pytest.raises(CorruptIndexError, match="ascend"):
        OffsetIndex(path, 0, 80).sanity_check()


def test_the_time_index_file_has_timestamp_and_relative_offset(tmp_path):
    index = TimeIndex(tmp_path / "0.timeindex", 100, 1200)
    index.maybe_append(1526384718283, 128)
    index.write_out()
    assert index.path.read_bytes() == struct.pack(">qi", 1526384718283, 28)


def test_only_larger_timestamps_are_new(tmp_path):
    index = TimeIndex(tmp_path / "0.timeindex", 0, 1200)
    index.maybe_append(10, 3)
    index.maybe_append(10, 5)
    index.maybe_append(7, 6)
    index.maybe_append(12, 8)
    assert [index.entry(0), index.entry(1)] == [(10, 3), (12, 8)]
    assert index.last_entry == TimestampOffset(12, 8)
    assert index.lookup(9) == TimestampOffset(-1, 0)
    assert index.lookup(11) == TimestampOffset(10, 3)
    assert index.lookup(99) == TimestampOffset(12, 8)


def test_the_time_index_keeps_a_slot_for_the_roll(tmp_path):
    index = TimeIndex(tmp_path / "0.timeindex", 0, 24)
    assert not index.is_full
    index.maybe_append(1, 1)
    assert index.is_full


def test_the_time_index_is_cut_by_offset(tmp_path):
    index = TimeIndex(tmp_path / "0.timeindex", 0, 1200)
    for timestamp, offset in ((10, 3), (12, 8), (20, 9)):
        index.maybe_append(timestamp, offset)
    index.truncate_to(8)
    assert index.last_entry == TimestampOffset(10, 3)
