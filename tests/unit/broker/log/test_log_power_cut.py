"""What a power cut may leave of a log, case by case; tests/property draws cases at random."""

from __future__ import annotations

import uuid

import pytest

from headrace.broker.config.topic_config import TopicConfig
from headrace.broker.log.files import read_offsets, read_topic_id
from headrace.broker.log.manager import LogManager
from headrace.broker.log.validation import check_client_batch
from headrace.network.clock import MockClock
from headrace.network.protocol.errors import KafkaStorageError
from headrace.network.records.builder_cy import build_batch

NOW_MS = 1_600_000_000_000
TOPIC_ID = uuid.UUID(int=5)


class Machine:
    def __init__(self, folder):
        self.folder = folder
        self.directory = folder / "t-0"
        self.config = TopicConfig.resolve_from({}, {}, {})
        self.start()

    def start(self):
        self.logs = LogManager(
            [self.folder],
            clock=MockClock(wall_ms=NOW_MS),
            cluster_id="c",
            node_id=1,
            config_of=lambda _: self.config,
            producer_id_expiration_ms=10**12,
        )
        self.logs.load()
        self.log = self.logs.get_or_create("t", 0, TOPIC_ID, self.config)

    def restart(self):
        self.logs.release()
        self.start()

    def append(self, *values, epoch=0, **header):
        for value in values:
            batch = memoryview(bytearray(build_batch([(NOW_MS, b"key", value)], **header)))
            self.log.append_as_leader(batch, check_client_batch(batch, self.config, NOW_MS), epoch)
        self.log.advance_high_watermark(self.log.end.offset)

    def segment(self, offset):
        return self.directory / f"{offset:020d}.log"

    def values(self):
        return [bytes(record.value) for batch in self.log.batches(0, self.log.end.offset) for record in batch.records()]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.mark.parametrize("kept", [1, 0], ids=["a part", "nothing"])
def test_a_segment_that_lost_whole_batches_ends_the_log(machine, kept):
    """Nothing within the segment shows that batches are missing; the next segment's name does."""
    machine.append(b"a", b"b")
    machine.log.roll()
    machine.append(b"c")
    batch_bytes = machine.segment(2).stat().st_size
    with machine.segment(0).open("r+b") as file:
        file.truncate(kept * batch_bytes)
    machine.restart()
    assert machine.values() == [b"a"][:kept]
    assert not machine.segment(2).exists()
    machine.append(b"d")
    machine.restart()
    assert machine.values() == [*[b"a"][:kept], b"d"]


def test_a_flushed_segment_that_lost_batches_is_not_what_a_power_cut_does(machine):
    """Compaction leaves gaps between segments, so below the recovery point a gap means nothing."""
    machine.append(b"a", b"b")
    machine.log.roll()
    machine.append(b"c")
    machine.log.flush()
    machine.logs.checkpoint()
    with machine.segment(0).open("r+b") as file:
        file.truncate(machine.segment(2).stat().st_size)
    machine.restart()
    assert machine.values() == [b"a", b"c"]


def test_what_was_cut_off_comes_back_with_its_own_epoch(machine):
    """A leader finds the divergence by the last record's epoch, but the epoch checkpoint has a newer one."""
    machine.append(b"a", b"b", b"c", epoch=3)
    before = machine.segment(0).read_bytes()
    machine.log.truncate_to(1)
    machine.append(b"B", epoch=5)
    machine.segment(0).write_bytes(before)
    machine.restart()
    assert machine.values() == [b"a", b"b", b"c"]
    assert machine.log.leader_epochs.entries == [(3, 0)]


def test_what_was_cut_off_does_not_follow_what_took_its_place(machine):
    machine.append(b"a", b"b", b"c", b"d", epoch=3)
    before = machine.segment(0).read_bytes()
    machine.log.truncate_to(1)
    machine.append(b"B", epoch=5)
    now = machine.segment(0).read_bytes()
    machine.segment(0).write_bytes(now + before[len(now) :])
    machine.restart()
    assert machine.values() == [b"a", b"B"]
    assert machine.log.leader_epochs.entries == [(3, 0), (5, 1)]


def test_the_recovery_point_goes_down_before_the_log_is_truncated(machine, tmp_path):
    machine.append(b"a", b"b", b"c", epoch=1)
    machine.log.flush()
    machine.logs.checkpoint()
    machine.log.truncate_to(1)
    assert read_offsets(tmp_path / "recovery-point-offset-checkpoint") == {("t", 0): 1}


def test_a_deleted_segment_that_comes_back_is_deleted_again(machine):
    machine.append(b"a", epoch=1)
    machine.log.roll()
    machine.append(b"b", epoch=1)
    old = machine.segment(1).read_bytes()
    machine.log.truncate_to(0)
    machine.append(b"A", b"B", b"C", epoch=2)
    machine.segment(1).write_bytes(old)
    machine.restart()
    assert machine.values() == [b"A", b"B", b"C"]
    assert not machine.segment(1).exists()


def test_a_snapshot_above_the_recovery_point_may_be_of_another_time(machine):
    machine.append(b"a", epoch=1, producer_id=7, producer_epoch=0, base_sequence=0)
    machine.log.roll()
    (snapshot,) = machine.directory.glob("*.snapshot")
    old = snapshot.read_bytes()
    machine.log.truncate_to(0)
    machine.append(b"A", epoch=2)
    snapshot.write_bytes(old)
    machine.restart()
    assert machine.values() == [b"A"]
    assert machine.log.producers.producers == {}


def test_an_index_without_its_segment_is_not_the_next_segments(machine):
    machine.append(b"a")
    (machine.directory / f"{1:020d}.timeindex").write_bytes(b"\1" * 9)
    machine.restart()
    machine.log.roll()
    machine.append(b"b")
    assert machine.values() == [b"a", b"b"]


def test_the_mark_of_a_clean_stop_is_gone_for_good(machine, tmp_path, monkeypatch):
    machine.logs.close()
    machine.logs.release()
    synced = []
    monkeypatch.setattr("headrace.broker.log.log_directory.sync_directory", synced.append)
    machine.start()
    assert synced == [tmp_path]


WHOLE = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABQ\n"


@pytest.mark.parametrize("content", [b"", bytes(44), WHOLE[:7], WHOLE[:30], WHOLE[:30] + bytes(14)])
def test_a_torn_partition_metadata_is_none(machine, content):
    (machine.directory / "partition.metadata").write_bytes(content)
    machine.restart()
    assert read_topic_id(machine.directory) == TOPIC_ID


@pytest.mark.parametrize("content", [WHOLE, WHOLE[:-1], WHOLE[:-1] + b"\0"])
def test_a_whole_partition_metadata_is_read(tmp_path, content):
    (tmp_path / "partition.metadata").write_bytes(content)
    assert read_topic_id(tmp_path) == TOPIC_ID


@pytest.mark.parametrize("content", [b"garbage", WHOLE.replace(b"topic_id", b"topic-id"), WHOLE.replace(b"A", b"?")])
def test_a_damaged_partition_metadata_is_told(tmp_path, content):
    (tmp_path / "partition.metadata").write_bytes(content)
    with pytest.raises(KafkaStorageError, match="no valid topic_id"):
        read_topic_id(tmp_path)
