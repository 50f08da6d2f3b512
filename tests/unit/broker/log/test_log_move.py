"""Moving a log between two directories of a broker."""

from __future__ import annotations

import uuid

import pytest

from headrace.broker.config.topic_config import TopicConfig
from headrace.broker.log.manager import LogManager
from headrace.broker.log.validation import check_client_batch
from headrace.network.clock import MockClock
from headrace.network.protocol.other_errors import LogDirNotFoundError
from headrace.network.records.builder_cy import build_batch

NOW_MS = 1_600_000_000_000
CONFIG = TopicConfig.resolve_from({"segment.bytes": "2000000"}, {}, {})
KEY = ("t", 0)
STEP = 2**20


class Harness:
    def __init__(self, tmp_path):
        self.paths = [tmp_path / name for name in ("a", "b", "c")]
        self.open()
        self.log = self.logs.get_or_create("t", 0, uuid.uuid4(), CONFIG)
        self.source = self.logs.directory_of(self.log.directory)
        self.target, self.other = (each for each in self.logs.directories if each is not self.source)

    def open(self):
        self.logs = LogManager(
            self.paths,
            clock=MockClock(wall_ms=NOW_MS),
            cluster_id="c",
            node_id=1,
            config_of=lambda _topic: CONFIG,
            producer_id_expiration_ms=86_400_000,
        )
        self.logs.load()

    def append(self, count=1, size=1_000_000):
        for _ in range(count):
            batch = memoryview(bytearray(build_batch([(NOW_MS, None, b"v" * size)])))
            self.log.append_as_leader(batch, check_client_batch(batch, CONFIG, NOW_MS), 0)
        self.log.advance_high_watermark(self.log.end.offset)

    def finish(self, move):
        steps = 0
        while self.logs.continue_move(KEY, move, STEP):
            steps += 1
        return steps

    def offsets(self):
        end = self.log.end.offset
        return [each.base_offset for each in self.log.batches(self.log.log_start_offset, end)]

    def reopened(self):
        self.logs.release()
        self.open()
        self.log = self.logs.logs[KEY]
        return self.offsets()


@pytest.fixture
def harness(tmp_path):
    harness = Harness(tmp_path)
    yield harness
    harness.logs.release()


def names(directory):
    return sorted(each.name for each in directory.path.iterdir() if each.is_dir())


def test_a_log_is_used_while_it_moves(harness):
    harness.append(10)
    move = harness.logs.move(KEY, harness.target)
    assert 0 < harness.logs.continue_move(KEY, move, STEP) == move.size_bytes <= STEP
    assert move.offset_lag > 0
    harness.append(3)
    assert harness.finish(move) > 1
    assert harness.log.directory == harness.target.path / "t-0"
    assert harness.offsets() == list(range(13))
    harness.append(2)
    assert names(harness.target) == ["t-0"]
    assert names(harness.source) == [move.left.name]
    harness.logs.remove_doomed([move.left])
    assert names(harness.source) == []
    assert harness.reopened() == list(range(15))


def test_a_log_that_has_moved_is_flushed_where_it_is(harness):
    harness.append(3)
    move = harness.logs.move(KEY, harness.target)
    harness.finish(move)
    harness.logs.remove_doomed([move.left])
    harness.append(1)
    harness.log.flush()
    assert harness.log.recovery_point == 4
    harness.logs.close()


def test_what_is_cut_meanwhile_is_not_copied(harness):
    harness.append(10)
    move = harness.logs.move(KEY, harness.target)
    harness.logs.continue_move(KEY, move, 100 * STEP)
    harness.log.truncate_to(4)
    harness.append(1)
    harness.finish(move)
    assert harness.log.directory.parent == harness.target.path
    assert harness.offsets() == [0, 1, 2, 3, 4]
    assert harness.reopened() == [0, 1, 2, 3, 4]


def test_a_deleted_log_moves_no_more(harness):
    harness.append(10)
    move = harness.logs.move(KEY, harness.target)
    harness.logs.continue_move(KEY, move, STEP)
    harness.logs.delete("t", 0)
    assert harness.logs.continue_move(KEY, move, STEP) == 0
    assert move.left is None
    assert names(harness.target) == []


def test_a_move_to_elsewhere_ends_the_one_before(harness):
    harness.append(10)
    first = harness.logs.move(KEY, harness.target)
    harness.logs.continue_move(KEY, first, STEP)
    assert harness.logs.move(KEY, harness.target) is None
    second = harness.logs.move(KEY, harness.other)
    assert harness.logs.continue_move(KEY, first, STEP) == 0
    harness.finish(second)
    assert (names(harness.target), names(harness.other)) == ([], ["t-0"])


def test_a_move_back_to_where_the_log_is_ends_it(harness):
    harness.append(10)
    move = harness.logs.move(KEY, harness.target)
    harness.logs.continue_move(KEY, move, STEP)
    assert harness.logs.move(KEY, harness.source) is None
    assert harness.logs.moves == {}
    assert names(harness.target) == []


def test_a_crash_leaves_the_log_where_it_was(harness):
    harness.append(10)
    move = harness.logs.move(KEY, harness.target)
    harness.logs.continue_move(KEY, move, STEP)
    assert harness.reopened() == list(range(10))
    assert harness.log.directory.parent == harness.source.path
    assert names(harness.target) == []


def test_directories_that_there_are_not(harness):
    assert harness.logs.find_directory(str(harness.paths[1])).path == harness.paths[1]
    with pytest.raises(LogDirNotFoundError, match="broker 1 has no log directory '/none'; it has"):
        harness.logs.find_directory("/none")
