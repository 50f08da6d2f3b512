"""The requests and timeouts of transactions (Kafka's `TransactionCoordinator`). The package describes how it works."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from ...network.clock import Clock
from ...network.protocol.errors import (
    BrokerResponseError,
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    KafkaError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionalIdNotFoundError,
)
from ..config.broker_config import BrokerConfig
from ..log.producer_state import FIRST_LEVEL_WITH_EPOCH_BUMP, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ..metadata import PartitionKey
from ..timer import SystemTimer, TimedCall
from .markers import RETRY_MS, MarkerSender
from .states import Event, TransactionState, outcome_of
from .store import TransactionStore
from .transaction import LAST_EPOCH_OF_CLIENTS, ProducerIdAndEpoch, Transaction, TransactionValues

_log = logging.getLogger(__name__)

#: Called once with an error, or with the producer's id and epoch.
Identified = Callable[["BrokerResponseError | None", ProducerIdAndEpoch], None]
Done = Callable[["BrokerResponseError | None"], None]

NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class _Step(NamedTuple):
    """The next values of a transaction, and what follows once they are written."""

    values: TransactionValues
    then_pending: TransactionState | None = None


class TransactionCoordinator:
    """The transactions of one broker. Any thread. Each request is answered once, through its callback.

    next_producer_id: allocates an id; may block for the controller.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        timer: SystemTimer,
        store: TransactionStore,
        markers: MarkerSender,
        next_producer_id: Callable[[], int],
    ) -> None:
        self.config = config
        self.clock = clock
        self.store = store
        self._timer = timer
        self._markers = markers
        self._next_producer_id = next_producer_id
        store.on_loaded = self._take_up
        store.on_unloaded = self._let_go

    # --- InitProducerId ---

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None, respond: Identified
    ) -> None:
        """Give a producer its id and epoch, and fence those before it. `expected` is what the producer had, if it goes
        on after an error (KIP-360). Errors: InvalidRequestError, InvalidTransactionTimeoutError,
        ConcurrentTransactionsError, ProducerFencedError, and those of `TransactionStore.find`."""
        try:
            if not transactional_id:
                raise InvalidRequestError("the transactional id is empty; set transactional.id")
            if not 0 < timeout_ms <= self.config.transaction_max_timeout_ms:
                raise InvalidTransactionTimeoutError(
                    f"transaction.timeout.ms is {timeout_ms}; allowed is 1 to "
                    f"{self.config.transaction_max_timeout_ms} (transaction.max.timeout.ms of the brokers)"
                )
            transaction = self.store.find(transactional_id)
            if transaction is None:
                transaction = self._make(transactional_id, timeout_ms)
            # Allocated without the lock, and only if needed: it may block for the controller.
            with transaction.lock:
                is_exhausted = transaction.values.is_exhausted
            new_id = self._next_producer_id() if is_exhausted else None
            with transaction.lock:
                step = self._initialise(transaction, timeout_ms, expected, new_id)
        except BrokerResponseError as error:
            respond(error, NO_PRODUCER)
            return
        values = step.values
        if values.state is TransactionState.EMPTY:
            identity = ProducerIdAndEpoch(values.producer_id, values.producer_epoch)
            self.store.append(
                transaction, values, lambda error: respond(error, identity if error is None else NO_PRODUCER)
            )
            return
        busy = ConcurrentTransactionsError(f"the open transaction of {transactional_id!r} is being aborted; try again")
        self._write_decision(transaction, step, lambda error, _identity: respond(error or busy, NO_PRODUCER))

    def _make(self, transactional_id: str, timeout_ms: int) -> Transaction:
        new = TransactionValues(
            self._next_producer_id(),
            NO_PRODUCER_EPOCH,
            timeout_ms,
            TransactionState.EMPTY,
            self.clock.wall_ms(),
        )
        found = self.store.find(transactional_id, lambda epoch: Transaction(transactional_id, epoch, new))
        assert found is not None
        return found

    def _initialise(
        self, transaction: Transaction, timeout_ms: int, expected: ProducerIdAndEpoch | None, new_id: int | None
    ) -> _Step:
        """With the lock held."""
        values = transaction.values
        _check_not_pending(transaction)
        if expected is not None and not _may_continue(values, expected):
            raise ProducerFencedError(f"another producer has taken over {transaction.transactional_id!r}")
        outcome = outcome_of(values.state, Event.INIT)
        if outcome.error is not None:
            raise outcome.error(f"{transaction!r} can't be initialised now")
        if outcome.state is TransactionState.PREPARE_ABORT:
            return self._decide(transaction, TransactionState.PREPARE_ABORT, self.store.level(), new_id, fences=True)
        if expected is not None and expected.producer_epoch != values.producer_epoch:
            new_id = None
            if values.is_exhausted and expected.producer_epoch != values.last_producer_epoch:
                raise ProducerFencedError(f"another producer has taken over {transaction.transactional_id!r}")
        elif values.is_exhausted and new_id is None:
            raise ConcurrentTransactionsError(f"{transaction!r} has just changed; try again")
        now_ms = self.clock.wall_ms()
        next_values = values.initialised(
            None if expected is None else expected.producer_epoch, timeout_ms, now_ms, new_id
        )
        transaction.pending = TransactionState.EMPTY
        return _Step(next_values)

    # --- Partitions ---

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[PartitionKey],
        client_level: int,
        done: Done,
    ) -> None:
        """Add partitions to a transaction, and begin it if need be. Errors: InvalidRequestError,
        InvalidProducerIdMappingError, ProducerFencedError, ConcurrentTransactionsError, and those of
        `TransactionStore.find`."""
        try:
            transaction = self._known(transactional_id)
            with transaction.lock:
                # First: while a transaction ends, its producer may have another id or epoch soon.
                _check_not_pending(transaction)
                values = transaction.values
                _check_producer(values, producer)
                outcome = outcome_of(values.state, Event.ADD)
                if outcome.error is not None:
                    raise outcome.error(f"{transaction!r} is ending; try again")
                added = frozenset(partitions)
                if values.state is TransactionState.ONGOING and added <= values.partitions:
                    next_values = None
                else:
                    next_values = values.with_partitions(added, self.clock.wall_ms(), client_level)
                    transaction.pending = TransactionState.ONGOING
        except BrokerResponseError as error:
            done(error)
            return
        if next_values is None:
            done(None)
            return

        def written(error: BrokerResponseError | None) -> None:
            self._time_out_later(transaction)
            done(error)

        self.store.append(transaction, next_values, written)

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[PartitionKey]
    ) -> Mapping[PartitionKey, BrokerResponseError]:
        """The partitions that are not in the producer's transaction. Raises the errors of `add_partitions`."""
        transaction = self._known(transactional_id)
        with transaction.lock:
            values = transaction.values
            _check_producer(values, producer)
            if values.state.is_prepared:
                raise ConcurrentTransactionsError(f"{transaction!r} is ending; try again")
            return {
                (topic, index): TransactionAbortableError(f"{topic}-{index} was not added to the transaction")
                for topic, index in partitions
                if (topic, index) not in values.partitions
            }

    # --- EndTxn ---

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        client_level: int,
        respond: Identified,
        *,
        is_commit: bool,
    ) -> None:
        """Commit or abort. Answers once the decision is written, with the id and epoch of the next transaction.

        `client_level` is the level of `transaction.version` that the client uses. Errors: InvalidRequestError,
        InvalidProducerIdMappingError, ProducerFencedError, ConcurrentTransactionsError, InvalidTxnStateError, and those
        of `TransactionStore.find`.
        """
        try:
            transaction = self._known(transactional_id)
            with transaction.lock:
                bumps = client_level >= FIRST_LEVEL_WITH_EPOCH_BUMP
                needs_id = bumps and transaction.values.is_exhausted
            new_id = self._next_producer_id() if needs_id else None
            with transaction.lock:
                values = transaction.values
                event = _end_event(values, producer, is_commit=is_commit, bumps=bumps)
                _check_not_pending(transaction)
                outcome = outcome_of(values.state, event)
                if outcome.error is not None:
                    raise outcome.error(f"{transaction!r} can't be {'committed' if is_commit else 'aborted'}")
                if outcome.state is None:
                    step = None
                else:
                    step = self._decide(transaction, outcome.state, client_level, new_id, fences=False)
        except BrokerResponseError as error:
            respond(error, NO_PRODUCER)
            return
        if step is None:
            respond(None, ProducerIdAndEpoch(values.producer_id, values.producer_epoch))
        else:
            self._write_decision(transaction, step, respond)

    def _decide(
        self, transaction: Transaction, state: TransactionState, level: int, new_id: int | None, *, fences: bool
    ) -> _Step:
        """Decide about a transaction, with the lock held. Nothing can change the decision once it is written."""
        bumps = level >= FIRST_LEVEL_WITH_EPOCH_BUMP
        rotates = bumps and transaction.values.is_exhausted
        if rotates and new_id is None:
            raise ConcurrentTransactionsError(f"{transaction!r} has just changed; try again")
        values = transaction.values.prepared(
            state,
            self.clock.wall_ms(),
            client_level=level,
            next_producer_id=new_id if rotates and new_id is not None else NO_PRODUCER_ID,
            fences=fences,
        )
        transaction.pending = state
        return _Step(values, then_pending=outcome_of(state, Event.MARKED).state)

    def _write_decision(self, transaction: Transaction, step: _Step, respond: Identified) -> None:
        def written(error: BrokerResponseError | None) -> None:
            if error is not None:
                respond(error, NO_PRODUCER)
                return
            self._cancel_timeout(transaction)
            after = step.values.completed(0)
            respond(None, ProducerIdAndEpoch(after.producer_id, after.producer_epoch))
            self._markers.mark(transaction, self._complete)

        self.store.append(transaction, step.values, written, then_pending=step.then_pending)

    def _complete(self, transaction: Transaction) -> None:
        """All markers are written: write that the transaction is over. Tried again until it succeeds, or until another
        broker coordinates the transaction."""

        def written(error: BrokerResponseError | None) -> None:
            if isinstance(error, CoordinatorNotAvailableError):
                self._timer.add(TimedCall(RETRY_MS, partial(self._complete, transaction)))
            elif error is not None:
                _log.info("%r: another broker has to complete it: %s", transaction, error)

        with transaction.lock:
            values = transaction.values.completed(self.clock.wall_ms())
        self.store.append(transaction, values, written, keeps_pending=True)

    # --- Timeouts ---

    def _time_out_later(self, transaction: Transaction) -> None:
        """Abort the transaction when its timeout expires, counted from its begin."""
        with transaction.lock:
            values = transaction.values
            if values.state is not TransactionState.ONGOING or transaction.timeout is not None:
                return
            delay_ms = max(values.start_ms + values.timeout_ms - self.clock.wall_ms(), 0) + 1
            timeout = transaction.timeout = TimedCall(delay_ms, partial(self._time_out, transaction, values.start_ms))
        self._timer.add(timeout)

    def _cancel_timeout(self, transaction: Transaction) -> None:
        with transaction.lock:
            timeout, transaction.timeout = transaction.timeout, None
        if timeout is not None:
            timeout.cancel()

    def _time_out(self, transaction: Transaction, start_ms: int) -> None:
        """On the timer's thread."""
        if not self.store.is_current(transaction):
            return
        level = self.store.level()
        try:
            with transaction.lock:
                transaction.timeout = None
                needs_id = level >= FIRST_LEVEL_WITH_EPOCH_BUMP and transaction.values.is_exhausted
            new_id = self._next_producer_id() if needs_id else None
            with transaction.lock:
                values = transaction.values
                step = None
                if values.state is TransactionState.ONGOING and values.start_ms == start_ms:
                    _check_not_pending(transaction)
                    _log.info("%r has timed out after %d ms; aborting it", transaction, values.timeout_ms)
                    step = self._decide(transaction, TransactionState.PREPARE_ABORT, level, new_id, fences=True)
        except KafkaError as busy:
            # A partition is being added, or there is no id. The outcome is known soon.
            _log.debug("%r can't be aborted yet: %s", transaction, busy)
            self._try_again(transaction, start_ms, RETRY_MS)
            return
        if step is None:
            # That transaction has ended; there may be another.
            self._time_out_later(transaction)
            return

        def aborted(error: BrokerResponseError | None, _identity: ProducerIdAndEpoch) -> None:
            if error is not None:
                delay_ms = self.config.transaction_abort_timed_out_transaction_cleanup_interval_ms
                self._try_again(transaction, start_ms, delay_ms)

        self._write_decision(transaction, step, aborted)

    def _try_again(self, transaction: Transaction, start_ms: int, delay_ms: float) -> None:
        timeout = TimedCall(delay_ms, partial(self._time_out, transaction, start_ms))
        with transaction.lock:
            transaction.timeout = timeout
        self._timer.add(timeout)

    # --- Moves of the coordinator, and expiry ---

    def _take_up(self, transactions: list[Transaction]) -> None:
        """Continue with transactions that another broker, or this one before a restart, has left."""
        for transaction in transactions:
            if transaction.values.state.is_prepared:
                self._markers.mark(transaction, self._complete)
            else:
                self._time_out_later(transaction)

    def _let_go(self, transactions: list[Transaction]) -> None:
        for transaction in transactions:
            self._cancel_timeout(transaction)

    def expire(self) -> None:
        """Forget the ids that were not used for `transactional.id.expiration.ms` and have no transaction."""
        oldest_ms = self.clock.wall_ms() - self.config.transactional_id_expiration_ms
        try:
            transactions = self.store.transactions()
        except BrokerResponseError as loading:
            _log.debug("no transactional id expires now: %s", loading)
            return
        for transaction in transactions:
            with transaction.lock:
                values = transaction.values
                outcome = outcome_of(values.state, Event.EXPIRE)
                if transaction.pending is not None or outcome.state is None or values.update_ms > oldest_ms:
                    continue
                transaction.pending = outcome.state
            self.store.remove(transaction, lambda _error: None)

    # --- Descriptions ---

    def describe(self, transactional_id: str) -> TransactionValues:
        """The values of a transaction. Raises InvalidRequestError, TransactionalIdNotFoundError, and the errors of
        `TransactionStore.find`."""
        if not transactional_id:
            raise InvalidRequestError("the transactional id is empty")
        transaction = self.store.find(transactional_id)
        if transaction is None or transaction.pending is TransactionState.DEAD:
            raise TransactionalIdNotFoundError(f"there is no transactional id {transactional_id!r}")
        return transaction.values

    def descriptions(self) -> dict[str, TransactionValues]:
        """The values of all transactions of this broker, by transactional id. Raises CoordinatorLoadInProgressError."""
        return {
            each.transactional_id: each.values
            for each in self.store.transactions()
            if each.pending is not TransactionState.DEAD
        }

    def _known(self, transactional_id: str) -> Transaction:
        if not transactional_id:
            raise InvalidRequestError("the transactional id is empty; set transactional.id")
        transaction = self.store.find(transactional_id)
        if transaction is None:
            raise InvalidProducerIdMappingError(
                f"there is no transactional id {transactional_id!r}; it may have expired; begin with InitProducerId"
            )
        return transaction


def _check_not_pending(transaction: Transaction) -> None:
    if transaction.pending is not None:
        raise ConcurrentTransactionsError(f"{transaction!r} is becoming {transaction.pending.label}; try again")


def _check_producer(values: TransactionValues, producer: ProducerIdAndEpoch) -> None:
    if values.producer_id != producer.producer_id:
        raise InvalidProducerIdMappingError(
            f"the producer id is {values.producer_id}, not {producer.producer_id}; begin with InitProducerId"
        )
    if values.producer_epoch != producer.producer_epoch:
        raise ProducerFencedError(
            f"the epoch of producer {values.producer_id} is {values.producer_epoch}, not {producer.producer_epoch}: a "
            "newer producer has taken over, or the transaction has timed out"
        )


def _may_continue(values: TransactionValues, expected: ProducerIdAndEpoch) -> bool:
    """Whether a producer that goes on after an error is the present one, or missed the change to another id."""
    return (
        values.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == values.producer_id
        or (expected.producer_id == values.previous_producer_id and expected.producer_epoch >= LAST_EPOCH_OF_CLIENTS)
    )


def _end_event(values: TransactionValues, producer: ProducerIdAndEpoch, *, is_commit: bool, bumps: bool) -> Event:
    """Whether EndTxn is for the present transaction, or again for the last one, whose response was lost. Raises
    InvalidProducerIdMappingError, ProducerFencedError, ConcurrentTransactionsError."""
    now, again = (Event.COMMIT, Event.COMMIT_AGAIN) if is_commit else (Event.ABORT, Event.ABORT_AGAIN)
    is_ongoing = values.state is TransactionState.ONGOING
    if not bumps:
        _check_producer(values, producer)
        return now if is_ongoing else again
    is_retry = values.state.is_prepared or values.state in (
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    )
    has_new_id = (
        values.previous_producer_id == producer.producer_id
        and producer.producer_epoch == LAST_EPOCH_OF_CLIENTS
        and values.producer_epoch == 0
    )
    if is_retry and has_new_id:
        return again
    if is_retry and producer == (values.producer_id, values.producer_epoch - 1):
        return again
    _check_producer(values, producer)
    if values.state.is_prepared:
        # Kafka fences this producer; but its epoch is the one that it just got, and the markers are written soon
        raise ConcurrentTransactionsError(
            f"the markers of producer {producer.producer_id}'s last transaction are written"
        )
    return now
