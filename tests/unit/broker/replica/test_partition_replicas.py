"""A partition's leader and followers: which replicas count for the high watermark, and how a copy begins."""

from __future__ import annotations

import os
import uuid

import pytest

from headrace.broker.config.topic_config import TopicConfig
from headrace.broker.log.loader import load_log
from headrace.broker.metadata import PartitionState
from headrace.broker.replica.partition import Partition
from headrace.network.clock import MockClock
from headrace.network.records.builder_cy import build_batch

NOW_MS = 1_600_000_000_000


def make_partition(directory, broker_id, state):
    clock = MockClock(wall_ms=NOW_MS)
    log = load_log(
        directory / "t-0",
        "t",
        0,
        config=TopicConfig.resolve_from({}, {}, {}),
        clock=clock,
        is_clean=True,
        recovery_point=0,
        log_start_offset=0,
        producer_id_expiration_ms=86_400_000,
    )
    partition = Partition("t", 0, uuid.uuid4(), broker_id, log, clock)
    partition.apply(state)
    return partition


def append(partition, count=1):
    batch = build_batch([(NOW_MS + at, b"key", b"value") for at in range(count)])
    return partition.append(memoryview(bytearray(batch)), required_acks=-1)[0]


def leading(directory, isr=(1, 2)):
    """Broker 1 of three, with one record that every in-sync replica has."""
    partition = make_partition(directory, 1, PartitionState((1, 2, 3), isr, 1))
    append(partition)
    for node in isr[1:]:
        partition.note_fetch(node, 1, 0)
    assert partition.log.high_watermark == 1
    return partition


def test_a_follower_that_is_proposed_counts_before_the_controller_has_answered(tmp_path):
    partition = leading(tmp_path)
    partition.note_fetch(3, 1, 0)
    assert partition.propose_expansion() == ((1, 2, 3), 0, 0)
    # The controller may already have accepted broker 3, and made it the leader of the next epoch.
    append(partition)
    assert not partition.note_fetch(2, 2, 0)
    assert partition.log.high_watermark == 1
    partition.note_fetch(3, 2, 0)
    assert partition.log.high_watermark == 2


def test_a_refused_follower_counts_no_more(tmp_path):
    partition = leading(tmp_path)
    partition.note_fetch(3, 1, 0)
    proposal = partition.propose_expansion()
    append(partition)
    partition.end_proposal(proposal, is_refused=True)
    assert partition.note_fetch(2, 2, 0)
    assert partition.log.high_watermark == 2


def test_without_an_answer_the_proposed_follower_goes_on_to_count(tmp_path):
    partition = leading(tmp_path)
    partition.note_fetch(3, 1, 0)
    proposal = partition.propose_expansion()
    append(partition)
    partition.end_proposal(proposal, is_refused=False)
    partition.note_fetch(2, 2, 0)
    assert partition.log.high_watermark == 1
    assert partition.followers_to_add() == (3,)


def test_the_controllers_answer_replaces_what_was_proposed(tmp_path):
    partition = leading(tmp_path)
    partition.note_fetch(3, 1, 0)
    proposal = partition.propose_expansion()
    append(partition)
    partition.note_fetch(2, 2, 0)
    partition.apply(PartitionState((1, 2, 3), (1, 2), 1, partition_epoch=1))
    assert partition.log.high_watermark == 2
    partition.end_proposal(proposal, is_refused=True)
    assert partition.isr == (1, 2)


def test_a_follower_that_is_to_go_counts_until_it_is_gone(tmp_path):
    partition = leading(tmp_path, isr=(1, 2, 3))
    append(partition)
    partition.clock.advance(1000)
    partition.note_fetch(2, 2, 0)
    assert partition.propose_shrinking(500) == ((1, 2), 0, 0)
    assert partition.log.high_watermark == 1
    partition.apply(PartitionState((1, 2, 3), (1, 2), 1, partition_epoch=1))
    assert partition.log.high_watermark == 2


def test_a_disk_that_takes_nothing_does_not_keep_a_broker_from_leading(tmp_path):
    partition = leading(tmp_path)
    partition.log.leader_epochs.path = tmp_path / "gone" / "leader-epoch-checkpoint"
    partition.apply(PartitionState((1, 2, 3), (1, 2), 1, leader_epoch=4, partition_epoch=1))
    assert partition.log.leader_epochs.entries == [(0, 0), (4, 1)]


@pytest.mark.parametrize("start", [0, 3, 4, 7, 9])
def test_a_copy_begins_amid_a_batch_where_records_were_deleted(tmp_path, start):
    leader = make_partition(tmp_path / "leader", 1, PartitionState((1, 2), (1,), 1))
    append(leader, 5)
    append(leader, 5)
    leader.log.advance_high_watermark(10)
    leader.log.advance_log_start_offset(start)
    follower = make_partition(tmp_path / "follower", 2, PartitionState((1, 2), (1,), 1))
    follower.start_anew(0, start, 10)
    assert follower.log.end.offset == start
    read = leader.log.read(start, 10_000, up_to=10, min_one_batch=True)
    content = os.pread(read.region.file.fileno(), read.region.size_bytes, read.region.offset)
    assert follower.append_as_follower(memoryview(content), 0, 10, start)
    assert (follower.log.log_start_offset, follower.log.end.offset) == (start, 10)
    found = [record.offset for batch in follower.log.batches(start, 10) for record in batch.records()]
    assert [offset for offset in found if offset >= start] == list(range(start, 10))
