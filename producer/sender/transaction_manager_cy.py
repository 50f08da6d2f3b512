# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""Idempotence: the producer's id and epoch, and the sequence numbers by which brokers detect duplicates.

Everything here runs on the sender thread. A batch is assigned its sequence number when its first request is made, and
keeps it over retries. Only a new epoch rewrites sequence numbers (KIP-360), under two conditions. None of the
partition's batches is in flight, so that a response always refers to the numbers its batch has. And none of them may be
in the log already: a batch whose response was lost is first resent with its old number, and the broker's response shows
whether it has the batch. (Java rewrites such a batch immediately; the broker can't recognize the new numbers as a retry
and appends it twice.)

The states are those of `State`: UNINITIALIZED (`producer_id_request_failed` returns to it) -> INITIALIZING (`asking`)
-> READY (`assign`), and FATAL_ERROR (`fail`). `request_epoch_bump` marks a partition for a new epoch;
`bump_epoch_if_due`, called once per iteration of the sender, begins it.

Source: Kafka's TransactionManager and TxnPartitionMap (KIP-98, KIP-360).
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from ...network import _cython as cython
from ...network.cluster import TopicPartition
from ...network.protocol.errors import (
    IllegalStateError,
    KafkaError,
    OutOfOrderSequenceNumberError,
    RetriableError,
    UnknownProducerIdError,
)
from .delivery import Verdict, action_for

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from ..accumulator.batch_cy import ProducerBatch
elif not TYPE_CHECKING:
    from cython.cimports.headrace.producer.accumulator.batch_cy import ProducerBatch

_log = logging.getLogger(__name__)

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
MAX_PRODUCER_EPOCH = 2**15 - 1
NO_OFFSET = -1

#: The number of recent batches a broker remembers per producer and partition (Kafka's ProducerStateEntry).
BATCHES_REMEMBERED = 5


class Gate(Protocol):
    """Decides which batches of a transactional producer may be sent: `TransactionRequests`."""

    def may_send(self, batch: ProducerBatch) -> bool:
        """Whether the batch may be sent within the transaction now."""
        ...

    @property
    def is_started(self) -> bool:
        """Whether the coordinator may know of the transaction. Any thread, while nothing is in flight."""
        ...


def broker_lacks_batch(error: KafkaError) -> bool:
    """Whether this error means that the broker did not find the batch among those it remembers.

    A Kafka broker that was restarted cleanly, while no other replica led the partition, remembers only one batch and
    returns this error for earlier ones too. If all their responses were lost, they are appended twice, as with Java's
    producer.
    """
    return isinstance(error, (OutOfOrderSequenceNumberError, UnknownProducerIdError))


class State(Enum):
    """The state of the producer's id."""

    UNINITIALIZED = "has no producer id"
    INITIALIZING = "has asked for a producer id"
    READY = "has a producer id"
    FATAL_ERROR = "can't go on: close the producer and create a new one"


#: state -> the states it may change to. Any other change is a defect and raises IllegalStateError.
TRANSITIONS: dict[State, frozenset[State]] = {
    State.UNINITIALIZED: frozenset({State.INITIALIZING, State.FATAL_ERROR}),
    State.INITIALIZING: frozenset({State.READY, State.UNINITIALIZED, State.FATAL_ERROR}),
    State.READY: frozenset({State.UNINITIALIZED, State.FATAL_ERROR}),
    State.FATAL_ERROR: frozenset({State.FATAL_ERROR}),
}


# compared once per turn or batch: the members of an enum are looked up slowly
_READY = State.READY
_UNINITIALIZED = State.UNINITIALIZED


@cython.final
@cython.cclass
class _Sequences:
    """The sequence numbers of one partition. `in_flight`: incomplete batches with a sequence number, in order."""

    if not cython.compiled:
        # for type checkers; transaction_manager_cy.pxd has the C types
        in_flight: list[ProducerBatch]

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.next_sequence = 0
        self.last_acked_sequence = -1
        self.in_flight = []


@cython.cfunc
def _number(known: _Sequences, batch: ProducerBatch) -> object:
    batch.producer_id = known.producer_id
    batch.producer_epoch = known.producer_epoch
    batch.base_sequence = known.next_sequence
    known.next_sequence = (known.next_sequence + batch.count) & 0x7FFFFFFF
    return None


@cython.cfunc
def _forget(known: _Sequences, batch: ProducerBatch) -> object:
    place: cython.Py_ssize_t
    for place in range(len(known.in_flight)):
        if known.in_flight[place] is batch:
            del known.in_flight[place]
            break
    return None


@cython.cfunc
def _is_next(known: _Sequences, sequence: cython.longlong) -> cython.bint:
    return sequence == (known.last_acked_sequence + 1) & 0x7FFFFFFF


@cython.final
@cython.cclass
class TransactionManager:
    """Producer id, epoch and sequence numbers of an idempotent producer. Sender thread only.

    Invariants: a partition's `in_flight` batches have ascending sequence numbers without gaps, under one id and epoch.
    There are at most as many as a broker remembers, and only one until the first is acknowledged; not counting the
    parts of split batches, which no broker has seen. A broker may have appended a batch with a `maybe_persisted_error`
    although no response confirmed it.
    """

    if not cython.compiled:
        # for type checkers; transaction_manager_cy.pxd has the C types
        state: State
        fatal_error: KafkaError | None
        _partitions: dict[tuple[str, int], _Sequences]
        gate: Gate | None
        _unresolved: set[TopicPartition]
        _to_rewrite: set[TopicPartition]

    def __init__(self) -> None:
        self.state = State.UNINITIALIZED
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.fatal_error = None
        self._partitions = {}
        #: Decides which batches may be sent within a transaction; None without ``transactional.id``.
        self.gate = None
        self._unresolved = set()
        self._to_rewrite = set()

    # --- The producer id ---

    def _become(self, state: State) -> None:
        if state not in TRANSITIONS[self.state]:
            raise IllegalStateError(f"a producer that {self.state.value} can't become one that {state.value}")
        self.state = state

    @property
    def has_producer_id(self) -> bool:
        """Whether batches can be drained."""
        return self.state is _READY

    @cython.ccall
    @cython.exceptval(check=False)
    def needs_producer_id(self) -> cython.bint:
        """Whether InitProducerId is to be sent."""
        return self.state is _UNINITIALIZED

    def asking(self) -> None:
        """InitProducerId was sent."""
        self._become(State.INITIALIZING)

    def producer_id_request_failed(self) -> None:
        """InitProducerId failed and is to be sent again."""
        self._become(State.UNINITIALIZED)

    def assign(self, producer_id: int, producer_epoch: int) -> None:
        """Use the id from the broker. Partitions that wait for a new epoch begin it with this id."""
        self._become(State.READY)
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        _log.debug("producer id %d, epoch %d", producer_id, producer_epoch)
        self._rewrite(self._rewritable())

    def reassign(self, producer_id: int, producer_epoch: int) -> None:
        """Use the id and epoch of the next transaction, while no batch has a sequence number.

        For a producer with transactions, which never begins an epoch by itself.
        """
        self.state = State.READY
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self._partitions.clear()
        _log.debug("producer id %d, epoch %d", producer_id, producer_epoch)

    def fail(self, error: KafkaError) -> None:
        """Enter FATAL_ERROR: no record of this producer can be delivered any longer."""
        self._become(State.FATAL_ERROR)
        if self.fatal_error is None:
            with cython.critical_section(self):
                self.fatal_error = error
            _log.error("the producer can't go on: %s", error)

    # --- Draining ---

    @cython.ccall
    def _sequences(self, partition: Any) -> _Sequences:
        """A partition's sequence numbers. `partition`: a TopicPartition, or an equal tuple."""
        known: _Sequences | None = self._partitions.get(partition)
        if known is None:
            known = self._partitions[partition] = _Sequences(self.producer_id, self.producer_epoch)
        return known

    @cython.ccall
    def may_drain(self, batch: ProducerBatch) -> cython.bint:
        """Whether this batch, the first of its queue, may be sent now."""
        if self.state is not _READY:
            return False
        if self.gate is not None and not self.gate.may_send(batch):
            return False
        partition = (batch.topic, batch.partition)
        known: _Sequences | None = self._partitions.get(partition)
        if known is None:
            return True
        if batch.base_sequence >= 0:
            # a retry: one at a time, the oldest first, so that the broker sees no gaps; while its numbers are about to
            # be rewritten, it is sent only to find out whether the broker has it
            return known.in_flight[0] is batch and (
                batch.maybe_persisted_error is not None or partition not in self._to_rewrite
            )
        # the outcome of earlier sequence numbers must be known before new ones are assigned
        if (self._to_rewrite and partition in self._to_rewrite) or (self._unresolved and partition in self._unresolved):
            return False
        if not known.in_flight:
            return True
        stale: cython.bint = known.producer_id != self.producer_id or known.producer_epoch != self.producer_epoch
        # A broker without state for this producer accepts any first sequence number. If it rejected the first batch
        # while a second one was in flight, it would append the second before the first.
        limit: cython.Py_ssize_t = 1 if known.last_acked_sequence < 0 else BATCHES_REMEMBERED
        # No new batch follows if a later one was acknowledged before the oldest one. The oldest may be rejected
        # repeatedly, or its response may be pending on the connection of an old leader. Meanwhile newer batches would
        # displace it from those the broker remembers, and a retry would be appended twice.
        oldest: ProducerBatch = known.in_flight[0]
        return not stale and len(known.in_flight) < limit and _is_next(known, oldest.base_sequence)

    @cython.ccall
    def take_sequence(self, batch: ProducerBatch) -> object:
        """Assign a drained batch its sequence number, unless it has one from an earlier attempt."""
        if batch.base_sequence >= 0:
            return None
        known: _Sequences = self._sequences((batch.topic, batch.partition))
        if not known.in_flight and (
            known.producer_id != self.producer_id or known.producer_epoch != self.producer_epoch
        ):
            known.producer_id = self.producer_id
            known.producer_epoch = self.producer_epoch
            known.next_sequence = 0
            known.last_acked_sequence = -1
        _number(known, batch)
        known.in_flight.append(batch)
        return None

    # --- Responses ---

    @cython.ccall
    def completed(self, batch: ProducerBatch) -> object:
        """Record that the broker has the batch."""
        known: _Sequences = self._sequences((batch.topic, batch.partition))
        # the response of an expired batch may arrive after a new epoch has begun
        current: cython.bint = batch.producer_id == known.producer_id and batch.producer_epoch == known.producer_epoch
        last: cython.longlong = batch.last_sequence
        if current and (last > known.last_acked_sequence or last < known.last_acked_sequence - (1 << 30)):
            known.last_acked_sequence = last
        _forget(known, batch)
        return None

    def can_retry(self, batch: ProducerBatch, error: KafkaError, log_start_offset: int) -> bool:
        """Whether to retry a batch that failed with `error`; requests a new epoch if the retry needs one."""
        partition = batch.topic_partition
        known = self._sequences(partition)
        if self.gate is not None and isinstance(error, OutOfOrderSequenceNumberError):
            # Instead of a new epoch, the transaction is aborted if the oldest batch has a gap before it.
            return not isinstance(error, UnknownProducerIdError) and known.in_flight[:1] != [batch]
        if isinstance(error, UnknownProducerIdError):
            if log_start_offset == NO_OFFSET:
                return True
            # The broker has lost the producer's state: retention removed its records, or they were lost. In both cases
            # the broker accepts sequence numbers that start at 0 in a new epoch.
            self.request_epoch_bump(partition)
            return True
        if isinstance(error, OutOfOrderSequenceNumberError):
            # If an older batch is in flight, it has to be retried first. The oldest batch has a real gap before it: its
            # predecessors are acknowledged, or have failed and are not in the log.
            if known.in_flight and known.in_flight[0] is batch:
                self.request_epoch_bump(partition)
            return True
        return isinstance(error, RetriableError)

    def failed(self, batch: ProducerBatch, error: KafkaError, adjust: bool) -> None:
        """Record that the batch has failed.

        `adjust`: its sequence numbers were not used, so the batches behind it need new ones.
        """
        partition = batch.topic_partition
        if self.gate is not None:
            # the gate has the transaction aborted, and the next one begins with a new epoch
            _forget(self._sequences(partition), batch)
            return
        if action_for(error).verdict is Verdict.FATAL:
            self.fail(error)
        _forget(self._sequences(partition), batch)
        if self.state is State.FATAL_ERROR:
            return
        if isinstance(error, OutOfOrderSequenceNumberError):
            _log.error("%s: the broker lost records that it had acknowledged: %s", partition, error)
            self.request_epoch_bump(partition)
        elif adjust:
            self.request_epoch_bump(partition)

    def replaced(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Replace a split batch by its parts, which inherit its unused sequence numbers."""
        known = self._sequences(batch.topic_partition)
        if batch in known.in_flight:
            place = known.in_flight.index(batch)
            known.in_flight[place : place + 1] = parts

    # --- Unresolved sequence numbers and new epochs ---

    def mark_unresolved(self, batch: ProducerBatch) -> None:
        """Record that a batch failed after it had been sent: the broker may or may not have it."""
        if self.gate is not None:
            return
        self._unresolved.add(batch.topic_partition)

    @cython.ccall
    @cython.exceptval(check=False)
    def has_unsettled(self) -> cython.bint:
        """Whether `resolve` or `bump_epoch_if_due` may have something to do."""
        return len(self._unresolved) > 0 or len(self._to_rewrite) > 0

    def resolve(self) -> None:
        """Resolve the partitions with unresolved sequence numbers that have nothing in flight."""
        for partition in list(self._unresolved):
            known = self._sequences(partition)
            if known.in_flight:
                continue
            if not _is_next(known, known.next_sequence):
                _log.info("%s: expired batches left a gap in the sequence numbers; a new epoch begins", partition)
                self.request_epoch_bump(partition)
            self._unresolved.discard(partition)

    def request_epoch_bump(self, partition: TopicPartition) -> None:
        """Request an epoch in which the partition's sequence numbers start at 0.

        It begins once it is known which of the partition's open batches the broker has.
        """
        self._sequences(partition)
        self._to_rewrite.add(partition)

    def _rewritable(self) -> list[TopicPartition]:
        """The partitions that wait for a new epoch, and have no batch in flight or possibly in a log.

        Checking the oldest batch is enough: no broker appends a batch whose predecessor it lacks.
        """
        ready = []
        for partition in self._to_rewrite:
            open_batches = self._partitions[partition].in_flight
            if any(batch.in_flight for batch in open_batches):
                continue
            if not open_batches or open_batches[0].maybe_persisted_error is None:
                ready.append(partition)
        return ready

    def bump_epoch_if_due(self) -> None:
        """Begin the requested epoch, or request a new producer id if the epochs are exhausted."""
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
                _number(known, batch)
                batch.maybe_persisted_error = None
            self._unresolved.discard(partition)
            self._to_rewrite.discard(partition)

    def in_flight(self, partition: TopicPartition) -> list[ProducerBatch]:
        """The incomplete batches of a partition with a sequence number, in that order. For tests."""
        known = self._partitions.get(partition)
        return [] if known is None else list(known.in_flight)
