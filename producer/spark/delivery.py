"""The decisions of exactly-once delivery, without I/O: names of transactions, records of commits, and what follows.

Theory of operation. A *delivery* takes effect once, as a whole: a micro-batch of a streaming query, or a job. Each
attempt of a task writes in a transaction of its own, whose id no other attempt uses. The driver then

1. describes the transactions of the attempts that Spark has accepted, one per Spark partition: if one is no longer
   open, it aborts all of them, and nothing of the delivery takes effect;
2. records them as PREPARED in the log of commits;
3. commits them;
4. records the delivery as COMMITTED.

A driver that is started again reads the record. Before 2 there is none, and the delivery is written again. Between 2
and 4 it commits what is recorded. After 4 it skips the delivery. If a recorded transaction is lost, what follows
depends on the others. If none of them can have been committed, the driver aborts them and records ABORTED, and the
delivery is written again. Otherwise it commits the rest and raises an error.

Invariants. A recorded transaction is committed or lost, never aborted by a sink unless all recorded ones are aborted.
No id is in use twice: it has the run (a start of a query, or a job) and the number of the task's attempt, which is
unique in a Spark application. A query begins again after IDS_PER_RUN of them.

Source: Flink's KafkaCommitter and TransactionNamingStrategy; Spark's pull request 25618.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from ...network.protocol.errors import IllegalStateError, KafkaError
from ...network.protocol.messages.transactions.describe_transactions import DescribedTransaction
from ..resumption import ONGOING, PreparedTransaction

AT_LEAST_ONCE = "at_least_once"
EXACTLY_ONCE = "exactly_once"
GUARANTEES = (AT_LEAST_ONCE, EXACTLY_ONCE)

#: The number of ids after which a query's are used again. Brokers keep each for `transactional.id.expiration.ms` (a
#: week), so that ids without an end would fill their memory.
IDS_PER_RUN = 131_072
#: Hexadecimal digits of a run in a transactional id.
RUN_DIGITS = 12

_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Delivery:
    """A micro-batch or a job. `key` is the prefix and the name of the query or job; `batch` is 0 for a job.

    `is_named`: whether it may be written again, as micro-batches and jobs with a `delivery.id` are.
    """

    key: str
    run: str
    batch: int = 0
    is_job: bool = False
    is_named: bool = True

    def transactional_id(self, task_attempt: int) -> str:
        """The id of the transaction of one attempt. `task_attempt`: its number in the Spark application."""
        return f"{self.key}-{self.run}-{task_attempt if self.is_job else task_attempt % IDS_PER_RUN}"

    @property
    def pattern(self) -> str:
        """A regular expression for the ids of all runs of the query or job."""
        return rf"{re.escape(self.key)}-[0-9a-f]{{{RUN_DIGITS}}}-[0-9]+"

    def __str__(self) -> str:
        return f"job {self.key}" if self.is_job else f"micro-batch {self.batch} of {self.key}"


class Attempt(NamedTuple):
    """What an attempt of a task has written. `number` counts from 0; `prepared` is None if it had no rows."""

    partition: int
    number: int
    prepared: PreparedTransaction | None


class Progress(Enum):
    """How far a recorded delivery got."""

    PREPARED = "prepared"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclasses.dataclass(frozen=True)
class CommitRecord:
    """A record of a query or job, of which the last one counts. `transactions`: Spark partitions with theirs."""

    progress: Progress
    run: str
    batch: int
    transactions: tuple[tuple[int, PreparedTransaction], ...] = ()

    @classmethod
    def prepared(cls, delivery: Delivery, attempts: Iterable[Attempt]) -> CommitRecord:
        """The record before the first commit."""
        given = sorted((each.partition, each.prepared) for each in attempts if each.prepared is not None)
        return cls(Progress.PREPARED, delivery.run, delivery.batch, tuple(given))

    def to_bytes(self) -> bytes:
        """The value of the record in the log. Ids are stored without what they have in common."""
        rows = [
            [partition, int(each.transactional_id.rpartition("-")[2]), each.producer_id, each.producer_epoch]
            for partition, each in self.transactions
        ]
        content = {
            "version": _VERSION,
            "progress": self.progress.value,
            "run": self.run,
            "batch": self.batch,
            "transactions": rows,
        }
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, key: str, value: bytes) -> CommitRecord:
        """The record of a query or job. Raises KafkaError if it can't be read."""
        try:
            content = json.loads(value)
            if content["version"] != _VERSION:
                raise ValueError(f"its version is {content['version']}, not {_VERSION}")
            run = content["run"]
            transactions = tuple(
                (int(partition), PreparedTransaction(f"{key}-{run}-{number}", int(producer_id), int(epoch)))
                for partition, number, producer_id, epoch in content["transactions"]
            )
            return cls(Progress(content["progress"]), run, int(content["batch"]), transactions)
        except (ValueError, KeyError, TypeError) as wrong:
            raise KafkaError(
                f"the record of {key} in the log of commits can't be read ({type(wrong).__name__}: {wrong}): was it "
                f"written by a newer Headrace?"
            ) from wrong


class Step(Enum):
    """What a driver does with a delivery, given the record of its query or job."""

    WRITE = "write it"
    FINISH = "finish the recorded commit of the same delivery"
    SKIP = "skip it: it is committed"
    SUPERSEDE = "abort what is left of an earlier delivery, and write it"


def next_step(record: CommitRecord | None, delivery: Delivery) -> Step:
    """Decide what to do with a delivery that begins. Raises IllegalStateError if it can't follow the record."""
    if record is None:
        return Step.WRITE
    if delivery.batch < record.batch:
        raise IllegalStateError(
            f"{delivery} can't be written: micro-batch {record.batch} of the query has been committed already, so its "
            f"checkpoint is older than its output. Restore the newer checkpoint, or start a new query with a new one"
        )
    if delivery.batch > record.batch:
        return Step.SUPERSEDE if record.progress is Progress.PREPARED else Step.WRITE
    if record.progress is Progress.PREPARED:
        return Step.FINISH
    if record.progress is Progress.ABORTED:
        return Step.WRITE
    if record.run == delivery.run:
        raise IllegalStateError(
            f"{delivery} is written twice by the same run: give each sink that a query writes to a delivery.id of its "
            f"own, and call write_batch once per sink and micro-batch"
        )
    return Step.SKIP


class Fate(Enum):
    """What has become of a prepared transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


_COMMITTED = ("PrepareCommit", "CompleteCommit")
_ABORTED = ("PrepareAbort", "CompleteAbort", "PrepareEpochFence", "Dead")


def fate_of(prepared: PreparedTransaction, described: DescribedTransaction | None) -> Fate:
    """What has become of a transaction, from the coordinator's description of its id.

    Ending a transaction increments the epoch with TV2, and not with the classic protocol.
    """
    if described is None or described.producer_id != prepared.producer_id:
        return Fate.UNKNOWN
    state, epochs = described.transaction_state, described.producer_epoch - prepared.producer_epoch
    if state == ONGOING:
        return Fate.OPEN if epochs == 0 else Fate.UNKNOWN
    if state in _COMMITTED and epochs in (0, 1):
        return Fate.COMMITTED
    return Fate.ABORTED if state in _ABORTED else Fate.UNKNOWN


class Outcome(Enum):
    """What a driver does with prepared transactions."""

    COMMIT = "commit those that are open"
    ABORT = "abort those that are open: nothing of the delivery takes effect"
    LOST = "commit those that are open, and raise an error: a part of the delivery is lost"


def outcome_of(fates: Iterable[Fate], *, is_recorded: bool) -> Outcome:
    """Decide about the transactions of a delivery. `is_recorded`: whether some of them may be committed."""
    found = set(fates)
    if not found & {Fate.ABORTED, Fate.UNKNOWN}:
        return Outcome.COMMIT
    if is_recorded and found & {Fate.COMMITTED, Fate.UNKNOWN}:
        return Outcome.LOST
    return Outcome.ABORT


def open_ones(
    transactions: Sequence[tuple[int, PreparedTransaction]], fates: Mapping[PreparedTransaction, Fate]
) -> list[PreparedTransaction]:
    """The transactions that have not ended."""
    return [each for _, each in transactions if fates[each] is Fate.OPEN]


def partitions_text(partitions: Iterable[int]) -> str:
    """Spark partitions for a message: all numbers, or the first ones and how many more."""
    ordered = sorted(partitions)
    shown = ", ".join(map(str, ordered[:10]))
    return shown if len(ordered) <= 10 else f"{shown} and {len(ordered) - 10} more"
