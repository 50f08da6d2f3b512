# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""What happens to a batch that was sent, or that can't be: it is completed, sent again, split or failed.

Source: `completeBatch`, `failBatch` and `canRetry` in Kafka's Sender.
"""

from __future__ import annotations

import logging
from copy import copy
from typing import TYPE_CHECKING

from ...network import _cython as cython
from ...network.latch_cy import LateWakes
from ...network.metadata import Metadata
from ...network.protocol import errors
from ...network.protocol.errors import KafkaError
from ...network.protocol.messages.records.produce import PartitionProduceResponse
from ...network.repeats import Repeats
from ..accumulator.batch_split import split_batch
from ..metrics import ProducerMetrics
from ..record_errors import delivery_timeout, rejected_records
from .callbacks import Callbacks
from .delivery import InLog, Verdict, action_for
from .recent_errors import RecentErrors
from .transaction_manager_cy import NO_OFFSET, broker_lacks_batch

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from ...network.client.request_cy import KafkaClient
    from ...network.clock import Clock
    from ..accumulator.accumulator_cy import RecordAccumulator
    from ..accumulator.batch_cy import ProducerBatch
    from .transaction_manager_cy import TransactionManager
elif not TYPE_CHECKING:
    from cython.cimports.headrace.network.client.request_cy import KafkaClient
    from cython.cimports.headrace.network.latch_cy import LateWakes
    from cython.cimports.headrace.network.time_cy import Clock
    from cython.cimports.headrace.producer.accumulator.accumulator_cy import RecordAccumulator
    from cython.cimports.headrace.producer.accumulator.batch_cy import ProducerBatch
    from cython.cimports.headrace.producer.sender.transaction_manager_cy import TransactionManager

if TYPE_CHECKING:
    from .compressors import Compressors
    from .transaction_requests import TransactionRequests

_log = logging.getLogger(__name__)


@cython.final
@cython.cclass
class Outcomes:
    """Ends batches, or sends them again. Belongs to the sender thread.

    A batch's buffer returns to the pool only when the batch is complete *and* no request holds the buffer.
    """

    if not cython.compiled:
        # for type checkers; outcomes_cy.pxd has the C types
        retries_end: bool

    def __init__(
        self,
        *,
        client: KafkaClient,
        metadata: Metadata,
        accumulator: RecordAccumulator,
        transactions: TransactionManager | None,
        transaction: TransactionRequests | None,
        clock: Clock,
        compressors: Compressors | None,
        delivery_timeout_ms: float,
        retries: int,
        metrics: ProducerMetrics,
        callbacks: Callbacks,
        late_wakes: LateWakes,
    ) -> None:
        """The arguments are those of the `Sender`."""
        self._client = client
        self._metadata = metadata
        self._accumulator = accumulator
        self._transactions = transactions
        self._transaction = transaction
        self._clock = clock
        self._compressors = compressors
        self._delivery_timeout_ms = delivery_timeout_ms
        self._retries = retries
        self._metrics = metrics
        self._callbacks = callbacks
        self._late_wakes = late_wakes
        self._repeats = Repeats()
        #: Set once no batch is to be sent again.
        self.retries_end = False
        #: The last errors of batches. Any thread may read them.
        self.recent_errors = RecentErrors()

    @cython.cfunc
    def complete(self, batch: ProducerBatch, base_offset: cython.longlong, log_append_time: cython.longlong) -> object:
        """Complete a batch as delivered; `base_offset` is -1 if it is not known."""
        if self._transactions is not None:
            self._transactions.completed(batch)
            if self._transaction is not None and self._transaction.delivered(batch):
                return None
        first: cython.bint = batch.complete_quietly(base_offset, log_append_time)
        if batch.latch is not None:
            self._late_wakes.add(batch.latch)
        if first and not batch.settled:
            self._callbacks.settle(batch, self._accumulator)
        elif self._compressors is None:
            # it has no callbacks, or it expired in flight: nothing reads its buffer any longer
            self._accumulator.release(batch)
        else:
            self._compressors.keep(batch)
        return None

    def attempt_failed(
        self, batch: ProducerBatch, error: KafkaError, answer: PartitionProduceResponse | None, now_ms: float
    ) -> None:
        """Do with a batch what the table in `delivery.py` says of the error of an attempt.

        `answer`: what the broker said about it, if it said anything.
        """
        if batch.done:
            # it expired in flight; now nothing reads its buffer any longer
            self._accumulator.release(batch)
            return
        action = action_for(error)
        if action.refresh_metadata:
            self._metadata.request_update()
        with cython.critical_section(batch):
            # `describe` reads it on another thread
            batch.last_error = error
        if action.in_log is not InLog.NO:
            batch.maybe_persisted_error = error
        elif self._transactions is not None and batch.has_sequence and broker_lacks_batch(error):
            batch.maybe_persisted_error = None
        if action.verdict is Verdict.SPLIT and batch.count > 1:
            self._metrics.split(now_ms)
            self._split(batch)
        elif action.verdict is Verdict.COMPLETE:
            self.complete(batch, -1, -1)
        elif self._may_retry(batch, error, action.verdict, answer, now_ms):
            level = self._repeats.level((batch.topic, type(error)), logging.WARNING, now_ms)
            _log.log(level, "%s: attempt %d failed, will be sent again: %s", batch, batch.attempts + 1, error)
            self._metrics.retried(batch, now_ms)
            self.recent_errors.note(batch.topic, error, batch.count, now_ms, failed=False)
            self._accumulator.reenqueue(batch, now_ms)
        else:
            record_errors = rejected_records(answer, error) if answer is not None else None
            # A batch with a retriable error may be in the log. Until that is known, no later batch may take its place
            # in the sequence.
            given_up = action.verdict is Verdict.RETRY
            if given_up and self._transactions is not None and batch.has_sequence:
                self._transactions.mark_unresolved(batch)
            if given_up and self._is_late(batch, now_ms):
                error, record_errors = self._expired(batch, batch.attempts + 1, now_ms), None
            elif action.in_log is InLog.NO and batch.maybe_persisted_error is not None:
                # this attempt didn't append it, but an earlier one may have; copied, as other batches share the error
                error = copy(error)
                for each in (error, *(record_errors or {}).values()):
                    each.__cause__ = batch.maybe_persisted_error
            self.fail(batch, error, adjust=not given_up, record_errors=record_errors)

    def _may_retry(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        verdict: Verdict,
        answer: PartitionProduceResponse | None,
        now_ms: float,
    ) -> bool:
        if verdict is not Verdict.RETRY or batch.attempts >= self._retries or self.retries_end:
            return False
        if self._is_late(batch, now_ms):
            return False
        if self._transactions is not None:
            log_start_offset = NO_OFFSET if answer is None else answer.log_start_offset
            return self._transactions.can_retry(batch, error, log_start_offset)
        return isinstance(error, errors.RetriableError)

    def _split(self, batch: ProducerBatch) -> None:
        _log.warning("%s exceeds the broker's message.max.bytes: it is split and sent again", batch)
        self._accumulator.note_rejected(batch)
        self.replace(batch, split_batch(batch))

    def replace(self, batch: ProducerBatch, children: list[tuple[int, ProducerBatch]]) -> None:
        """Send the `children`, each with the index of its first record, in place of a batch."""
        parts = [child for _, child in children]
        if self._transactions is not None:
            self._transactions.replaced(batch, parts)
        self._accumulator.replace(batch, parts)
        batch.split_into(children)
        # the parts hold its memory now
        self._accumulator.forget(batch)

    def fail(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        *,
        adjust: bool,
        record_errors: dict[int, BaseException] | None = None,
    ) -> None:
        """Fail a batch. `adjust`: its sequence numbers were not used, so the batches behind it need new ones.

        `record_errors`: the errors of records that the broker rejected by themselves, by index.
        """
        if self._transactions is not None and batch.has_sequence:
            self._transactions.failed(batch, error, adjust)
        if self._transaction is not None:
            self._transaction.batch_failed(batch, error)
        now_ms = self._clock.now_ms()
        self._metrics.failed(batch, now_ms)
        self.recent_errors.note(batch.topic, error, batch.count, now_ms, failed=True)
        batch.fail(error, record_errors)
        self._callbacks.settle(batch, None if batch.in_flight else self._accumulator)

    def fail_incomplete(self, error: KafkaError) -> None:
        """Fail every incomplete batch, in flight or not."""
        for batch in self._accumulator.incomplete_batches():
            if batch.fail(error):
                self._metrics.failed(batch, self._clock.now_ms())
                self._callbacks.settle(batch, self._accumulator)

    def _is_late(self, batch: ProducerBatch, now_ms: float) -> bool:
        return now_ms - batch.created_ms >= self._delivery_timeout_ms

    def _expired(self, batch: ProducerBatch, attempts: int, now_ms: float) -> errors.DeliveryTimeoutError:
        age_ms = now_ms - batch.created_ms
        # the error of the batch's own broker, which others may hide by answering
        known = self._metadata.cluster.partition(batch.topic_partition)
        error = None if known is None or known.leader is None else self._client.connection_error(known.leader.id)
        return delivery_timeout(
            batch,
            attempts,
            age_ms,
            self._delivery_timeout_ms,
            error or self._metadata.last_error,
            leaderless=known is not None and known.leader is None,
        )

    def fail_expired(self, batch: ProducerBatch, now_ms: float) -> None:
        """Fail a batch whose ``delivery.timeout.ms`` is over."""
        error = self._expired(batch, batch.attempts + (1 if batch.in_flight else 0), now_ms)
        if self._transactions is not None and batch.has_sequence:
            self._transactions.mark_unresolved(batch)
        self.fail(batch, error, adjust=False)
