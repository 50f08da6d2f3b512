"""The logs of a data directory: the files beside them, and recovery at startup."""

from __future__ import annotations

import gc
import subprocess
import sys
import uuid

import pytest
from support.descriptors import open_descriptors

from headrace.broker.config.topic_config import TopicConfig
from headrace.broker.log.manager import LogManager
from headrace.broker.log.validation import check_client_batch
from headrace.network.clock import MockClock
from headrace.network.protocol.errors import KafkaStorageError
from headrace.network.protocol.other_errors import InconsistentClusterIdError
from headrace.network.records.builder_cy import build_batch

NOW_MS = 1_600_000_000_000
CONFIG = TopicConfig.resolve_from({}, {}, {})


class Harness:
    """One directory, reopened as after a kill: nothing is written at the end."""

    def __init__(self, directory):
        self.directory = directory
        self.clock = MockClock(wall_ms=NOW_MS)
        self.open()

    def open(self):
        if hasattr(self, "logs"):
            self.logs.release()
        self.logs = LogManager(
            [self.directory],
            clock=self.clock,
            cluster_id="c",
            node_id=1,
            config_of=lambda _topic: CONFIG,
            producer_id_expiration_ms=86_400_000,
        )
        self.logs.load()

    def make(self, topic="t", topic_id=None):
        return self.logs.get_or_create(topic, 0, topic_id or uuid.uuid4(), CONFIG)

    def append(self, log, count):
        for _ in range(count):
            batch = memoryview(bytearray(build_batch([(NOW_MS, b"key", b"value")])))
            log.append_as_leader(batch, check_client_batch(batch, CONFIG, NOW_MS), 0)
        log.advance_high_watermark(log.end.offset)


@pytest.fixture
def harness(tmp_path):
    return Harness(tmp_path)


def with_a_deleted_log(harness):
    """Create a log of ten records, delete eight of them, then the log; the checkpoints still list it."""
    log = harness.make()
    harness.append(log, 10)
    log.advance_log_start_offset(8)
    log.flush()
    harness.logs.checkpoint()
    harness.logs.delete("t", 0)


def test_a_log_takes_nothing_over_from_a_deleted_one_of_its_name(harness):
    """With the deleted log's start offset, a crash would hide acknowledged records."""
    with_a_deleted_log(harness)
    harness.append(harness.make(), 3)
    harness.open()
    log = harness.logs.logs["t", 0]
    assert (log.log_start_offset, log.high_watermark, log.end.offset) == (0, 0, 3)
    # Nothing of it was flushed, so the next start has to check all of it, too.
    assert log.recovery_point == 0


def test_no_log_is_made_while_the_checkpoints_tell_of_a_deleted_one(harness, monkeypatch):
    with_a_deleted_log(harness)

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("headrace.broker.log.log_directory.write_offsets", fail)
        with pytest.raises(KafkaStorageError, match="free space"):
            harness.make()
        harness.make("another")
    harness.append(harness.make(), 3)
    harness.open()
    assert harness.logs.logs["t", 0].log_start_offset == 0


def test_release_closes_every_file_without_the_garbage_collector(harness):
    """py4j's callback server uses select, so it can't start if a closed broker leaves a thousand files open."""
    logs = [harness.make(f"t{number}") for number in range(3)]
    for log in logs:
        harness.append(log, 1)

    def files():
        return [name for name in open_descriptors() if name.startswith(str(harness.directory))]

    assert len([name for name in files() if name.endswith(".log")]) == 3
    gc.disable()
    try:
        harness.logs.release()
        assert files() == []
    finally:
        gc.enable()


def test_a_directory_is_one_brokers(harness, tmp_path):
    other = Harness.__new__(Harness)
    other.directory, other.clock = tmp_path / "x" / "..", harness.clock
    (tmp_path / "x").mkdir()
    for _ in range(2):  # a rejected attempt doesn't release the other's lock
        with pytest.raises(KafkaStorageError, match="another broker uses"):
            other.open()
    harness.logs.release()
    harness.logs.release()
    other.open()


def test_a_directory_is_one_processs(harness, tmp_path):
    code = "import sys; from pathlib import Path; from headrace.broker.log.files import DirectoryLock as Lock; "
    command = [sys.executable, "-c", code + "Lock(Path(sys.argv[1]))", str(tmp_path)]
    refused = subprocess.run(command, check=False, capture_output=True, text=True)
    assert "another broker uses" in refused.stderr
    harness.logs.release()
    subprocess.run(command, check=True)


def test_a_directory_that_cannot_be_loaded_is_let_go(harness, tmp_path):
    harness.logs.release()
    harness.logs = LogManager(
        [tmp_path],
        clock=harness.clock,
        cluster_id="another",
        node_id=1,
        config_of=lambda _topic: CONFIG,
        producer_id_expiration_ms=86_400_000,
    )
    with pytest.raises(InconsistentClusterIdError):
        harness.logs.load()
    harness.open()


@pytest.mark.parametrize("content", [b"", bytes(40), b"cluster.id=c\n"])
def test_a_damaged_meta_properties_is_told(harness, content):
    """Guessing another cluster id would make it another cluster."""
    (harness.directory / "meta.properties").write_bytes(content)
    with pytest.raises(KafkaStorageError, match=r"meta\.properties is damaged.*restore it, or remove it"):
        harness.open()
