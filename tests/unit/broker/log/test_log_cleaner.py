"""Compaction by key: which records stay, which are removed, and what a crash leaves."""

from __future__ import annotations

import pytest

from headrace.broker.config.topic_config import TopicConfig
from headrace.broker.log.cleaner import clean
from headrace.broker.log.loader import load_log
from headrace.broker.log.validation import check_client_batch
from headrace.network.clock import MockClock
from headrace.network.records.builder_cy import build_batch
from headrace.network.records.compression import Compression

NOW_MS = 1_600_000_000_000
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": 400,
    "index.interval.bytes": 100,
    "delete.retention.ms": 1000,
    "min.cleanable.dirty.ratio": 0.01,
}


class Compacted:
    def __init__(self, directory):
        self.directory = directory / "t-0"
        self.clock = MockClock(wall_ms=NOW_MS)
        self.dirty = 0
        self.open()

    def open(self, **config):
        self.log = load_log(
            self.directory,
            "t",
            0,
            config=TopicConfig.resolve_from({**CONFIG, **config}, {}, {}),
            clock=self.clock,
            is_clean=True,
            recovery_point=0,
            log_start_offset=0,
            producer_id_expiration_ms=86_400_000,
        )
        self.log.advance_high_watermark(self.log.end.offset)

    def put(self, *pairs, **header):
        records = [(NOW_MS + at, key, value) for at, (key, value) in enumerate(pairs)]
        batch = memoryview(bytearray(build_batch(records, **header)))
        self.log.append_as_leader(batch, check_client_batch(batch, self.log.config, NOW_MS), 0)
        self.log.advance_high_watermark(self.log.end.offset)

    def clean(self):
        self.log.roll()
        result = clean(self.log, self.dirty)
        if result is not None:
            self.dirty = result.first_dirty_offset
        return result

    def content(self):
        found = []
        for batch in self.log.batches(0, self.log.end.offset):
            batch.validate()
            found += [(record.offset, record.key, record.value) for record in batch.records()]
        return found


@pytest.fixture
def compacted(tmp_path):
    return Compacted(tmp_path)


@pytest.mark.parametrize("codec", list(Compression))
def test_the_last_value_of_each_key_stays_at_its_offset(compacted, codec):
    for turn in range(20):
        compacted.put((b"a", b"a%d" % turn), (b"b", b"b%d" % turn), compression=codec)
    compacted.put((b"c", b"once"), compression=codec)
    assert compacted.clean() is not None
    assert compacted.content() == [(38, b"a", b"a19"), (39, b"b", b"b19"), (40, b"c", b"once")]
    assert compacted.log.end.offset == 41


def test_segments_that_have_shrunk_become_one(compacted):
    for turn in range(40):
        compacted.put((b"a", b"%d" % turn))
    compacted.clean()
    before = len(compacted.log.segments)
    compacted.put((b"b", b"x"))
    compacted.clean()
    assert len(compacted.log.segments) == 2 < before
    assert compacted.content() == [(39, b"a", b"39"), (40, b"b", b"x")]


def test_a_second_pass_knows_what_the_first_has_done(compacted):
    for turn in range(20):
        compacted.put((b"a", b"%d" % turn), (b"k%d" % turn, b"x"))
    compacted.clean()
    assert compacted.clean() is None
    compacted.put((b"a", b"new"))
    compacted.clean()
    content = compacted.content()
    assert [value for _, key, value in content if key == b"a"] == [b"new"]
    assert len(content) == 21


def test_reads_and_lookups_work_over_the_gaps(compacted):
    for turn in range(30):
        compacted.put((b"a", b"%d" % turn))
    compacted.clean()
    compacted.put((b"z", b"last"))
    read = compacted.log.read(3, 10_000, up_to=31, min_one_batch=True)
    assert read.region is not None
    assert compacted.log.offset_for_timestamp(NOW_MS)[0].offset == 29
    compacted.log.truncate_to(30)
    assert compacted.content() == [(29, b"a", b"29")]


def test_tombstones_stay_for_their_time(compacted):
    compacted.put((b"a", b"value"), (b"b", b"value"))
    compacted.put((b"a", None))
    compacted.clean()
    assert compacted.content() == [(1, b"b", b"value"), (2, b"a", None)]
    (tombstone,) = [batch for batch in compacted.log.batches(2, 3)]
    assert tombstone.delete_horizon_ms == NOW_MS + 1000
    assert next(iter(tombstone.records())).timestamp == NOW_MS
    compacted.clock.advance(999)
    compacted.put((b"c", b"1"))
    compacted.clean()
    assert (2, b"a", None) in compacted.content()
    compacted.clock.advance(1)
    compacted.put((b"c", b"2"))
    compacted.clean()
    assert compacted.content() == [(1, b"b", b"value"), (4, b"c", b"2")]


def test_the_last_batch_of_a_producer_stays_without_its_records(compacted):
    compacted.put((b"a", b"1"), producer_id=9, producer_epoch=0, base_sequence=0)
    compacted.put((b"a", b"2"), producer_id=9, producer_epoch=0, base_sequence=1)
    compacted.put((b"a", b"3"))
    compacted.clean()
    assert compacted.content() == [(2, b"a", b"3")]
    for snapshot in compacted.directory.glob("*.snapshot"):
        snapshot.unlink()
    compacted.log.close()
    for snapshot in compacted.directory.glob("*.snapshot"):
        snapshot.unlink()
    compacted.open()
    assert compacted.log.producers.producers[9].last_sequence == 1


def test_young_records_and_little_news_are_left_alone(compacted):
    compacted.open(**{"min.compaction.lag.ms": 5000})
    compacted.put((b"a", b"1"))
    compacted.put((b"a", b"2"))
    assert compacted.clean() is None
    compacted.clock.advance(5000)
    assert compacted.clean() is not None
    compacted.open(**{"min.cleanable.dirty.ratio": 0.9})
    compacted.put((b"b", b"1"))
    assert compacted.clean() is None


def test_what_is_not_replicated_is_not_compacted(compacted):
    compacted.put((b"a", b"1"))
    compacted.log.roll()
    compacted.put((b"a", b"2"))
    compacted.log.high_watermark = 0
    assert compacted.clean() is None


def test_a_crash_before_the_swap_changes_nothing(compacted):
    for turn in range(10):
        compacted.put((b"a", b"%d" % turn))
    compacted.log.close()
    (compacted.directory / "00000000000000000000.log.cleaned").write_bytes(b"half of it")
    compacted.open()
    assert len(compacted.content()) == 10
    assert not list(compacted.directory.glob("*.cleaned"))


def test_a_crash_within_the_swap_is_finished_at_the_start(compacted, tmp_path):
    for turn in range(10):
        compacted.put((b"a", b"%d" % turn))
    compacted.log.roll()
    other = Compacted(tmp_path / "other")
    other.open(**{"segment.bytes": 10_000})
    for turn in range(10):
        other.put((b"a", b"%d" % turn))
    other.clean()
    compacted.log.close()
    result = (other.directory / "00000000000000000000.log").read_bytes()
    (compacted.directory / "00000000000000000000.log.swap").write_bytes(result)
    compacted.open()
    assert compacted.content() == [(9, b"a", b"9")]
    assert compacted.log.end.offset == 10
