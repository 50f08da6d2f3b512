"""What a driver's committer has to do on any cluster: the test functions, for modules that define the fixtures.

A module imports everything from here and defines the fixture `servers`, the bootstrap servers of a cluster in which
transactions that expired are noticed within a second. A `Committer` that is not used again is a driver that was killed.
"""

from __future__ import annotations

import dataclasses
import logging
import time
import uuid
from typing import Any

import pytest
from support.confluent import PATIENCE_S, check_committed, create_topic

from headrace.network.protocol.errors import (
    DeliveryNotCommittedError,
    DeliveryPartlyLostError,
    IllegalStateError,
)
from headrace.producer import KafkaProducer
from headrace.producer.spark.commit_log import TOPIC, CommitLog
from headrace.producer.spark.committer import Committer
from headrace.producer.spark.delivery import Attempt, CommitRecord, Delivery, Progress
from headrace.producer.spark.options import SinkOptions
from headrace.producer.spark.transactions import new_job


@pytest.fixture
def topic(servers: str) -> str:
    return create_topic(servers, partitions=2)


@pytest.fixture
def options(servers: str, topic: str) -> SinkOptions:
    return SinkOptions.resolve({"bootstrap.servers": servers, "topic": topic, "delivery.guarantee": "exactly_once"}, {})


@pytest.fixture
def query(options: SinkOptions) -> Delivery:
    """Micro-batch 0 of a new query."""
    return Delivery(f"{options.config.transactional_id}-query-{uuid.uuid4()}", uuid.uuid4().hex[:12])


def after(delivery: Delivery, batches: int = 1) -> Delivery:
    return dataclasses.replace(delivery, batch=delivery.batch + batches)


def restarted(delivery: Delivery) -> Delivery:
    """The same micro-batch in another run of the query."""
    return dataclasses.replace(delivery, run=uuid.uuid4().hex[:12])


def written(
    options: SinkOptions, delivery: Delivery, *values: bytes, first: int = 0, timeout_ms: int = 60_000
) -> list[Attempt]:
    """The attempts of one task per value, the first of which has this number in the application."""
    attempts = []
    for partition, value in enumerate(values):
        values_of_task = {
            "transactional_id": delivery.transactional_id(first + partition),
            "transaction_timeout_ms": timeout_ms,
        }
        producer = KafkaProducer(options.config._replaced(values_of_task, {}))
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(options.topic or "", value, partition=partition % 2)
        attempts.append(Attempt(partition, 0, producer._hand_over_transaction()))
        producer.close(PATIENCE_S)
    return attempts


def record(options: SinkOptions, delivery: Delivery, attempts: list[Attempt]) -> None:
    """What the committer does before the first commit; then the driver is killed."""
    with Committer(options) as committer:
        log: CommitLog = committer._commits
        log.append(delivery.key, CommitRecord.prepared(delivery, attempts).to_bytes())


def end(options: SinkOptions, attempt: Attempt, *, commit: bool) -> None:
    assert attempt.prepared is not None
    with Committer(options) as committer:
        committer._transactions.end(attempt.prepared, commit=commit)


def last_record(options: SinkOptions, delivery: Delivery) -> CommitRecord | None:
    with Committer(options) as committer:
        return committer._last(delivery)


def wait_until_aborted(options: SinkOptions, attempts: list[Attempt]) -> None:
    """Wait until the coordinator has aborted these transactions, because they expired."""
    ids = [each.prepared.transactional_id for each in attempts if each.prepared is not None]
    deadline = time.monotonic() + PATIENCE_S
    with Committer(options) as committer:
        while any(
            each is not None and each.transaction_state != "CompleteAbort"
            for each in committer._transactions.describe(ids).values()
        ):
            assert time.monotonic() < deadline, "the transactions do not expire"
            time.sleep(0.1)


def test_what_is_committed_is_seen_and_skipped_from_then_on(
    servers: str, topic: str, options: SinkOptions, query: Delivery
) -> None:
    with Committer(options) as committer:
        assert committer.begin(query)
        attempts = [*written(options, query, b"a", b"b"), Attempt(2, 0, None)]
        check_committed(servers, topic, [])
        committer.commit(query, attempts)
    check_committed(servers, topic, [b"a", b"b"])
    again = restarted(query)
    with Committer(options) as committer:
        assert not committer.begin(again)
        # a task wrote before the driver knew
        repeated = written(options, again, b"a", b"b")
        assert not committer.begin(again, repeated)
        committer.abort(again, repeated)
    check_committed(servers, topic, [b"a", b"b"])
    following = after(again)
    with Committer(options) as committer:
        assert committer.begin(following)
        committer.commit(following, written(options, following, b"c", first=5))
        with pytest.raises(IllegalStateError, match="written twice by the same run"):
            committer.begin(following)
        with pytest.raises(IllegalStateError, match="its checkpoint is older than its output"):
            committer.begin(query)
    check_committed(servers, topic, [b"a", b"b", b"c"])


def test_a_delivery_without_rows_leaves_no_record(options: SinkOptions, query: Delivery) -> None:
    with Committer(options) as committer:
        assert committer.begin(query)
        committer.commit(query, [Attempt(0, 0, None)])
    assert last_record(options, query) is None


@pytest.mark.parametrize("committed", [0, 1, 3])
def test_a_driver_that_was_killed_after_the_record(
    servers: str, topic: str, options: SinkOptions, query: Delivery, committed: int
) -> None:
    attempts = written(options, query, b"a", b"b", b"c")
    record(options, query, attempts)
    for attempt in attempts[:committed]:
        end(options, attempt, commit=True)
    again = restarted(query)
    repeated = written(options, again, b"a", b"b", b"c")
    with Committer(options) as committer:
        assert not committer.begin(again, repeated)
        committer.abort(again, repeated)
    check_committed(servers, topic, [b"a", b"b", b"c"])
    found = last_record(options, query)
    assert found is not None
    assert found.progress is Progress.COMMITTED


def test_many_transactions_are_committed_on_several_threads(
    servers: str, topic: str, options: SinkOptions, query: Delivery
) -> None:
    values = [b"%02d" % number for number in range(21)]
    with Committer(options) as committer:
        assert committer.begin(query)
        committer.commit(query, written(options, query, *values))
    check_committed(servers, topic, values)


def test_what_a_killed_driver_did_not_record_is_aborted_by_the_next(
    servers: str, topic: str, options: SinkOptions, query: Delivery
) -> None:
    written(options, query, b"left", b"left")
    # others with a similar name go on
    other = dataclasses.replace(query, key=f"{query.key}-other")
    others = written(options, other, b"other")
    again = restarted(query)
    mine = written(options, again, b"a")
    with Committer(options) as committer:
        assert committer.begin(again, mine)
        assert committer._transactions.ongoing(query.pattern) == [again.transactional_id(0)]
        committer.commit(again, mine)
        assert committer.begin(other, others)
        committer.commit(other, others)
    check_committed(servers, topic, [b"a", b"other"])


def test_an_attempt_that_died_after_its_flush_is_aborted_with_the_commit_of_the_next(
    servers: str, topic: str, options: SinkOptions, query: Delivery
) -> None:
    with Committer(options) as committer:
        assert committer.begin(query)
        written(options, query, b"a")
        (second,) = written(options, query, b"a", first=1)
        committer.commit(query, [second._replace(number=1)])
        assert committer._transactions.ongoing(query.pattern) == []
    check_committed(servers, topic, [b"a"])


def test_a_failed_commit_is_not_aborted(servers: str, topic: str, options: SinkOptions, query: Delivery) -> None:
    """Spark calls `abort` after a failed `commit`."""
    attempts = written(options, query, b"a", b"b")
    record(options, query, attempts)
    end(options, attempts[0], commit=True)
    with Committer(options) as committer:
        committer.abort(query, attempts)
        assert not committer.begin(restarted(query))
    check_committed(servers, topic, [b"a", b"b"])


def test_a_failed_job_is_aborted(servers: str, topic: str, options: SinkOptions) -> None:
    job = new_job(options)
    with Committer(options) as committer:
        assert committer.begin(job)
        attempts = written(options, job, b"a", b"b")
        # of the second one the driver has no message
        committer.abort(job, attempts[:1])
        assert committer._transactions.ongoing(job.pattern) == []
    check_committed(servers, topic, [])


def test_a_job_without_a_name_leaves_no_record(servers: str, topic: str, options: SinkOptions) -> None:
    job = new_job(options)
    with Committer(options) as committer:
        assert committer.begin(job)
        committer.commit(job, written(options, job, b"a"))
    check_committed(servers, topic, [b"a"])
    assert last_record(options, job) is None


# --- Expiry ---


def test_a_transaction_that_expires_before_the_commit_is_an_error_and_nothing_is_committed(
    servers: str, topic: str, options: SinkOptions, query: Delivery
) -> None:
    with Committer(options) as committer:
        assert committer.begin(query)
        (short,) = written(options, query, b"a", timeout_ms=500)
        (other,) = written(options, query, b"b", first=1)
        wait_until_aborted(options, [short])
        with pytest.raises(DeliveryNotCommittedError) as told:
            committer.commit(query, [short, other._replace(partition=1)])
        assert (
            f"nothing of micro-batch 0 of {query.key} was committed: the transactions of Spark partitions 0 were"
            in (str(told.value))
        )
        again = restarted(query)
        assert committer.begin(again)
        committer.commit(again, written(options, again, b"a", b"b"))
    check_committed(servers, topic, [b"a", b"b"])


def test_a_recorded_delivery_of_which_nothing_was_committed_is_written_again(
    servers: str, topic: str, options: SinkOptions, query: Delivery, caplog: pytest.LogCaptureFixture
) -> None:
    (short,) = written(options, query, b"a", timeout_ms=500)
    (other,) = written(options, query, b"b", first=1)
    record(options, query, [short, other._replace(partition=1)])
    wait_until_aborted(options, [short])
    again = restarted(query)
    with Committer(options) as committer, caplog.at_level(logging.WARNING):
        assert committer.begin(again)
        assert f"{again} was recorded, but its transactions have expired" in caplog.text
        found = committer._last(query)
        assert found is not None
        assert found.progress is Progress.ABORTED
        committer.commit(again, written(options, again, b"a", b"b"))
    check_committed(servers, topic, [b"a", b"b"])


def test_a_part_that_expired_after_another_was_committed_is_an_error_that_names_the_batch(
    servers: str, topic: str, options: SinkOptions, query: Delivery
) -> None:
    batch = after(query, 17)
    (short,) = written(options, batch, b"lost", timeout_ms=500)
    rest = written(options, batch, b"b", b"c", first=1)
    attempts = [short, *(each._replace(partition=number) for number, each in enumerate(rest, 1))]
    record(options, batch, attempts)
    end(options, attempts[1], commit=True)
    wait_until_aborted(options, [short])
    # each start raises it
    for _ in range(2):
        with Committer(options) as committer, pytest.raises(DeliveryPartlyLostError) as told:
            committer.begin(restarted(batch))
        expected = f"micro-batch 17 of {query.key} was committed partly: the transactions of Spark partitions 0 of 3"
        assert expected in str(told.value)
    # the rest is committed, because a part of it was
    check_committed(servers, topic, [b"b", b"c"])
    # once Spark has written the micro-batch at least once and gone on, so does the sink
    following = restarted(after(batch))
    with Committer(options) as committer:
        assert committer.begin(following)
        committer.commit(following, written(options, following, b"d"))
    check_committed(servers, topic, [b"b", b"c", b"d"])


# --- The log of commits and the timeout ---


def test_the_last_record_is_found_behind_many_others(options: SinkOptions, query: Delivery) -> None:
    with Committer(options) as committer:
        log = committer._commits
        log.append(query.key, b"old")
        log.append(query.key, b"first")
        for number in range(700):
            log.append(f"other {number % 50}", b"x" * 100)
        assert log.last(query.key) == b"first"
        assert log.last(f"{query.key}2") is None
        log.append(query.key, b"second")
        assert log.last(query.key) == b"second"
        log.append(query.key, None)
        assert log.last(query.key) is None


def test_the_timeout_is_the_brokers_maximum(servers: str, options: SinkOptions) -> None:
    with Committer(options) as committer:
        assert committer.max_timeout_ms() == 900_000


def test_the_timeout_is_found_by_trying_if_the_brokers_do_not_tell(
    options: SinkOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeing the configuration of brokers is a right that few programs have."""
    monkeypatch.setattr(Committer, "_described_max_timeout_ms", lambda committer: None)
    with Committer(options) as committer:
        assert committer.max_timeout_ms() == 900_000
    monkeypatch.setattr("headrace.producer.spark.committer.DEFAULT_MAX_TIMEOUT_MS", 2_000_000)
    with Committer(options) as committer:
        assert committer.max_timeout_ms() == 500_000


def topic_config(servers: str) -> dict[str, Any]:
    from confluent_kafka.admin import AdminClient, ConfigResource  # noqa: PLC0415

    resource = ConfigResource("topic", TOPIC)
    admin = AdminClient({"bootstrap.servers": servers})
    described = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    return {name: entry.value for name, entry in described.items()}


def test_the_log_is_a_compacted_topic(servers: str, options: SinkOptions, query: Delivery) -> None:
    assert last_record(options, query) is None
    found = topic_config(servers)
    assert (found["cleanup.policy"], found["segment.bytes"]) == ("compact", str(16 * 2**20))
