"""A full disk: freeing space needs none, reads work, and writes work again once there is space."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid

import pytest

from headrace.broker.config.topic_config import TopicConfig
from headrace.broker.log import cleaner, files, index, leader_epochs, producer_state
from headrace.broker.log.cleaner import clean
from headrace.broker.log.files import replace_file_over_spare
from headrace.broker.log.loader import load_log
from headrace.broker.log.manager import LogManager
from headrace.broker.log.validation import check_client_batch
from headrace.network.clock import MockClock
from headrace.network.protocol.errors import KafkaStorageError
from headrace.network.records.builder_cy import build_batch

NOW_MS = 1_600_000_000_000


class FullDisk(contextlib.AbstractContextManager):
    """While active, every write fails except for the records themselves."""

    def __init__(self, monkeypatch):
        self._monkeypatch = monkeypatch

    def __enter__(self):
        self._context = self._monkeypatch.context()
        patch = self._context.__enter__()
        patch.setattr(leader_epochs, "write_checkpoint", self.refuse)
        patch.setattr(producer_state, "replace_file", self.refuse)
        patch.setattr(index.os, "pwrite", self.refuse)
        return self

    def __exit__(self, *exc):
        return self._context.__exit__(*exc)

    @staticmethod
    def refuse(*_args, **_keywords):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def full_disk(monkeypatch):
    return FullDisk(monkeypatch)


class Harness:
    def __init__(self, directory):
        self.directory = directory / "t-0"
        self.clock = MockClock(wall_ms=NOW_MS)

    def open(self, *, is_clean=False, log_start_offset=0, **config):
        self.log = load_log(
            self.directory,
            "t",
            0,
            config=TopicConfig.resolve_from({"index.interval.bytes": 0, **config}, {}, {}),
            clock=self.clock,
            is_clean=is_clean,
            recovery_point=0,
            log_start_offset=log_start_offset,
            producer_id_expiration_ms=86_400_000,
        )
        self.log.advance_high_watermark(self.log.end.offset)
        return self.log

    def append(self, *, epoch=0, key=b"key", **header):
        batch = memoryview(bytearray(build_batch([(NOW_MS, key, b"value")], **header)))
        self.log.append_as_leader(batch, check_client_batch(batch, self.log.config, NOW_MS), epoch)
        self.log.advance_high_watermark(self.log.end.offset)

    def offsets(self):
        start, end = self.log.log_start_offset, self.log.end.offset
        return [each.offset for batch in self.log.batches(start, end) for each in batch.records()]


@pytest.fixture
def harness(tmp_path):
    return Harness(tmp_path)


def test_a_log_that_has_to_be_recovered_can_be_read(harness, full_disk):
    harness.open()
    for number in range(6):
        harness.append(epoch=number)
        harness.log.roll()
    (harness.directory / "leader-epoch-checkpoint").unlink()
    with full_disk:
        log = harness.open()
        assert harness.offsets() == list(range(6))
        with pytest.raises(KafkaStorageError, match="No space left"):
            log.flush()
        assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 6
    assert (harness.directory / "leader-epoch-checkpoint").read_text().startswith("0\n6\n")
    for segment in log.segments:
        segment.sanity_check()


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("damage", [b"", b"0\n2\n0 0\n", b"\xff\xfe", None])
def test_the_batches_tell_the_epochs_where_their_file_is_lost(harness, damage, is_clean):
    harness.open()
    for number in range(6):
        harness.append(epoch=number // 2)
        harness.log.roll()
    harness.log.flush()
    path = harness.directory / "leader-epoch-checkpoint"
    content = path.read_bytes()
    path.unlink()
    if damage is not None:
        path.write_bytes(damage)
    log = harness.open(is_clean=is_clean)
    assert log.leader_epochs.entries == [(0, 0), (1, 2), (2, 4)]
    assert path.read_bytes() == content


def test_retention_needs_no_space(harness, full_disk):
    log = harness.open(retention_ms=1000)
    for number in range(5):
        harness.append(epoch=number, producer_id=7, producer_epoch=0, base_sequence=number)
    log.roll()
    harness.append(epoch=5, producer_id=7, producer_epoch=0, base_sequence=5)
    harness.clock.advance(10_000)
    with full_disk, pytest.raises(KafkaStorageError, match="No space left"):
        # All expired segments are deleted, although the producer's state can't be written.
        log.delete_old_segments()
    assert [path.stat().st_size for path in harness.directory.glob("*.log")] == [0]
    assert (log.log_start_offset, log.end.offset) == (6, 6)
    harness.append(epoch=5, producer_id=7, producer_epoch=0, base_sequence=6)
    log.flush()
    assert harness.open().leader_epochs.entries == [(5, 6)]


def test_deleted_records_leave_with_the_next_retention(harness, full_disk):
    log = harness.open()
    for number in range(4):
        harness.append(epoch=number)
        log.roll()
    with full_disk:
        log.advance_log_start_offset(3)
        assert log.delete_old_segments() == 3
    assert sorted(path.name[-5:] for path in harness.directory.glob("*.log")) == ["3.log", "4.log"]
    assert log.leader_epochs.entries == [(3, 3)]


def test_an_index_that_is_written_by_half_is_written_again(harness, monkeypatch):
    log = harness.open()
    for _ in range(8):
        harness.append()
    with monkeypatch.context() as patch:
        patch.setattr(index.os, "pwrite", lambda _file, content, _at: len(content) - 3)
        with pytest.raises(KafkaStorageError, match="No space left"):
            log.flush()
    log.flush()
    reopened = harness.open(is_clean=True)
    assert len(reopened.segments[0].offset_index) == len(log.segments[0].offset_index) > 0


def test_compaction_leaves_nothing_behind_and_is_tried_again(tmp_path, monkeypatch):
    logs = LogManager(
        [tmp_path],
        clock=MockClock(wall_ms=NOW_MS),
        cluster_id="c",
        node_id=1,
        config_of=lambda _topic: TopicConfig.resolve_from({}, {}, {}),
        producer_id_expiration_ms=86_400_000,
    )
    logs.load()
    config = TopicConfig.resolve_from({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0}, {}, {})
    log = logs.get_or_create("t", 0, uuid.uuid4(), config)
    harness = Harness(tmp_path)
    harness.log = log
    for _ in range(3):
        harness.append()
    log.roll()
    with monkeypatch.context() as patch:
        patch.setattr(cleaner.os, "fsync", FullDisk.refuse)
        assert logs.clean_logs() == 0
        assert not list(log.directory.glob("*.cleaned"))
    assert logs.clean_logs() == 1
    assert harness.offsets() == [2]
    assert clean(log, 0) is not None


def test_a_log_that_fails_keeps_no_other_from_retention(tmp_path, monkeypatch):
    clock = MockClock(wall_ms=NOW_MS)
    config = TopicConfig.resolve_from({"retention.ms": 1000}, {}, {})
    logs = LogManager(
        [tmp_path],
        clock=clock,
        cluster_id="c",
        node_id=1,
        config_of=lambda _topic: config,
        producer_id_expiration_ms=86_400_000,
    )
    logs.load()
    harness = Harness(tmp_path)
    for topic in "ab":
        harness.log = logs.get_or_create(topic, 0, uuid.uuid4(), config)
        harness.append()
        harness.log.roll()
    clock.advance(10_000)
    monkeypatch.setattr(logs.logs["a", 0], "delete_old_segments", FullDisk.refuse)
    assert logs.delete_old_segments() == 1
    assert logs.logs["b", 0].log_start_offset == 1
    monkeypatch.setattr(logs.logs["a", 0], "flush", FullDisk.refuse)
    clock.advance(config.flush_ms)
    logs.flush_dirty()
    assert logs.logs["b", 0].recovery_point == 1


def test_a_file_is_replaced_over_the_place_of_its_spare(tmp_path):
    path, spare = tmp_path / "f", tmp_path / "f.spare"
    replace_file_over_spare(path, b"one")
    for content in (b"three", b"x" * 10_000, b"two", b""):
        replace_file_over_spare(path, content)
        assert path.read_bytes() == content
        # The spare has room for content of this length, in allocated blocks.
        assert spare.stat().st_size >= len(content)
        assert spare.stat().st_blocks * 512 >= len(content)
        taken = spare.stat().st_ino
        replace_file_over_spare(path, content[:-1])
        assert path.stat().st_ino == taken
        assert path.read_bytes() == content[:-1]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["f", "f.spare"]


@pytest.mark.parametrize("survived", range(8))
def test_a_file_is_whole_and_its_spare_is_there_again_wherever_the_process_dies(tmp_path, monkeypatch, survived):
    path = tmp_path / "f"
    replace_file_over_spare(path, b"the first content")
    replace_file_over_spare(path, b"the one before")

    class Death(BaseException):
        pass

    steps = iter(range(survived))

    def dies_in(step):
        def run(*args, **keywords):
            if next(steps, None) is None:
                raise Death
            return step(*args, **keywords)

        return run

    with monkeypatch.context() as patch:
        for name in ("open", "link", "replace", "unlink"):
            patch.setattr(files.os, name, dies_in(getattr(os, name)))
        with contextlib.suppress(Death):
            replace_file_over_spare(path, b"the new content")
    assert path.read_bytes() in (b"the one before", b"the new content")
    replace_file_over_spare(path, b"the last")
    assert path.read_bytes() == b"the last"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["f", "f.spare"]
