"""The calls of a transactional producer: the part of `KafkaProducer` that `docs/transactions.md` describes.

Source: Kafka's KafkaProducer (KIP-98, KIP-447); names and arguments are kafka-python's.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..network.protocol.errors import IllegalStateError, KafkaError, TransactionAbortableError
from .threads import check_may_wait

if TYPE_CHECKING:
    from .engine import Engine
    from .resumption import PreparedTransaction
    from .sender.transaction import Transaction

_log = logging.getLogger(__name__)


class TransactionCalls:
    """The transactional half of `KafkaProducer`. Any thread may call, but not within a callback.

    All calls but `begin_transaction` wait for the brokers, at most ``max.block.ms``, and raise KafkaTimeoutError after
    that. They continue in the background: only the same call may follow, and waits for the same outcome.

    The errors of all calls, and what the program has to do (`docs/errors.md`):

    - TransactionAbortableError: call `abort_transaction`, then begin again. `__cause__` is the reason.
    - ApplicationRecoverableError, such as ProducerFencedError: close the producer and start a new one.
    - InvalidConfigurationError, such as AuthorizationError: close the producer and correct the configuration.
    - IllegalStateError: the call is not allowed now, or the producer has no ``transactional.id``.
    """

    if TYPE_CHECKING:

        def _usable_engine(self) -> Engine: ...
        def _take_direct_path(self) -> None: ...
        def _leave_direct_path(self) -> None: ...
        @property
        def _may_send_directly(self) -> bool: ...

    def init_transactions(self) -> None:
        """Get a producer id from the transaction coordinator. Once per producer, before all other calls.

        Completes or aborts what an earlier producer with the same ``transactional.id`` left unfinished, and fences that
        producer. Raises InvalidTransactionTimeoutError if ``transaction.timeout.ms`` is above the brokers' maximum.
        After TransactionalIdAuthorizationFailedError it may be called again. The others are listed in the class.
        """
        self._call_transaction("init", lambda transaction: transaction.init())

    def begin_transaction(self) -> None:
        """Open a transaction, to which all records belong that are sent before it is committed or aborted.

        Doesn't wait. The errors are listed in the class.
        """

        def begin(transaction: Transaction) -> None:
            transaction.begin()
            if self._may_send_directly:
                self._take_direct_path()

        self._call_transaction("begin", begin)

    def send_offsets_to_transaction(self, offsets: Any, group_metadata: Any) -> None:
        """Commit the offsets of a consumer group as part of the transaction.

        `offsets`: the offsets of the next records to consume. A mapping of TopicPartition, or (topic, partition), to
        OffsetAndMetadata or an int; or confluent-kafka's list of TopicPartition. An empty one does nothing.
        `group_metadata`: what `consumer_group_metadata()` of confluent-kafka's consumer or `group_metadata()` of
        kafka-python's returns, or a group id. Group metadata fence a consumer that its group has replaced (KIP-447,
        Kafka 2.5 and later); a group id does not.

        If the group has replaced the consumer, raises TransactionAbortableError. Raises IllegalArgumentError for other
        arguments. The other errors are listed in the class.
        """
        from .group_offsets import group_member, offsets_by_partition  # noqa: PLC0415 - few producers commit offsets

        member = group_member(group_metadata)
        given = offsets_by_partition(offsets)
        self._call_transaction(
            "send_offsets",
            lambda transaction: transaction.send_offsets(given, member) if given else transaction.check_send(),
        )

    def commit_transaction(self) -> None:
        """Send all records of the transaction, wait until they are acknowledged, and commit it.

        Raises TransactionAbortableError if a record failed. The other errors are listed in the class. Threads that send
        must have returned from `send`, or their records may become part of the next transaction.
        """

        def commit(transaction: Transaction) -> None:
            self._leave_direct_path()
            transaction.commit()

        self._call_transaction("commit", commit)

    def abort_transaction(self) -> None:
        """Abort the transaction. Records that are not acknowledged fail with TransactionAbortedError.

        Waits for requests in flight. The errors are listed in the class; an abort never raises
        TransactionAbortableError unless the next transaction can't get a new epoch, after which it may be repeated.
        """

        def abort(transaction: Transaction) -> None:
            self._leave_direct_path()
            transaction.abort()

        self._call_transaction("abort", abort)

    def _hand_over_transaction(self) -> PreparedTransaction | None:
        """Flush the transaction and leave it open for another process to end it (`producer.resumption`).

        Returns None if the transaction has no records: there is nothing to end. The producer can only be closed then,
        which doesn't abort the transaction. Raises what `commit_transaction` raises.
        """
        from .resumption import PreparedTransaction  # noqa: PLC0415 - only Spark's sinks hand over

        prepared: list[PreparedTransaction] = []

        def hand_over(transaction: Transaction) -> None:
            engine = self._usable_engine()
            transaction.check_send()
            self._leave_direct_path()
            engine.accumulator.flush(float(engine.config.max_block_ms))
            transaction.hand_over()
            manager = engine.transactions
            if manager is not None and manager.gate is not None and manager.gate.is_started:
                prepared.append(
                    PreparedTransaction(transaction.transactional_id, manager.producer_id, manager.producer_epoch)
                )

        self._call_transaction("commit", hand_over)
        return prepared[0] if prepared else None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """``with producer.transaction():`` begins a transaction, and commits it at the end of the block.

        After an exception it aborts the transaction and raises the exception again. If the commit fails with
        TransactionAbortableError, it aborts, too, and raises that error. If the commit times out, the outcome is
        unknown: `commit_transaction` may be called again.
        """
        self.begin_transaction()
        try:
            yield
        except BaseException as cause:
            self._abort_after(cause)
            raise
        try:
            self.commit_transaction()
        except TransactionAbortableError:
            self.abort_transaction()
            raise

    def _abort_after(self, cause: BaseException) -> None:
        try:
            self.abort_transaction()
        except KafkaError as error:
            if isinstance(cause, KafkaError):
                # the later error says what the program has to do now
                raise error from cause
            _log.warning("the transaction could not be aborted after %s: %s", type(cause).__name__, error)

    def _call_transaction(self, name: str, call: Callable[[Transaction], None]) -> None:
        check_may_wait("a call of a transaction")
        engine = self._usable_engine()
        transaction = engine.transaction
        if transaction is None:
            raise IllegalStateError("this producer has no transactions: set transactional.id to use them")
        if engine.is_own_thread:
            raise IllegalStateError("a transaction can't be controlled in a callback: it would wait for its own thread")
        started_ms = engine.clock.now_ms()
        try:
            call(transaction)
        finally:
            engine.metrics.ran_transaction_call(name, engine.clock.now_ms() - started_ms)
