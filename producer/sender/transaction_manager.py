"""Idempotence: the producer's id and epoch, and the sequence numbers by which brokers tell a retry from a new batch.

All of it belongs to the sender thread. A sequence number is given when a batch is drained, kept over retries, and
rewritten only with a new epoch (KIP-360): while none of the partition's batches is on the wire, so that an answer
always speaks of the numbers the batch has, and while none of them may be in the log already. A batch whose answer was
lost is sent once more under its old number first; the broker then says whether it has it. (Java rewrites it at once,
and the broker, which has no reason to take the new numbers for a repetition, appends it twice.)

Source: Kafka's TransactionManager and TxnPartitionMap (KIP-98, KIP-360).
"""

from __future__ import annotations

import logging
from enum import Enum

from ...network.cluster import TopicPartition
from ...network.protocol.errors import (
    IllegalStateError,
    KafkaError,
    OutOfOrderSequenceNumberError,
    RetriableError,
    UnknownProducerIdError,
)
from ..accumulator.batch_cy import ProducerBatch
from .delivery import Verdict, action_for

_log = logging.getLogger(__name__)

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
MAX_PRODUCER_EPOCH = 2**15 - 1
NO_OFFSET = -1

#: Of so many batches a broker remembers, per producer and partition, that it has them (Kafka's ProducerStateEntry).
BATCHES_REMEMBERED = 5


def is_in_doubt_no_more(error: KafkaError) -> bool:
    """Whether this answer says that the broker looked for the batch among those it remembers, and has not got it.

    A Kafka broker that was restarted cleanly, with no other replica to lead meanwhile, remembers one batch, and says
    so of those before it, too: were all their answers lost, they are appended twice. Java's producer knows no better.
    """
    return isinstance(error, (OutOfOrderSequenceNumberError, UnknownProducerIdError))


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
        self.in_flight: list[ProducerBatch] = []


class TransactionManager:
    """Producer id, epoch and sequences of an idempotent producer. One per producer; only the sender thread uses it.

    Invariants: a partition's `in_flight` batches carry gapless, rising sequences under one id and epoch, and are no
    more than a broker remembers, and only one before the first is acknowledged (but for the parts of split ones, which
    no broker has seen). Those with a `doubt` a broker may have appended although no answer said so.
    """

    def __init__(self) -> None:
        self.state = State.UNINITIALIZED
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.fatal_error: KafkaError | None = None
        self._partitions: dict[TopicPartition, _Sequences] = {}
        self._unresolved: set[TopicPartition] = set()
        self._to_rewrite: set[TopicPartition] = set()

    # --- The producer id ---

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
        _log.debug("producer id %d, epoch %d", producer_id, producer_epoch)
        self._rewrite(self._rewritable())

    def fail(self, error: KafkaError) -> None:
        """No record of this producer can be delivered any more."""
        self._become(State.FATAL_ERROR)
        if self.fatal_error is None:
            self.fatal_error = error
            _log.error("the producer can't go on: %s", error)

    # --- Draining ---

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
        known = self._partitions.get(partition)
        if known is None:
            return True
        if batch.has_sequence:
            # a retry: one at a time, the oldest first, so that the broker sees the sequence without gaps; before its
            # numbers change it goes out only in order to learn whether the broker has it
            return known.in_flight[0] is batch and (partition not in self._to_rewrite or batch.doubt is not None)
        # what became of earlier sequence numbers must be known before new ones are given
        if partition in self._to_rewrite or partition in self._unresolved:
            return False
        stale = known.producer_id != self.producer_id or known.producer_epoch != self.producer_epoch
        # A broker that knows nothing of this producer takes any number for the first one. So were the first batch
        # refused and a second one under way, the second would be appended before it.
        limit = 1 if known.last_acked_sequence < 0 else BATCHES_REMEMBERED
        # And nothing new follows where a later one was acknowledged before the oldest: while that is refused time after
        # time, or its answer keeps an old leader's connection waiting, the broker would forget behind those that follow
        # that it has it, and take it once more.
        return not known.in_flight or (
            not stale and len(known.in_flight) < limit and self._is_next(known, known.in_flight[0].base_sequence)
        )

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

    # --- Answers ---

    def completed(self, batch: ProducerBatch) -> None:
        """The broker has the batch."""
        known = self._sequences(batch.topic_partition)
        # one that had expired may be answered after another epoch has begun
        current = batch.producer_id == known.producer_id and batch.producer_epoch == known.producer_epoch
        last = batch.last_sequence
        if current and (last > known.last_acked_sequence or last < known.last_acked_sequence - 2**30):
            known.last_acked_sequence = last
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
            # Behind another open batch that one has to be sent again first. The oldest one has a true gap before it:
            # its predecessors are answered for, or have failed and are not in the log.
            if known.in_flight and known.in_flight[0] is batch:
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
            _log.error("%s: the broker lost records that it had acknowledged: %s", partition, error)
            self.request_epoch_bump(partition)
        elif adjust:
            self.request_epoch_bump(partition)

    def replaced(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """The batch was split: its parts stand in its place, with its sequence numbers, which nobody has used."""
        known = self._sequences(batch.topic_partition)
        if batch in known.in_flight:
            place = known.in_flight.index(batch)
            known.in_flight[place : place + 1] = parts

    def _forget(self, known: _Sequences, batch: ProducerBatch) -> None:
        if batch in known.in_flight:
            known.in_flight.remove(batch)

    @staticmethod
    def _is_next(known: _Sequences, sequence: int) -> bool:
        return sequence == (known.last_acked_sequence + 1) & 0x7FFFFFFF

    # --- Sequence numbers whose fate isn't known, and new epochs ---

    def mark_unresolved(self, batch: ProducerBatch) -> None:
        """A batch was given up after it had been sent: the broker may or may not have it."""
        self._unresolved.add(batch.topic_partition)

    def resolve(self) -> None:
        """Look at partitions with unresolved sequences: with nothing in flight it shows what became of them."""
        for partition in list(self._unresolved):
            known = self._sequences(partition)
            if known.in_flight:
                continue
            if not self._is_next(known, known.next_sequence):
                _log.info("%s: sequence numbers were left open by batches that expired; a new epoch begins", partition)
                self.request_epoch_bump(partition)
            self._unresolved.discard(partition)

    def request_epoch_bump(self, partition: TopicPartition) -> None:
        """Begin an epoch in which this partition's sequences start at 0, once it's known which of its open batches the
        broker has."""
        self._sequences(partition)
        self._to_rewrite.add(partition)

    def _rewritable(self) -> list[TopicPartition]:
        """Partitions that wait for a new epoch, and whose open batches are in no log and on no wire.

        It is enough to look at the oldest one for doubts: no broker takes a batch whose predecessor it hasn't got.
        """
        ready = []
        for partition in self._to_rewrite:
            open_batches = self._partitions[partition].in_flight
            if any(batch.in_flight for batch in open_batches):
                continue
            if not open_batches or open_batches[0].doubt is None:
                ready.append(partition)
        return ready

    def bump_epoch_if_due(self) -> None:
        """Begin the requested epoch, or ask for a new producer id when the epochs are used up."""
        if not self._to_rewrite or self.state is not State.READY:
            return
        ready = self._rewritable()
        if not ready:
            return
        if self.producer_epoch >= MAX_PRODUCER_EPOCH:
            self.producer_id = NO_PRODUCER_ID
            self.producer_epoch = NO_PRODUCER_EPOCH
            self._become(State.UNINITIALIZED)
            return
        self.producer_epoch += 1
        _log.debug("producer id %d begins epoch %d", self.producer_id, self.producer_epoch)
        self._rewrite(ready)

    def _rewrite(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            known = self._partitions[partition]
            known.producer_id = self.producer_id
            known.producer_epoch = self.producer_epoch
            known.next_sequence = 0
            known.last_acked_sequence = -1
            for batch in known.in_flight:
                self._number(known, batch)
                batch.doubt = None
            self._unresolved.discard(partition)
            self._to_rewrite.discard(partition)

    def in_flight(self, partition: TopicPartition) -> list[ProducerBatch]:
        """Batches of a partition with a sequence and no final answer, in sequence order: for tests and `repr`."""
        known = self._partitions.get(partition)
        return [] if known is None else list(known.in_flight)
