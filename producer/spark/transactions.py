"""The tasks' part of exactly-once delivery: write a Spark partition in a transaction, and hand it over to the driver.

Each attempt of a task has a producer and a transactional id of its own. A failed attempt aborts its transaction; that
of a killed one stays open until a driver finds it or it expires.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from ...network.protocol.errors import IllegalStateError, KafkaConfigurationError, KafkaError
from ..kafka_producer import KafkaProducer
from .committer import Committer
from .delivery import RUN_DIGITS, Attempt, Delivery
from .options import SinkOptions
from .report import WriteReport
from .writer import PartitionWriter

_log = logging.getLogger(__name__)

#: The local properties of a streaming query's jobs. Spark sets the id of a run as the job group.
QUERY_ID = "sql.streaming.queryId"
RUN_ID = "spark.jobGroup.id"
BATCH_ID = "streaming.sql.batchId"

#: Seconds for which a failed attempt tries to abort its transaction.
_ABORT_S = 10.0


def write_in_transaction(
    options: SinkOptions,
    delivery: Delivery,
    timeout_ms: int,
    writer: Callable[..., PartitionWriter],
    source: Iterable[Any],
    context: Any,
    name: str,
) -> tuple[WriteReport, Attempt]:
    """Write one Spark partition. `timeout_ms`: ``transaction.timeout.ms``. `context`: the TaskContext.

    Runs in a Python worker. Raises RowDeliveryError for a row, and KafkaError for the transaction.
    """
    partition, number = context.partitionId(), context.attemptNumber()
    rows = iter(source)
    first = list(itertools.islice(rows, 1))
    if not first:
        # many tasks of a micro-batch have no rows, and need no transaction
        return WriteReport(tasks=1), Attempt(partition, number, None)
    transactional_id = delivery.transactional_id(context.taskAttemptId())
    producer = KafkaProducer(
        options.config._replaced({"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}, {})
    )
    try:
        producer.init_transactions()
        producer.begin_transaction()
        report = writer(producer, options, name).write(itertools.chain(first, rows))
        prepared = producer._hand_over_transaction()
    except BaseException:
        _abort(producer, transactional_id)
        raise
    producer.close()
    return report, Attempt(partition, number, prepared)


def _abort(producer: KafkaProducer, transactional_id: str) -> None:
    """Close the producer, which aborts its transaction, so that readers need not wait until it expires."""
    try:
        producer.close(_ABORT_S)
    except KafkaError as error:
        _log.warning("the transaction %s expires, because it could not be aborted: %s", transactional_id, error)


# --- Names ---


def new_job(options: SinkOptions) -> Delivery:
    """The delivery of a batch write: that of its `delivery.id`, or one that is never written again."""
    name = options.delivery_id
    return Delivery(
        key=f"{options.config.transactional_id}-job-{name or uuid.uuid4()}",
        run=uuid.uuid4().hex[:RUN_DIGITS],
        is_job=True,
        is_named=name is not None,
    )


def micro_batch(options: SinkOptions, batch: int, local_property: Callable[[str], str | None]) -> Delivery:
    """The delivery of a micro-batch, in a thread or a task with the local properties of its query.

    Raises IllegalStateError without them.
    """
    query, run = local_property(QUERY_ID), local_property(RUN_ID)
    if query is None or run is None:
        raise IllegalStateError(
            f"micro-batch {batch} does not belong to a streaming query: Spark has not set the local properties "
            f"{QUERY_ID} and {RUN_ID}. Call write_batch only in foreachBatch, in the thread in which Spark calls it"
        )
    suffix = "" if options.delivery_id is None else f"-{options.delivery_id}"
    digits = hashlib.sha256(run.encode()).hexdigest()[:RUN_DIGITS]
    return Delivery(key=f"{options.config.transactional_id}-query-{query}{suffix}", run=digits, batch=batch)


def micro_batch_of_connect(options: SinkOptions, batch: int) -> Delivery:
    """The delivery of a micro-batch in Spark Connect, in which `foreachBatch` does not learn the query's id.

    Spark starts a process per run of a query there. Raises KafkaConfigurationError without `delivery.id`.
    """
    if options.delivery_id is None:
        raise KafkaConfigurationError(
            "in Spark Connect foreachBatch does not learn the id of its query: set delivery.id to a name that only "
            "this query has, and that it keeps when it is started again; or use writeStream.format('headrace')"
        )
    return Delivery(key=f"{options.config.transactional_id}-query-{options.delivery_id}", run=_run, batch=batch)


# --- The timeout ---

_timeouts: dict[bytes, int] = {}


def transaction_timeout_ms(options: SinkOptions) -> int:
    """The timeout of the tasks' transactions: the configured one, or the brokers' maximum. Runs on the driver."""
    config = options.config
    if config.is_explicit("transaction.timeout.ms"):
        return config.transaction_timeout_ms
    known = _timeouts.get(options.digest)
    if known is None:
        with Committer(options) as committer:
            known = _timeouts[options.digest] = committer.max_timeout_ms()
    return known


_run = uuid.uuid4().hex[:RUN_DIGITS]


def _reset_after_fork() -> None:
    """A forked process is another run."""
    global _run  # noqa: PLW0603  (a fork makes a new process of the same module)
    _run = uuid.uuid4().hex[:RUN_DIGITS]


os.register_at_fork(after_in_child=_reset_after_fork)
