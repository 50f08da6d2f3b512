"""A broker on a small, full disk: it serves reads, deletes topics, restarts, and accepts writes once there is space."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import shutil
import subprocess
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.wire import Wire, codes, fetch, produce

from headrace.broker import EmbeddedCluster
from headrace.broker.log import manager
from headrace.network.protocol.errors import KafkaStorageError
from headrace.network.protocol.messages.records.init_producer_id import InitProducerIdRequest
from headrace.network.protocol.messages.topics.delete_topics import DeleteTopicsRequest

STORAGE_ERROR = KafkaStorageError.code
PATIENCE_S = 20.0


def refuse(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.02)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two mebibytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if mount is None or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Fill the disk to the last byte."""
    ballast = disk / "ballast"
    for size_bytes in (65536, 512, 1):
        with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
            while file.write(b"x" * size_bytes) == size_bytes:
                pass
    return ballast


def init_producer_id(wire: Wire) -> int:
    return wire.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 2).error_code


def test_a_broker_on_a_full_disk_is_read_deletes_topics_and_restarts(disk: Path):
    config = {"num.partitions": 1, "log.segment.delete.delay.ms": 0}
    large = b"x" * 100_000
    with EmbeddedCluster(data_dir=disk, config=config) as cluster:
        for topic in ("t", "doomed"):
            cluster.create_topic(topic)
        with Wire(cluster) as wire:
            for topic in ("t", "doomed"):
                assert codes(wire.ask(produce(0, topic=topic, value=large), 9)) == [0]
            ballast = fill(disk)
            assert codes(wire.ask(produce(0, value=large), 9)) == [STORAGE_ERROR]
            # As after kill -9: nothing was flushed, and the broker recovers everything on the full disk.
            cluster.kill_broker(1)
            gc.collect()  # a killed process has no open files
            cluster.start_broker(1)
        with Wire(cluster) as wire:
            assert codes(wire.ask(produce(0, value=large), 9)) == [STORAGE_ERROR]
            assert len(wire.ask(fetch(0), 11).responses[0].partitions[0].records) > 100_000
            assert init_producer_id(wire) == 0
            # Deleted topics are gone from the disk, too, and make room for others.
            answer = wire.ask(DeleteTopicsRequest(topic_names=["doomed"], timeout_ms=5000), 5)
            assert answer.responses[0].error_code == 0
            until(lambda: not any(path.name.startswith("doomed") for path in disk.iterdir()))
            until(lambda: codes(wire.ask(produce(0, value=large[:50_000]), 9)) == [0])
            ballast.unlink()
            assert codes(wire.ask(produce(0, value=large), 9)) == [0]
            assert len(cluster.records("t", 0)) == 3
    with EmbeddedCluster(data_dir=disk, config=config) as cluster:
        assert len(cluster.records("t", 0)) == 3
        assert "doomed" not in cluster.controller.image.topics


def test_a_whole_cluster_starts_on_a_full_disk(disk: Path):
    with EmbeddedCluster(data_dir=disk) as cluster:
        cluster.create_topic("t")
        with Wire(cluster) as wire:
            assert codes(wire.ask(produce(0), 9)) == [0]
    ballast = fill(disk)
    cluster = EmbeddedCluster(data_dir=disk)
    cluster.start()
    try:
        with Wire(cluster) as wire:
            assert len(wire.ask(fetch(0), 11).responses[0].partitions[0].records) > 0
            assert codes(wire.ask(produce(0, value=b"x" * 10_000), 9)) == [STORAGE_ERROR]
        # The clean-shutdown marker is gone, which freed some space.
        fill(disk)
        with pytest.raises(KafkaStorageError, match="No space left"):
            cluster.close()
    finally:
        cluster.close()
    ballast.unlink()
    with EmbeddedCluster(data_dir=disk) as cluster:
        assert len(cluster.records("t", 0)) == 1


@pytest.fixture
def no_garbage_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage_collector")
def test_a_deleted_log_leaves_the_disk_whatever_failed_on_it(monkeypatch):
    """A file that is still open keeps its space."""
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t")
        with Wire(cluster) as wire:
            assert codes(wire.ask(produce(0), 9)) == [0]
            with monkeypatch.context() as patch:
                patch.setattr("headrace.broker.log.files.os.pwritev", refuse)
                assert codes(wire.ask(produce(0), 9)) == [STORAGE_ERROR]
            assert wire.ask(fetch(99), 11).responses[0].partitions[0].error_code == 1
            log = weakref.ref(cluster.broker(1).replicas.partition(("t", 0)).log)
            assert log() is not None
            cluster.controller.delete_topic("t")
            until(lambda: log() is None)


def test_a_partition_that_could_not_be_made_is_made_when_there_is_space(tmp_path: Path, monkeypatch):
    with EmbeddedCluster(2, data_dir=tmp_path, default_replication_factor=2) as cluster:
        with monkeypatch.context() as patch:
            patch.setattr(manager, "write_topic_id", refuse)
            cluster.create_topic("t")
            cluster.create_topic("gone")
            cluster.move_leader("t", 0, 1)
            with Wire(cluster) as wire:
                assert codes(wire.ask(produce(0), 9)) == [STORAGE_ERROR]
            cluster.controller.delete_topic("gone")
        with Wire(cluster) as wire:
            until(lambda: codes(wire.ask(produce(0), 9)) == [0])
        # The follower's replica was created again, too, and follows.
        count = len(cluster.records("t", 0, 1))
        until(lambda: len(cluster.records("t", 0, 2)) == count)
        assert all(not broker.replicas.replicas.offline for broker in cluster.brokers.values())


def test_producers_are_asked_to_come_again_where_their_ids_cannot_be_kept(tmp_path: Path, monkeypatch, caplog):
    with EmbeddedCluster(data_dir=tmp_path) as cluster, Wire(cluster) as wire:
        with monkeypatch.context() as patch:
            patch.setattr("headrace.broker.controller.controller.replace_file_over_spare", refuse)
            assert init_producer_id(wire) == 14
        assert "No space left" in caplog.text
        assert init_producer_id(wire) == 0
