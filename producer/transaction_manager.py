"""Idempotence: the producer's id and epoch, and the sequence numbers by which brokers tell a retry from a new batch.

All of it belongs to the sender thread. A sequence number is given when a batch is drained, kept over retries, and
rewritten only with a new epoch, and only while none of the partition's batches is on the wire (KIP-360): so an answer
always speaks of the numbers the batch has.

Source: Kafka's TransactionManager and TxnPartitionMap (KIP-98, KIP-360).
"""

from __future__ import annotations

import logging
from enum import Enum

from ..network.cluster import TopicPartition
from ..network.protocol.errors import (
    IllegalStateError,
    KafkaError,
    OutOfOrderSequenceNumberError,
    RetriableError,
    UnknownProducerIdError,
)
from .batch_cy import ProducerBatch
from .delivery import Verdict, action_for

log = logging.getLogger("headrace.producer")

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
MAX_PRODUCER_EPOCH = 2**15 - 1
NO_OFFSET = -1


class State(Enum):
    """Where the producer stands with its id."""

    UNINITIALIZED = "has no producer id"
    INITIALIZING = "has asked for a producer id"
    READY = "has a producer id"
    FATAL_ERROR = "can't go on: close the producer and create a new one"


#: state -> the states it may turn into. Whatever isn't here is a defect, and raises IllegalStateError.
TRANSITIONS: dict[State, frozenset[State]] = {
    State.UNINITIALIZED: frozenset({State.INITIALIZING, State.FATAL_ERROR}),
    State.INITIALIZING: frozenset({State.READY, State.UNINITIALIZED, State.FATAL_ERROR}),
    State.READY: frozenset({State.UNINITIALIZED, State.FATAL_ERROR}),
    State.FATAL_ERROR: frozenset({State.FATAL_ERROR}),
}


class _Sequences:
    """The sequence numbers of one partition. `in_flight`: batches with a sequence and no final answer, in order."""

    __slots__ = (
        "in_flight",
        "last_acked_offset",
        "last_acked_sequence",
        "next_sequence",
        "producer_epoch",
        "producer_id",
    )

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.next_sequence = 0
        self.last_acked_sequence = -1
        self.last_acked_offset = NO_OFFSET
        self.in_flight: list[ProducerBatch] = []


class TransactionManager:
    """Producer id, epoch and sequences of an idempotent producer. One per producer; only the sender thread uses it.

    Invariant: a partition's `in_flight` batches carry gapless, rising sequences under one id and epoch.
    """

    def __init__(self) -> None:
        self.state = State.UNINITIALIZED
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.fatal_error: KafkaError | None = None
        self._partitions: dict[TopicPartition, _Sequences] = {}
        self._unresolved: dict[TopicPartition, int] = {}
        self._to_rewrite: set[TopicPartition] = set()
        self._bump_required = False

    # The producer id.

    def _become(self, state: State) -> None:
        if state not in TRANSITIONS[self.state]:
            raise IllegalStateError(f"a producer that {self.state.value} can't become one that {state.value}")
        self.state = state

    @property
    def has_producer_id(self) -> bool:
        """Whether batches can be drained."""
        return self.state is State.READY

    def needs_producer_id(self) -> bool:
        """Whether InitProducerId is to be sent."""
        return self.state is State.UNINITIALIZED

    def asking(self) -> None:
        """InitProducerId was sent."""
        self._become(State.INITIALIZING)

    def asked_in_vain(self) -> None:
        """InitProducerId came to nothing; it is to be sent again."""
        self._become(State.UNINITIALIZED)

    def assign(self, producer_id: int, producer_epoch: int) -> None:
        """The broker gave an id. Partitions whose sequences are to begin anew begin with it."""
        self._become(State.READY)
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        log.debug("producer id %d, epoch %d", producer_id, producer_epoch)
        self._rewrite()

    def fail(self, error: KafkaError) -> None:
        """No record of this producer can be delivered any more."""
        self._become(State.FATAL_ERROR)
        if self.fatal_error is None:
            self.fatal_error = error
            log.error("the producer can't go on: %s", error)

    # Draining.

    def _sequences(self, partition: TopicPartition) -> _Sequences:
        known = self._partitions.get(partition)
        if known is None:
            known = self._partitions[partition] = _Sequences(self.producer_id, self.producer_epoch)
        return known

    def may_drain(self, batch: ProducerBatch) -> bool:
        """Whether this batch, the first of its queue, may go out now."""
        if self.state is not State.READY:
            return False
        partition = batch.topic_partition
        if partition in self._to_rewrite:
            return False
        known = self._partitions.get(partition)
        if known is None:
            return True
        if not batch.has_sequence:
            stale = known.producer_id != self.producer_id or known.producer_epoch != self.producer_epoch
            if known.in_flight and stale:
                return False
            # what became of earlier sequence numbers must be known before new ones are given
            return partition not in self._unresolved
        # a retry: one at a time, the oldest first, so that the broker sees the sequence without gaps
        return not known.in_flight or known.in_flight[0] is batch

    def take_sequence(self, batch: ProducerBatch) -> None:
        """Give a drained batch its sequence number, unless it has one from an earlier attempt."""
        if batch.has_sequence:
            return
        known = self._sequences(batch.topic_partition)
        if not known.in_flight and (
            known.producer_id != self.producer_id or known.producer_epoch != self.producer_epoch
        ):
            known.producer_id = self.producer_id
            known.producer_epoch = self.producer_epoch
            known.next_sequence = 0
            known.last_acked_sequence = -1
        self._number(known, batch)
        known.in_flight.append(batch)

    @staticmethod
    def _number(known: _Sequences, batch: ProducerBatch) -> None:
        batch.producer_id = known.producer_id
        batch.producer_epoch = known.producer_epoch
        batch.base_sequence = known.next_sequence
        known.next_sequence = (known.next_sequence + batch.count) & 0x7FFFFFFF

    # Answers.

    def completed(self, batch: ProducerBatch, base_offset: int) -> None:
        """The broker has the batch."""
        known = self._sequences(batch.topic_partition)
        if batch.last_sequence > known.last_acked_sequence or batch.last_sequence < known.last_acked_sequence - 2**30:
            known.last_acked_sequence = batch.last_sequence
        if base_offset >= 0:
            known.last_acked_offset = max(known.last_acked_offset, base_offset + batch.count - 1)
        self._forget(known, batch)

    def can_retry(self, batch: ProducerBatch, error: KafkaError, log_start_offset: int) -> bool:
        """Whether a batch answered with `error` is to be sent again; asks for a new epoch where that is due."""
        partition = batch.topic_partition
        known = self._sequences(partition)
        if isinstance(error, UnknownProducerIdError):
            if log_start_offset == NO_OFFSET:
                return True
            # The broker has lost the producer's state: its records were removed by retention, or more was lost.
            # Numbers that start at 0 under a new epoch are accepted either way.
            self.request_epoch_bump(partition)
            return True
        if isinstance(error, OutOfOrderSequenceNumberError):
            if partition not in self._unresolved and not self._is_next(known, batch.base_sequence):
                # an earlier batch has to be sent again first
                return True
            self.request_epoch_bump(partition)
            return True
        return isinstance(error, RetriableError)

    def failed(self, batch: ProducerBatch, error: KafkaError, adjust: bool) -> None:
        """The batch is given up. `adjust`: its sequence numbers were not used, so those behind it need new ones."""
        partition = batch.topic_partition
        if action_for(error).verdict is Verdict.FATAL:
            self.fail(error)
        self._forget(self._sequences(partition), batch)
        if self.state is State.FATAL_ERROR:
            return
        if isinstance(error, OutOfOrderSequenceNumberError):
            log.error("%s: the broker lost records that it had acknowledged: %s", partition, error)
            self.request_epoch_bump(partition)
        elif adjust:
            self.request_epoch_bump(partition)

    def replaced(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """The batch was split: its parts stand in its place, with its sequence numbers, which nobody has used."""
        known = self._sequences(batch.topic_partition)
        if batch in known.in_flight:
            place = known.in_flight.index(batch)
            known.in_flight[place : place + 1] = parts

    @staticmethod
    def _forget(known: _Sequences, batch: ProducerBatch) -> None:
        if batch in known.in_flight:
            known.in_flight.remove(batch)

    @staticmethod
    def _is_next(known: _Sequences, sequence: int) -> bool:
        return sequence == (known.last_acked_sequence + 1) & 0x7FFFFFFF

    # Sequence numbers whose fate isn't known, and new epochs.

    def mark_unresolved(self, batch: ProducerBatch) -> None:
        """A batch expired after it had been sent: the broker may or may not have it."""
        partition = batch.topic_partition
        following = (batch.last_sequence + 1) & 0x7FFFFFFF
        self._unresolved[partition] = max(self._unresolved.get(partition, 0), following)

    def resolve(self) -> None:
        """Look at partitions with unresolved sequences: with nothing in flight it shows what became of them."""
        for partition in list(self._unresolved):
            known = self._sequences(partition)
            if known.in_flight:
                continue
            if not self._is_next(known, known.next_sequence):
                log.info("%s: sequence numbers were left open by batches that expired; a new epoch begins", partition)
                self.request_epoch_bump(partition)
            del self._unresolved[partition]

    def request_epoch_bump(self, partition: TopicPartition) -> None:
        """Begin an epoch in which this partition's sequences start at 0, once none of its batches is on the wire."""
        self._bump_required = True
        self._to_rewrite.add(partition)

    def bump_epoch_if_due(self) -> None:
        """Begin the requested epoch, or ask for a new producer id when the epochs are used up."""
        if not self._bump_required or self.state is not State.READY:
            return
        for partition in self._to_rewrite:
            if any(batch.in_flight for batch in self._sequences(partition).in_flight):
                return
        self._bump_required = False
        if self.producer_epoch >= MAX_PRODUCER_EPOCH:
            self.producer_id = NO_PRODUCER_ID
            self.producer_epoch = NO_PRODUCER_EPOCH
            self._become(State.UNINITIALIZED)
            return
        self.producer_epoch += 1
        log.debug("producer id %d begins epoch %d", self.producer_id, self.producer_epoch)
        self._rewrite()

    def _rewrite(self) -> None:
        for partition in self._to_rewrite:
            known = self._sequences(partition)
            known.producer_id = self.producer_id
            known.producer_epoch = self.producer_epoch
            known.next_sequence = 0
            known.last_acked_sequence = -1
            for batch in known.in_flight:
                self._number(known, batch)
            self._unresolved.pop(partition, None)
        self._to_rewrite.clear()

    def in_flight(self, partition: TopicPartition) -> list[ProducerBatch]:
        """Batches of a partition with a sequence and no final answer, in sequence order: for tests and `repr`."""
        known = self._partitions.get(partition)
        return [] if known is None else list(known.in_flight)
