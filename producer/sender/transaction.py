"""The state of a producer's transactions: one table of states and events, and the calls that wait for it.

Theory of operation. A program's threads call `init`, `begin`, `commit`, `abort` and `send_offsets`. Each raises an
event under the lock, wakes the sender thread and waits for it, at most ``max.block.ms``. The sender thread sends the
requests that the state calls for (`transaction_requests`), and raises an event for each outcome. `TABLE` has the next
state and the action of every event that a state allows; any other is an error of the caller.

One call waits at a time. A call that timed out remains pending: only the same call may follow it, and continues to wait
for the same outcome. (An abort may also follow offsets that timed out, since it revokes them.)

In ABORTABLE_ERROR nothing of the transaction can be committed, and the program has to abort it. In FATAL_ERROR it has
to close the producer. Both keep the error, from which every later call raises its own.

Records belong to the transaction that is open when `send` appends them. A record whose batch isn't acknowledged when an
abort begins fails with TransactionAbortedError.

Source: Kafka's TransactionManager.State (KIP-98, KIP-588, KIP-1050).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from ...network.clock import Clock
from ...network.cluster import TopicPartition
from ...network.latch_cy import Latch
from ...network.protocol import errors
from ...network.protocol.errors import (
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from ...network.sections import here

_log = logging.getLogger(__name__)


class State(Enum):
    """The state of the transactions. Values complete the sentence "the producer ..."."""

    UNINITIALIZED = "is not initialized: call init_transactions first (start, if it is an AsyncKafkaProducer)"
    INITIALIZING = "is being initialized"
    READY = "has no open transaction: call begin_transaction first"
    IN_TRANSACTION = "has an open transaction: commit or abort it first"
    COMMITTING = "is committing its transaction"
    ABORTING = "is aborting its transaction"
    BUMPING = "requests a new epoch after an abort"
    HANDED_OVER = "has handed its transaction over: close it"
    ABORTABLE_ERROR = "has a transaction that has to be aborted"
    FATAL_ERROR = "can't go on: close it and create a new one"


class Event(Enum):
    """What happens to the transactions. Values are the calls that raise the event, if calls do."""

    INIT = "init_transactions"
    ASSIGNED = "the coordinator has assigned a producer id and an epoch"
    DENIED = "the coordinator has rejected the request for them"
    BEGIN = "begin_transaction"
    OFFSETS = "send_offsets_to_transaction"
    HAND_OVER = "handing the transaction over"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"
    ENDED = "the transaction has ended as requested"
    ENDED_STALE = "the transaction has ended, and the next one needs a new epoch"
    ABORTABLE = "the transaction can't be committed any longer"
    FATAL = "no transaction of this producer can end any longer"


class Action(Enum):
    """What an event causes. The requests follow from the state."""

    NONE = "nothing more"
    WAIT = "the call waits"
    RETURN = "the pending call returns"
    RAISE = "the error is kept, and the pending call raises it"
    KEEP = "the error is kept, and pending offsets raise it"


_S, _E, _A = State, Event, Action

#: (state, event) -> (next state, action). FATAL leads from every state to FATAL_ERROR.
TABLE: dict[tuple[State, Event], tuple[State, Action]] = {
    (_S.UNINITIALIZED, _E.INIT): (_S.INITIALIZING, _A.WAIT),
    (_S.INITIALIZING, _E.ASSIGNED): (_S.READY, _A.RETURN),
    (_S.INITIALIZING, _E.DENIED): (_S.UNINITIALIZED, _A.RAISE),
    (_S.INITIALIZING, _E.ABORTABLE): (_S.UNINITIALIZED, _A.RAISE),
    (_S.READY, _E.BEGIN): (_S.IN_TRANSACTION, _A.NONE),
    # records dropped by `KafkaProducer.abort`, or sent while a transaction ended
    (_S.READY, _E.ABORTABLE): (_S.READY, _A.NONE),
    (_S.IN_TRANSACTION, _E.OFFSETS): (_S.IN_TRANSACTION, _A.WAIT),
    # another process ends the transaction (`producer.resumption`)
    (_S.IN_TRANSACTION, _E.HAND_OVER): (_S.HANDED_OVER, _A.NONE),
    (_S.IN_TRANSACTION, _E.COMMIT): (_S.COMMITTING, _A.WAIT),
    (_S.IN_TRANSACTION, _E.ABORT): (_S.ABORTING, _A.WAIT),
    (_S.IN_TRANSACTION, _E.ABORTABLE): (_S.ABORTABLE_ERROR, _A.KEEP),
    (_S.COMMITTING, _E.ENDED): (_S.READY, _A.RETURN),
    (_S.COMMITTING, _E.ABORTABLE): (_S.ABORTABLE_ERROR, _A.RAISE),
    (_S.ABORTABLE_ERROR, _E.ABORT): (_S.ABORTING, _A.WAIT),
    (_S.ABORTABLE_ERROR, _E.ABORTABLE): (_S.ABORTABLE_ERROR, _A.NONE),
    (_S.ABORTING, _E.ENDED): (_S.READY, _A.RETURN),
    (_S.ABORTING, _E.ENDED_STALE): (_S.BUMPING, _A.NONE),
    (_S.ABORTING, _E.ABORTABLE): (_S.ABORTING, _A.NONE),
    (_S.BUMPING, _E.ASSIGNED): (_S.READY, _A.RETURN),
    (_S.BUMPING, _E.ABORTABLE): (_S.ABORTABLE_ERROR, _A.RAISE),
    **{(state, _E.FATAL): (_S.FATAL_ERROR, _A.RAISE) for state in State},
}

#: The states in which the sender thread has something to end before a producer may close.
ENDING = frozenset({State.COMMITTING, State.ABORTING, State.BUMPING})
#: The states in which the records of the transaction are lost.
DOOMED = frozenset({State.ABORTABLE_ERROR, State.ABORTING, State.BUMPING})


class GroupMember(NamedTuple):
    """A consumer group, and the member whose offsets a transaction commits (KIP-447). The defaults fence no member."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    @property
    def is_named(self) -> bool:
        """Whether the coordinator can fence the member."""
        return bool(self.member_id) or self.generation_id >= 0 or self.group_instance_id is not None


class Offset(NamedTuple):
    """The offset from which a group continues in a partition."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetsToCommit:
    """Offsets that `send_offsets` waits for. `left`: those that are not committed yet."""

    __slots__ = ("given", "is_group_added", "left", "member")

    def __init__(self, offsets: Mapping[TopicPartition, Offset], member: GroupMember) -> None:
        self.given = offsets
        self.left = dict(offsets)
        self.member = member
        #: Whether the transaction coordinator knows of the group, which the classic protocol adds first.
        self.is_group_added = False

    def is_repeated_by(self, other: OffsetsToCommit) -> bool:
        """Whether the other call has the same arguments."""
        return self.given == other.given and self.member == other.member


class Call:
    """A call that waits for the sender thread."""

    __slots__ = ("done", "error", "event", "offsets")

    def __init__(self, event: Event, offsets: OffsetsToCommit | None = None) -> None:
        self.event = event
        self.offsets = offsets
        self.error: KafkaError | None = None
        self.done = Latch()


class Transaction:
    """The transactions of one producer. Thread-safe: any thread may call `init` to `send_offsets` and `check_send`.

    The sender thread calls the others. `state` and `error` are read without the lock.
    """

    def __init__(
        self, transactional_id: str, *, clock: Clock, max_block_ms: float, wakeup: Callable[[], object]
    ) -> None:
        """Start uninitialized.

        `transactional_id`: the key ``transactional.id``.
        `clock`: the time source.
        `max_block_ms`: milliseconds a call waits at most.
        `wakeup`: wakes the sender thread.
        """
        self.transactional_id = transactional_id
        self.state = State.UNINITIALIZED
        #: The error of ABORTABLE_ERROR and FATAL_ERROR.
        self.error: KafkaError | None = None
        #: What the sender thread waits for; for the errors of calls that time out.
        self.obstacle: KafkaError | None = None
        #: Increases with each transaction that begins.
        self.number = 0
        self._clock = clock
        self._max_block_ms = max_block_ms
        self._wakeup = wakeup
        self._lock = threading.Lock()
        self._pending: Call | None = None

    # --- Callers' threads ---

    def init(self) -> None:
        """Get a producer id and end what an earlier producer with this id left open."""
        self._call(Call(Event.INIT))

    def begin(self) -> None:
        """Open a transaction. Doesn't wait."""
        with here.section, self._lock:
            self._check_none_pending(Event.BEGIN)
            self._on(Event.BEGIN, None)
            self.number += 1
        # the sender thread chooses the protocol

    def commit(self) -> None:
        """Send the records of the transaction and commit it."""
        self._call(Call(Event.COMMIT))

    def abort(self) -> None:
        """Drop the records that wait and abort the transaction."""
        self._call(Call(Event.ABORT))

    def send_offsets(self, offsets: Mapping[TopicPartition, Offset], member: GroupMember) -> None:
        """Commit a group's offsets with the transaction."""
        self._call(Call(Event.OFFSETS, OffsetsToCommit(offsets, member)))

    def hand_over(self) -> None:
        """Leave it to another process to end the transaction, whose records have all been acknowledged."""
        with here.section, self._lock:
            self._check_none_pending(Event.HAND_OVER)
            self._on(Event.HAND_OVER, None)

    def check_send(self) -> None:
        """Raise an error unless a transaction is open. Takes no lock."""
        if self.state is not State.IN_TRANSACTION:
            raise self._rejection("send")

    def _call(self, call: Call) -> None:
        call = self.start(call)
        self.finish(call, is_done=self._clock.await_latch(call.done, self._clock.now_ms() + self._max_block_ms))

    def start(self, call: Call) -> Call:
        """Begin a call, or join the pending one that it repeats. Returns the one to wait for, and then to `finish`."""
        with here.section, self._lock:
            call = self._joined(call)
        self._wakeup()
        return call

    def finish(self, call: Call, *, is_done: bool) -> None:
        """Raise the error of a call, or KafkaTimeoutError if the wait ended before it was done."""
        if not is_done:
            raise self._timeout(call)
        with here.section, self._lock:
            if self._pending is call:
                self._pending = None
        if call.error is not None:
            raise call.error

    def _joined(self, call: Call) -> Call:
        """The pending call if `call` repeats it, else `call`, which is pending from now on. Locked."""
        pending = self._pending
        if pending is not None and pending.event is call.event:
            offsets = call.offsets
            if offsets is None or (pending.offsets is not None and pending.offsets.is_repeated_by(offsets)):
                return pending
        if pending is not None and (pending.event, call.event) == (Event.OFFSETS, Event.ABORT):
            self._end_pending(TransactionAbortedError("the transaction was aborted before its offsets were committed"))
            self._pending = None
        self._check_none_pending(call.event)
        self._on(call.event, None)
        self._pending = call
        return call

    def _check_none_pending(self, event: Event) -> None:
        pending = self._pending
        if pending is not None:
            same = " with the same arguments" if pending.offsets is not None else ""
            raise IllegalStateError(
                f"{event.value} can't follow {pending.event.value}, which has not returned or has timed out: call "
                f"{pending.event.value} again{same} first"
            )

    def _timeout(self, call: Call) -> KafkaTimeoutError:
        obstacle = self.obstacle
        why = "the transaction coordinator has not answered yet" if obstacle is None else f"{obstacle}"
        error = KafkaTimeoutError(
            f"{call.event.value} did not finish within max.block.ms ({self._max_block_ms:.0f} ms): {why}. It "
            f"continues: call {call.event.value} again to wait for it, or close the producer"
        )
        error.__cause__ = obstacle
        return error

    def _rejection(self, call: str) -> KafkaError:
        """The error for a call that the state does not allow."""
        cause = self.error
        if cause is None:
            if call == "init_transactions" and self.state is State.READY:
                return IllegalStateError("init_transactions was called before; a producer needs it once")
            return IllegalStateError(f"{call} is not possible now: the producer {self.state.value}")
        error: KafkaError
        if self.state is State.FATAL_ERROR:
            error = _again(cause, f"{call} is not possible: the producer {self.state.value} ({cause})")
        else:
            error = TransactionAbortableError(f"{call} is not possible: {cause}")
        error.__cause__ = cause
        return error

    # --- Both ---

    def _on(self, event: Event, error: KafkaError | None) -> None:
        """Apply an event. Raises the error of one that the state does not allow. Locked."""
        found = TABLE.get((self.state, event))
        if found is None:
            raise self._rejection(event.value)
        self.state, action = found
        if self.state not in (State.ABORTABLE_ERROR, State.FATAL_ERROR):
            self.error = None
        elif action is not Action.NONE:
            self.error = error
        if action is Action.RETURN:
            self.obstacle = None
            self._end_pending(None)
        elif action is Action.RAISE or action is Action.KEEP:
            self._end_pending(error)

    def _end_pending(self, error: KafkaError | None) -> None:
        call = self._pending
        if call is not None and not call.done.is_set:
            call.error = error
            call.done.set()

    # --- The sender thread ---

    @property
    def is_doomed(self) -> bool:
        """Whether the records of the transaction are lost."""
        return self.state in DOOMED

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and not ended. Any thread."""
        return self.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR) or self.is_ending

    @property
    def is_ending(self) -> bool:
        """Whether the sender thread has to end a transaction."""
        return self.state in ENDING

    def offsets(self) -> OffsetsToCommit | None:
        """The offsets that are to be committed."""
        call = self._pending
        return None if call is None or call.done.is_set else call.offsets

    def offsets_committed(self, offsets: OffsetsToCommit, partitions: Iterable[TopicPartition]) -> None:
        """The offsets of these partitions are in the transaction; the call returns with the last of them."""
        for partition in partitions:
            offsets.left.pop(partition, None)
        with here.section, self._lock:
            if not offsets.left and self.offsets() is offsets:
                self._end_pending(None)

    def assigned(self) -> None:
        """The coordinator has assigned a producer id and an epoch."""
        self._raise(Event.ASSIGNED)

    def denied(self, error: KafkaError) -> None:
        """The coordinator has rejected the request for them: fatal, except in `init`."""
        self._raise(Event.DENIED if self.state is State.INITIALIZING else Event.FATAL, error)

    def ended(self, *, needs_epoch: bool = False) -> None:
        """The transaction has ended as requested. `needs_epoch`: the next one needs a new epoch."""
        self._raise(Event.ENDED_STALE if needs_epoch else Event.ENDED)

    def abortable(self, cause: KafkaError) -> None:
        """The transaction can't be committed because of `cause`."""
        if self.state in (State.FATAL_ERROR, State.UNINITIALIZED):
            return
        error = cause
        if not isinstance(cause, TransactionAbortableError) and self.state is not State.INITIALIZING:
            error = TransactionAbortableError(f"the transaction can't be committed: {cause}; call abort_transaction")
            error.__cause__ = cause
        if self.state in (State.IN_TRANSACTION, State.COMMITTING):
            _log.info("transaction of %r has to be aborted: %s", self.transactional_id, cause)
        self._raise(Event.ABORTABLE, error)

    def fatal(self, error: KafkaError) -> None:
        """No transaction of this producer can end any longer."""
        if self.state is not State.FATAL_ERROR:
            _log.error("the transactional producer %r can't go on: %s", self.transactional_id, error)
            self._raise(Event.FATAL, error)

    def aborted_error(self) -> TransactionAbortedError:
        """The error of the records of this transaction, which is doomed."""
        cause = self.error
        why = "" if cause is None else f", because of an earlier error ({cause})"
        error = TransactionAbortedError(f"the transaction of the record was aborted, or has to be{why}")
        error.__cause__ = cause
        return error

    def fail_pending(self, error: KafkaError) -> None:
        """Fail the pending call: the sender thread ends."""
        with here.section, self._lock:
            self._end_pending(error)

    def close(self) -> None:
        """Begin to abort a transaction that is open while the producer closes."""
        with here.section, self._lock:
            if self.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
                _log.warning(
                    "producer with transactional.id %r was closed inside a transaction, which is aborted",
                    self.transactional_id,
                )
                self._end_pending(errors.ProducerClosedError("the producer was closed"))
                self._on(Event.ABORT, None)

    def _raise(self, event: Event, error: KafkaError | None = None) -> None:
        with here.section, self._lock:
            self._on(event, error)


def _again(error: KafkaError, message: str) -> KafkaError:
    """A new error of the same class."""
    if type(error) is errors.UnrecognizedBrokerError:
        return errors.UnrecognizedBrokerError(message, error.code)
    return type(error)(message)
