"""The `KafkaProducer` beneath an `AsyncKafkaProducer`: its `send` never waits, and raises where it would."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from ...network.protocol.errors import IllegalArgumentError, SerializationError
from ..accumulator.serializing_cy import SerializeFunction
from ..columns.column_send import ColumnSender
from ..kafka_producer import KafkaProducer, _seconds
from ..plugins.interceptors import ProducerInterceptors
from ..plugins.loading import name_of
from ..record import ProducerRecord
from .sends_cy import NotAppended, NotDirect

if TYPE_CHECKING:
    from ..accumulator.batch_cy import RecordFuture
    from ..accumulator.queues_cy import TopicQueues
    from ..engine import Engine
    from ..plugins.tracing import TracedSends


class AsyncSerializer:
    """An ``async`` serializer of keys or values, which the event loop awaits."""

    def __init__(self, part: str, serializer: Any) -> None:
        """Wrap `serializer`, which has a `serialize`. `part`: "key" or "value", for messages."""
        self._part = part
        self._name = name_of(getattr(serializer, "function", serializer))
        self._serialize = serializer.serialize
        self._checked = SerializeFunction(part, self._name, lambda topic, headers, output: output)

    async def serialized(self, record: ProducerRecord, data: Any) -> bytes | None:
        """Serialize the key or value of a record. Raises SerializationError."""
        try:
            output = self._serialize(record.topic, record.headers, data)
            if inspect.isawaitable(output):
                output = await output
        except SerializationError:
            raise
        except Exception as error:
            raise SerializationError(
                f"the {self._part} serializer {self._name} failed on data of type {type(data).__name__} for topic "
                f"{record.topic}: {type(error).__name__}: {error}"
            ) from error
        return self._checked(record.topic, record.headers, output)


class DirectProducer(KafkaProducer):
    """Sends what needs no wait. `send` raises NotDirect or NotAppended for the rest."""

    # the face begins the spans: whether a record is appended is not known before
    _traces_each_send = False

    #: The serializers that are awaited, by "key" and "value".
    async_serializers: dict[str, AsyncSerializer]

    def _check_serializers(self) -> None:
        """Any may be asynchronous."""

    def _start(self) -> None:
        self.async_serializers = {}
        if any(each is not None for each in self._serializers):
            self._find_async_serializers()
        super()._start()

    def _find_async_serializers(self) -> None:
        from ..plugins.serializers import is_async  # noqa: PLC0415 - imported with the serializers

        for part, serializer in zip(("key", "value"), self._serializers, strict=True):
            if serializer is not None and is_async(serializer):
                self.async_serializers[part] = AsyncSerializer(part, serializer)
                # `send` and `_encoded` get the bytes
                setattr(self, f"_{part}_serializer", None)

    @property
    def is_direct(self) -> bool:
        """Whether records may be sent without awaiting anything."""
        return not (self._interceptors or self._adds_headers or self.async_serializers)

    def column_sender(self, of_arrow: bool = False) -> ColumnSender:
        """As `KafkaProducer.column_sender`, for the thread that may block. Raises IllegalArgumentError as well."""
        if self.async_serializers:
            part, *_ = self.async_serializers
            raise IllegalArgumentError(
                f"send_many and send_arrow take no async serializers, and the {part} serializer is one: serialize "
                f"first and send bytes with a producer that has none, or use send"
            )
        return dataclasses.replace(super().column_sender(of_arrow), send=self._send_blocking)

    def bytes_sender(self) -> ColumnSender:
        """A sender of columns of bytes that no serializer sees. Raises IllegalArgumentError with interceptors."""
        if self._interceptors:
            raise IllegalArgumentError("send_batch calls no interceptors, and this producer has some: use send")
        return ColumnSender(self._sending_engine(), None, self._send_blocking)

    def serialize(self, part: str, data: Any) -> bytes | None:
        """Serialize a "key" or "value" for a topic that is not known yet. Raises SerializationError."""
        serializer = self._key_serializer if part == "key" else self._value_serializer
        return self._serialized(part, serializer, "", None, data)

    def encoded(
        self, engine: Engine, record: ProducerRecord, queues: TopicQueues, is_serialized: bool
    ) -> tuple[int, int, bytes | None, bytes | None, bytes | None]:
        """`KafkaProducer._encoded`, for a topic whose metadata is known."""
        return self._encoded(engine, record, queues, queues.partition_count or len(queues.queues), is_serialized)

    def usable_engine(self) -> Engine:
        """The engine, created again in a forked child. Raises what a closed or failed producer raises."""
        return self._usable_engine()

    def allow_direct_path(self) -> None:
        """Records may be appended without the checks again: a transaction has begun."""
        if self._may_send_directly:
            self._take_direct_path()

    def forbid_direct_path(self) -> None:
        """Check each record from now on: a transaction ends."""
        self._leave_direct_path()

    @contextlib.contextmanager
    def timed_transaction_call(self, name: str) -> Iterator[None]:
        """Add the time of the block to the metrics of this call."""
        started_ms = self._engine.clock.now_ms()
        try:
            yield
        finally:
            self._engine.metrics.ran_transaction_call(name, self._engine.clock.now_ms() - started_ms)

    @property
    def engine(self) -> Engine:
        """The engine, also of a closed producer or one of the parent process."""
        return self._engine

    @property
    def interceptors(self) -> ProducerInterceptors | None:
        """The interceptors; None without any."""
        return self._interceptors

    @staticmethod
    def seconds(timeout: float) -> float:
        """A timeout that a caller gave, checked. Raises IllegalArgumentError."""
        return _seconds(timeout)

    @property
    def tracing(self) -> TracedSends | None:
        """What traces the sends; None without tracing."""
        return self._tracing

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def _send_blocking(
        self, topic: Any, value: Any, key: Any, headers: Any, partition: Any, timestamp_ms: Any
    ) -> RecordFuture:
        send = super()._send_checked
        if self._tracing is not None:
            return self._tracing.send(send, topic, value, key, headers, partition, timestamp_ms, None)
        return send(topic, value, key, headers, partition, timestamp_ms, None)

    def _send_checked(
        self,
        topic: Any,
        value: Any,
        key: Any,
        headers: Any,
        partition: Any,
        timestamp_ms: Any,
        callback: Callable | None,
    ) -> NoReturn:
        raise NotDirect

    def _send_serialized(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Any,
        partition: Any,
        timestamp_ms: Any,
        callback: Callable | None,
    ) -> NoReturn:
        raise NotAppended(ProducerRecord(topic, value, key, headers, partition, timestamp_ms))
