"""The table of actions for each error."""

from __future__ import annotations

import pytest

from headrace.network.protocol import errors
from headrace.producer.sender.delivery import InLog, Verdict, action_for

CODES = [code for code in range(-1, 200) if errors.error_for(code) is not errors.UnrecognizedBrokerError and code]


@pytest.mark.parametrize("code", CODES)
def test_every_error_of_kafka_has_an_action_that_fits_its_class(code: int) -> None:
    kind = errors.error_for(code)
    assert kind is not None
    action = action_for(kind)
    assert action is action_for(kind("x"))
    if issubclass(kind, errors.RetriableError):
        assert action.verdict in (Verdict.RETRY, Verdict.SPLIT, Verdict.COMPLETE)
    if issubclass(kind, errors.InvalidMetadataError):
        assert action.refresh_metadata


@pytest.mark.parametrize(
    ("kind", "verdict", "refresh", "in_log"),
    [
        (errors.NotLeaderOrFollowerError, Verdict.RETRY, True, InLog.POSSIBLY),
        (errors.UnknownTopicOrPartitionError, Verdict.RETRY, True, InLog.POSSIBLY),
        (errors.KafkaStorageError, Verdict.RETRY, True, InLog.POSSIBLY),
        (errors.LeaderNotAvailableError, Verdict.RETRY, True, InLog.NO),
        (errors.NotEnoughReplicasError, Verdict.RETRY, False, InLog.NO),
        (errors.NotEnoughReplicasAfterAppendError, Verdict.RETRY, False, InLog.YES),
        (errors.NetworkExceptionError, Verdict.RETRY, True, InLog.POSSIBLY),
        (errors.RequestTimedOutError, Verdict.RETRY, False, InLog.POSSIBLY),
        (errors.CorruptRecordError, Verdict.RETRY, False, InLog.NO),
        (errors.MessageSizeTooLargeError, Verdict.SPLIT, False, InLog.NO),
        (errors.DuplicateSequenceNumberError, Verdict.COMPLETE, False, InLog.YES),
        (errors.ProducerFencedError, Verdict.FATAL, False, InLog.NO),
        (errors.ClusterAuthorizationFailedError, Verdict.FATAL, False, InLog.NO),
        (errors.TopicAuthorizationFailedError, Verdict.FAIL, False, InLog.NO),
        (errors.InvalidRecordError, Verdict.FAIL, False, InLog.NO),
        (errors.UnknownError, Verdict.FAIL, False, InLog.POSSIBLY),
        (errors.DeliveryTimeoutError, Verdict.FAIL, False, InLog.POSSIBLY),
        (errors.MalformedMessageError, Verdict.FAIL, False, InLog.POSSIBLY),
    ],
)
def test_the_lines_that_matter_most(
    kind: type[errors.KafkaError], verdict: Verdict, refresh: bool, in_log: InLog
) -> None:
    action = action_for(kind)
    assert (action.verdict, action.refresh_metadata, action.in_log) == (verdict, refresh, in_log)
