"""The errors of requests that a producer never makes; `errors` has all others and imports these on first use.

A class statement takes 14 us, and every producer would pay for these 68 at its start.
"""

from __future__ import annotations

from .errors import (
    AuthorizationError,
    BrokerResponseError,
    InvalidConfigurationError,
    InvalidMetadataError,
    RetriableError,
)

__all__ = [
    "BrokerIdNotRegisteredError",
    "BrokerNotAvailableError",
    "DelegationTokenAuthDisabledError",
    "DelegationTokenAuthorizationFailedError",
    "DelegationTokenExpiredError",
    "DelegationTokenNotFoundError",
    "DelegationTokenOwnerMismatchError",
    "DelegationTokenRequestNotAllowedError",
    "DuplicateBrokerRegistrationError",
    "DuplicateResourceError",
    "DuplicateVoterError",
    "ElectionNotNeededError",
    "EligibleLeadersNotAvailableError",
    "FeatureUpdateFailedError",
    "FencedMemberEpochError",
    "FencedStateEpochError",
    "FetchSessionIdNotFoundError",
    "FetchSessionTopicIdError",
    "GroupIdNotFoundError",
    "GroupMaxSizeReachedError",
    "GroupSubscribedToTopicError",
    "InconsistentClusterIdError",
    "InconsistentGroupProtocolError",
    "InconsistentVoterSetError",
    "IneligibleReplicaError",
    "InvalidFetchRequestError",
    "InvalidFetchSessionEpochError",
    "InvalidPartitionsError",
    "InvalidPrincipalTypeError",
    "InvalidRecordStateError",
    "InvalidRegistrationError",
    "InvalidRegularExpressionError",
    "InvalidReplicationAssignmentError",
    "InvalidReplicationFactorError",
    "InvalidSessionTimeoutError",
    "InvalidShareSessionEpochError",
    "InvalidUpdateVersionError",
    "InvalidVoterKeyError",
    "LogDirNotFoundError",
    "MemberIdRequiredError",
    "MismatchedEndpointTypeError",
    "NewLeaderElectedError",
    "NoReassignmentInProgressError",
    "NonEmptyGroupError",
    "NotControllerError",
    "OffsetMovedToTieredStorageError",
    "OffsetOutOfRangeError",
    "PositionOutOfRangeError",
    "PreferredLeaderNotAvailableError",
    "PrincipalDeserializationFailureError",
    "ReassignmentInProgressError",
    "ResourceNotFoundError",
    "ShareSessionLimitReachedError",
    "ShareSessionNotFoundError",
    "SnapshotNotFoundError",
    "StaleBrokerEpochError",
    "StaleControllerEpochError",
    "StreamsInvalidTopologyEpochError",
    "StreamsInvalidTopologyError",
    "StreamsTopologyFencedError",
    "TopicDeletionDisabledError",
    "UnacceptableCredentialError",
    "UnknownControllerIdError",
    "UnreleasedInstanceIdError",
    "UnstableOffsetCommitError",
    "UnsupportedAssignorError",
    "UnsupportedEndpointTypeError",
    "VoterNotFoundError",
]


class OffsetOutOfRangeError(BrokerResponseError, code=1):
    """The requested offset is not in the partition's log: it is before its start or beyond its end."""


class InvalidFetchRequestError(BrokerResponseError, code=4, message="INVALID_FETCH_SIZE"):
    """The requested fetch size is not valid."""


class BrokerNotAvailableError(BrokerResponseError, code=8):
    """The requested broker is not alive."""


class StaleControllerEpochError(BrokerResponseError, code=11):
    """The controller that sent the request has been replaced by another one."""


class InconsistentGroupProtocolError(BrokerResponseError, code=23):
    """The member shares no assignment protocol with the rest of the group, or named none."""


class InvalidSessionTimeoutError(BrokerResponseError, code=26):
    """The session timeout is outside the range that the broker allows."""


class InvalidPartitionsError(BrokerResponseError, code=37):
    """The number of partitions is not valid."""


class InvalidReplicationFactorError(InvalidConfigurationError, code=38):
    """The replication factor is below 1 or above the number of live brokers."""


class InvalidReplicationAssignmentError(BrokerResponseError, code=39):
    """The assignment of replicas to brokers is not valid."""


class NotControllerError(RetriableError, BrokerResponseError, code=41):
    """This broker is not the cluster's controller."""


class LogDirNotFoundError(BrokerResponseError, code=57):
    """The broker has no such log directory."""


class ReassignmentInProgressError(BrokerResponseError, code=60):
    """The partition's replicas are being moved."""


class DelegationTokenAuthDisabledError(BrokerResponseError, code=61):
    """The cluster does not use delegation tokens."""


class DelegationTokenNotFoundError(BrokerResponseError, code=62):
    """The broker does not know the delegation token."""


class DelegationTokenOwnerMismatchError(BrokerResponseError, code=63):
    """The delegation token belongs to another owner, who has not named this client as a renewer."""


class DelegationTokenRequestNotAllowedError(BrokerResponseError, code=64):
    """Delegation tokens cannot be requested over this kind of connection."""


class DelegationTokenAuthorizationFailedError(AuthorizationError, code=65):
    """This client is not authorized to use the delegation token."""


class DelegationTokenExpiredError(BrokerResponseError, code=66):
    """The delegation token has expired."""


class InvalidPrincipalTypeError(BrokerResponseError, code=67):
    """The broker does not support this type of principal."""


class NonEmptyGroupError(BrokerResponseError, code=68):
    """The group still has members."""


class GroupIdNotFoundError(BrokerResponseError, code=69):
    """The group does not exist."""


class FetchSessionIdNotFoundError(RetriableError, BrokerResponseError, code=70):
    """The broker has dropped the fetch session; start a new one."""


class InvalidFetchSessionEpochError(RetriableError, BrokerResponseError, code=71):
    """The fetch session's epoch does not follow the last one; start a new session."""


class TopicDeletionDisabledError(BrokerResponseError, code=73):
    """The cluster does not allow topics to be deleted."""


class StaleBrokerEpochError(BrokerResponseError, code=77):
    """The broker has registered again since the request was sent."""


class MemberIdRequiredError(BrokerResponseError, code=79):
    """The first join only assigns the member id; join again with it."""


class PreferredLeaderNotAvailableError(InvalidMetadataError, BrokerResponseError, code=80):
    """The partition's preferred leader is not available."""


class GroupMaxSizeReachedError(BrokerResponseError, code=81):
    """The group has reached its maximum number of members."""


class EligibleLeadersNotAvailableError(InvalidMetadataError, BrokerResponseError, code=83):
    """No replica that could become the leader is available."""


class ElectionNotNeededError(InvalidMetadataError, BrokerResponseError, code=84):
    """The partition already has the right leader."""


class NoReassignmentInProgressError(BrokerResponseError, code=85):
    """The partition's replicas are not being moved."""


class GroupSubscribedToTopicError(BrokerResponseError, code=86):
    """The group is subscribed to the topic, so its offsets cannot be deleted."""


class UnstableOffsetCommitError(RetriableError, BrokerResponseError, code=88):
    """Offsets of an open transaction are pending; retry when it is complete."""


class ResourceNotFoundError(BrokerResponseError, code=91):
    """The request names something that does not exist."""


class DuplicateResourceError(BrokerResponseError, code=92):
    """The request names the same thing twice."""


class UnacceptableCredentialError(BrokerResponseError, code=93):
    """The new credential does not meet the broker's rules."""


class InconsistentVoterSetError(BrokerResponseError, code=94):
    """Either the sender or the recipient is not one of the quorum's expected voters."""


class InvalidUpdateVersionError(BrokerResponseError, code=95):
    """A feature cannot be set to this version."""


class FeatureUpdateFailedError(BrokerResponseError, code=96):
    """The controller could not change the cluster's features."""


class PrincipalDeserializationFailureError(BrokerResponseError, code=97):
    """The principal of a forwarded request could not be read; the cluster's security is misconfigured."""


class SnapshotNotFoundError(BrokerResponseError, code=98):
    """The snapshot does not exist."""


class PositionOutOfRangeError(BrokerResponseError, code=99):
    """The position is not within the snapshot."""


class DuplicateBrokerRegistrationError(BrokerResponseError, code=101):
    """Another broker is registered with this id."""


class BrokerIdNotRegisteredError(BrokerResponseError, code=102):
    """No broker is registered with this id."""


class InconsistentClusterIdError(BrokerResponseError, code=104):
    """The request is meant for another cluster."""


class FetchSessionTopicIdError(RetriableError, BrokerResponseError, code=106, message="FETCH_SESSION_TOPIC_ID_ERROR"):
    """The fetch session mixes topic names and topic ids; start a new one."""


class IneligibleReplicaError(BrokerResponseError, code=107):
    """The new ISR includes an ineligible replica."""


class NewLeaderElectedError(BrokerResponseError, code=108):
    """The partition was changed as requested and has a new leader."""


class OffsetMovedToTieredStorageError(BrokerResponseError, code=109):
    """The requested offset has moved from the broker's disk to remote storage."""


class FencedMemberEpochError(BrokerResponseError, code=110):
    """The group coordinator has fenced the member's epoch; give up its partitions and join again."""


class UnreleasedInstanceIdError(BrokerResponseError, code=111):
    """Another member of the group still uses the instance id."""


class UnsupportedAssignorError(BrokerResponseError, code=112):
    """The group does not support the assignor or its version."""


class MismatchedEndpointTypeError(BrokerResponseError, code=114):
    """The request went to the wrong kind of endpoint: a broker instead of a controller, or the reverse."""


class UnsupportedEndpointTypeError(BrokerResponseError, code=115):
    """This kind of endpoint is not supported yet."""


class UnknownControllerIdError(BrokerResponseError, code=116):
    """There is no controller with this id."""


class InvalidRegistrationError(BrokerResponseError, code=119):
    """The broker's registration is not valid for the controller."""


class InvalidRecordStateError(BrokerResponseError, code=121):
    """The record's state does not allow its delivery to be acknowledged."""


class ShareSessionNotFoundError(RetriableError, BrokerResponseError, code=122):
    """The broker has dropped the share session; start a new one."""


class InvalidShareSessionEpochError(RetriableError, BrokerResponseError, code=123):
    """The share session's epoch does not follow the last one; start a new session."""


class FencedStateEpochError(BrokerResponseError, code=124):
    """The share group's state epoch is not that of the coordinator."""


class InvalidVoterKeyError(BrokerResponseError, code=125):
    """The voter's key is not that of the replica that received the request."""


class DuplicateVoterError(BrokerResponseError, code=126):
    """The voter is already in the quorum."""


class VoterNotFoundError(BrokerResponseError, code=127):
    """The voter is not in the quorum."""


class InvalidRegularExpressionError(BrokerResponseError, code=128):
    """The regular expression is not valid."""


class StreamsInvalidTopologyError(BrokerResponseError, code=130):
    """The streams application's topology is not valid."""


class StreamsInvalidTopologyEpochError(BrokerResponseError, code=131):
    """The epoch of the streams application's topology is not valid."""


class StreamsTopologyFencedError(BrokerResponseError, code=132):
    """The epoch of the streams application's topology is out of date."""


class ShareSessionLimitReachedError(BrokerResponseError, code=133):
    """The broker has reached its limit of share sessions."""
