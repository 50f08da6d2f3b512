"""Every error of this library: ``from headrace.producer.errors import ...``.

The other names of kafka-python follow, so that imports and ``except`` clauses of programs written for it work: aliases
of errors that have another name here, and errors that this client never raises.
"""

from typing import TYPE_CHECKING, Any

# names of it below, because an import of a name hides it from the type checkers of programs
from ..network.protocol import errors
from ..network.protocol.errors import *  # noqa: F403

if TYPE_CHECKING:
    from ..network.protocol.other_errors import *  # noqa: F403

    #: Every class by its wire error code (kafka-python's table of this name).
    kafka_errors: dict[int, type[errors.BrokerResponseError]]

CorruptRecordException = errors.CorruptRecordError
IncompatibleBrokerVersion = errors.UnsupportedVersionError
KafkaProtocolError = errors.ProtocolError
NoBrokersAvailable = errors.NoBrokersAvailableError


class NoError(errors.BrokerResponseError):
    """No error: code 0 of kafka-python's `for_code`. Never raised."""

    code = errno = 0
    message = "NO_ERROR"
    description = "It worked."


class Cancelled(errors.RetriableError):
    """kafka-python cancelled a request. Never raised here: the request is retried, or its records fail."""


class MetadataEmptyBrokerList(errors.RetriableError):
    """A broker named no brokers to kafka-python. Never raised here: another broker is asked."""


class NodeNotReadyError(errors.RetriableError):
    """kafka-python has no connection to a broker. Never raised here: records wait for the connection."""


class QuotaViolationError(errors.KafkaError):
    """A sensor of kafka-python measured more than its quota. Never raised here: metrics have no quotas."""


class StaleMetadata(errors.InvalidMetadataError):
    """kafka-python holds no usable metadata. Never raised here: records wait for fresh metadata."""


class TooManyInFlightRequests(errors.RetriableError):
    """kafka-python has too many requests in flight. Never raised here: records wait for responses."""


class UnknownBrokerIdError(errors.KafkaError):
    """kafka-python does not know the requested broker. Never raised here."""


class UnrecognizedBrokerVersion(errors.KafkaError):
    """kafka-python could not detect the broker's version. Never raised here: each connection negotiates versions."""


def for_code(error_code: int) -> type[errors.BrokerResponseError]:
    """`error_for` under kafka-python's name, and `NoError` for 0. Any thread."""
    return errors.error_for(error_code) or NoError


def __getattr__(name: str) -> Any:
    # what needs the errors that are imported on first use
    value: Any
    if name == "kafka_errors":
        value = {0: NoError, **errors.error_classes()}
    elif name == "__all__":
        value = [each for each in __dir__() if not each.startswith("_")]
    else:
        return getattr(errors, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), "kafka_errors", *(each.__name__ for each in errors.error_classes().values())})
