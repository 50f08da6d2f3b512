"""Interceptors: user-defined hooks on every record that is sent and on every acknowledgement (KIP-42)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ...network.protocol.errors import KafkaConfigurationError
from ..accumulator.record_metadata_cy import RecordMetadata
from ..record import ProducerRecord
from .loading import close_plugin, name_of, resolve_plugin

if TYPE_CHECKING:
    from .tracing import OpenTelemetryTracing

_log = logging.getLogger(__name__)

_METHODS = ("on_send", "on_acknowledgement")

#: Names of what `interceptor.classes` takes, with their import paths.
_BUILT_IN = {"opentelemetry": "headrace.producer.otel:OpenTelemetryTracing"}


class ProducerInterceptor:
    """Base class of interceptors, whose methods do nothing. Any class with one of the first two methods works too."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Called by the sending thread with each record before serialization; returns the record to send."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, exception: BaseException | None) -> None:
        """Called when a record is acknowledged or has failed.

        Runs on the producer's callback thread, where it delays other callbacks, or on the sending thread if `send`
        raises.

        metadata: for a failed record, its topic and, if known, its partition, with an offset of -1.
        exception: None if the record was acknowledged.
        """

    def close(self) -> None:
        """Called once when the producer is closed."""


class ProducerInterceptors:
    """The chain of interceptors, in the order of the configuration. Any thread.

    Invariant: if an interceptor raises, the error is logged once, with the record's topic and partition, and the next
    interceptor gets the record as it was before. Each interceptor gets a copy of the record, which it may change and
    return; the user's record, which may be sent again, never changes. An empty chain is false, and costs nothing.
    """

    def __init__(self, interceptors: Iterable[Any], tracing: OpenTelemetryTracing | None = None) -> None:
        """`tracing`: what traces the sends; it is not part of the chain."""
        self._interceptors = tuple(interceptors)
        self.tracing = tracing
        self._on_send = _methods(self._interceptors, "on_send")
        self._on_acknowledgement = _methods(self._interceptors, "on_acknowledgement")

    @classmethod
    def resolve(cls, values: Iterable[Any], key: str = "interceptor.classes") -> ProducerInterceptors:
        """Create the chain from the configured values: instances, classes, import paths or ``opentelemetry``.

        Raises KafkaConfigurationError for an object with none of an interceptor's methods, and for tracing twice.
        """
        paths = (_BUILT_IN.get(value.lower(), value) if isinstance(value, str) else value for value in values)
        found = [resolve_plugin(value, key, {}, (*_METHODS, "trace_sends")) for value in paths]
        tracing = [each for each in found if hasattr(each, "trace_sends")]
        if len(tracing) > 1:
            raise KafkaConfigurationError(f"{key} contains OpenTelemetryTracing more than once; name it once")
        interceptors = [each for each in found if not hasattr(each, "trace_sends")]
        for interceptor in interceptors:
            if not any(callable(getattr(interceptor, method, None)) for method in _METHODS):
                raise KafkaConfigurationError(
                    f"{key} contains an object of type {type(interceptor).__name__}, which has neither on_send nor "
                    "on_acknowledgement"
                )
        return cls(interceptors, *tracing)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send instead of `record`: the result of the last interceptor that did not raise."""
        for on_send in self._on_send:
            try:
                result = on_send(_copied(record))
                if not isinstance(result, ProducerRecord):
                    raise TypeError(f"on_send has to return a ProducerRecord, not {type(result).__name__}")
            except Exception:
                # the program's code, which may raise anything; what ends a thread reaches the caller of `send`
                _log.warning(
                    "%s failed for a record of topic %s, partition %s; it is sent as it was before",
                    name_of(on_send),
                    record.topic,
                    record.partition,
                    exc_info=True,
                )
            else:
                record = result
        return record

    def on_acknowledgement(self, metadata: Any, exception: BaseException | None) -> None:
        """Notify every interceptor that a record is acknowledged or has failed."""
        for on_acknowledgement in self._on_acknowledgement:
            try:
                on_acknowledgement(metadata, exception)
            except KeyboardInterrupt:
                raise
            except BaseException:
                # even a CancelledError or a SystemExit: this thread has other interceptors to notify
                _log.warning(
                    "%s failed for topic %s, partition %s, offset %s",
                    name_of(on_acknowledgement),
                    getattr(metadata, "topic", None),
                    getattr(metadata, "partition", None),
                    getattr(metadata, "offset", None),
                    exc_info=True,
                )

    def close(self) -> None:
        """Close every interceptor that has a `close`."""
        for interceptor in self._interceptors:
            close_plugin(interceptor)


def _copied(record: ProducerRecord) -> ProducerRecord:
    headers = record.headers
    if isinstance(headers, list):
        headers = headers.copy()
    return ProducerRecord(record.topic, record.value, record.key, headers, record.partition, record.timestamp_ms)


def _methods(interceptors: tuple[Any, ...], name: str) -> tuple[Callable[..., Any], ...]:
    methods = (getattr(interceptor, name, None) for interceptor in interceptors)
    return tuple(method for method in methods if callable(method))
