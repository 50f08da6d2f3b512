"""Tests the decisions of exactly-once delivery: names, records, and what follows from the state of transactions."""

from __future__ import annotations

import itertools
import re

import pytest

from headrace.network.protocol.errors import IllegalStateError, KafkaError
from headrace.network.protocol.messages.transactions.describe_transactions import DescribedTransaction
from headrace.producer.resumption import PreparedTransaction
from headrace.producer.spark.delivery import (
    IDS_PER_RUN,
    Attempt,
    CommitRecord,
    Delivery,
    Fate,
    Outcome,
    Progress,
    Step,
    fate_of,
    next_step,
    outcome_of,
    partitions_text,
)

RUN, OTHER_RUN = "0123456789ab", "ba9876543210"
BATCH = Delivery("p-query-q", RUN, batch=7)
JOB = Delivery("p-job-nightly", RUN, is_job=True)


def prepared(delivery: Delivery, number: int, epoch: int = 0) -> PreparedTransaction:
    return PreparedTransaction(delivery.transactional_id(number), 1000 + number, epoch)


def described(state: str, prepared: PreparedTransaction, *, epochs: int = 0, ids: int = 0) -> DescribedTransaction:
    return DescribedTransaction(
        transactional_id=prepared.transactional_id,
        transaction_state=state,
        transaction_timeout_ms=1,
        transaction_start_time_ms=1,
        producer_id=prepared.producer_id + ids,
        producer_epoch=prepared.producer_epoch + epochs,
        topics=[],
    )


# --- Names ---


def test_each_attempt_of_a_job_has_its_own_id() -> None:
    assert JOB.transactional_id(5) == "p-job-nightly-0123456789ab-5"
    assert JOB.transactional_id(IDS_PER_RUN + 5) == f"p-job-nightly-0123456789ab-{IDS_PER_RUN + 5}"


def test_a_query_uses_its_ids_again_only_after_many_attempts() -> None:
    assert BATCH.transactional_id(IDS_PER_RUN - 1) != BATCH.transactional_id(0)
    assert BATCH.transactional_id(IDS_PER_RUN + 5) == BATCH.transactional_id(5)


@pytest.mark.parametrize(
    ("name", "is_own"),
    [
        (BATCH.transactional_id(5), True),
        (Delivery(BATCH.key, OTHER_RUN, 3).transactional_id(99), True),
        # a sink with a delivery.id of the same query, and one whose delivery.id looks like an id
        (Delivery(f"{BATCH.key}-2", RUN).transactional_id(5), False),
        (Delivery(f"{BATCH.key}-{RUN}-1", RUN).transactional_id(5), False),
        (f"x{BATCH.transactional_id(5)}", False),
        ("p-query.q-0123456789ab-5", False),
    ],
)
def test_the_pattern_finds_the_ids_of_all_runs_and_no_others(name: str, is_own: bool) -> None:
    assert (re.fullmatch(BATCH.pattern, name) is not None) == is_own


def test_messages_name_the_delivery() -> None:
    assert str(BATCH) == "micro-batch 7 of p-query-q"
    assert str(JOB) == "job p-job-nightly"
    assert partitions_text([3, 1, 2]) == "1, 2, 3"
    assert partitions_text(range(13)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 3 more"


# --- Records ---


def test_a_record_has_the_transactions_of_the_partitions_with_rows() -> None:
    attempts = [Attempt(2, 1, prepared(BATCH, 9, 3)), Attempt(1, 0, None), Attempt(0, 0, prepared(BATCH, 8))]
    record = CommitRecord.prepared(BATCH, attempts)
    assert record == CommitRecord(Progress.PREPARED, RUN, 7, ((0, prepared(BATCH, 8)), (2, prepared(BATCH, 9, 3))))
    assert CommitRecord.from_bytes(BATCH.key, record.to_bytes()) == record


def test_a_record_of_ten_thousand_tasks_fits_into_one_kafka_record() -> None:
    attempts = [Attempt(number, 0, prepared(JOB, 10**9 + number)) for number in range(10_000)]
    assert len(CommitRecord.prepared(JOB, attempts).to_bytes()) < 1_000_000


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"\xff", "UnicodeDecodeError"),
        (b"[]", "TypeError"),
        (b"{}", "KeyError"),
        (b'{"version":2}', "its version is 2, not 1"),
        (b'{"version":1,"progress":"x","run":"r","batch":0,"transactions":[]}', "'x' is not a valid Progress"),
    ],
)
def test_a_record_that_can_not_be_read_is_an_error(value: bytes, why: str) -> None:
    with pytest.raises(KafkaError, match="the record of p-query-q in the log of commits can't be read") as told:
        CommitRecord.from_bytes(BATCH.key, value)
    assert why in str(told.value)


# --- What a driver does first ---


@pytest.mark.parametrize(
    ("progress", "run", "batch", "step"),
    [
        (Progress.PREPARED, OTHER_RUN, 7, Step.FINISH),
        # a program that calls write_batch again after a timeout
        (Progress.PREPARED, RUN, 7, Step.FINISH),
        (Progress.COMMITTED, OTHER_RUN, 7, Step.SKIP),
        (Progress.ABORTED, OTHER_RUN, 7, Step.WRITE),
        (Progress.ABORTED, RUN, 7, Step.WRITE),
        (Progress.PREPARED, OTHER_RUN, 6, Step.SUPERSEDE),
        (Progress.COMMITTED, OTHER_RUN, 6, Step.WRITE),
        (Progress.COMMITTED, RUN, 6, Step.WRITE),
        (Progress.ABORTED, OTHER_RUN, 6, Step.WRITE),
    ],
)
def test_the_next_step_follows_from_the_last_record(progress: Progress, run: str, batch: int, step: Step) -> None:
    assert next_step(CommitRecord(progress, run, batch), BATCH) is step


def test_without_a_record_a_delivery_is_written() -> None:
    assert next_step(None, BATCH) is Step.WRITE
    assert next_step(None, JOB) is Step.WRITE


def test_two_writes_of_one_micro_batch_need_two_names() -> None:
    with pytest.raises(IllegalStateError, match="micro-batch 7 of p-query-q is written twice by the same run"):
        next_step(CommitRecord(Progress.COMMITTED, RUN, 7), BATCH)


@pytest.mark.parametrize("progress", list(Progress))
def test_a_checkpoint_that_is_older_than_the_output_is_an_error(progress: Progress) -> None:
    with pytest.raises(IllegalStateError, match="micro-batch 8 of the query has been committed already"):
        next_step(CommitRecord(progress, OTHER_RUN, 8), BATCH)


# --- What has become of transactions ---


@pytest.mark.parametrize(
    ("state", "epochs", "ids", "fate"),
    [
        ("Ongoing", 0, 0, Fate.OPEN),
        # another producer has the id
        ("Ongoing", 1, 0, Fate.UNKNOWN),
        ("Ongoing", 0, 1, Fate.UNKNOWN),
        ("Empty", 1, 0, Fate.UNKNOWN),
        # the classic protocol keeps the epoch, and TV2 increments it
        ("PrepareCommit", 0, 0, Fate.COMMITTED),
        ("PrepareCommit", 1, 0, Fate.COMMITTED),
        ("CompleteCommit", 0, 0, Fate.COMMITTED),
        ("CompleteCommit", 1, 0, Fate.COMMITTED),
        ("CompleteCommit", 2, 0, Fate.UNKNOWN),
        ("CompleteCommit", 0, 1, Fate.UNKNOWN),
        ("PrepareAbort", 0, 0, Fate.ABORTED),
        ("PrepareEpochFence", 1, 0, Fate.ABORTED),
        ("CompleteAbort", 1, 0, Fate.ABORTED),
        ("Dead", 0, 0, Fate.ABORTED),
    ],
)
def test_the_fate_of_a_transaction(state: str, epochs: int, ids: int, fate: Fate) -> None:
    given = prepared(BATCH, 1)
    assert fate_of(given, described(state, given, epochs=epochs, ids=ids)) is fate


def test_a_forgotten_transaction_may_have_been_committed() -> None:
    assert fate_of(prepared(BATCH, 1), None) is Fate.UNKNOWN


@pytest.mark.parametrize("fates", list(itertools.combinations_with_replacement(Fate, 3)))
def test_nothing_is_lost_silently_and_nothing_is_committed_in_part_if_that_can_be_avoided(
    fates: tuple[Fate, ...],
) -> None:
    lost = {Fate.ABORTED, Fate.UNKNOWN}.intersection(fates)
    recorded = outcome_of(fates, is_recorded=True)
    assert (recorded is Outcome.COMMIT) == (not lost)
    # all or nothing, unless a part is or may be committed already
    assert (recorded is Outcome.ABORT) == (bool(lost) and not {Fate.COMMITTED, Fate.UNKNOWN}.intersection(fates))
    assert (recorded is Outcome.LOST) == (recorded not in (Outcome.COMMIT, Outcome.ABORT))
    # nothing that is not recorded has been committed
    assert outcome_of(fates, is_recorded=False) is (Outcome.ABORT if lost else Outcome.COMMIT)
