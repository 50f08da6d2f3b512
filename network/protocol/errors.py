"""Every error that Headrace raises or reports: one class statement per error.

There are three kinds:

- `BrokerResponseError`: errors in broker responses. One class per wire code (`class SomethingError(..., code=3)`); the
  table is Apache Kafka's `org.apache.kafka.common.protocol.Errors`. `error_for` returns the class of a code, and
  `make_error` an instance.
- `ProtocolError`: received bytes that are not a message (`MalformedMessageError`) and messages that cannot be encoded
  (`EncodeError`).
- Errors of the client itself: timeouts, connections, configuration, use after close.

As in the Java client, base classes mark errors worth retrying: `RetriableError`, and `InvalidMetadataError` for those
that need a metadata refresh first. Errors of transactions belong to one of five classes, whose `recovery` says what the
program has to do (KIP-1050): `RetriableError`, `RefreshRetriableError`, `TransactionAbortableError`,
`ApplicationRecoverableError` and `InvalidConfigurationError`. All errors pickle, because Spark sends them between
processes. Without a message, the text is the first line of the class docstring.

Programs import the errors from `headrace.producer.errors`, so that tracebacks and pickles name that module. The errors
of requests that a producer never makes are in `other_errors`, which is imported when one of them is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from types import ModuleType

_PUBLIC_MODULE = "headrace.producer.errors"
_OWN_MODULES = (__name__, f"{__package__}.other_errors")


class KafkaError(Exception):
    """An error of this client or of Kafka."""

    __module__ = _PUBLIC_MODULE

    retriable: ClassVar[bool] = False
    invalid_metadata: ClassVar[bool] = False
    #: What a program has to do if a call of a transactional producer raises the error. Empty outside the five classes.
    recovery: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__ in _OWN_MODULES:
            cls.__module__ = _PUBLIC_MODULE

    def __str__(self) -> str:
        return super().__str__() or _first_line(type(self))


def _first_line(error_class: type[KafkaError]) -> str:
    return (error_class.__doc__ or error_class.__name__).strip().partition("\n")[0]


class RetriableError(KafkaError):
    """A retry may succeed."""

    retriable = True
    recovery = "nothing: the producer retries. Repeat a call that timed out, or close the producer and start a new one"


class RefreshRetriableError(RetriableError):
    """A retry may succeed after the client has refreshed its metadata or found the coordinator again."""

    recovery = "nothing: the producer refreshes its metadata and retries"


class InvalidMetadataError(RefreshRetriableError):
    """The client's metadata is out of date; a retry may succeed after a metadata refresh."""

    invalid_metadata = True


class ApplicationRecoverableError(KafkaError):
    """The producer or the consumer was replaced; the program can go on with a new one."""

    recovery = "close the producer, start a new one, and process again what was not committed"


# --- Errors of the client ---


class KafkaTimeoutError(RetriableError):
    """The operation did not complete within its timeout."""


class BufferExhaustedError(KafkaTimeoutError):
    """No room in `buffer_memory` within `max_block_ms`: records are produced faster than they can be sent."""


class DeliveryTimeoutError(KafkaTimeoutError):
    """The record was not acknowledged within `delivery_timeout_ms`; the broker may or may not have it."""


class KafkaConnectionError(InvalidMetadataError):
    """A broker cannot be reached, or the connection to it broke."""


class DisconnectedError(KafkaConnectionError):
    """The connection was closed before the response to a request arrived."""


class UnresolvableHostError(KafkaConnectionError):
    """A broker's host name has no address; check `bootstrap_servers` and the brokers' `advertised.listeners`."""


class NoBrokersAvailableError(KafkaConnectionError):
    """None of the brokers in `bootstrap_servers` could be reached; check the addresses and that a broker runs there."""


class NotKafkaError(KafkaError):
    """The server at this address does not speak Kafka's protocol; check the host and the port."""


class KafkaConfigurationError(KafkaError, ValueError):
    """A configuration value is missing, unknown, of the wrong type or out of its range."""


class IllegalStateError(KafkaError):
    """The call is not allowed in the object's current state."""


class IllegalArgumentError(KafkaError, ValueError):
    """An argument of a call is not valid; the message says what is expected."""


class ProducerClosedError(IllegalStateError):
    """The producer is closed; create a new one."""


class RecordAbortedError(KafkaError):
    """The program dropped the record with `abort` before it was acknowledged; if it was sent, it may be in the log."""


class SerializationError(KafkaError):
    """A key or a value could not be serialized to bytes."""


class RowDeliveryError(KafkaError):
    """A row of a DataFrame or of a list could not be delivered; the cause is in `__cause__` and in the message.

    `row` counts from 0 within the Spark partition, the Arrow data or the lists. `partition` is -1 if none was chosen
    yet. `delivered` has the OffsetRange per TopicPartition of the rows that were delivered by the same call; it is
    empty until all rows of the call are done.
    """

    def __init__(
        self,
        message: str = "",
        topic: str | None = None,
        partition: int = -1,
        row: int = -1,
        delivered: dict[Any, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.row = row
        self.delivered = {} if delivered is None else delivered

    def __reduce__(self) -> tuple:
        return type(self), (self.args[0], self.topic, self.partition, self.row, self.delivered)


class DeliveryNotCommittedError(KafkaError):
    """Nothing of a micro-batch or a job was committed; it has to be written again."""


class DeliveryPartlyLostError(KafkaError):
    """A part of a micro-batch or a job was committed, and the rest is lost, because its transactions expired."""


class PartitionerError(KafkaError):
    """A partitioner failed or did not return a partition of the topic."""


class UnsupportedCodecError(KafkaError):
    """A compression codec is unknown or not available here."""


class ProtocolError(KafkaError):
    """A message could not be encoded or decoded."""


class MalformedMessageError(ProtocolError):
    """The bytes that arrived are not a message of the expected kind and version."""


class TooManyElementsError(MalformedMessageError):
    """The message has more array elements than its reader accepts."""


class InvalidReceiveError(MalformedMessageError):
    """The frame that arrived declares a size that is negative or above the limit."""


class CorrelationIdError(MalformedMessageError):
    """The response matches no request in flight or arrived out of order."""


class EncodeError(ProtocolError):
    """A message has a value that cannot be encoded in the requested version."""


# --- Errors in broker responses ---

_CLASS_OF_CODE: dict[int, type[BrokerResponseError]] = {}
#: Separates the words of a class name.
_WORDS = {ord(letter): f"_{letter}" for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


class BrokerResponseError(KafkaError):
    """A broker answered with an error.

    A subclass with a `code` is the only class of that wire code; one without is a family of such classes. As in
    kafka-python, `errno` is the code, `message` is Kafka's name of the error, such as ``UNKNOWN_TOPIC_OR_PARTITION``,
    and `description` is its meaning. They are None in a family.
    """

    code: int = -1
    errno: int | None = None
    message: ClassVar[str | None] = None
    description: ClassVar[str | None] = None

    def __init_subclass__(cls, code: int | None = None, message: str | None = None) -> None:
        """Register the class for `code`. `message` is Kafka's name of the error, if it differs from the class name."""
        super().__init_subclass__()
        if code is None:
            # a family of this module may derive from a class with a code, and has none; other subclasses inherit it
            for name, nothing in (("code", -1), ("errno", None), ("message", None), ("description", None)):
                if cls.__module__ == _PUBLIC_MODULE and name not in vars(cls):
                    setattr(cls, name, nothing)
            return
        other = _CLASS_OF_CODE.setdefault(code, cls)
        if other is not cls:
            raise TypeError(f"error code {code} of {cls.__name__} already belongs to {other.__name__}")
        cls.code = cls.errno = code
        cls.message = message or cls.__name__.removesuffix("Error").translate(_WORDS).removeprefix("_").upper()
        cls.description = _first_line(cls)


# before its code's turn, because other classes derive from it
class InvalidConfigurationError(BrokerResponseError, code=40, message="INVALID_CONFIG"):
    """A configuration of the client, a topic or a broker is not valid."""

    recovery = "close the producer and correct the configuration, the access rights or the record: a retry fails again"


class AuthenticationError(InvalidConfigurationError):
    """The broker did not accept this client's identity."""


class SslAuthenticationError(AuthenticationError):
    """The TLS handshake failed: a certificate was rejected, or the two ends have no version or cipher in common."""


class AuthorizationError(InvalidConfigurationError):
    """This client is not authorized for the operation; request the access rights."""


class UnknownError(BrokerResponseError, code=-1):
    """The broker failed with an error that has no code; its log has the details."""


class UnrecognizedBrokerError(UnknownError):
    """The broker answered with an error code that this version does not know; see `code`."""

    def __init__(self, message: str = "", code: int = -1) -> None:
        super().__init__(message) if message else super().__init__()
        self.code = self.errno = code

    def __str__(self) -> str:
        return f"{super().__str__()} (error code {self.code})"


class CorruptRecordError(RetriableError, BrokerResponseError, code=2, message="CORRUPT_MESSAGE"):
    """A record batch is damaged: its checksum, its size or its layout is wrong, or a compacted topic got a null key."""


class UnknownTopicOrPartitionError(InvalidMetadataError, BrokerResponseError, code=3):
    """This broker does not have the topic or partition; it may not exist, or the broker may not know of it yet."""


class LeaderNotAvailableError(InvalidMetadataError, BrokerResponseError, code=5):
    """The partition has no leader at the moment; an election is in progress."""


class NotLeaderForPartitionError(InvalidMetadataError, BrokerResponseError, code=6):
    """This broker is not the partition's leader (or not a replica of it, if the request is for any replica)."""


class RequestTimedOutError(KafkaTimeoutError, BrokerResponseError, code=7):
    """The request timed out on the broker, for instance while waiting for replicas; it may have taken effect."""


class ReplicaNotAvailableError(InvalidMetadataError, BrokerResponseError, code=9):
    """The broker lacks an expected replica."""


class MessageSizeTooLargeError(BrokerResponseError, code=10):
    """The record batch is larger than the broker or the topic accepts; raise `max.message.bytes` or send less."""


class OffsetMetadataTooLargeError(BrokerResponseError, code=12):
    """The metadata text of a committed offset is longer than the broker accepts."""


class NetworkExceptionError(InvalidMetadataError, BrokerResponseError, code=13):
    """The connection to the broker broke before the response arrived."""


class CoordinatorLoadInProgressError(RetriableError, BrokerResponseError, code=14):
    """The coordinator is still loading its state; retry soon."""


class CoordinatorNotAvailableError(RefreshRetriableError, BrokerResponseError, code=15):
    """No coordinator is available at the moment."""


class NotCoordinatorError(RefreshRetriableError, BrokerResponseError, code=16):
    """This broker is not the coordinator; find the coordinator again."""


class InvalidTopicError(InvalidConfigurationError, code=17):
    """The topic's name is not valid, or the topic does not allow this operation."""


class RecordListTooLargeError(InvalidConfigurationError, code=18):
    """The record batch is larger than a whole segment of the partition's log."""


class NotEnoughReplicasError(RetriableError, BrokerResponseError, code=19):
    """Fewer replicas are in sync than `min.insync.replicas` requires; nothing was written."""


class NotEnoughReplicasAfterAppendError(RetriableError, BrokerResponseError, code=20):
    """The records were written, but to fewer in-sync replicas than `min.insync.replicas` requires."""


class InvalidRequiredAcksError(InvalidConfigurationError, code=21):
    """`acks` in the request is not 0, 1 or -1."""


class IllegalGenerationError(ApplicationRecoverableError, BrokerResponseError, code=22):
    """The group has moved on to another generation; join again."""


class InvalidGroupIdError(BrokerResponseError, code=24):
    """The group id is not valid."""


class UnknownMemberIdError(ApplicationRecoverableError, BrokerResponseError, code=25):
    """The coordinator does not know this member of the group; join again."""


class RebalanceInProgressError(BrokerResponseError, code=27):
    """The group is rebalancing; join again."""


class InvalidCommitOffsetSizeError(BrokerResponseError, code=28):
    """The offsets to commit are more than the coordinator can store at once."""


class TopicAuthorizationFailedError(AuthorizationError, code=29):
    """This client is not authorized to use the topic in this way."""


class GroupAuthorizationFailedError(AuthorizationError, code=30):
    """This client is not authorized to use the group."""


class ClusterAuthorizationFailedError(AuthorizationError, code=31):
    """This client is not authorized for the operation on the cluster."""


class InvalidTimestampError(BrokerResponseError, code=32):
    """A record's timestamp is further from the broker's time than the topic allows."""


class UnsupportedSaslMechanismError(AuthenticationError, code=33):
    """The broker does not offer this SASL mechanism."""


class IllegalSaslStateError(AuthenticationError, code=34):
    """The request is not allowed at this point of the SASL handshake."""


class UnsupportedVersionError(InvalidConfigurationError, code=35):
    """The other side does not support this API or this version of it."""


class TopicAlreadyExistsError(BrokerResponseError, code=36):
    """A topic with this name already exists."""


class InvalidRequestError(BrokerResponseError, code=42):
    """The request is inconsistent or not meant for this broker; the broker's log has the details."""


class UnsupportedForMessageFormatError(InvalidConfigurationError, code=43):
    """The topic's message format is too old for the request."""


class PolicyViolationError(BrokerResponseError, code=44):
    """A policy of the cluster forbids the request."""


class OutOfOrderSequenceNumberError(BrokerResponseError, code=45):
    """The batch does not follow the producer's last one: an earlier batch is missing from the log."""


class DuplicateSequenceNumberError(BrokerResponseError, code=46):
    """The batch was already written."""


class InvalidProducerEpochError(ApplicationRecoverableError, BrokerResponseError, code=47):
    """The producer's epoch is older than the newest one that the broker has seen."""


class InvalidTxnStateError(BrokerResponseError, code=48):
    """The operation is not allowed in the transaction's current state."""


class InvalidProducerIdMappingError(ApplicationRecoverableError, BrokerResponseError, code=49):
    """The producer id does not belong to the transactional id."""


class InvalidTransactionTimeoutError(InvalidConfigurationError, code=50):
    """The transaction timeout is above the broker's `transaction.max.timeout.ms`."""


class ConcurrentTransactionsError(RetriableError, BrokerResponseError, code=51):
    """Another operation on the same transaction has not finished yet."""


class TransactionCoordinatorFencedError(BrokerResponseError, code=52):
    """A newer transaction coordinator has taken over."""


class TransactionalIdAuthorizationFailedError(AuthorizationError, code=53):
    """This client is not authorized to use the transactional id."""


class SecurityDisabledError(BrokerResponseError, code=54):
    """The security features that the request needs are disabled in the cluster."""


class OperationNotAttemptedError(BrokerResponseError, code=55):
    """The broker did not attempt this operation, because another one in the same request failed."""


class KafkaStorageError(InvalidMetadataError, BrokerResponseError, code=56, message="KAFKA_STORAGE_ERROR"):
    """The broker could not read or write its disk."""


class SaslAuthenticationFailedError(AuthenticationError, code=58):
    """SASL authentication failed; check the credentials."""


class UnknownProducerIdError(OutOfOrderSequenceNumberError, code=59):
    """The broker no longer knows the producer id, for instance because retention deleted its records."""


class ListenerNotFoundError(InvalidMetadataError, BrokerResponseError, code=72):
    """The leader has no listener with the name of the one that received the metadata request."""


class FencedLeaderEpochError(InvalidMetadataError, BrokerResponseError, code=74):
    """The leader epoch in the request is older than the broker's."""


class UnknownLeaderEpochError(RetriableError, BrokerResponseError, code=75):
    """The leader epoch in the request is newer than the broker's, which does not know it yet."""


class UnsupportedCompressionTypeError(BrokerResponseError, code=76):
    """The request's version does not support the compression that the partition uses."""


class OffsetNotAvailableError(RetriableError, BrokerResponseError, code=78):
    """The leader was just elected and cannot yet guarantee that offsets only increase."""


class FencedInstanceIdError(ApplicationRecoverableError, BrokerResponseError, code=82):
    """Another member has joined with the same `group.instance.id`."""


class InvalidRecordError(InvalidConfigurationError, code=87):
    """The broker rejected a record because it violates a rule of the topic."""


class ThrottlingQuotaExceededError(RetriableError, BrokerResponseError, code=89):
    """The quota is exceeded; wait for the time given in the response."""


class ProducerFencedError(ApplicationRecoverableError, BrokerResponseError, code=90):
    """A newer producer with the same transactional id has taken over; close this one."""


class UnknownTopicIdError(InvalidMetadataError, BrokerResponseError, code=100):
    """This broker has no topic with this id; it may be deleted, or the broker may not know of it yet."""


class InconsistentTopicIdError(InvalidMetadataError, BrokerResponseError, code=103):
    """The topic id in the request differs from that of the log; the topic was deleted and created again."""


class TransactionalIdNotFoundError(BrokerResponseError, code=105):
    """The transactional id does not exist."""


class StaleMemberEpochError(BrokerResponseError, code=113):
    """The member's epoch is out of date; the response to its next heartbeat has the new one."""


class UnknownSubscriptionIdError(BrokerResponseError, code=117):
    """The telemetry subscription is unknown or out of date."""


class TelemetryTooLargeError(BrokerResponseError, code=118):
    """The telemetry is larger than the broker accepts."""


class TransactionAbortableError(BrokerResponseError, code=120):
    """The transaction cannot continue; abort it, after which the transactional id can be used again."""

    recovery = "call `abort_transaction`, then begin again with the same producer and the same input"


class TransactionAbortedError(TransactionAbortableError):
    """The transaction of the record was aborted, or is to be."""


class RebootstrapRequiredError(BrokerResponseError, code=129):
    """The client must discard its metadata and start again from `bootstrap_servers`."""


# The Java client's names of two errors, as in newer documentation.
RecordTooLargeError = MessageSizeTooLargeError
NotLeaderOrFollowerError = NotLeaderForPartitionError


def error_for(code: int) -> type[BrokerResponseError] | None:
    """The class of a wire error code; None for 0, which means success.

    An unknown code maps to `UnrecognizedBrokerError`, as the Java client's `Errors.forCode` maps it to
    UNKNOWN_SERVER_ERROR. `make_error` creates an instance that keeps the code. Any thread.
    """
    if code == 0:
        return None
    if code not in _CLASS_OF_CODE:
        _other_errors()
    return _CLASS_OF_CODE.get(code, UnrecognizedBrokerError)


def make_error(code: int, message: str | None = None) -> BrokerResponseError:
    """Create the error for a wire error code other than 0, with the broker's message if it sent one. Any thread."""
    error_class = error_for(code)
    if error_class is None:
        raise ValueError("error code 0 means success: there is no error to make")
    if error_class is UnrecognizedBrokerError:
        return UnrecognizedBrokerError(message or "", code)
    return error_class(message) if message else error_class()


def error_classes() -> dict[int, type[BrokerResponseError]]:
    """The classes of all wire error codes, by code. Any thread."""
    _other_errors()
    return dict(sorted(_CLASS_OF_CODE.items()))


def _other_errors() -> ModuleType:
    from . import other_errors  # noqa: PLC0415 - see there

    return other_errors


def __getattr__(name: str) -> Any:
    # programs and old pickles find every error here
    if name.endswith("Error"):
        return getattr(_other_errors(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
