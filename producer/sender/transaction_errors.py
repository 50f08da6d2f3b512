"""The table of what an error of a transactional request does to the transaction. `docs/errors.md` is generated from it.

Source: the handlers in Kafka's TransactionManager (KIP-588, KIP-890, KIP-1050).
"""

from __future__ import annotations

from enum import Enum

from ...network.protocol import errors
from ...network.protocol.errors import KafkaError


class Reaction(Enum):
    """What an error does. Values are the texts in `docs/errors.md`."""

    RETRY = "the request is retried"
    FIND_COORDINATOR = "the request is retried after the coordinator has been found again"
    ABORT = "the transaction has to be aborted"
    NEW_EPOCH = "the transaction has to be aborted; the producer then requests a new epoch"
    FENCED = "fatal, unless the coordinator ended the transaction because it expired"
    DENIED = "fatal; `init_transactions` may be called again"
    FATAL = "fatal: the producer has to be closed"


#: Error class -> reaction. A class not listed takes the reaction of its closest ancestor in the table.
REACTIONS: dict[type[KafkaError], Reaction] = {
    KafkaError: Reaction.FATAL,
    errors.RetriableError: Reaction.RETRY,
    errors.CoordinatorNotAvailableError: Reaction.FIND_COORDINATOR,
    errors.NotCoordinatorError: Reaction.FIND_COORDINATOR,
    errors.KafkaConnectionError: Reaction.FIND_COORDINATOR,
    errors.NetworkExceptionError: Reaction.FIND_COORDINATOR,
    errors.RequestTimedOutError: Reaction.FIND_COORDINATOR,
    errors.TransactionAbortableError: Reaction.ABORT,
    # The other partitions of the request have the reason.
    errors.OperationNotAttemptedError: Reaction.ABORT,
    errors.TopicAuthorizationFailedError: Reaction.ABORT,
    errors.GroupAuthorizationFailedError: Reaction.ABORT,
    errors.InvalidTopicError: Reaction.ABORT,
    errors.OffsetMetadataTooLargeError: Reaction.ABORT,
    # The consumer was replaced: its group has another generation, or another consumer has its instance id (KIP-447).
    errors.IllegalGenerationError: Reaction.ABORT,
    errors.UnknownMemberIdError: Reaction.ABORT,
    errors.FencedInstanceIdError: Reaction.ABORT,
    errors.StaleMemberEpochError: Reaction.ABORT,
    errors.UnknownProducerIdError: Reaction.NEW_EPOCH,
    errors.InvalidProducerIdMappingError: Reaction.NEW_EPOCH,
    errors.InvalidProducerEpochError: Reaction.FENCED,
    errors.ProducerFencedError: Reaction.FENCED,
    errors.TransactionalIdAuthorizationFailedError: Reaction.DENIED,
    errors.ClusterAuthorizationFailedError: Reaction.DENIED,
}

#: Errors of a batch after which no transaction of this producer can be committed or aborted. Others are abortable.
FATAL_FOR_BATCHES = (
    errors.ClusterAuthorizationFailedError,
    errors.TransactionalIdAuthorizationFailedError,
    errors.ProducerFencedError,
    errors.UnsupportedVersionError,
)


def expired(timeout_ms: int) -> KafkaError:
    """The error for a transaction that the coordinator has aborted, and no other producer."""
    return errors.InvalidProducerEpochError(
        f"the coordinator has aborted the transaction, probably because it was open for longer than "
        f"transaction.timeout.ms ({timeout_ms} ms)"
    )


def taken_over(transactional_id: str) -> KafkaError:
    """The error for a producer that is fenced."""
    return errors.ProducerFencedError(
        f"another producer with the transactional.id {transactional_id!r} has taken over: close this one"
    )


def timeout_too_long(timeout_ms: int) -> KafkaError:
    """The error for a ``transaction.timeout.ms`` that the coordinator has rejected."""
    return errors.InvalidTransactionTimeoutError(
        f"transaction.timeout.ms={timeout_ms} is above the brokers' transaction.max.timeout.ms (15 minutes by "
        f"default): lower it, or raise theirs"
    )


def reaction_to(error: KafkaError | type[KafkaError]) -> Reaction:
    """The reaction to an error, from its class or the closest ancestor in the table."""
    kind = error if isinstance(error, type) else type(error)
    return next(REACTIONS[ancestor] for ancestor in kind.__mro__ if ancestor in REACTIONS)
