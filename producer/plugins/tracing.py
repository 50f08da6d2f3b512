"""OpenTelemetry tracing of sends: a span per record, or per `send_many` and `send_arrow`.

A record's span begins in `send`, before interceptors and serializers, on the calling thread, whose context is its
parent. The span's context goes into the record's headers as W3C's ``traceparent``, or whatever the global propagator
writes. The span ends when the record is acknowledged or has failed, on the producer's callback thread.

`interceptor.classes` names it, but it is no interceptor: those get no acknowledgement for a record of their own, and
they move every record to the checked path. A producer without tracing pays a comparison with None per record.

Source: OpenTelemetry's semantic conventions for messaging spans and for Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...network._build import VERSION
from ...network.extras import optional_module
from ...network.protocol.errors import BrokerResponseError
from ..record import ProducerRecord

if TYPE_CHECKING:
    from ..accumulator.batch_cy import RecordFuture
    from ..accumulator.record_metadata_cy import RecordMetadata
    from ..columns.rows_future import RowsFuture

#: The topics whose attributes are kept.
MAX_TOPICS = 1_000

_SCHEMA_URL = "https://opentelemetry.io/schemas/1.37.0"
_TRACEPARENT = "traceparent"

_PARTITION = "messaging.destination.partition.id"
_OFFSET = "messaging.kafka.offset"
_KEY = "messaging.kafka.message.key"
_TOMBSTONE = "messaging.kafka.message.tombstone"
_COUNT = "messaging.batch.message_count"
_ERROR = "error.type"


class OpenTelemetryTracing:
    """Traces a producer's sends: ``KafkaProducer(..., interceptor_classes="opentelemetry")``.

    Give an instance instead to use a tracer provider other than the global one. Producers may share an instance.
    """

    def __init__(self, tracer_provider: Any = None) -> None:
        """Trace with `tracer_provider`, a TracerProvider; None is the global one, which may be set later.

        Raises KafkaConfigurationError if opentelemetry-api isn't installed.
        """
        self._api, self._propagate, context = (
            optional_module(f"opentelemetry.{name}", "otel", type(self).__name__)
            for name in ("trace", "propagate", "context")
        )
        self._new_context = context.Context
        self._tracer = self._api.get_tracer("headrace", VERSION, tracer_provider, _SCHEMA_URL)

    def trace_sends(self, client_id: str) -> TracedSends:
        """What traces the sends of the producer with this client id."""
        return TracedSends(self._api, self._propagate, self._new_context, self._tracer, client_id)


class TracedSends:
    """The traced sends of one producer. Any thread."""

    def __init__(self, api: Any, propagate: Any, new_context: Callable[[], Any], tracer: Any, client_id: str) -> None:
        self._inject = propagate.inject
        self._extract = propagate.extract
        self._new_context = new_context
        self._with_span = api.set_span_in_context
        self._span_in = api.get_current_span
        self._link = api.Link
        self._start_span = tracer.start_span
        self._as_producer = api.SpanKind.PRODUCER
        self._as_client = api.SpanKind.CLIENT
        self._error = api.StatusCode.ERROR
        self._client_id = client_id
        self._of_topics: dict[str, tuple[str, dict[str, Any]]] = {}

    def send(
        self,
        send: Callable[..., RecordFuture],
        topic: Any,
        value: Any,
        key: Any,
        headers: Any,
        partition: Any,
        timestamp_ms: Any,
        callback: Any,
    ) -> RecordFuture:
        """Send a record with ``send(topic, value, ...)``, in a span. Raises what that raises."""
        if type(topic) is not str and isinstance(topic, ProducerRecord):
            record = topic
            if value is not None and callback is None and callable(value):
                callback, value = value, None
            if any(other is not None for other in (value, key, headers, partition, timestamp_ms)):
                # raises
                return send(record, value, key, headers, partition, timestamp_ms, callback)
            topic, value, key, headers = record.topic, record.value, record.key, record.headers
            partition, timestamp_ms = record.partition, record.timestamp_ms
        if callback is not None and not callable(callback):
            # raises
            return send(topic, value, key, headers, partition, timestamp_ms, callback)
        headers, sent = self.begin(topic, value, key, headers, callback)
        try:
            return send(
                topic, value, key, headers, partition, timestamp_ms, callback if sent is None else sent.acknowledged
            )
        except BaseException as error:
            if sent is not None:
                sent.failed(error)
            raise

    def begin(
        self, topic: Any, value: Any, key: Any, headers: Any, callback: Callable | None
    ) -> tuple[Any, SentRecord | None]:
        """Start a record's span. Returns the record's headers with the span's context, and the record's span, which
        takes the outcome; None for one that is not sampled."""
        if not isinstance(topic, str):
            # `send` raises
            return headers, None
        name, attributes = self._of_topics.get(topic) or self._of_topic(topic)
        if type(key) is str:
            attributes = {**attributes, _KEY: key}
        if value is None:
            attributes = {**attributes, _TOMBSTONE: True}
        if headers is None:
            span = self._start_span(name, None, self._as_producer, attributes)
            pairs: list[tuple[str, bytes | None]] = []
            self._inject(pairs, self._with_span(span), _SETTER)
            headers = pairs or None
        else:
            span, headers = self._with_headers(name, attributes, headers)
        if span.is_recording():
            return headers, SentRecord(span, self._error, callback)
        return headers, None

    def _with_headers(self, name: str, attributes: dict[str, Any], headers: Any) -> tuple[Any, Any]:
        """Start the span of a record that has headers already. If they have a context, the program has created it for
        this record: it stays, and the span is linked to it."""
        try:
            pairs = list(headers)
            given = [data for name, data in pairs if name == _TRACEPARENT]
        except (TypeError, ValueError):
            # `send` raises
            return self._start_span(name, None, self._as_producer, attributes), headers
        if given:
            carrier = {key: data.decode("utf-8", "replace") for key, data in pairs if isinstance(data, bytes)}
            created = self._span_in(self._extract(carrier, self._new_context())).get_span_context()
            if created.is_valid:
                return self._start_span(name, None, self._as_client, attributes, [self._link(created)]), pairs
            pairs = [pair for pair in pairs if pair[0] != _TRACEPARENT]
        span = self._start_span(name, None, self._as_producer, attributes)
        self._inject(pairs, self._with_span(span), _SETTER)
        return span, pairs

    def send_rows(
        self, send: Callable[[list[tuple[str, bytes | None]]], RowsFuture], topic: str | None, rows: int | None
    ) -> RowsFuture:
        """Call `send` in one span, with the headers that carry its context. Raises what `send` raises.

        `topic`: the topic of all rows; None for several. `rows`: their number, if it is known.
        """
        name, attributes = self._of_topic(topic) if isinstance(topic, str) else ("send", self._attributes())
        if rows is not None:
            attributes = {**attributes, _COUNT: rows}
        span = self._start_span(name, None, self._as_producer, attributes)
        pairs: list[tuple[str, bytes | None]] = []
        self._inject(pairs, self._with_span(span), _SETTER)
        sent = SentRecord(span, self._error, None)
        try:
            future = send(pairs)
        except BaseException as error:
            sent.failed(error)
            raise
        if span.is_recording():
            future.add_done_callback(sent.rows_done)
        return future

    def _attributes(self) -> dict[str, Any]:
        return {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.client.id": self._client_id,
        }

    def _of_topic(self, topic: str) -> tuple[str, dict[str, Any]]:
        """The name and the attributes of a topic's spans."""
        found = f"send {topic}", {**self._attributes(), "messaging.destination.name": topic}
        if len(self._of_topics) < MAX_TOPICS:
            self._of_topics[topic] = found
        return found


class SentRecord:
    """A record's span, or that of many rows, until it ends."""

    __slots__ = ("_callback", "_error", "_span")

    def __init__(self, span: Any, error: Any, callback: Callable | None) -> None:
        """`error`: the status code of a failure. `callback`: the program's."""
        self._span = span
        self._error = error
        self._callback = callback

    def acknowledged(self, metadata: RecordMetadata, exception: BaseException | None) -> None:
        """End the span, then call the program's callback. The callback thread."""
        span = self._span
        if exception is not None:
            if metadata.partition >= 0:
                span.set_attribute(_PARTITION, str(metadata.partition))
            self.failed(exception)
        else:
            attributes: dict[str, Any] = {_PARTITION: str(metadata.partition)}
            if metadata.offset >= 0:
                attributes[_OFFSET] = metadata.offset
            span.set_attributes(attributes)
            span.end()
        if self._callback is not None:
            self._callback(metadata, exception)

    def rows_done(self, future: RowsFuture) -> None:
        """End the span of many rows. The callback thread."""
        error = future.first_error
        if error is not None:
            self.failed(error)
        else:
            self._span.end()

    def failed(self, error: BaseException) -> None:
        """End the span with an error."""
        cause = error.__cause__ if isinstance(error.__cause__, BrokerResponseError) else error
        self._span.set_attribute(_ERROR, type(cause).__qualname__)
        self._span.set_status(self._error, str(error))
        self._span.end()


class _Setter:
    """Adds a propagator's fields to a list of headers."""

    def set(self, carrier: list[tuple[str, bytes | None]], key: str, value: str) -> None:
        carrier.append((key, value.encode()))


_SETTER: Any = _Setter()
