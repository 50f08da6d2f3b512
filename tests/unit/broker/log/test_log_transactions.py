"""Transactions in a log: markers, the last stable offset, aborted transactions, and what a restart keeps of them."""

from __future__ import annotations

import random
import struct

import pytest

from headrace.broker.config.topic_config import TopicConfig
from headrace.broker.log.cleaner import clean
from headrace.broker.log.loader import load_log
from headrace.broker.log.markers import Marker, build_marker, read_marker
from headrace.broker.log.transaction_index import AbortedTransaction
from headrace.broker.log.validation import check_client_batch
from headrace.network.clock import MockClock
from headrace.network.protocol.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
)
from headrace.network.records.batch import TRANSACTIONAL_MASK, RecordBatch, read_batches
from headrace.network.records.builder_cy import build_batch

NOW_MS = 1_600_000_000_000
CLASSIC, BUMPED = 1, 2
COMMIT, ABORT = Marker(True, 0), Marker(False, 0)


class Transactions:
    """A log, and producers that write transactions to it."""

    def __init__(self, directory, **config):
        self.directory = directory / "t-0"
        self.config = config
        self.clock = MockClock(wall_ms=NOW_MS)
        self.sequences = {}
        self.open(is_clean=True, recovery_point=0)

    def open(self, *, is_clean, recovery_point):
        self.log = load_log(
            self.directory,
            "t",
            0,
            config=TopicConfig.resolve_from(self.config, {}, {}),
            clock=self.clock,
            is_clean=is_clean,
            recovery_point=recovery_point,
            log_start_offset=0,
            producer_id_expiration_ms=86_400_000,
        )

    def write(self, producer_id, *values, epoch=0, transactional=True, key=b"k", replicated=True):
        first = self.sequences.get((producer_id, epoch), 0)
        self.sequences[producer_id, epoch] = first + len(values)
        batch = memoryview(
            bytearray(
                build_batch(
                    [(NOW_MS, key, value) for value in values],
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    base_sequence=first,
                    attributes=TRANSACTIONAL_MASK if transactional else 0,
                )
            )
        )
        info = self.log.append_as_leader(batch, check_client_batch(batch, self.log.config, NOW_MS), 0)
        if replicated:
            self.replicate()
        return info.first_offset

    def end(self, producer_id, marker, *, epoch=0, level=CLASSIC, replicated=True):
        info = self.log.append_marker(producer_id, epoch, marker, level, 0)
        if replicated:
            self.replicate()
        return info.first_offset

    def replicate(self):
        self.log.advance_high_watermark(self.log.end.offset)

    def read_committed(self, start=0, max_bytes=2**30):
        """The values that a consumer sees with isolation.level=read_committed, as Java's consumer filters them."""
        values, offset = [], start
        while offset < self.log.last_stable_offset:
            read = self.log.read(offset, max_bytes, up_to=self.log.last_stable_offset, min_one_batch=True)
            assert read.region is not None
            aborted = sorted(self.log.aborted_transactions(offset, read), key=lambda each: each.first_offset)
            content = read.region.file.read(read.region.offset, read.region.size_bytes)
            skipped = set()
            for batch in read_batches(content):
                while aborted and aborted[0].first_offset <= batch.last_offset:
                    skipped.add(aborted.pop(0).producer_id)
                if batch.is_control:
                    marker = read_marker(batch)
                    if marker is not None and not marker.is_commit:
                        skipped.discard(batch.producer_id)
                elif not (batch.is_transactional and batch.producer_id in skipped):
                    values += [bytes(record.value) for record in batch.records() if record.offset >= offset]
                offset = batch.next_offset
        return values


@pytest.fixture
def log(tmp_path):
    return Transactions(tmp_path)


def test_a_marker_has_kafkas_format():
    batch = RecordBatch(build_marker(7, 3, Marker(True, 9), NOW_MS))
    batch.validate()
    assert (batch.is_control, batch.is_transactional, batch.producer_id, batch.producer_epoch) == (True, True, 7, 3)
    (record,) = batch.records()
    assert (record.key, record.value) == (struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 9))
    assert read_marker(batch) == Marker(True, 9)
    assert read_marker(RecordBatch(build_marker(7, 3, ABORT, NOW_MS))) == ABORT


def test_the_last_stable_offset_is_where_the_oldest_open_transaction_begins(log):
    log.write(1, b"a")
    log.write(2, b"b")
    log.write(9, b"plain", transactional=False)
    assert log.log.last_stable_offset == 0
    log.end(1, COMMIT)
    assert log.log.last_stable_offset == 1
    log.end(2, ABORT)
    assert log.log.last_stable_offset == log.log.end.offset == 5
    assert log.read_committed() == [b"a", b"plain"]


def test_a_transaction_is_undecided_until_its_marker_is_replicated(log):
    log.write(1, b"a")
    log.end(1, COMMIT, replicated=False)
    assert (log.log.high_watermark, log.log.last_stable_offset) == (1, 0)
    log.replicate()
    assert log.log.last_stable_offset == 2


def test_the_index_has_kafkas_format(log):
    log.write(1, b"a", b"b")
    log.write(2, b"c")
    log.end(1, ABORT)
    content = (log.directory / f"{0:020d}.txnindex").read_bytes()
    # version, producer id, first offset, offset of the marker, last stable offset
    assert content == struct.pack(">hqqqq", 0, 1, 0, 3, 2)


def test_without_an_abort_there_is_no_index_file(log):
    log.write(1, b"a")
    log.end(1, COMMIT)
    log.log.flush()
    assert not list(log.directory.glob("*.txnindex"))


def test_a_marker_without_a_transaction_changes_nothing_but_the_epochs(log):
    log.end(1, Marker(False, 4), epoch=2)
    assert log.log.last_stable_offset == 1
    with pytest.raises(InvalidProducerEpochError):
        log.write(1, b"late", epoch=1)
    with pytest.raises(TransactionCoordinatorFencedError, match="epoch 3"):
        log.end(1, Marker(True, 3), epoch=2)


def test_a_marker_of_an_older_epoch_is_rejected(log):
    log.write(1, b"a", epoch=5)
    with pytest.raises(InvalidProducerEpochError):
        log.end(1, COMMIT, epoch=4)
    assert log.log.last_stable_offset == 0


def test_a_repeated_marker_changes_nothing_if_epochs_are_bumped(log):
    log.write(1, b"a")
    log.end(1, COMMIT, epoch=1, level=BUMPED)
    log.end(1, COMMIT, epoch=1, level=BUMPED)
    end = log.log.end.offset
    assert log.read_committed() == [b"a"]
    log.write(1, b"b", epoch=1)
    # The marker of the first transaction must not end the second.
    with pytest.raises(InvalidProducerEpochError, match="already"):
        log.end(1, COMMIT, epoch=1, level=BUMPED)
    assert log.log.last_stable_offset == end


def test_no_record_outside_the_open_transaction(log):
    log.write(1, b"a")
    with pytest.raises(InvalidTxnStateError, match="outside"):
        log.write(1, b"b", transactional=False)


class TestVerification:
    def batch(self, sequence, epoch=0):
        batch = memoryview(
            bytearray(
                build_batch(
                    [(NOW_MS, None, b"v")],
                    producer_id=1,
                    producer_epoch=epoch,
                    base_sequence=sequence,
                    attributes=TRANSACTIONAL_MASK,
                )
            )
        )
        return batch

    def append(self, log, verification, sequence=0):
        batch = self.batch(sequence)
        return log.log.append_as_leader(
            batch, check_client_batch(batch, log.log.config, NOW_MS), 0, verification=verification
        )

    def test_the_batch_that_begins_a_transaction_needs_it(self, log):
        with pytest.raises(InvalidTxnStateError, match="not part of an open transaction"):
            self.append(log, None)
        verification = log.log.begin_verification(1, 0, 0, starts_at_zero=False)
        assert verification is not None
        self.append(log, verification)
        assert log.log.begin_verification(1, 0, 1, starts_at_zero=False) is None
        self.append(log, None, sequence=1)

    def test_a_marker_ends_it(self, log):
        verification = log.log.begin_verification(1, 0, 0, starts_at_zero=False)
        log.end(1, ABORT)
        with pytest.raises(InvalidTxnStateError, match="not part of an open transaction"):
            self.append(log, verification)

    def test_the_marker_of_the_transaction_before_does_not(self, log):
        """With an epoch per transaction, the first batch of the next one may wait for its verification."""
        log.write(1, b"a")
        verification = log.log.begin_verification(1, 1, 0, starts_at_zero=True)
        log.end(1, COMMIT, epoch=1, level=BUMPED)
        batch = self.batch(0, epoch=1)
        checked = check_client_batch(batch, log.log.config, NOW_MS)
        log.log.append_as_leader(batch, checked, 0, verification=verification)
        # A marker of this transaction ends the verification of further ones.
        log.end(1, ABORT, epoch=2, level=BUMPED)
        assert log.log.begin_verification(1, 2, 0, starts_at_zero=True) is not verification

    def test_a_later_batch_does_not_overtake_the_first(self, log):
        verification = log.log.begin_verification(1, 0, 0, starts_at_zero=False)
        assert log.log.begin_verification(1, 0, 1, starts_at_zero=False) is verification
        with pytest.raises(OutOfOrderSequenceNumberError):
            self.append(log, verification, sequence=1)

    def test_an_unknown_producer_begins_at_zero_if_epochs_are_bumped(self, log):
        verification = log.log.begin_verification(1, 0, 5, starts_at_zero=True)
        with pytest.raises(OutOfOrderSequenceNumberError, match="sequence 0 is missing"):
            self.append(log, verification, sequence=5)


def test_truncation_reopens_a_transaction(log):
    log.write(1, b"a")
    marker = log.end(1, ABORT, replicated=False)
    log.log.truncate_to(marker)
    log.replicate()
    assert log.log.last_stable_offset == 0
    assert log.log.segments[-1].transaction_index.entries == []
    log.end(1, COMMIT)
    assert log.read_committed() == [b"a"]


def test_a_damaged_index_is_rebuilt(log):
    log.write(1, b"a")
    log.end(1, ABORT)
    log.write(2, b"b")
    log.end(2, COMMIT)
    log.log.close()
    (path,) = log.directory.glob("*.txnindex")
    good = path.read_bytes()
    for damaged in (good[:-1], bytes(len(good)), b"\x07" * len(good)):
        path.write_bytes(damaged)
        log.open(is_clean=True, recovery_point=0)
        log.replicate()
        assert log.log.segments[0].transaction_index.entries == [AbortedTransaction(1, 0, 1, 2)]
        assert log.read_committed() == [b"b"]
        log.log.close()
        assert path.read_bytes() == good


@pytest.mark.parametrize("seed", range(12))
def test_read_committed_equals_a_model(tmp_path, seed):
    """Random transactions with restarts, kills, truncations and rolls, compared with a list of what was decided."""
    rng = random.Random(seed)
    log = Transactions(tmp_path, **{"segment.bytes": 600, "index.interval.bytes": 100})
    #: offset -> (producer id or None, value); producer id -> first offset; decided: offset -> whether committed
    model, opened, decided, flushed = [], {}, {}, 0
    for turn in range(150):
        producer_id = rng.randrange(4)
        action = rng.random()
        if action < 0.55:
            values = [b"%d-%d" % (turn, number) for number in range(rng.randint(1, 3))]
            first = log.write(producer_id, *values, replicated=False)
            opened.setdefault(producer_id, []).extend(range(first, first + len(values)))
            model += [(first + number, value) for number, value in enumerate(values)]
        elif action < 0.8 and producer_id in opened:
            is_commit = rng.random() < 0.5
            log.end(producer_id, Marker(is_commit, 0), replicated=False)
            decided.update(dict.fromkeys(opened.pop(producer_id), is_commit))
        elif action < 0.85:
            log.write(50, b"plain-%d" % turn, transactional=False, replicated=False)
            model.append((log.log.end.offset - 1, b"plain-%d" % turn))
            decided[log.log.end.offset - 1] = True
        elif action < 0.9:
            log.log.flush()
            flushed = log.log.end.offset
        elif action < 0.95:
            log.log.close()
            log.open(is_clean=True, recovery_point=flushed)
        else:
            log.open(is_clean=False, recovery_point=flushed)
        log.replicate()
        undecided = min((offsets[0] for offsets in opened.values()), default=log.log.end.offset)
        assert log.log.last_stable_offset == undecided
    expected = [value for offset, value in model if offset < undecided and decided[offset]]
    assert log.read_committed() == expected
    assert log.read_committed(max_bytes=150) == expected
    for start in rng.sample(range(undecided), 10):
        expected = [value for offset, value in model if start <= offset < undecided and decided[offset]]
        assert log.read_committed(start, max_bytes=rng.choice([1, 300, 2**20])) == expected


def test_compaction_removes_aborted_records_and_then_their_markers(tmp_path):
    log = Transactions(
        tmp_path,
        **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01, "delete.retention.ms": 1000},
    )
    log.write(1, b"committed", key=b"a")
    log.end(1, COMMIT)
    log.write(2, b"aborted", key=b"a")
    log.end(2, ABORT)
    log.write(3, b"undecided", key=b"a")
    log.log.roll()
    assert clean(log.log, 0) is None  # nothing at or above the last stable offset is compacted
    log.end(3, ABORT)
    log.write(4, b"other", key=b"b")
    log.end(4, COMMIT)
    counts = []
    for number in range(4):
        log.write(9, b"plain-%d" % number, transactional=False, key=b"c")
        log.log.roll()
        assert clean(log.log, 0) is not None
        assert log.read_committed() == [b"committed", b"other", b"plain-%d" % number]
        batches = log.log.batches(0, log.log.end.offset)
        # Empty batches stay for the last sequence, and empty markers for the epoch, of a known producer.
        counts.append({(batch.producer_id, batch.is_control): batch.count for batch in batches})
        log.clock.advance(2000)
    assert [each[2, False] for each in counts] == [0, 0, 0, 0]
    assert [(2, True) in each for each in counts] == [True, True, True, True]
    log.log.close()
    log.open(is_clean=True, recovery_point=0)
    log.replicate()
    assert log.read_committed() == [b"committed", b"other", b"plain-3"]
