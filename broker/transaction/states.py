"""The state machine of a transaction: one table, state x event -> what happens.

An event is rejected if the producer's id or epoch is wrong, before the table is asked.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from ...network.protocol.errors import BrokerResponseError, ConcurrentTransactionsError, InvalidTxnStateError


class TransactionState(enum.IntEnum):
    """The state of a transaction. The values are those of Kafka's records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def label(self) -> str:
        """The name in Kafka's protocol, such as "PrepareCommit"."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and markers are being written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class Event(enum.Enum):
    """What can happen to a transaction. The values say what causes it."""

    INIT = "InitProducerId: the next producer with this id, or the same one again"
    ADD = "AddPartitionsToTxn, AddOffsetsToTxn, or the first batch for a partition"
    COMMIT = "EndTxn with the current epoch"
    ABORT = "EndTxn with the current epoch, to abort"
    COMMIT_AGAIN = "EndTxn for the transaction that has ended last"
    ABORT_AGAIN = "EndTxn for the transaction that has ended last, to abort"
    TIME_OUT = "the transaction's timeout has expired"
    MARKED = "every partition has its marker"
    EXPIRE = "the id has not been used for transactional.id.expiration.ms"


class Outcome(NamedTuple):
    """What an event leads to: the next state, an error, or neither, if everything has been done already."""

    state: TransactionState | None = None
    error: type[BrokerResponseError] | None = None


def _to(state: TransactionState) -> Outcome:
    return Outcome(state)


_S = TransactionState
_E = Event
_DONE = Outcome()
_INVALID = Outcome(error=InvalidTxnStateError)
_BUSY = Outcome(error=ConcurrentTransactionsError)

_WHILE_PREPARED = {
    _E.INIT: _BUSY,
    _E.ADD: _BUSY,
    _E.COMMIT: _BUSY,
    _E.ABORT: _BUSY,
    _E.COMMIT_AGAIN: _BUSY,
    _E.ABORT_AGAIN: _BUSY,
    _E.TIME_OUT: _BUSY,
    _E.EXPIRE: _BUSY,
}

#: A missing entry can't happen: its event is rejected by the epoch.
TABLE: dict[TransactionState, dict[Event, Outcome]] = {
    _S.EMPTY: {
        _E.INIT: _to(_S.EMPTY),
        _E.ADD: _to(_S.ONGOING),
        _E.COMMIT: _INVALID,
        _E.ABORT: _to(_S.PREPARE_ABORT),
        _E.COMMIT_AGAIN: _INVALID,
        _E.ABORT_AGAIN: _INVALID,
        _E.TIME_OUT: _BUSY,
        _E.EXPIRE: _to(_S.DEAD),
    },
    _S.ONGOING: {
        # The new producer gets CONCURRENT_TRANSACTIONS and tries again when the old transaction is aborted.
        _E.INIT: _to(_S.PREPARE_ABORT),
        _E.ADD: _to(_S.ONGOING),
        _E.COMMIT: _to(_S.PREPARE_COMMIT),
        _E.ABORT: _to(_S.PREPARE_ABORT),
        _E.TIME_OUT: _to(_S.PREPARE_ABORT),
        _E.EXPIRE: _BUSY,
    },
    _S.PREPARE_COMMIT: {**_WHILE_PREPARED, _E.MARKED: _to(_S.COMPLETE_COMMIT)},
    _S.PREPARE_ABORT: {**_WHILE_PREPARED, _E.MARKED: _to(_S.COMPLETE_ABORT)},
    _S.COMPLETE_COMMIT: {
        _E.INIT: _to(_S.EMPTY),
        _E.ADD: _to(_S.ONGOING),
        _E.COMMIT: _INVALID,
        _E.ABORT: _to(_S.PREPARE_ABORT),
        _E.COMMIT_AGAIN: _DONE,
        _E.ABORT_AGAIN: _INVALID,
        _E.TIME_OUT: _BUSY,
        _E.EXPIRE: _to(_S.DEAD),
    },
    _S.COMPLETE_ABORT: {
        _E.INIT: _to(_S.EMPTY),
        _E.ADD: _to(_S.ONGOING),
        _E.COMMIT: _INVALID,
        _E.ABORT: _to(_S.PREPARE_ABORT),
        _E.COMMIT_AGAIN: _INVALID,
        _E.ABORT_AGAIN: _DONE,
        _E.TIME_OUT: _BUSY,
        _E.EXPIRE: _to(_S.DEAD),
    },
}


def outcome_of(state: TransactionState, event: Event) -> Outcome:
    """The outcome of an event; a dead transaction is busy until it is gone."""
    return _BUSY if state is TransactionState.DEAD else TABLE[state].get(event, _INVALID)
