"""A partition's log: appends, reads, rolls, truncation, retention, recovery."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import struct

import pytest

from headrace.broker.config.topic_config import CODECS, TopicConfig
from headrace.broker.log import index
from headrace.broker.log.files import replace_file
from headrace.broker.log.loader import load_log
from headrace.broker.log.validation import (
    RecordsOutOfTimeError,
    RecordsWithoutKeyError,
    check_client_batch,
    recompressed,
)
from headrace.network.clock import MockClock
from headrace.network.protocol.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaStorageError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumberError,
    UnsupportedForMessageFormatError,
)
from headrace.network.protocol.other_errors import OffsetOutOfRangeError
from headrace.network.records.batch import read_batches
from headrace.network.records.builder_cy import build_batch
from headrace.network.records.crc import crc32c
from headrace.network.records.legacy import build_message_set

NOW_MS = 1_600_000_000_000


def batch(count=1, *, value=b"x" * 10, timestamp=NOW_MS, **header):
    return memoryview(bytearray(build_batch([(timestamp + at, b"key", value) for at in range(count)], **header)))


class LogHarness:
    """Opens the same directory again and again."""

    def __init__(self, directory):
        self.directory = directory
        self.clock = MockClock(wall_ms=NOW_MS)

    def open(self, *, is_clean=True, recovery_point=0, log_start_offset=0, **config):
        self.log = load_log(
            self.directory / "t-0",
            "t",
            0,
            config=TopicConfig.resolve_from(config, {}, {}),
            clock=self.clock,
            is_clean=is_clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            producer_id_expiration_ms=86_400_000,
        )
        return self.log

    def append(self, count=1, *, epoch=0, **arguments):
        records = batch(count, **arguments)
        header = check_client_batch(records, self.log.config, self.clock.wall_ms())
        info = self.log.append_as_leader(records, header, epoch)
        self.log.advance_high_watermark(self.log.end.offset)
        return info

    def offsets(self, start=0):
        return [
            record.offset
            for each in self.log.batches(start, self.log.end.offset)
            for record in each.records()
            if record.offset >= start
        ]


@pytest.fixture
def harness(tmp_path):
    return LogHarness(tmp_path)


def read_bytes(read):
    if read.region is None:
        return b""
    return os.pread(read.region.file.fileno(), read.region.size_bytes, read.region.offset)


def test_offsets_and_epochs_are_assigned_in_place(harness):
    log = harness.open()
    assert harness.append(3).first_offset == 0
    info = harness.append(2, epoch=4)
    assert (info.first_offset, info.last_offset) == (3, 4)
    content = (harness.directory / "t-0" / "00000000000000000000.log").read_bytes()
    first, second = read_batches(content)
    assert (first.base_offset, first.partition_leader_epoch) == (0, 0)
    assert (second.base_offset, second.partition_leader_epoch) == (3, 4)
    second.validate()
    assert log.leader_epochs.entries == [(0, 0), (4, 3)]


def test_a_read_begins_at_the_batch_with_the_offset(harness):
    log = harness.open()
    for _ in range(50):
        harness.append(3, value=b"v" * 500)
    read = log.read(100, 10_000, up_to=150, min_one_batch=True)
    first = next(iter(read_batches(read_bytes(read))))
    assert first.base_offset == 99
    assert read.size_bytes == 10_000
    assert log.read(150, 10_000, up_to=150, min_one_batch=True).region is None
    with pytest.raises(OffsetOutOfRangeError, match="0 to 150"):
        log.read(151, 10_000, up_to=150, min_one_batch=True)


def test_a_read_stops_before_its_bound(harness):
    log = harness.open()
    for _ in range(10):
        harness.append(2)
    read = log.read(0, 100_000, up_to=6, min_one_batch=True)
    assert [each.base_offset for each in read_batches(read_bytes(read))] == [0, 2, 4]


def test_a_batch_larger_than_the_limit_is_read_whole_if_it_is_the_first(harness):
    log = harness.open()
    harness.append(1, value=b"v" * 5000)
    assert log.read(0, 100, up_to=1, min_one_batch=True).size_bytes > 5000
    assert log.read(0, 100, up_to=1, min_one_batch=False).size_bytes == 100


def test_segments_roll_by_size_and_are_named_by_offset(harness):
    log = harness.open(**{"segment.bytes": 1000})
    for _ in range(10):
        harness.append(1, value=b"v" * 400)
    names = sorted(path.name for path in (harness.directory / "t-0").glob("*.log"))
    assert names[:3] == [
        "00000000000000000000.log",
        "00000000000000000002.log",
        "00000000000000000004.log",
    ]
    assert harness.offsets() == list(range(10))
    assert log.read(5, 10_000, up_to=10, min_one_batch=True).start.segment_base_offset == 4


def test_segments_roll_by_age(harness):
    log = harness.open(**{"segment.ms": 1000})
    harness.append(1, timestamp=NOW_MS)
    harness.append(1, timestamp=NOW_MS + 1000)
    assert len(log.segments) == 1
    harness.append(1, timestamp=NOW_MS + 1001)
    assert len(log.segments) == 2


def test_segments_roll_when_an_index_is_full(harness):
    log = harness.open(**{"segment.index.bytes": 24, "index.interval.bytes": 0})
    for number in range(8):
        harness.append(1, timestamp=NOW_MS + number)
    assert len(log.segments) > 1


def test_the_index_is_sparse(harness):
    log = harness.open(**{"index.interval.bytes": 1000})
    for number in range(100):
        harness.append(1, value=b"v" * 100, timestamp=NOW_MS + number)
    index = log.segments[0].offset_index
    assert 10 <= len(index) <= 20
    log.close()
    content = (harness.directory / "t-0" / "00000000000000000000.index").read_bytes()
    assert len(content) == 8 * len(index)
    for offset, position in struct.iter_unpack(">ii", content):
        found = log.segments[0].find(offset)
        assert found.position == position


def test_a_batch_sent_twice_is_appended_once(harness):
    harness.open()
    harness.append(3, producer_id=5, producer_epoch=0, base_sequence=0)
    again = harness.append(3, producer_id=5, producer_epoch=0, base_sequence=0)
    assert (again.first_offset, again.last_offset) == (0, 2)
    assert harness.log.end.offset == 3
    with pytest.raises(OutOfOrderSequenceNumberError):
        harness.append(1, producer_id=5, producer_epoch=0, base_sequence=9)


def test_log_append_time_is_written_into_the_batch(harness):
    harness.open(**{"message.timestamp.type": "LogAppendTime"})
    harness.clock.set_wall_ms(NOW_MS + 77)
    info = harness.append(2)
    assert info.log_append_time == NOW_MS + 77
    (only,) = harness.log.batches(0, 2)
    only.validate()
    assert {record.timestamp for record in only.records()} == {NOW_MS + 77}


def test_what_a_client_may_not_send(harness):
    config = harness.open(**{"max.message.bytes": 500, "message.timestamp.after.max.ms": 10}).config

    def check(records):
        return check_client_batch(memoryview(records), config, NOW_MS)

    good = bytes(batch())
    with pytest.raises(CorruptRecordError, match="CRC"):
        check(bytearray(good[:-1] + b"!"))
    with pytest.raises(InvalidRecordError, match="header says"):
        check(bytearray(good[:-1]))
    with pytest.raises(InvalidRecordError, match="at least 61"):
        check(bytearray(good[:30]))
    with pytest.raises(InvalidRecordError, match="base offset 0, not 7"):
        check(bytearray(batch(base_offset=7)))
    with pytest.raises(InvalidRecordError, match="exactly one batch"):
        check(bytearray(good + good))
    with pytest.raises(MessageSizeTooLargeError, match=r"max\.message\.bytes"):
        check(bytearray(batch(value=b"v" * 500)))
    with pytest.raises(InvalidTimestampError, match="accepts timestamps from"):
        check(bytearray(batch(timestamp=NOW_MS + 11)))
    with pytest.raises(InvalidRecordError, match="in a transaction has a producer id"):
        check(bytearray(batch(attributes=0x10)))
    with pytest.raises(InvalidRecordError, match="control"):
        check(bytearray(batch(attributes=0x20)))
    legacy = bytearray(good)
    legacy[16] = 1
    with pytest.raises(UnsupportedForMessageFormatError, match="v1"):
        check(legacy)
    no_records = bytearray(good[:61] + bytes(len(good) - 61))
    struct.pack_into(">I", no_records, 17, crc32c(no_records[21:]))
    with pytest.raises(InvalidRecordError, match="record 0 of 1"):
        check(no_records)


def test_timestamps_are_found(harness):
    log = harness.open(**{"segment.bytes": 2000, "index.interval.bytes": 300})
    for number in range(60):
        harness.append(2, value=b"v" * 50, timestamp=NOW_MS + 10 * number)
    found, _epoch = log.offset_for_timestamp(NOW_MS + 301)
    assert found == (NOW_MS + 301, 61)
    found, _epoch = log.offset_for_timestamp(NOW_MS + 302)
    assert found == (NOW_MS + 310, 62)
    assert log.offset_for_timestamp(NOW_MS + 10_000) is None
    assert log.offset_of_max_timestamp()[0] == (NOW_MS + 591, 119)


def test_truncation_cuts_segments_indexes_and_producers(harness):
    log = harness.open(**{"segment.bytes": 1000, "index.interval.bytes": 0})
    for number in range(10):
        harness.append(1, value=b"v" * 300, producer_id=1, producer_epoch=0, base_sequence=number, epoch=number // 4)
    log.truncate_to(5)
    assert log.end.offset == 5
    assert harness.offsets() == list(range(5))
    assert log.leader_epochs.entries == [(0, 0), (1, 4)]
    assert log.producers.producers[1].last_sequence == 4
    assert harness.append(1, producer_id=1, producer_epoch=0, base_sequence=5).first_offset == 5


def test_truncation_within_a_batch_drops_all_of_it(harness):
    log = harness.open()
    harness.append(3)
    harness.append(3)
    log.truncate_to(4)
    assert log.end.offset == 3


def test_a_log_can_begin_anew_at_any_offset(harness):
    log = harness.open()
    harness.append(3)
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.end.offset, log.high_watermark) == (100, 100, 100)
    assert harness.append().first_offset == 100


def test_old_segments_go_by_age(harness):
    log = harness.open(**{"segment.bytes": 1000, "retention.ms": 1000})
    for number in range(6):
        harness.append(1, value=b"v" * 600, timestamp=NOW_MS + number)
    assert log.delete_old_segments() == 0
    harness.clock.advance(1003)
    assert log.delete_old_segments() == 3
    assert log.log_start_offset == 3
    harness.clock.advance(5000)
    assert log.delete_old_segments() == 3
    assert (log.log_start_offset, log.end.offset) == (6, 6)
    assert harness.append().first_offset == 6


def test_records_without_a_time_are_as_old_as_their_segment(harness):
    log = harness.open(**{"segment.bytes": 1000, "retention.ms": 1000})
    for _ in range(4):
        harness.append(1, value=b"v" * 600, timestamp=-1)
    assert log.delete_old_segments() == 0
    harness.clock.advance(1001)
    assert log.delete_old_segments() == 4


def test_a_batch_that_no_segment_can_hold_is_refused(harness):
    harness.open(**{"segment.bytes": 500})
    with pytest.raises(MessageSizeTooLargeError, match=r"segment\.bytes"):
        harness.append(1, value=b"v" * 500)


def test_old_segments_go_by_size(harness):
    log = harness.open(**{"segment.bytes": 1000, "retention.bytes": 2000, "retention.ms": -1})
    for _ in range(6):
        harness.append(1, value=b"v" * 600)
    log.delete_old_segments()
    assert 2000 <= log.size_bytes < 3000
    assert harness.offsets(log.log_start_offset) == [2, 3, 4, 5][-len(log.segments) :]


def test_segments_past_the_high_watermark_stay(harness):
    log = harness.open(**{"segment.bytes": 1000, "retention.ms": 0})
    for _ in range(4):
        harness.append(1, value=b"v" * 600)
    log.high_watermark = 2
    harness.clock.advance(1000)
    log.delete_old_segments()
    assert log.log_start_offset == 2


def test_a_region_that_is_being_sent_outlives_its_segment(harness):
    log = harness.open(**{"segment.bytes": 1000, "retention.ms": 0})
    for _ in range(4):
        harness.append(1, value=b"v" * 600)
    read = log.read(0, 10_000, up_to=4, min_one_batch=True)
    harness.clock.advance(1000)
    assert log.delete_old_segments() > 0
    next(iter(read_batches(read_bytes(read)))).validate()


def test_a_closed_log_takes_nothing_and_comes_back_whole(harness):
    log = harness.open()
    for number in range(7):
        harness.append(2, value=b"v" * 100, producer_id=3, producer_epoch=0, base_sequence=2 * number)
    log.flush()
    log.close()
    with pytest.raises(KafkaStorageError, match="closed"):
        harness.append()
    again = harness.open(recovery_point=14)
    assert again.end.offset == 14
    assert again.producers.producers[3].last_sequence == 13
    # All five batches that may be in flight are known again, not only the last one, which the snapshot has.
    for number in range(2, 7):
        again = harness.append(2, producer_id=3, producer_epoch=0, base_sequence=2 * number)
        assert again.first_offset == 2 * number
    assert harness.log.end.offset == 14


def test_a_torn_tail_is_cut_and_indexes_are_rebuilt(harness):
    harness.open(**{"index.interval.bytes": 0})
    for number in range(10):
        harness.append(2, value=b"v" * 100, timestamp=NOW_MS + number)
    path = harness.directory / "t-0" / "00000000000000000000.log"
    with path.open("ab") as file:
        file.write(bytes(batch(2))[:70])
    (harness.directory / "t-0" / "00000000000000000000.index").write_bytes(b"\x7f" * 16)
    again = harness.open(is_clean=False, **{"index.interval.bytes": 0})
    assert again.end.offset == 20
    assert harness.offsets() == list(range(20))
    assert len(again.segments[0].offset_index) == 9
    again.segments[0].sanity_check()
    assert harness.append().first_offset == 20


@pytest.mark.parametrize("position", [16, 22, 57, 80])
def test_recovery_stops_at_the_first_batch_that_is_damaged(harness, position):
    harness.open(**{"segment.bytes": 1500})
    sizes = [harness.append(2, value=b"v" * 100) and harness.log.end.position for _ in range(9)]
    assert len(harness.log.segments) == 2
    path = harness.directory / "t-0" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[sizes[2] + position] ^= 0xFF
    path.write_bytes(content)
    again = harness.open(is_clean=False)
    assert again.end.offset == 6
    assert len(again.segments) == 1
    assert harness.offsets() == list(range(6))


def test_what_was_flushed_is_not_checked_again(harness):
    harness.open(**{"segment.bytes": 500})
    for _ in range(6):
        harness.append(1, value=b"v" * 300)
    first = harness.directory / "t-0" / "00000000000000000000.log"
    content = bytearray(first.read_bytes())
    content[70] ^= 0xFF
    first.write_bytes(content)
    harness.log.segments[0].close_for_appends()
    assert harness.open(is_clean=False, recovery_point=6).end.offset == 6


@pytest.mark.parametrize("magic", [0, 1])
def test_records_of_older_formats_are_not_cut_away(harness, magic):
    harness.open()
    harness.append()
    path = harness.directory / "t-0" / "00000000000000000000.log"
    with path.open("ab") as file:
        file.write(build_message_set([(NOW_MS, b"k", b"v" * 60)], magic=magic, base_offset=1))
    content = path.read_bytes()
    with pytest.raises(UnsupportedForMessageFormatError, match=f"v{magic}"):
        harness.open(is_clean=False)
    assert path.read_bytes() == content


@pytest.mark.parametrize("magic", [0, 1])
def test_garbage_that_looks_like_an_older_format_is_cut(harness, magic):
    harness.open()
    harness.append(3)
    garbage = bytearray(build_message_set([(NOW_MS, b"k", b"v" * 60)], magic=magic, base_offset=3))
    garbage[-1] ^= 0xFF
    path = harness.directory / "t-0" / "00000000000000000000.log"
    with path.open("ab") as file:
        file.write(garbage)
    assert harness.open(is_clean=False).end.offset == 3


def test_a_follower_takes_the_leaders_batches_as_they_are(harness, tmp_path):
    harness.open()
    for epoch in (0, 0, 3):
        harness.append(2, epoch=epoch)
    copied = read_bytes(harness.log.read(0, 10_000, up_to=6, min_one_batch=True))
    follower = LogHarness(tmp_path / "follower")
    follower.open()
    partial = memoryview(copied)[: len(copied) - 5]
    info = follower.log.append_as_follower(partial)
    assert (info.first_offset, info.last_offset) == (0, 3)
    last = memoryview(copied)[follower.log.end.position :]
    follower.log.append_as_follower(last)
    assert follower.log.leader_epochs.entries == [(0, 0), (3, 4)]
    path = harness.directory / "t-0" / "00000000000000000000.log"
    assert (tmp_path / "follower" / "t-0" / path.name).read_bytes() == path.read_bytes()
    with pytest.raises(OffsetOutOfRangeError, match="doesn't continue"):
        follower.log.append_as_follower(last)


def test_an_append_that_fails_leaves_the_log_as_it_was(harness):
    log = harness.open()
    harness.append()
    descriptor = log.segments[-1].log._descriptor
    readonly = os.open(log.segments[-1].log.path, os.O_RDONLY)
    os.dup2(readonly, descriptor)
    os.close(readonly)
    with pytest.raises(KafkaStorageError, match="can't append"):
        harness.append()
    assert log.end.offset == 1


def test_an_empty_log_knows_its_end_after_a_crash(harness):
    log = harness.open(retention_ms=1000)
    for _ in range(5):
        harness.append(2)
    harness.clock.advance(10_000)
    log.roll()
    log.delete_old_segments()
    assert harness.offsets() == []
    # The checkpoints predate the deletion, as after a crash.
    reopened = harness.open(is_clean=False, recovery_point=0, log_start_offset=0)
    assert (reopened.log_start_offset, reopened.log_end_offset) == (10, 10)
    assert harness.append().first_offset == 10


def test_a_follower_that_began_anew_knows_where_after_a_crash(harness):
    log = harness.open()
    harness.append(3)
    log.truncate_fully_and_start_at(50)
    reopened = harness.open(is_clean=False)
    assert (reopened.log_start_offset, reopened.log_end_offset) == (50, 50)


@contextlib.contextmanager
def no_descriptors_left():
    """The process has no free file descriptor (EMFILE)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    taken = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_fails_beside_the_records_fails_the_append_before_it_is_done(harness, monkeypatch):
    monkeypatch.setattr(index, "_WRITE_BEHIND_ENTRIES", 3)
    log = harness.open(**{"index.interval.bytes": 0})
    for _ in range(4):
        harness.append()
    with no_descriptors_left():
        for _ in range(3):
            with pytest.raises(KafkaStorageError, match="can't append to t-0: Too many open files"):
                harness.append()
        with pytest.raises(KafkaStorageError, match="can't append to t-0"):
            harness.append(epoch=1)
    assert log.end.offset == 4
    for number in range(4, 8):
        assert harness.append(epoch=1).first_offset == number
    assert harness.offsets() == list(range(8))
    assert log.leader_epochs.entries == [(0, 0), (1, 4)]
    reopened = harness.open(is_clean=False)
    assert reopened.end.offset == 8
    assert reopened.leader_epochs.entries == [(0, 0), (1, 4)]


def test_a_flush_reaches_what_was_appended_before_the_roll(harness, monkeypatch):
    log = harness.open()
    harness.append()
    log.flush()
    harness.append()
    log.roll()
    harness.append()
    synced = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    log.flush()
    assert synced == [segment.log.fileno() for segment in log.segments]
    assert log.recovery_point == 3


def test_batches_are_known_again_across_segments_and_truncation(harness):
    harness.open()
    for number in range(4):
        harness.append(2, producer_id=3, producer_epoch=0, base_sequence=2 * number)
    harness.log.roll()
    harness.append(2, producer_id=3, producer_epoch=0, base_sequence=8)

    def resend():
        infos = [harness.append(2, producer_id=3, producer_epoch=0, base_sequence=2 * each) for each in range(4)]
        return [info.first_offset for info in infos]

    expected = [2 * each for each in range(4)]
    harness.open(is_clean=False)
    assert resend() == expected
    harness.log.truncate_to(8)
    assert resend() == expected


def test_an_index_that_points_beside_the_batches_is_rebuilt(harness):
    log = harness.open(**{"index.interval.bytes": 0})
    for _ in range(4):
        harness.append(2, value=b"v" * 100)
    log.flush()
    log.close()
    path = harness.directory / "t-0" / "00000000000000000000.index"
    content = bytearray(path.read_bytes())
    content[-1] += 7
    path.write_bytes(content)
    again = harness.open(**{"index.interval.bytes": 0})
    assert again.end.offset == 8
    assert len(again.segments[0].offset_index) == 3
    again.segments[0].sanity_check()


def test_a_file_is_replaced_by_all_of_the_content_or_stays(tmp_path):
    path = tmp_path / "file"
    replace_file(path, b"before")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            replace_file(path, b"a" * 1500)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("file", b"before")]


@pytest.mark.parametrize("codec", [name for name in CODECS if name != "uncompressed"])
@pytest.mark.parametrize("kept", CODECS)
def test_a_topic_may_keep_all_batches_in_one_codec(codec, kept):
    config = TopicConfig.resolve_from({"compression.type": kept}, {}, {})
    sent = batch(20, compression=CODECS[codec], producer_id=4, producer_epoch=1, base_sequence=7)
    stored, header = recompressed(sent, check_client_batch(sent, config, NOW_MS), config)
    assert header.compression == CODECS[kept]
    assert check_client_batch(stored, config, NOW_MS) == header
    before, after = (next(iter(read_batches(each))) for each in (sent, stored))
    assert list(map(repr, after.records())) == list(map(repr, before.records()))
    assert (after.producer_id, after.producer_epoch, after.base_sequence) == (4, 1, 7)
    assert (stored is sent) == (codec == kept)


def test_a_batch_that_grows_past_the_limit_is_refused():
    config = TopicConfig.resolve_from({"compression.type": "uncompressed", "max.message.bytes": 1000}, {}, {})
    sent = batch(100, compression=CODECS["zstd"])
    header = check_client_batch(sent, config, NOW_MS)
    with pytest.raises(MessageSizeTooLargeError, match="with none the batch has"):
        recompressed(sent, header, config)


def test_the_records_without_a_key_are_told():
    config = TopicConfig.resolve_from({"cleanup.policy": "compact"}, {}, {})
    records = build_batch([(NOW_MS, None if at % 3 else b"k", b"v") for at in range(7)])
    with pytest.raises(RecordsWithoutKeyError) as refused:
        check_client_batch(memoryview(bytearray(records)), config, NOW_MS)
    assert refused.value.indexes == [1, 2, 4, 5]


def test_the_records_out_of_time_are_told():
    limits = {"message.timestamp.before.max.ms": 1000, "message.timestamp.after.max.ms": 500}
    config = TopicConfig.resolve_from(limits, {}, {})
    times = [NOW_MS - 1000, NOW_MS - 1001, -1, NOW_MS + 500, NOW_MS + 501]

    def check(timestamps):
        records = build_batch([(timestamp, b"k", b"v") for timestamp in timestamps])
        return check_client_batch(memoryview(bytearray(records)), config, NOW_MS)

    with pytest.raises(RecordsOutOfTimeError) as refused:
        check(times)
    assert refused.value.indexes == [1, 4]
    assert check([times[0], times[2], times[3]]).count == 3


def test_a_clean_stop_that_left_garbage_is_checked_after_all(harness):
    log = harness.open()
    harness.append(5)
    log.flush()
    log.close()
    with log.segments[-1].log.path.open("ab") as file:
        file.write(b"\1" * 200)
    again = harness.open(recovery_point=5)
    assert again.end.offset == 5
    assert harness.append().first_offset == 5


def test_damage_to_what_was_flushed_is_told_and_not_cut(harness):
    log = harness.open(**{"segment.bytes": 500})
    for number in range(6):
        harness.append(1, value=b"v" * 300, producer_id=3, producer_epoch=0, base_sequence=number)
    first, content = log.segments[0].log.path, log.segments[0].log.path.read_bytes()
    for path in first.parent.glob("*.snapshot"):
        path.unlink()
    first.write_bytes(b"\0" * 100 + content[100:])
    with pytest.raises(KafkaStorageError, match=r"00000000000000000000\.log, byte 0: .* restore the file"):
        harness.open(is_clean=False, recovery_point=6)
    assert first.read_bytes()[100:] == content[100:]
    assert harness.open(is_clean=False, recovery_point=0).end.offset == 0


@pytest.mark.parametrize("entry", [(-1, 0), (0, -1), (3, 5)])
def test_an_index_of_nonsense_is_rebuilt(harness, entry):
    log = harness.open(**{"index.interval.bytes": 0})
    for _ in range(4):
        harness.append(2, value=b"v" * 100)
    log.flush()
    log.close()
    path = harness.directory / "t-0" / "00000000000000000000.index"
    path.write_bytes(struct.pack(">ii", *entry))
    again = harness.open(recovery_point=8, **{"index.interval.bytes": 0})
    assert (again.end.offset, len(again.segments[0].offset_index)) == (8, 3)
