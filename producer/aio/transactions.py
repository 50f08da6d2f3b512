"""The transactions of an `AsyncKafkaProducer`: the calls of `producer.transactions`, awaited.

Source: aiokafka's AIOKafkaProducer for names and arguments, Kafka's KafkaProducer (KIP-98, KIP-447) for what they do.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from ...network.protocol.errors import IllegalStateError, KafkaError, TransactionAbortableError
from ..group_offsets import group_member, offsets_by_partition
from ..sender.transaction import Call, Event, OffsetsToCommit, State, Transaction
from .waiting import await_latch

if TYPE_CHECKING:
    from .direct import DirectProducer
    from .loop_face import LoopFace

_log = logging.getLogger(__name__)


class AsyncTransactionCalls:
    """The transactional half of `AsyncKafkaProducer`. `start` gets the producer id that it needs.

    The calls wait for the brokers, at most ``max.block.ms``, and raise KafkaTimeoutError after that. A call that timed
    out, or whose task was cancelled, continues in the background: only the same call may follow, and waits for the same
    outcome. `TransactionCalls` lists the errors of all calls, and what the program has to do.
    """

    if TYPE_CHECKING:
        _producer: DirectProducer

        def _face_here(self) -> LoopFace: ...

    async def begin_transaction(self) -> None:
        """Open a transaction, to which all records belong that are sent before it is committed or aborted.

        Raises IllegalStateError if `start` has not been awaited.
        """
        transaction = self._transaction()
        with self._producer.timed_transaction_call("begin"):
            transaction.begin()
            self._producer.allow_direct_path()

    async def send_offsets_to_transaction(self, offsets: Any, group_id: Any) -> None:
        """Commit the offsets of a consumer group as part of the transaction.

        `offsets`: the offsets of the next records to consume. A mapping of TopicPartition, or (topic, partition), to
        OffsetAndMetadata or an int, such as aiokafka's consumers give. An empty one does nothing.
        `group_id`: the group's id, or the group metadata of confluent-kafka's or kafka-python's consumer, which fence a
        consumer that its group has replaced.
        """
        transaction = self._transaction()
        member, given = group_member(group_id), offsets_by_partition(offsets)
        if given:
            await self._await_call("send_offsets", Call(Event.OFFSETS, OffsetsToCommit(given, member)))
        else:
            transaction.check_send()

    async def commit_transaction(self) -> None:
        """Send all records of the transaction, wait until they are acknowledged, and commit it.

        Tasks that send must have returned from `send`, or their records may become part of the next transaction.
        """
        self._producer.forbid_direct_path()
        await self._await_call("commit", Call(Event.COMMIT))

    async def abort_transaction(self) -> None:
        """Abort the transaction. Records that are not acknowledged fail with TransactionAbortedError."""
        self._producer.forbid_direct_path()
        await self._await_call("abort", Call(Event.ABORT))

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """``async with producer.transaction():`` begins a transaction, and commits it at the end of the block.

        After an exception, also that of a cancelled task, it aborts the transaction and raises the exception again. If
        the commit fails with TransactionAbortableError, it aborts, too, and raises that error. If the commit times out
        or is cancelled, the outcome is unknown: `commit_transaction` may be called again.
        """
        await self.begin_transaction()
        try:
            yield
        except BaseException as cause:
            await self._abort_after(cause)
            raise
        try:
            await self.commit_transaction()
        except TransactionAbortableError:
            await self.abort_transaction()
            raise

    async def _abort_after(self, cause: BaseException) -> None:
        try:
            await self.abort_transaction()
        except KafkaError as error:
            if isinstance(cause, KafkaError):
                # the later error says what the program has to do now
                raise error from cause
            _log.warning("the transaction could not be aborted after %s: %s", type(cause).__name__, error)

    async def _init_transactions(self) -> None:
        """Get a producer id, unless the producer has one or has no ``transactional.id``."""
        transaction = self._face_here().engine.transaction
        if transaction is not None and transaction.state in (State.UNINITIALIZED, State.INITIALIZING):
            await self._await_call("init", Call(Event.INIT))

    def _transaction(self) -> Transaction:
        transaction = self._face_here().engine.transaction
        if transaction is None:
            raise IllegalStateError("this producer has no transactions: set transactional.id to use them")
        return transaction

    async def _await_call(self, name: str, call: Call) -> None:
        transaction = self._transaction()
        with self._producer.timed_transaction_call(name):
            call = transaction.start(call)
            is_done = await await_latch(call.done, float(self._producer.config.max_block_ms))
            transaction.finish(call, is_done=is_done)
