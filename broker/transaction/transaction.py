"""One transactional id: its current values, and the values that each event leads to (Kafka's `TransactionMetadata`)."""

from __future__ import annotations

import threading
from typing import NamedTuple

from ...network.protocol.errors import ProducerFencedError
from ..log.producer_state import FIRST_LEVEL_WITH_EPOCH_BUMP, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ..metadata import PartitionKey
from ..timer import TimerTask
from .states import TransactionState

MAX_EPOCH = 32_767
#: Clients never use the last epoch, so that the coordinator can always fence them.
LAST_EPOCH_OF_CLIENTS = MAX_EPOCH - 1
NO_START = -1


class ProducerIdAndEpoch(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    producer_epoch: int


class TransactionValues(NamedTuple):
    """Everything about a transactional id that its record has.

    `partitions` of a prepared transaction are those still without a marker. `start_ms` and `update_ms` are milliseconds
    since 1970. `next_producer_id` is set while a transaction ends with the last epoch of its producer id.
    `client_level` is the level of `transaction.version` that the client used.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    update_ms: int
    partitions: frozenset[PartitionKey] = frozenset()
    start_ms: int = NO_START
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_level: int = 0

    @property
    def is_exhausted(self) -> bool:
        """Whether the next epoch needs another producer id."""
        return self.producer_epoch >= LAST_EPOCH_OF_CLIENTS

    # --- The values after an event ---

    def initialised(
        self, expected_epoch: int | None, timeout_ms: int, now_ms: int, new_producer_id: int | None
    ) -> TransactionValues:
        """After InitProducerId. `new_producer_id` is given if the epochs are exhausted. Raises ProducerFencedError."""
        epoch = self.producer_epoch
        if new_producer_id is not None:
            producer_id, next_epoch = new_producer_id, 0
            last_epoch = NO_PRODUCER_EPOCH if expected_epoch is None else epoch
        else:
            producer_id, next_epoch = self.producer_id, epoch + 1
            if expected_epoch is None:
                last_epoch = NO_PRODUCER_EPOCH
            elif epoch in (NO_PRODUCER_EPOCH, expected_epoch):
                last_epoch = epoch
            elif expected_epoch == self.last_producer_epoch:
                # The response to an earlier request was lost.
                next_epoch, last_epoch = epoch, self.last_producer_epoch
            else:
                raise ProducerFencedError(
                    f"epoch {expected_epoch} of producer {producer_id} has ended: its epoch is {epoch}"
                )
        return self._replace(
            producer_id=producer_id,
            previous_producer_id=self.producer_id,
            producer_epoch=next_epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            start_ms=NO_START,
            update_ms=now_ms,
        )

    def with_partitions(self, added: frozenset[PartitionKey], now_ms: int, client_level: int) -> TransactionValues:
        """After partitions were added."""
        return self._replace(
            state=TransactionState.ONGOING,
            previous_producer_id=self.producer_id,
            partitions=self.partitions | added,
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            update_ms=now_ms,
            client_level=client_level,
        )

    def prepared(
        self, state: TransactionState, now_ms: int, *, client_level: int, next_producer_id: int, fences: bool
    ) -> TransactionValues:
        """After the decision. Since level 2 the epoch is bumped with each transaction; below, only to fence."""
        bumps = client_level >= FIRST_LEVEL_WITH_EPOCH_BUMP
        last_epoch = self.last_producer_epoch
        if bumps:
            last_epoch = self.producer_epoch
        elif fences:
            last_epoch = NO_PRODUCER_EPOCH
        return self._replace(
            state=state,
            previous_producer_id=self.producer_id,
            next_producer_id=next_producer_id,
            producer_epoch=self.producer_epoch + (bumps or fences),
            last_producer_epoch=last_epoch,
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            update_ms=now_ms,
            client_level=client_level,
        )

    def completed(self, now_ms: int) -> TransactionValues:
        """After all markers were written."""
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        rotates = self.next_producer_id != NO_PRODUCER_ID
        return self._replace(
            state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
            producer_id=self.next_producer_id if rotates else self.producer_id,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            producer_epoch=0 if rotates else self.producer_epoch,
            partitions=frozenset(),
            update_ms=now_ms,
        )


class Transaction:
    """A transactional id in its coordinator's memory. `lock` guards the other fields.

    values: as in the log, except that partitions disappear as they get their markers. pending: the state that is being
    written, or will be once all markers are; None if nothing is under way. coordinator_epoch: the epoch in which this
    broker coordinates it. timeout: aborts it.
    """

    __slots__ = ("coordinator_epoch", "lock", "pending", "timeout", "transactional_id", "values")

    def __init__(self, transactional_id: str, coordinator_epoch: int, values: TransactionValues) -> None:
        self.transactional_id = transactional_id
        self.coordinator_epoch = coordinator_epoch
        self.values = values
        self.pending: TransactionState | None = None
        self.timeout: TimerTask | None = None
        self.lock = threading.Lock()

    def __repr__(self) -> str:
        values = self.values
        return (
            f"Transaction({self.transactional_id!r}, {values.state.label}, producer {values.producer_id} epoch "
            f"{values.producer_epoch})"
        )
