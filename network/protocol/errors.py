"""Every error that Headrace raises or reports: one class statement an error, one place to look.

Three kinds:

- `BrokerResponseError`: what a broker answers. One class a wire code (`class SomethingError(..., code=3)`); the table
  is Apache Kafka's `org.apache.kafka.common.protocol.Errors`. `error_for` finds the class of a code, `make_error` makes
  an instance.
- `ProtocolError`: bytes that are no message (`MalformedMessageError`: what arrived) and messages that cannot become
  bytes (`EncodeError`: what the caller gave).
- everything else a client can run into by itself: timeouts, connections, configuration, use after close.

Whether trying again may help is in the base class, as in the Java client: `RetriableError`, and `InvalidMetadataError`
for those that want fresh metadata first. All of them pickle (Spark sends them between processes), and say something
useful even without a message: then the first line of the class's doc is the text.

Programs import them from `headrace.producer.errors`, so that is the module that tracebacks show and pickles name.
"""

from __future__ import annotations

from typing import ClassVar

_PUBLIC_MODULE = "headrace.producer.errors"


class KafkaError(Exception):
    """Something between this client and Kafka went wrong."""

    __module__ = _PUBLIC_MODULE

    retriable: ClassVar[bool] = False
    invalid_metadata: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__ == __name__:
            cls.__module__ = _PUBLIC_MODULE

    def __str__(self) -> str:
        return super().__str__() or _first_line(type(self))


def _first_line(error_class: type[KafkaError]) -> str:
    return (error_class.__doc__ or error_class.__name__).strip().partition("\n")[0]


class RetriableError(KafkaError):
    """Trying the same again may succeed."""

    retriable = True


class InvalidMetadataError(RetriableError):
    """What this client believes about the cluster is out of date; it may succeed after a metadata refresh."""

    invalid_metadata = True


# --- A client by itself ---


class KafkaTimeoutError(RetriableError):
    """It did not finish in the time it was given."""


class BufferExhaustedError(KafkaTimeoutError):
    """No room in `buffer_memory` within `max_block_ms`: records are made faster than they can be sent."""


class DeliveryTimeoutError(KafkaTimeoutError):
    """The record was not acknowledged within `delivery_timeout_ms`; the broker may or may not have it."""


class KafkaConnectionError(InvalidMetadataError):
    """A broker cannot be reached, or the connection to it broke."""


class DisconnectedError(KafkaConnectionError):
    """The connection closed before the answer to a request came."""


class UnresolvableHostError(KafkaConnectionError):
    """A broker's host name has no address; check `bootstrap_servers` and the brokers' `advertised.listeners`."""


class NoBrokersAvailableError(KafkaConnectionError):
    """None of the brokers in `bootstrap_servers` could be reached; check the addresses and that a broker runs there."""


class NotKafkaError(KafkaError):
    """What answers at this address does not speak Kafka's protocol; check the host and the port."""


class KafkaConfigurationError(KafkaError, ValueError):
    """A configuration value is missing, unknown, of the wrong type or out of its range."""


class IllegalStateError(KafkaError):
    """This call is not allowed in the state that the object is in."""


class IllegalArgumentError(KafkaError, ValueError):
    """A call was given something that it can't work with; the message says what it takes."""


class ProducerClosedError(IllegalStateError):
    """The producer is closed; make a new one."""


class RecordAbortedError(KafkaError):
    """The program dropped the record with `abort` before it was acknowledged; where it had been sent once, it may be in
    the log."""


class SerializationError(KafkaError):
    """A key or a value could not be turned into bytes."""


class RowDeliveryError(KafkaError):
    """A row of a DataFrame could not be delivered; the cause is in `__cause__` and in the message.

    `row` counts from 0 within the Spark partition or the Arrow batch; `partition` is -1 where none had been chosen yet.
    """

    def __init__(self, message: str = "", topic: str | None = None, partition: int = -1, row: int = -1) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.row = row

    def __reduce__(self) -> tuple:
        return type(self), (self.args[0], self.topic, self.partition, self.row)


class PartitionerError(KafkaError):
    """A partitioner failed, or chose something that is no partition of the topic."""


class UnsupportedCodecError(KafkaError):
    """A compression codec is not known, or not available here."""


class ProtocolError(KafkaError):
    """Bytes and messages do not fit together."""


class MalformedMessageError(ProtocolError):
    """The bytes that arrived are not a message of the expected kind and version."""


class TooManyElementsError(MalformedMessageError):
    """The message has more array elements than its reader takes."""


class InvalidReceiveError(MalformedMessageError):
    """The frame that arrived declares a size that is negative or above the limit."""


class CorrelationIdError(MalformedMessageError):
    """The answer that arrived belongs to no request that waits for one, or came out of order."""


class EncodeError(ProtocolError):
    """A message holds a value that cannot be written in the version asked for."""


# --- A broker's answer ---

_CLASS_OF_CODE: dict[int, type[BrokerResponseError]] = {}


class BrokerResponseError(KafkaError):
    """A broker answered with an error.

    A subclass that states a `code` is the one class of that wire code; one without is a family of such classes. Under
    kafka-python's names `errno` is the code, `message` Kafka's name of the error, as in ``UNKNOWN_TOPIC_OR_PARTITION``,
    and `description` what it means; None in a family.
    """

    code: int = -1
    errno: int | None = None
    message: ClassVar[str | None] = None
    description: ClassVar[str | None] = None

    def __init_subclass__(cls, code: int | None = None, message: str | None = None) -> None:
        """`message`: Kafka's name of the error, where it is not the name of the class."""
        super().__init_subclass__()
        if code is None:
            return
        other = _CLASS_OF_CODE.setdefault(code, cls)
        if other is not cls:
            raise TypeError(f"error code {code} of {cls.__name__} already belongs to {other.__name__}")
        cls.code = cls.errno = code
        words = "".join(f"_{each}" if each.isupper() else each for each in cls.__name__.removesuffix("Error"))
        cls.message = message or words.removeprefix("_").upper()
        cls.description = _first_line(cls)


class AuthenticationError(BrokerResponseError):
    """The broker did not accept who this client says it is."""


class AuthorizationError(BrokerResponseError):
    """This client may not do that; ask for the access rights."""


class UnknownError(BrokerResponseError, code=-1):
    """The broker failed in a way it has no code for; its log says more."""


class UnrecognizedBrokerError(UnknownError):
    """The broker answered with an error code that this version does not know; `code` has it."""

    def __init__(self, message: str = "", code: int = -1) -> None:
        super().__init__(message) if message else super().__init__()
        self.code = self.errno = code

    def __str__(self) -> str:
        return f"{super().__str__()} (error code {self.code})"


class OffsetOutOfRangeError(BrokerResponseError, code=1):
    """The offset asked for is not in the partition's log: it is older than the oldest kept or beyond the end."""


class CorruptRecordError(RetriableError, BrokerResponseError, code=2, message="CORRUPT_MESSAGE"):
    """A record batch is damaged: its checksum, its size or its layout is wrong, or a compacted topic got a null key."""


class UnknownTopicOrPartitionError(InvalidMetadataError, BrokerResponseError, code=3):
    """This broker knows no such topic or partition; it may not exist, or not be known here yet."""


class InvalidFetchRequestError(BrokerResponseError, code=4, message="INVALID_FETCH_SIZE"):
    """The size asked for in a fetch is not valid."""


class LeaderNotAvailableError(InvalidMetadataError, BrokerResponseError, code=5):
    """The partition has no leader at the moment; an election is under way."""


class NotLeaderForPartitionError(InvalidMetadataError, BrokerResponseError, code=6):
    """This broker is not the partition's leader (or, where any replica will do, not a replica of it)."""


class RequestTimedOutError(KafkaTimeoutError, BrokerResponseError, code=7):
    """The broker could not finish the request in its time, such as the wait for replicas; it may have taken effect."""


class BrokerNotAvailableError(BrokerResponseError, code=8):
    """The broker asked for is not alive."""


class ReplicaNotAvailableError(InvalidMetadataError, BrokerResponseError, code=9):
    """A replica that is expected on this broker is not there."""


class MessageSizeTooLargeError(BrokerResponseError, code=10):
    """The record batch is larger than the broker or the topic takes; raise `max.message.bytes` or send less."""


class StaleControllerEpochError(BrokerResponseError, code=11):
    """The controller that asked has been replaced by another one."""


class OffsetMetadataTooLargeError(BrokerResponseError, code=12):
    """The metadata text of a committed offset is longer than the broker takes."""


class NetworkExceptionError(InvalidMetadataError, BrokerResponseError, code=13):
    """The connection to the broker broke before the answer came."""


class CoordinatorLoadInProgressError(RetriableError, BrokerResponseError, code=14):
    """The coordinator is still loading its state; ask again soon."""


class CoordinatorNotAvailableError(RetriableError, BrokerResponseError, code=15):
    """No coordinator is available at the moment."""


class NotCoordinatorError(RetriableError, BrokerResponseError, code=16):
    """This broker is not the coordinator; find the coordinator again."""


class InvalidTopicError(BrokerResponseError, code=17):
    """The topic's name is not a legal one, or the topic is not open to this operation."""


class RecordListTooLargeError(BrokerResponseError, code=18):
    """The record batch is larger than a whole segment of the partition's log."""


class NotEnoughReplicasError(RetriableError, BrokerResponseError, code=19):
    """Fewer replicas are in sync than `min.insync.replicas` asks for; nothing was written."""


class NotEnoughReplicasAfterAppendError(RetriableError, BrokerResponseError, code=20):
    """The records were written, but to fewer in-sync replicas than `min.insync.replicas` asks for."""


class InvalidRequiredAcksError(BrokerResponseError, code=21):
    """`acks` in the request is none of 0, 1 and -1."""


class IllegalGenerationError(BrokerResponseError, code=22):
    """The group has moved on to another generation; join again."""


class InconsistentGroupProtocolError(BrokerResponseError, code=23):
    """The member shares no assignment protocol with the rest of the group, or named none."""


class InvalidGroupIdError(BrokerResponseError, code=24):
    """The group id is not a legal one."""


class UnknownMemberIdError(BrokerResponseError, code=25):
    """The coordinator does not know this member of the group; join again."""


class InvalidSessionTimeoutError(BrokerResponseError, code=26):
    """The session timeout is outside of what the broker allows."""


class RebalanceInProgressError(BrokerResponseError, code=27):
    """The group is rebalancing; join again."""


class InvalidCommitOffsetSizeError(BrokerResponseError, code=28):
    """The offsets to commit are more than the coordinator can store at once."""


class TopicAuthorizationFailedError(AuthorizationError, code=29):
    """This client may not use the topic that way."""


class GroupAuthorizationFailedError(AuthorizationError, code=30):
    """This client may not use the group."""


class ClusterAuthorizationFailedError(AuthorizationError, code=31):
    """This client may not do that to the cluster."""


class InvalidTimestampError(BrokerResponseError, code=32):
    """A record's timestamp is further from the broker's time than the topic allows."""


class UnsupportedSaslMechanismError(AuthenticationError, code=33):
    """The broker does not offer this SASL mechanism."""


class IllegalSaslStateError(AuthenticationError, code=34):
    """The request does not fit into the SASL handshake at this point."""


class UnsupportedVersionError(BrokerResponseError, code=35):
    """The other side does not support this API, or not in this version."""


class TopicAlreadyExistsError(BrokerResponseError, code=36):
    """There is a topic of this name already."""


class InvalidPartitionsError(BrokerResponseError, code=37):
    """The number of partitions is not valid."""


class InvalidReplicationFactorError(BrokerResponseError, code=38):
    """The replication factor is below 1 or above the number of live brokers."""


class InvalidReplicationAssignmentError(BrokerResponseError, code=39):
    """The assignment of replicas to brokers is not valid."""


class InvalidConfigurationError(BrokerResponseError, code=40, message="INVALID_CONFIG"):
    """A configuration entry of a topic or a broker is not valid."""


class NotControllerError(RetriableError, BrokerResponseError, code=41):
    """This broker is not the cluster's controller."""


class InvalidRequestError(BrokerResponseError, code=42):
    """The request contradicts itself or is not meant for this broker; the broker's log says more."""


class UnsupportedForMessageFormatError(BrokerResponseError, code=43):
    """The topic's message format is too old for that."""


class PolicyViolationError(BrokerResponseError, code=44):
    """A policy that the cluster's administrators set forbids that."""


class OutOfOrderSequenceNumberError(BrokerResponseError, code=45):
    """The batch does not follow on the producer's last one: a batch before it is missing in the log."""


class DuplicateSequenceNumberError(BrokerResponseError, code=46):
    """The batch was written before."""


class InvalidProducerEpochError(BrokerResponseError, code=47):
    """The producer's epoch is older than the newest one that the broker has seen."""


class InvalidTxnStateError(BrokerResponseError, code=48):
    """The transaction is not in a state that allows that."""


class InvalidProducerIdMappingError(BrokerResponseError, code=49):
    """The producer id does not belong to the transactional id."""


class InvalidTransactionTimeoutError(BrokerResponseError, code=50):
    """The transaction timeout is above the broker's `transaction.max.timeout.ms`."""


class ConcurrentTransactionsError(RetriableError, BrokerResponseError, code=51):
    """Another operation on the same transaction has not finished yet."""


class TransactionCoordinatorFencedError(BrokerResponseError, code=52):
    """A newer transaction coordinator has taken over."""


class TransactionalIdAuthorizationFailedError(AuthorizationError, code=53):
    """This client may not use the transactional id."""


class SecurityDisabledError(BrokerResponseError, code=54):
    """The cluster runs without the security features that this asks for."""


class OperationNotAttemptedError(BrokerResponseError, code=55):
    """The broker did not try this one, because another one in the same request failed."""


class KafkaStorageError(InvalidMetadataError, BrokerResponseError, code=56, message="KAFKA_STORAGE_ERROR"):
    """The broker could not read or write its disk."""


class LogDirNotFoundError(BrokerResponseError, code=57):
    """The broker has no such log directory."""


class SaslAuthenticationFailedError(AuthenticationError, code=58):
    """SASL authentication failed; check the credentials."""


class UnknownProducerIdError(OutOfOrderSequenceNumberError, code=59):
    """The broker holds nothing of this producer any more, for instance because retention deleted its records."""


class ReassignmentInProgressError(BrokerResponseError, code=60):
    """The partition's replicas are being moved."""


class DelegationTokenAuthDisabledError(BrokerResponseError, code=61):
    """The cluster does not use delegation tokens."""


class DelegationTokenNotFoundError(BrokerResponseError, code=62):
    """The broker does not know the delegation token."""


class DelegationTokenOwnerMismatchError(BrokerResponseError, code=63):
    """The delegation token belongs to somebody else, who has not named this client as a renewer."""


class DelegationTokenRequestNotAllowedError(BrokerResponseError, code=64):
    """Delegation tokens cannot be asked for over this kind of connection."""


class DelegationTokenAuthorizationFailedError(AuthorizationError, code=65):
    """This client may not use the delegation token."""


class DelegationTokenExpiredError(BrokerResponseError, code=66):
    """The delegation token has expired."""


class InvalidPrincipalTypeError(BrokerResponseError, code=67):
    """The broker does not support this type of principal."""


class NonEmptyGroupError(BrokerResponseError, code=68):
    """The group still has members."""


class GroupIdNotFoundError(BrokerResponseError, code=69):
    """There is no such group."""


class FetchSessionIdNotFoundError(RetriableError, BrokerResponseError, code=70):
    """The broker has dropped the fetch session; start a new one."""


class InvalidFetchSessionEpochError(RetriableError, BrokerResponseError, code=71):
    """The fetch session's epoch does not follow on the last one; start a new session."""


class ListenerNotFoundError(InvalidMetadataError, BrokerResponseError, code=72):
    """The leader has no listener of the name over which metadata was asked."""


class TopicDeletionDisabledError(BrokerResponseError, code=73):
    """The cluster does not allow topics to be deleted."""


class FencedLeaderEpochError(InvalidMetadataError, BrokerResponseError, code=74):
    """The leader epoch in the request is older than the broker's."""


class UnknownLeaderEpochError(RetriableError, BrokerResponseError, code=75):
    """The leader epoch in the request is newer than the broker's; it has not heard of it yet."""


class UnsupportedCompressionTypeError(BrokerResponseError, code=76):
    """The request's version cannot carry the compression that the partition uses."""


class StaleBrokerEpochError(BrokerResponseError, code=77):
    """The broker has registered anew since."""


class OffsetNotAvailableError(RetriableError, BrokerResponseError, code=78):
    """The leader was just elected and cannot yet tell offsets that only grow."""


class MemberIdRequiredError(BrokerResponseError, code=79):
    """The first join of a member only hands out its id; join again with it."""


class PreferredLeaderNotAvailableError(InvalidMetadataError, BrokerResponseError, code=80):
    """The partition's preferred leader is not available."""


class GroupMaxSizeReachedError(BrokerResponseError, code=81):
    """The group has as many members as it may have."""


class FencedInstanceIdError(BrokerResponseError, code=82):
    """Another member has joined with the same `group.instance.id`."""


class EligibleLeadersNotAvailableError(InvalidMetadataError, BrokerResponseError, code=83):
    """No replica that could become the leader is available."""


class ElectionNotNeededError(InvalidMetadataError, BrokerResponseError, code=84):
    """The partition has the right leader already."""


class NoReassignmentInProgressError(BrokerResponseError, code=85):
    """The partition's replicas are not being moved."""


class GroupSubscribedToTopicError(BrokerResponseError, code=86):
    """The group consumes the topic at the moment, so that its offsets cannot be deleted."""


class InvalidRecordError(BrokerResponseError, code=87):
    """The broker refused a record: it breaks a rule of the topic."""


class UnstableOffsetCommitError(RetriableError, BrokerResponseError, code=88):
    """Offsets of a transaction that is not decided yet stand in the way."""


class ThrottlingQuotaExceededError(RetriableError, BrokerResponseError, code=89):
    """The quota is used up; wait for as long as the answer says."""


class ProducerFencedError(BrokerResponseError, code=90):
    """A newer producer with the same transactional id has taken over; this one can do nothing but close."""


class ResourceNotFoundError(BrokerResponseError, code=91):
    """The request names something that does not exist."""


class DuplicateResourceError(BrokerResponseError, code=92):
    """The request names the same thing twice."""


class UnacceptableCredentialError(BrokerResponseError, code=93):
    """The new credential does not meet the broker's rules."""


class InconsistentVoterSetError(BrokerResponseError, code=94):
    """One of the two sides is not among the quorum's expected voters."""


class InvalidUpdateVersionError(BrokerResponseError, code=95):
    """A feature cannot be set to this version."""


class FeatureUpdateFailedError(BrokerResponseError, code=96):
    """The controller could not change the cluster's features."""


class PrincipalDeserializationFailureError(BrokerResponseError, code=97):
    """A forwarded request's principal could not be read; the cluster's security is not set up right."""


class SnapshotNotFoundError(BrokerResponseError, code=98):
    """There is no such snapshot."""


class PositionOutOfRangeError(BrokerResponseError, code=99):
    """The position is not within the snapshot."""


class UnknownTopicIdError(InvalidMetadataError, BrokerResponseError, code=100):
    """This broker knows no topic of this id; it may be deleted, or not be known here yet."""


class DuplicateBrokerRegistrationError(BrokerResponseError, code=101):
    """Another broker is registered under this id."""


class BrokerIdNotRegisteredError(BrokerResponseError, code=102):
    """No broker is registered under this id."""


class InconsistentTopicIdError(InvalidMetadataError, BrokerResponseError, code=103):
    """The topic's id in the request is not the one of the log; the topic was deleted and created again."""


class InconsistentClusterIdError(BrokerResponseError, code=104):
    """The request is meant for another cluster."""


class TransactionalIdNotFoundError(BrokerResponseError, code=105):
    """There is no such transactional id."""


class FetchSessionTopicIdError(RetriableError, BrokerResponseError, code=106, message="FETCH_SESSION_TOPIC_ID_ERROR"):
    """The fetch session mixes topic names and topic ids; start a new one."""


class IneligibleReplicaError(BrokerResponseError, code=107):
    """The new in-sync replicas include one that cannot be."""


class NewLeaderElectedError(BrokerResponseError, code=108):
    """The partition was changed as asked, and has another leader now."""


class OffsetMovedToTieredStorageError(BrokerResponseError, code=109):
    """The offset asked for is no longer on the broker's disk but in remote storage."""


class FencedMemberEpochError(BrokerResponseError, code=110):
    """The group's coordinator has fenced this member's epoch; it has to give up its partitions and join again."""


class UnreleasedInstanceIdError(BrokerResponseError, code=111):
    """Another member of the group still holds the instance id."""


class UnsupportedAssignorError(BrokerResponseError, code=112):
    """The group does not support the assignor, or not its version."""


class StaleMemberEpochError(BrokerResponseError, code=113):
    """The member's epoch is out of date; its next heartbeat brings the new one."""


class MismatchedEndpointTypeError(BrokerResponseError, code=114):
    """The request went to the wrong kind of endpoint: a broker instead of a controller, or the reverse."""


class UnsupportedEndpointTypeError(BrokerResponseError, code=115):
    """This kind of endpoint is not supported yet."""


class UnknownControllerIdError(BrokerResponseError, code=116):
    """There is no controller of this id."""


class UnknownSubscriptionIdError(BrokerResponseError, code=117):
    """The telemetry subscription is not valid or out of date."""


class TelemetryTooLargeError(BrokerResponseError, code=118):
    """The telemetry is larger than the broker takes."""


class InvalidRegistrationError(BrokerResponseError, code=119):
    """The controller finds the broker's registration not valid."""


class TransactionAbortableError(BrokerResponseError, code=120):
    """The transaction cannot go on; abort it, then the transactional id can be used again."""


class InvalidRecordStateError(BrokerResponseError, code=121):
    """The record is not in a state in which its delivery can be acknowledged."""


class ShareSessionNotFoundError(RetriableError, BrokerResponseError, code=122):
    """The broker has dropped the share session; start a new one."""


class InvalidShareSessionEpochError(RetriableError, BrokerResponseError, code=123):
    """The share session's epoch does not follow on the last one; start a new session."""


class FencedStateEpochError(BrokerResponseError, code=124):
    """The state epoch of the share group is not the coordinator's."""


class InvalidVoterKeyError(BrokerResponseError, code=125):
    """The voter's key is not the one of the replica that got the request."""


class DuplicateVoterError(BrokerResponseError, code=126):
    """The voter is in the quorum already."""


class VoterNotFoundError(BrokerResponseError, code=127):
    """The voter is not in the quorum."""


class InvalidRegularExpressionError(BrokerResponseError, code=128):
    """The regular expression is not valid."""


class RebootstrapRequiredError(BrokerResponseError, code=129):
    """The client is to forget what it knows of the cluster and start from `bootstrap_servers` again."""


class StreamsInvalidTopologyError(BrokerResponseError, code=130):
    """The streams application's topology is not valid."""


class StreamsInvalidTopologyEpochError(BrokerResponseError, code=131):
    """The epoch of the streams application's topology is not valid."""


class StreamsTopologyFencedError(BrokerResponseError, code=132):
    """The epoch of the streams application's topology is out of date."""


class ShareSessionLimitReachedError(BrokerResponseError, code=133):
    """The broker has as many share sessions as it may have."""


# The Java client's names of two of them, which newer texts use.
RecordTooLargeError = MessageSizeTooLargeError
NotLeaderOrFollowerError = NotLeaderForPartitionError


def error_for(code: int) -> type[BrokerResponseError] | None:
    """The class of a wire error code; None for 0, which is no error.

    A code that this version does not know gives `UnrecognizedBrokerError`, as the Java client's `Errors.forCode` gives
    UNKNOWN_SERVER_ERROR. To keep such a code, make the instance with `make_error`. Any thread.
    """
    if code == 0:
        return None
    return _CLASS_OF_CODE.get(code, UnrecognizedBrokerError)


def make_error(code: int, message: str | None = None) -> BrokerResponseError:
    """An instance for a wire error code other than 0, with the broker's own message if it sent one. Any thread."""
    error_class = error_for(code)
    if error_class is None:
        raise ValueError("error code 0 means success: there is no error to make")
    if error_class is UnrecognizedBrokerError:
        return UnrecognizedBrokerError(message or "", code)
    return error_class(message) if message else error_class()


def error_classes() -> dict[int, type[BrokerResponseError]]:
    """All wire error codes with their classes, by code. Any thread."""
    return dict(sorted(_CLASS_OF_CODE.items()))
