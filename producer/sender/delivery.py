"""The table of the sender's actions per error of a produce request. `docs/errors.md` is generated from it.

Source: Kafka's Sender.completeBatch and Errors; the "in the log" column follows librdkafka.
"""

from __future__ import annotations

from enum import Enum

from ...network.protocol import errors
from ...network.protocol.errors import KafkaError


class Verdict(Enum):
    """The outcome for a batch. Values are the texts in `docs/errors.md`."""

    RETRY = "retried within `delivery.timeout.ms`"
    SPLIT = "split in two and retried; a batch of one record fails"
    COMPLETE = "reported as delivered: an earlier attempt wrote it"
    FAIL = "fails immediately"
    FATAL = "fails immediately, as do all other records of this producer"


class InLog(Enum):
    """Whether the record may be in the log when the error is reported."""

    NO = "no"
    POSSIBLY = "possibly"
    YES = "yes"


class Action:
    """One line of the table."""

    __slots__ = ("in_log", "refresh_metadata", "verdict")

    def __init__(self, verdict: Verdict, *, refresh_metadata: bool = False, in_log: InLog = InLog.NO) -> None:
        self.verdict = verdict
        self.refresh_metadata = refresh_metadata
        self.in_log = in_log


_RETRY = Action(Verdict.RETRY)
_RETRY_REFRESHED = Action(Verdict.RETRY, refresh_metadata=True)
_FAIL = Action(Verdict.FAIL)

#: Error class -> action. A class not listed takes the action of its closest ancestor in the table.
ACTIONS: dict[type[KafkaError], Action] = {
    KafkaError: Action(Verdict.FAIL, in_log=InLog.POSSIBLY),
    errors.BrokerResponseError: _FAIL,
    errors.RetriableError: _RETRY,
    errors.InvalidMetadataError: _RETRY_REFRESHED,
    # The response was lost, but the batch may have arrived.
    errors.NetworkExceptionError: Action(Verdict.RETRY, refresh_metadata=True, in_log=InLog.POSSIBLY),
    errors.KafkaConnectionError: Action(Verdict.RETRY, refresh_metadata=True, in_log=InLog.POSSIBLY),
    errors.RequestTimedOutError: Action(Verdict.RETRY, in_log=InLog.POSSIBLY),
    errors.NotEnoughReplicasAfterAppendError: Action(Verdict.RETRY, in_log=InLog.YES),
    errors.DeliveryTimeoutError: Action(Verdict.FAIL, in_log=InLog.POSSIBLY),
    errors.UnknownError: Action(Verdict.FAIL, in_log=InLog.POSSIBLY),
    # Returned before the append, or after it if the broker lost the leadership, the partition or its disk while waiting
    # for replicas.
    errors.NotLeaderOrFollowerError: Action(Verdict.RETRY, refresh_metadata=True, in_log=InLog.POSSIBLY),
    errors.UnknownTopicOrPartitionError: Action(Verdict.RETRY, refresh_metadata=True, in_log=InLog.POSSIBLY),
    errors.KafkaStorageError: Action(Verdict.RETRY, refresh_metadata=True, in_log=InLog.POSSIBLY),
    # The leader moved, so that the leader epochs of client and broker differ.
    errors.UnknownLeaderEpochError: _RETRY_REFRESHED,
    errors.MessageSizeTooLargeError: Action(Verdict.SPLIT),
    errors.RecordListTooLargeError: _FAIL,
    errors.DuplicateSequenceNumberError: Action(Verdict.COMPLETE, in_log=InLog.YES),
    # The sequence state decides whether these two are retried: see TransactionManager.can_retry.
    errors.OutOfOrderSequenceNumberError: Action(Verdict.RETRY, in_log=InLog.NO),
    errors.UnknownProducerIdError: Action(Verdict.RETRY, in_log=InLog.NO),
    errors.ProducerFencedError: Action(Verdict.FATAL),
    errors.ClusterAuthorizationFailedError: Action(Verdict.FATAL),
    errors.UnsupportedVersionError: Action(Verdict.FATAL),
}

_resolved: dict[type[KafkaError], Action] = {}


def action_for(error: KafkaError | type[KafkaError]) -> Action:
    """The action for an error, from its class or the closest ancestor in the table."""
    kind = error if isinstance(error, type) else type(error)
    action = _resolved.get(kind)
    if action is None:
        action = next(ACTIONS[ancestor] for ancestor in kind.__mro__ if ancestor in ACTIONS)
        _resolved[kind] = action
    return action
