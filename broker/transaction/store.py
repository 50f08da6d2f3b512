"""The transactions whose partition of `__transaction_state` this broker leads (Kafka's `TransactionStateManager`)."""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable
from typing import NamedTuple

from ...network.clock import Clock
from ...network.protocol.errors import (
    BrokerResponseError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    KafkaStorageError,
    MessageSizeTooLargeError,
    NotCoordinatorError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    RequestTimedOutError,
    UnknownError,
    UnknownTopicOrPartitionError,
)
from ...network.records.builder_cy import build_batch
from ..config.broker_config import BrokerConfig
from ..internal_topics import TRANSACTIONS_TOPIC, InternalTopic, NewInternalTopic, TopicMaker
from ..metadata import PartitionKey
from ..replica.delayed_produce import ProduceResult
from ..replica.manager import ReplicaManager
from ..replica.partition import OwnBatch, Partition
from ..scheduler import Scheduler
from .log_format import decode_key, decode_value, encode_key, encode_value
from .states import Event, TransactionState, outcome_of
from .transaction import Transaction, TransactionValues

_log = logging.getLogger(__name__)

Done = Callable[[BrokerResponseError | None], None]

_NOT_AVAILABLE = (
    UnknownTopicOrPartitionError,
    NotEnoughReplicasError,
    NotEnoughReplicasAfterAppendError,
    RequestTimedOutError,
)


class _Led(NamedTuple):
    """A partition of the transaction log that this broker leads: the epoch it was loaded in, and its transactions."""

    epoch: int
    transactions: dict[str, Transaction]


class TransactionStore:
    """The transactions of one broker. Any thread.

    `_lock` guards only the tables. A transaction's content is guarded by its own lock, which is never acquired while
    `_lock` is held. `on_loaded` is called with the transactions of a partition that this broker now leads,
    `on_unloaded` with those of one that it no longer leads.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        replicas: ReplicaManager,
        scheduler: Scheduler,
        controller: TopicMaker,
        level: Callable[[], int],
    ) -> None:
        """`level` returns the finalized level of `transaction.version`."""
        self.config = config
        self.clock = clock
        self.replicas = replicas
        self.scheduler = scheduler
        self.level = level
        self.internal_topic = InternalTopic(
            TRANSACTIONS_TOPIC, "transactional id", replicas, controller, self._new_topic
        )
        self._lock = threading.Lock()
        self._led: dict[int, _Led] = {}
        self._loading: set[int] = set()
        self.on_loaded: Callable[[list[Transaction]], None] = lambda _transactions: None
        self.on_unloaded: Callable[[list[Transaction]], None] = lambda _transactions: None

    def _new_topic(self) -> NewInternalTopic:
        config = self.config
        return NewInternalTopic(
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )

    # --- Which broker ---

    def coordinator_of(self, transactional_id: str) -> int:
        """The broker that coordinates a transactional id. Creates the topic if needed. Raises
        CoordinatorNotAvailableError."""
        return self.internal_topic.leader_of(transactional_id)

    def leadership_changed(self, partition: Partition) -> None:
        """Load or unload transactions: a replica of the transaction log has a new leader or epoch."""
        if partition.topic != TRANSACTIONS_TOPIC:
            return
        if partition.is_leader:
            self._load_later(partition)
        else:
            self.scheduler.schedule("unload-transactions", lambda: self._unload(partition), delay_ms=0)

    def _load_later(self, partition: Partition) -> None:
        index = partition.index
        with self._lock:
            led = self._led.get(index)
            if index in self._loading or (led is not None and led.epoch == partition.leader_epoch):
                return
            if led is None and partition.log.log_start_offset == partition.log.end.offset:
                # Nothing is stored yet, so clients need not wait.
                self._led[index] = _Led(partition.leader_epoch, {})
                return
            self._loading.add(index)
        self.scheduler.schedule("load-transactions", lambda: self._load(partition), delay_ms=0)

    def _load(self, partition: Partition) -> None:
        index, epoch = partition.index, partition.leader_epoch
        try:
            self._unload(partition, is_reload=True)
            transactions = _read_transactions(partition, epoch)
        except BaseException:
            with self._lock:
                self._loading.discard(index)
            raise
        with self._lock:
            self._loading.discard(index)
            is_current = partition.is_leader and partition.leader_epoch == epoch
            if is_current:
                self._led[index] = _Led(epoch, transactions)
        if is_current:
            self.on_loaded(list(transactions.values()))
        else:
            self.leadership_changed(partition)

    def _unload(self, partition: Partition, *, is_reload: bool = False) -> None:
        with self._lock:
            if not is_reload and partition.is_leader:
                return
            led = self._led.pop(partition.index, None)
        if led is not None:
            self.on_unloaded(list(led.transactions.values()))

    # --- Transactions ---

    def find(self, transactional_id: str, make: Callable[[int], Transaction] | None = None) -> Transaction | None:
        """A transaction. None if there is none, unless `make` makes one with the coordinator epoch.

        Raises NotCoordinatorError, CoordinatorNotAvailableError, CoordinatorLoadInProgressError.
        """
        partition = self.internal_topic.led_partition(transactional_id)
        with self._lock:
            led = self._led.get(partition.index)
            if led is not None and led.epoch == partition.leader_epoch:
                found = led.transactions.get(transactional_id)
                if found is None and make is not None:
                    found = led.transactions[transactional_id] = make(led.epoch)
                return found
        self._load_later(partition)
        with self._lock:
            led = self._led.get(partition.index)
            if led is None or led.epoch != partition.leader_epoch:
                raise CoordinatorLoadInProgressError(
                    f"the transactional id {transactional_id!r} is being loaded; try again"
                )
        return self.find(transactional_id, make)

    def is_current(self, transaction: Transaction) -> bool:
        """Whether this broker still coordinates a transaction, in the same epoch."""
        try:
            return self.find(transaction.transactional_id) is transaction
        except BrokerResponseError:
            return False

    def transactions(self) -> list[Transaction]:
        """The transactions of this broker. Raises CoordinatorLoadInProgressError."""
        with self._lock:
            if self._loading:
                raise CoordinatorLoadInProgressError("transactions are being loaded; try again")
            return [each for led in self._led.values() for each in led.transactions.values()]

    def append(
        self,
        transaction: Transaction,
        values: TransactionValues,
        done: Done,
        *,
        then_pending: TransactionState | None = None,
        keeps_pending: bool = False,
    ) -> None:
        """Write a transaction's next values, for which the caller has set `pending`. Called without its lock.

        Once the record is replicated the values apply, `pending` becomes `then_pending`, and `done` is called. After an
        error the old values stay and nothing is pending, unless `keeps_pending`, because the caller tries again.
        """

        def finish(error: BrokerResponseError | None) -> None:
            if error is None and not self.is_current(transaction):
                error = NotCoordinatorError(f"this broker no longer coordinates {transaction.transactional_id!r}")
            with transaction.lock:
                if error is None:
                    transaction.values = values
                    transaction.pending = then_pending
                elif not keeps_pending:
                    transaction.pending = None
            if error is not None:
                _log.info("%r: can't write %s: %s", transaction, values.state.label, error)
            done(error)

        record = (encode_key(transaction.transactional_id), encode_value(values, self.level()))
        self._append(transaction, values.timeout_ms, record, finish)

    def remove(self, transaction: Transaction, done: Done) -> None:
        """Delete an expired id, for which the caller has set `pending` to DEAD."""

        def finish(error: BrokerResponseError | None) -> None:
            if error is None and self.is_current(transaction):
                index = self.internal_topic.index_of(transaction.transactional_id)
                with self._lock:
                    self._led[index].transactions.pop(transaction.transactional_id, None)
            else:
                with transaction.lock:
                    transaction.pending = None
            done(error)

        self._append(
            transaction, transaction.values.timeout_ms, (encode_key(transaction.transactional_id), None), finish
        )

    def _append(
        self, transaction: Transaction, timeout_ms: float, record: tuple[bytes, bytes | None], done: Done
    ) -> None:
        try:
            partition = self.internal_topic.led_partition(transaction.transactional_id)
        except BrokerResponseError as error:
            done(error)
            return

        def respond(results: dict[PartitionKey, ProduceResult]) -> None:
            error = results[partition.key].error
            done(None if error is None else _coordinator_error(error))

        batch = build_batch([(self.clock.wall_ms(), *record)])
        self.replicas.append_own(
            timeout_ms, [(partition.key, OwnBatch(batch))], respond, leader_epoch=transaction.coordinator_epoch
        )


def _coordinator_error(error: BrokerResponseError) -> BrokerResponseError:
    """The client's error for a failed write to the transaction log."""
    if isinstance(error, _NOT_AVAILABLE):
        return CoordinatorNotAvailableError(f"the transaction log couldn't be written: {error}")
    if isinstance(error, (NotLeaderForPartitionError, KafkaStorageError)):
        return NotCoordinatorError(f"the transaction log couldn't be written: {error}")
    if isinstance(error, MessageSizeTooLargeError):
        return UnknownError(f"the transaction has too many partitions for one record: {error}")
    return error


def _read_transactions(partition: Partition, epoch: int) -> dict[str, Transaction]:
    """Read the transactions in a partition of the transaction log."""
    transactions: dict[str, Transaction] = {}
    log = partition.log
    for batch in log.batches(log.log_start_offset, log.end.offset):
        if batch.is_control:
            continue
        for record in batch.records():
            try:
                transactional_id = decode_key(bytes(record.key or b""))
                if transactional_id is None:
                    continue
                if record.value is None:
                    transactions.pop(transactional_id, None)
                else:
                    values = decode_value(bytes(record.value))
                    transaction = transactions[transactional_id] = Transaction(transactional_id, epoch, values)
                    if values.state.is_prepared:
                        transaction.pending = outcome_of(values.state, Event.MARKED).state
            except (ValueError, struct.error):
                _log.warning("%r: skipping an unreadable record at offset %d", partition, record.offset)
    return transactions
