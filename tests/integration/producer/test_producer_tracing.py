"""OpenTelemetry tracing of sends, with the real SDK and an embedded cluster."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode
from support.waiting import wait_until

from headrace.broker import EmbeddedCluster
from headrace.broker.requests.faults import Fault
from headrace.network.protocol.api import ApiKey
from headrace.network.protocol.errors import (
    IllegalArgumentError,
    InvalidTopicError,
    KafkaConfigurationError,
    MessageSizeTooLargeError,
    ProducerClosedError,
    RecordAbortedError,
    RowDeliveryError,
    SerializationError,
    TopicAuthorizationFailedError,
)
from headrace.producer import AsyncKafkaProducer, KafkaProducer, ProducerRecord
from headrace.producer.otel import OpenTelemetryTracing

SYSTEM = {
    "messaging.system": "kafka",
    "messaging.operation.name": "send",
    "messaging.operation.type": "send",
    "messaging.client.id": "traced",
}
CREATED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Traced:
    """A cluster, a tracer provider, and the spans that have ended."""

    def __init__(self, cluster: EmbeddedCluster, **provider: Any) -> None:
        self.cluster = cluster
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**provider)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    @property
    def options(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.cluster.bootstrap_servers,
            "client_id": "traced",
            "interceptor_classes": [OpenTelemetryTracing(self.provider)],
        }

    def producer(self, **options: Any) -> KafkaProducer:
        return KafkaProducer(**{**self.options, **options})

    def spans(self) -> list[ReadableSpan]:
        """The ended spans, without those of the test."""
        return [span for span in self.exporter.get_finished_spans() if span.name != "outer"]

    def span(self) -> ReadableSpan:
        """The only span, once it has ended: a moment after the future, on the callback thread."""
        wait_until(self.spans)
        (span,) = self.spans()
        return span

    def headers(self, topic: str = "t") -> list[dict[str, bytes]]:
        """The headers of the records of partition 0."""
        return [dict(record.headers) for record in self.cluster.records(topic, 0)]


def traceparent(span: ReadableSpan) -> bytes:
    """The header that carries a sampled span's context: version, ids, and flags, which also say that ids are random."""
    context = span.get_span_context()
    assert context is not None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}".encode()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """A span's attributes without those of every send."""
    found = dict(span.attributes or {})
    assert {key: found.pop(key) for key in SYSTEM} == SYSTEM
    return found


@pytest.fixture
def traced() -> Iterator[Traced]:
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t")
        yield Traced(cluster)


def test_a_record_s_span_ends_with_its_offset_and_its_context_is_in_the_headers(traced: Traced) -> None:
    with traced.producer() as producer:
        with traced.tracer.start_as_current_span("outer") as outer:
            producer.send("t", b"v", key=b"k", headers=[("mine", b"1")]).get(30)
        span = traced.span()
        assert (span.name, span.kind) == ("send t", SpanKind.PRODUCER)
        assert span.parent == outer.get_span_context()
        assert span.status.status_code is StatusCode.UNSET
        assert attributes(span) == {
            "messaging.destination.name": "t",
            "messaging.destination.partition.id": "0",
            "messaging.kafka.offset": 0,
        }
        assert traced.headers() == [{"mine": b"1", "traceparent": traceparent(span)}]


def test_records_take_the_direct_path(traced: Traced) -> None:
    with traced.producer(linger_ms=60_000) as producer:
        producer.partitions_for("t")
        producer.send("t", b"v")

        def fail(*_: object) -> None:
            raise AssertionError("the checked path")

        producer._append = fail  # type: ignore[method-assign]
        second = producer.send("t", b"v")
        producer.flush()
        assert second.get(0).offset == 1


@pytest.mark.parametrize("headers", [None, {"a": b"1"}.items(), (pair for pair in [("a", b"1")]), []])
def test_headers_of_any_kind_are_kept(traced: Traced, headers: Any) -> None:
    expected = {} if headers is None or headers == [] else {"a": b"1"}
    with traced.producer() as producer:
        producer.send("t", b"v", headers=headers).get(30)
    assert traced.headers() == [{**expected, "traceparent": traceparent(traced.span())}]


def test_a_context_that_the_program_created_is_kept_and_linked(traced: Traced) -> None:
    """OpenTelemetry's conventions: a custom creation context is not modified."""
    with traced.producer() as producer:
        producer.send("t", b"v", headers=[("traceparent", CREATED.encode())]).get(30)
    span = traced.span()
    assert span.kind is SpanKind.CLIENT
    (link,) = span.links
    assert f"{link.context.span_id:016x}" == CREATED.split("-")[2]
    assert traced.headers() == [{"traceparent": CREATED.encode()}]


@pytest.mark.parametrize("broken", [b"nonsense", b"\xff", None])
def test_a_context_that_is_none_is_replaced(traced: Traced, broken: bytes | None) -> None:
    with traced.producer() as producer:
        producer.send("t", b"v", headers=[("traceparent", broken), ("a", b"1")]).get(30)
    assert traced.headers() == [{"a": b"1", "traceparent": traceparent(traced.span())}]


def test_keys_of_text_and_tombstones_are_attributes(traced: Traced) -> None:
    with traced.producer(key_serializer=str.encode) as producer:
        producer.send("t", None, key="me").get(30)
    found = attributes(traced.span())
    assert found["messaging.kafka.message.key"] == "me"
    assert found["messaging.kafka.message.tombstone"] is True


def test_a_producer_record_with_a_callback(traced: Traced) -> None:
    record = ProducerRecord("t", b"v", headers=[("a", b"1")])
    called: list[Any] = []
    with traced.producer() as producer:
        # the span has ended by then
        producer.send(record, lambda metadata, error: called.append((metadata.offset, error, len(traced.spans()))))
        producer.flush()
        wait_until(lambda: called)
        assert called == [(0, None, 1)]
        # it may be sent again
        assert record.headers == [("a", b"1")]
        with pytest.raises(IllegalArgumentError, match="beside a ProducerRecord"):
            producer.send(record, b"value")
        with pytest.raises(IllegalArgumentError, match="can't be called"):
            producer.send("t", b"v", callback=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"topic": "no topic"}, InvalidTopicError),
        ({"value": "text"}, SerializationError),
        ({"value": bytes(3_000_000)}, MessageSizeTooLargeError),
        ({"headers": 5}, Exception),
        ({"headers": ["a"]}, Exception),
        ({"headers": [("a", "text")]}, Exception),
    ],
)
def test_what_send_raises_ends_the_span_with_the_error(
    traced: Traced, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with KafkaProducer(bootstrap_servers=traced.cluster.bootstrap_servers) as plain:
        plain.partitions_for("t")
        with pytest.raises(error) as expected:
            plain.send(**{"topic": "t", "value": b"v", **arguments})
    with traced.producer() as producer:
        producer.partitions_for("t")
        with pytest.raises(type(expected.value)) as raised:
            producer.send(**{"topic": "t", "value": b"v", **arguments})
    if error is not MessageSizeTooLargeError:
        # which names the size, with the header
        assert str(raised.value) == str(expected.value)
    span = traced.span()
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == str(raised.value)
    assert attributes(span)["error.type"] == type(raised.value).__qualname__


def test_a_topic_that_is_no_text_is_not_traced(traced: Traced) -> None:
    with traced.producer() as producer, pytest.raises(InvalidTopicError):
        producer.send(5, b"v")
    assert traced.spans() == []


def test_a_delivery_that_fails_ends_the_span_with_its_error(traced: Traced) -> None:
    traced.cluster.inject(ApiKey.PRODUCE, Fault(error=TopicAuthorizationFailedError), times=1)
    with traced.producer() as producer, pytest.raises(TopicAuthorizationFailedError):
        producer.send("t", b"v").get(30)
    span = traced.span()
    assert span.status.status_code is StatusCode.ERROR
    found = attributes(span)
    assert found["error.type"] == "TopicAuthorizationFailedError"
    assert found["messaging.destination.partition.id"] == "0"
    assert "messaging.kafka.offset" not in found


@pytest.mark.parametrize(("end", "error"), [("abort", RecordAbortedError), ("close", ProducerClosedError)])
def test_a_record_that_is_dropped_ends_its_span(traced: Traced, end: str, error: type[Exception]) -> None:
    with traced.producer(linger_ms=60_000) as producer:
        producer.partitions_for("t")
        future = producer.send("t", b"v")
        getattr(producer, end)(*([0] if end == "close" else []))
        assert isinstance(future.exception(), error)
    assert attributes(traced.span())["error.type"] == error.__qualname__


def test_without_acknowledgements_there_is_no_offset(traced: Traced) -> None:
    with traced.producer(acks=0, enable_idempotence=False) as producer:
        producer.send("t", b"v").get(30)
    assert "messaging.kafka.offset" not in attributes(traced.span())


def test_what_is_not_sampled_passes_the_decision_on(traced: Traced) -> None:
    unsampled = Traced(traced.cluster, sampler=ALWAYS_OFF)
    with unsampled.producer() as producer:
        future = producer.send("t", b"v")
        assert future.get(30).offset == 0
    assert unsampled.spans() == []
    (headers,) = unsampled.headers()
    # the last bit of the flags: not sampled
    assert int(headers["traceparent"].rpartition(b"-")[2], 16) & 1 == 0


def test_interceptors_see_the_context_and_do_not_end_the_span(traced: Traced) -> None:
    seen: list[Any] = []

    class Interceptor:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            seen.append(dict(record.headers))
            return record

    both = [Interceptor(), *traced.options["interceptor_classes"]]
    with traced.producer(interceptor_classes=both) as producer:
        producer.send("t", b"v").get(30)
        assert seen == [{"traceparent": traceparent(traced.span())}]
        # records that are sent one by one have a span each
        producer.send_many("t", [b"1", b"2"]).get(30)
        wait_until(lambda: len(traced.spans()) == 3)
    assert [attributes(span)["messaging.kafka.offset"] for span in traced.spans()] == [0, 1, 2]


# --- Many records ---


def test_send_many_is_one_span_whose_context_all_records_carry(traced: Traced) -> None:
    with traced.producer() as producer:
        with traced.tracer.start_as_current_span("outer") as outer:
            producer.send_many("t", iter([b"1", b"2", b"3"])).get(30)
        span = traced.span()
        assert span.parent == outer.get_span_context()
        assert attributes(span) == {"messaging.destination.name": "t", "messaging.batch.message_count": 3}
        assert traced.headers() == [{"traceparent": traceparent(span)}] * 3


def test_send_many_keeps_the_headers_of_each_record(traced: Traced) -> None:
    with traced.producer() as producer:
        headers = [None, [("a", b"1")], {"traceparent": CREATED.encode()}.items()]
        producer.send_many("t", [b"1", b"2", b"3"], headers=headers).get(30)
    context = {"traceparent": traceparent(traced.span())}
    assert traced.headers() == [context, {"a": b"1", **context}, {"traceparent": CREATED.encode()}]


def test_send_arrow_is_one_span_and_leaves_the_headers(traced: Traced) -> None:
    with traced.producer() as producer:
        table = pa.table({"value": [b"1", b"2"]})
        producer.send_arrow("t", table).get(30)
    assert attributes(traced.span()) == {"messaging.destination.name": "t", "messaging.batch.message_count": 2}
    assert traced.headers() == [{}, {}]


def test_rows_to_several_topics_have_no_destination(traced: Traced) -> None:
    with traced.producer() as producer:
        producer.send_arrow(None, pa.table({"value": [b"1"], "topic": ["t"]})).get(30)
    span = traced.span()
    assert span.name == "send"
    assert "messaging.destination.name" not in attributes(span)


@pytest.mark.parametrize("when", ["call", "delivery"])
def test_rows_that_fail_end_the_span_with_the_error(traced: Traced, when: str) -> None:
    with traced.producer() as producer:
        producer.partitions_for("t")
        if when == "call":
            with pytest.raises(RowDeliveryError):
                producer.send_many("t", [b"1", "text"])
        else:
            traced.cluster.inject(ApiKey.PRODUCE, Fault(error=TopicAuthorizationFailedError), times=1)
            with pytest.raises(RowDeliveryError):
                producer.send_many("t", [b"1", b"2"]).get(30)
    span = traced.span()
    assert span.status.status_code is StatusCode.ERROR
    expected = {"call": "RowDeliveryError", "delivery": "TopicAuthorizationFailedError"}
    assert attributes(span)["error.type"] == expected[when]


# --- The event loop ---


def test_the_async_producer_traces_as_well(traced: Traced) -> None:
    async def program() -> None:
        async with AsyncKafkaProducer(**traced.options) as producer:
            with traced.tracer.start_as_current_span("outer") as outer:
                # the first waits for the metadata, the second does not wait
                for offset in range(2):
                    metadata = await producer.send_and_wait("t", b"v", headers=[("n", b"%d" % offset)])
                    assert metadata.offset == offset
                await (await producer.send("t", b"v"))
                await (await producer.send_many("t", [b"1", b"2"]))
                with pytest.raises(InvalidTopicError):
                    await producer.send("no topic", b"v")
        spans = sorted(traced.spans(), key=lambda span: span.start_time or 0)
        assert [span.parent for span in spans] == [outer.get_span_context()] * 5
        assert [attributes(span).get("messaging.kafka.offset") for span in spans] == [0, 1, 2, None, None]
        assert [span.status.status_code for span in spans] == [StatusCode.UNSET] * 4 + [StatusCode.ERROR]
        contexts = [{"traceparent": traceparent(span)} for span in spans]
        own = [{"n": b"0"}, {"n": b"1"}, {}]
        expected = [{**mine, **context} for mine, context in zip(own, contexts[:3], strict=True)]
        assert traced.headers() == [*expected, contexts[3], contexts[3]]

    asyncio.run(program())


def test_an_async_serializer_and_a_cancelled_send(traced: Traced) -> None:
    async def program() -> None:
        gate = asyncio.Event()

        async def serialize(value: Any) -> bytes:
            await gate.wait()
            return value

        async with AsyncKafkaProducer(**traced.options, value_serializer=serialize) as producer:
            await producer.partitions_for("t")
            cancelled = asyncio.create_task(producer.send("t", b"v"))
            await asyncio.sleep(0)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            gate.set()
            await producer.send_and_wait("t", b"v")
        failed, sent = sorted(traced.spans(), key=lambda span: span.start_time or 0)
        assert attributes(failed)["error.type"] == "CancelledError"
        assert attributes(sent)["messaging.kafka.offset"] == 0

    asyncio.run(program())


# --- Configuration ---


def test_the_name_in_the_configuration_uses_the_global_provider(traced: Traced) -> None:
    program = f"""
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from headrace.producer import KafkaProducer

with KafkaProducer(
    {{"bootstrap.servers": "{traced.cluster.bootstrap_servers}", "interceptor.classes": "OpenTelemetry"}}
) as producer:
    producer.send("t", b"before").get(30)
    # it may be set after the producer was created
    provider = TracerProvider()
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    producer.send("t", b"after").get(30)
print([span.attributes["messaging.kafka.offset"] for span in exporter.get_finished_spans()])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[1]\n", "")


def test_a_program_without_the_library_is_told_what_to_install() -> None:
    program = """
import sys
sys.modules["opentelemetry"] = None
from headrace.producer import KafkaProducer
KafkaProducer(bootstrap_servers="127.0.0.1:1", interceptor_classes="opentelemetry")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "KafkaConfigurationError: OpenTelemetryTracing needs opentelemetry" in done.stderr
    assert "pip install 'headrace[otel]'" in done.stderr


def test_tracing_twice_is_an_error() -> None:
    with pytest.raises(KafkaConfigurationError, match="more than once"):
        KafkaProducer(bootstrap_servers="127.0.0.1:1", interceptor_classes=["opentelemetry", OpenTelemetryTracing()])


def test_a_producer_without_tracing_has_no_hook() -> None:
    with KafkaProducer(bootstrap_servers="127.0.0.1:1") as producer:
        assert producer._tracing is None
        assert not producer._interceptors
