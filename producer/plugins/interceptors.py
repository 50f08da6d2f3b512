"""Interceptors: hooks of the user's on every record that is sent and on every answer (KIP-42)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from ...network.protocol.errors import KafkaConfigurationError
from ..accumulator.record_metadata_cy import RecordMetadata
from ..record import ProducerRecord
from .loading import name_of, resolve_plugin

_log = logging.getLogger(__name__)

_METHODS = ("on_send", "on_acknowledgement", "close")


class ProducerInterceptor:
    """Base of interceptors, each method doing nothing. A class that has some of them need not derive from this one."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Called by the sending thread with each record before it is serialized; returns it or another instead."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, exception: BaseException | None) -> None:
        """Called when a record is acknowledged or has failed: on the producer's thread for callbacks, where others wait
        behind it, or by the sending thread where `send` raises.

        metadata: of a record that failed its topic and, if known, partition, with an offset of -1.
        exception: None when the record was acknowledged.
        """

    def close(self) -> None:
        """Called once, when the producer is closed."""


class ProducerInterceptors:
    """The chain of interceptors, in the order of the configuration. Any thread.

    Invariant: what an interceptor raises is logged, once and with the record's coordinates, and changes nothing: the
    next one gets the record as it was before. Each gets a record of its own, which it may change and return: the one
    that the user has sent, and may send again, stays as it is. False when there are none, so that nobody pays for them.
    """

    def __init__(self, interceptors: Iterable[Any]) -> None:
        self._interceptors = tuple(interceptors)
        self._on_send = _methods(self._interceptors, "on_send")
        self._on_acknowledgement = _methods(self._interceptors, "on_acknowledgement")

    @classmethod
    def resolve(cls, values: Iterable[Any], key: str = "interceptor.classes") -> ProducerInterceptors:
        """The chain for what the configuration holds: instances, classes, import paths.

        Raises KafkaConfigurationError for something that has none of an interceptor's methods.
        """
        interceptors = [resolve_plugin(value, key, {}, _METHODS[:2]) for value in values]
        for interceptor in interceptors:
            if not any(callable(getattr(interceptor, method, None)) for method in _METHODS[:2]):
                raise KafkaConfigurationError(
                    f"{key} holds something of type {type(interceptor).__name__}, which has neither on_send nor "
                    "on_acknowledgement"
                )
        return cls(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record to send in place of `record`: what the last interceptor that worked returned."""
        for on_send in self._on_send:
            try:
                result = on_send(_copied(record))
                if not isinstance(result, ProducerRecord):
                    raise TypeError(f"on_send has to return a ProducerRecord, not {type(result).__name__}")
            except Exception:
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
        """Tell every interceptor that a record is acknowledged, or why it failed."""
        for on_acknowledgement in self._on_acknowledgement:
            try:
                on_acknowledgement(metadata, exception)
            except KeyboardInterrupt:
                raise
            except BaseException:
                # also a CancelledError or a SystemExit: others are to be told, by this thread
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
        for close in _methods(self._interceptors, "close"):
            try:
                close()
            except Exception:
                _log.warning("%s failed", name_of(close), exc_info=True)


def _copied(record: ProducerRecord) -> ProducerRecord:
    headers = record.headers
    if isinstance(headers, list):
        headers = headers.copy()
    return ProducerRecord(record.topic, record.value, record.key, headers, record.partition, record.timestamp_ms)


def _methods(interceptors: tuple[Any, ...], name: str) -> tuple[Callable[..., Any], ...]:
    methods = (getattr(interceptor, name, None) for interceptor in interceptors)
    return tuple(method for method in methods if callable(method))
