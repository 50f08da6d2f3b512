"""The driver's part of exactly-once delivery: records, commits and aborts what the tasks have written (`delivery`)."""

from __future__ import annotations

import concurrent.futures
import logging
from collections.abc import Iterable, Mapping, Sequence

from ...network.clock import SYSTEM_CLOCK, Clock
from ...network.protocol.errors import (
    DeliveryNotCommittedError,
    DeliveryPartlyLostError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    UnsupportedVersionError,
)
from ...network.protocol.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ..blocking_cluster import BlockingCluster
from ..resumption import AbandonedTransactions, PreparedTransaction
from .commit_log import CommitLog
from .delivery import (
    Attempt,
    CommitRecord,
    Delivery,
    Fate,
    Outcome,
    Progress,
    Step,
    fate_of,
    next_step,
    open_ones,
    outcome_of,
    partitions_text,
)
from .options import SinkOptions

_log = logging.getLogger(__name__)

#: Milliseconds: the brokers' default of `transaction.max.timeout.ms`, and the least to go down to.
DEFAULT_MAX_TIMEOUT_MS = 900_000
_LEAST_TIMEOUT_MS = 1_000
_MAX_TIMEOUT_KEY = "transaction.max.timeout.ms"
_BROKER_RESOURCE = 4

#: Threads that end transactions, and transactions for which another one is started.
_MAX_THREADS = 8
_PER_THREAD = 4
#: One of this number of micro-batches looks for transactions that are left behind without another reason to.
_SWEEP_EVERY = 16

#: The transaction has ended otherwise, or its id belongs to another producer.
_LOST = (InvalidTxnStateError, ProducerFencedError, InvalidProducerEpochError, InvalidProducerIdMappingError)


class Committer:
    """Commits deliveries. A context manager; for one thread.

    Methods block, at most ``delivery.timeout.ms`` for each request with its retries, and raise KafkaError.
    """

    def __init__(self, options: SinkOptions, clock: Clock = SYSTEM_CLOCK) -> None:
        """Connect to nothing yet."""
        self._options = options
        config = options.config
        self._cluster = BlockingCluster(config, timeout_ms=float(config.delivery_timeout_ms), clock=clock)
        self._transactions = AbandonedTransactions(self._cluster)
        self._commits = CommitLog(config, self._cluster)

    def __enter__(self) -> Committer:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()

    def begin(self, delivery: Delivery, attempts: Sequence[Attempt] = ()) -> bool:
        """Whether the delivery is to be written (or, if `attempts` has written it, committed).

        Finishes a recorded commit first. In the first delivery of a run it aborts the transactions that earlier runs
        have left open. Raises IllegalStateError if the delivery can't follow the last one, and DeliveryPartlyLostError.
        """
        record = self._last(delivery)
        step = next_step(record, delivery)
        if step is Step.SKIP or (step is Step.FINISH and record is not None and self._finish(delivery, record)):
            _log.info("%s has been committed before: it is skipped", delivery)
            return False
        if record is None:
            self._commits.check_compacted()
        elif step is Step.SUPERSEDE:
            _log.warning(
                "micro-batch %d was recorded and not finished, but Spark has gone on to %s: what is open is aborted",
                record.batch,
                delivery,
            )
        if record is None or record.run != delivery.run:
            self._sweep(delivery, (attempt.prepared for attempt in attempts if attempt.prepared is not None))
        return True

    def commit(self, delivery: Delivery, attempts: Sequence[Attempt]) -> None:
        """Record and commit what the attempts have written, one per Spark partition.

        Raises DeliveryNotCommittedError if nothing of it takes effect, and DeliveryPartlyLostError.
        """
        record = CommitRecord.prepared(delivery, attempts)
        if record.transactions:
            fates = self._fates(record.transactions)
            if outcome_of(fates.values(), is_recorded=False) is Outcome.ABORT:
                self._end(open_ones(record.transactions, fates), commit=False)
                raise self._not_committed(delivery, record, fates)
            self._append(delivery, record)
            if not self._finish(delivery, record):
                raise self._not_committed(delivery, record, self._fates(record.transactions))
        retried = any(attempt.number for attempt in attempts)
        if retried or delivery.is_job or delivery.batch % _SWEEP_EVERY == 0:
            self._sweep(delivery, ())

    def abort(self, delivery: Delivery, attempts: Iterable[Attempt]) -> None:
        """Abort what the attempts of a failed delivery have written, as far as possible, and log what is not.

        Spark calls this also after a failed commit. What is recorded stays as it is, to be finished.
        """
        try:
            record = self._last(delivery)
            kept = record.transactions if record is not None and record.progress is Progress.PREPARED else ()
            recorded = {each for _, each in kept}
            prepared = [attempt.prepared for attempt in attempts if attempt.prepared is not None]
            self._end([each for each in prepared if each not in recorded], commit=False)
            self._sweep(delivery, recorded)
        except KafkaError as error:
            _log.warning("%s: what its tasks wrote expires, because it could not be aborted: %s", delivery, error)

    def max_timeout_ms(self) -> int:
        """The brokers' maximum of ``transaction.timeout.ms``. If they don't show it, the largest that they accept."""
        described = self._cluster.retrying("DescribeConfigs", self._described_max_timeout_ms)
        if described is not None:
            return described
        timeout_ms = DEFAULT_MAX_TIMEOUT_MS
        while True:
            try:
                self._transactions.fence(f"{self._options.config.transactional_id}-timeout", timeout_ms)
            except InvalidTransactionTimeoutError:
                if timeout_ms <= _LEAST_TIMEOUT_MS:
                    raise
                timeout_ms //= 2
            else:
                return timeout_ms

    def _described_max_timeout_ms(self) -> int | None:
        """The configuration of one broker; None if this client has no right to see it."""
        node_id, address = next(iter(self._cluster.brokers().items()))
        resource = DescribeConfigsResource(
            resource_type=_BROKER_RESOURCE, resource_name=str(node_id), configuration_keys=[_MAX_TIMEOUT_KEY]
        )
        (result,) = self._cluster.ask(DescribeConfigsRequest(resources=[resource]), address).results
        values = [entry.value for entry in result.configs if entry.name == _MAX_TIMEOUT_KEY]
        return int(values[0]) if values and values[0] is not None else None

    # --- The log of commits ---

    def _last(self, delivery: Delivery) -> CommitRecord | None:
        value = self._commits.last(delivery.key)
        return None if value is None else CommitRecord.from_bytes(delivery.key, value)

    def _append(self, delivery: Delivery, record: CommitRecord) -> None:
        # nobody asks for the end of a job without a name
        is_forgotten = record.progress is not Progress.PREPARED and not delivery.is_named
        self._commits.append(delivery.key, None if is_forgotten else record.to_bytes())

    # --- Transactions ---

    def _finish(self, delivery: Delivery, record: CommitRecord) -> bool:
        """Commit what is recorded. Returns False if nothing of it can be committed, after aborting it.

        Raises DeliveryPartlyLostError.
        """
        lost: dict[PreparedTransaction, KafkaError] = {}
        while True:
            fates = self._fates(record.transactions)
            if any(fates[each] is Fate.OPEN for each in lost):
                # the brokers can't describe transactions, and have rejected the commit of these
                fates = {each: Fate.UNKNOWN if each in lost else fate for each, fate in fates.items()}
            outcome = outcome_of(fates.values(), is_recorded=True)
            if outcome is Outcome.ABORT:
                self._end(open_ones(record.transactions, fates), commit=False)
                self._append(delivery, CommitRecord(Progress.ABORTED, record.run, record.batch))
                _log.warning(
                    "%s was recorded, but its transactions have expired: nothing of it was committed, and it is "
                    "written again",
                    delivery,
                )
                return False
            try:
                failed = self._end(open_ones(record.transactions, fates), commit=True)
            except KafkaTimeoutError as late:
                raise KafkaTimeoutError(
                    f"{delivery} is recorded, and not all of its transactions are committed yet ({late}). "
                    f"{self._how_to_finish(delivery)}"
                ) from late
            if outcome is Outcome.LOST:
                fates = {**fates, **dict.fromkeys(failed, Fate.UNKNOWN)}
                raise self._partly_lost(delivery, record, fates)
            if not failed:
                self._append(delivery, CommitRecord(Progress.COMMITTED, record.run, record.batch))
                return True
            lost.update(failed)

    def _fates(self, transactions: Sequence[tuple[int, PreparedTransaction]]) -> Mapping[PreparedTransaction, Fate]:
        """What has become of the transactions. Before Kafka 3.0 they all seem open."""
        try:
            described = self._transactions.describe(each.transactional_id for _, each in transactions)
        except UnsupportedVersionError:
            return {each: Fate.OPEN for _, each in transactions}
        return {each: fate_of(each, described[each.transactional_id]) for _, each in transactions}

    def _end(
        self, transactions: Sequence[PreparedTransaction], *, commit: bool
    ) -> dict[PreparedTransaction, KafkaError]:
        """End all of them, and return those that have ended otherwise. Raises the first other error after that."""
        failed: dict[PreparedTransaction, KafkaError] = {}
        problems: list[KafkaError] = []

        def end(which: Sequence[PreparedTransaction], by: AbandonedTransactions) -> None:
            for each in which:
                try:
                    by.end(each, commit=commit)
                except _LOST as error:
                    failed[each] = error
                except KafkaError as error:
                    problems.append(error)

        def end_on_thread(which: Sequence[PreparedTransaction]) -> None:
            with self._cluster.for_another_thread() as cluster:
                end(which, AbandonedTransactions(cluster))

        threads = min(_MAX_THREADS, len(transactions) // _PER_THREAD)
        if threads < 2:
            end(transactions, self._transactions)
        else:
            with concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="headrace-spark-commit") as pool:
                list(pool.map(end_on_thread, [transactions[first::threads] for first in range(threads)]))
        if problems:
            raise problems[0]
        return failed

    def _sweep(self, delivery: Delivery, kept: Iterable[PreparedTransaction]) -> None:
        """Abort the open transactions of this query or job, except `kept`.

        They are left behind by killed drivers and workers, and keep readers from what is behind them.
        """
        spared = {each.transactional_id for each in kept}
        try:
            left = [each for each in self._transactions.ongoing(delivery.pattern) if each not in spared]
            for each in left:
                _log.info("%s: aborting the transaction %s, which was left open", delivery, each)
                self._transactions.fence(each)
        except UnsupportedVersionError:
            _log.info("%s: transactions that are left open expire by themselves on Kafka before 3.0", delivery)
        except KafkaError as error:
            _log.warning("%s: transactions that are left open expire, because of: %s", delivery, error)

    # --- Errors ---

    def _not_committed(
        self, delivery: Delivery, record: CommitRecord, fates: Mapping[PreparedTransaction, Fate]
    ) -> DeliveryNotCommittedError:
        lost = [partition for partition, each in record.transactions if fates[each] is not Fate.OPEN]
        again = "Write it again" if delivery.is_job else "Spark repeats it when the query is started again"
        return DeliveryNotCommittedError(
            f"nothing of {delivery} was committed: the transactions of Spark partitions {partitions_text(lost)} were "
            f"aborted before the driver could commit them, probably because the write took longer than "
            f"transaction.timeout.ms. {again}; more and shorter tasks, or a larger transaction.max.timeout.ms on the "
            f"brokers, prevent this"
        )

    def _partly_lost(
        self, delivery: Delivery, record: CommitRecord, fates: Mapping[PreparedTransaction, Fate]
    ) -> DeliveryPartlyLostError:
        lost = [partition for partition, each in record.transactions if fates[each] in (Fate.ABORTED, Fate.UNKNOWN)]
        ids = [each.transactional_id for _, each in record.transactions if fates[each] in (Fate.ABORTED, Fate.UNKNOWN)]
        return DeliveryPartlyLostError(
            f"{delivery} was committed partly: the transactions of Spark partitions {partitions_text(lost)} of "
            f"{len(record.transactions)} expired before a driver could finish the commit (the first is {ids[0]}). "
            f"Their rows are lost; those of the others are in the topic. docs/spark.md says how to go on"
        )

    def _how_to_finish(self, delivery: Delivery) -> str:
        if delivery.is_job:
            name = delivery.key.removeprefix(f"{self._options.config.transactional_id}-job-")
            return f"Write the same DataFrame with delivery.id={name} to finish it"
        return "Start the query again to finish it"
