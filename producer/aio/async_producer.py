"""`AsyncKafkaProducer`, the producer for asyncio.

Source: aiokafka's AIOKafkaProducer for names and arguments, Kafka's KafkaProducer for what they do.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from asyncio import get_running_loop
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial as bind
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, overload

from ...network.clock import SYSTEM_CLOCK, Clock
from ...network.protocol.errors import IllegalArgumentError, KafkaTimeoutError
from ...network.topic_names import validate_topic_name
from ..accumulator.record_metadata_cy import RecordMetadata
from ..config import ProducerConfig
from ..engine import FORCED_CLOSE_SECONDS
from ..record import ProducerRecord, addressed, checked_partition
from .aiokafka_names import translated
from .batches import BatchBuilder, first_of
from .coroutine_functions import coroutine_function
from .direct import DirectProducer
from .futures_cy import AsyncRecordFuture, Completions
from .loop_face import LoopFace
from .sends_cy import LoopSends
from .transactions import AsyncTransactionCalls
from .waiting import await_latch
from .worker import BlockingCalls

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ...network.metrics import MetricGroups, MetricName
    from ..accumulator.batch_cy import RecordFuture
    from ..columns.rows_future import RowsFuture
    from ..description import ProducerDescription
    from ..keywords import AsyncProducerKeywords, UnpackedMapping
    from ..plugins.tracing import TracedSends


class AsyncKafkaProducer(AsyncTransactionCalls):
    """A Kafka producer for asyncio and compatible event loops, such as uvloop's.

    ``AsyncKafkaProducer(bootstrap_servers="localhost:9092", linger_ms=20)`` takes the keys of `KafkaProducer`, which
    ``docs/configuration.md`` lists, and aiokafka's ``max_batch_size`` for ``batch.size``. Use it in an ``async with``
    statement, or call `start` and `stop`. The constructor starts the sender thread and does no network I/O.

    No call blocks the event loop. Serializers may be ``async`` functions. One producer may be used on several loops,
    each in its own thread; a future belongs to the loop that called `send`.

    Raises KafkaConfigurationError for an invalid configuration.
    """

    @overload
    def __init__(
        self,
        config: Mapping[str, Any] | ProducerConfig | None = None,
        /,
        *,
        clock: Clock = ...,
        **keywords: Unpack[AsyncProducerKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self,
        config: Mapping[str, Any] | ProducerConfig | None = None,
        /,
        *,
        clock: Any = ...,
        **keywords: Unpack[UnpackedMapping],
    ) -> None: ...
    def __init__(
        self,
        config: Mapping[str, Any] | ProducerConfig | None = None,
        /,
        *,
        clock: Clock = SYSTEM_CLOCK,
        **keywords: Any,
    ) -> None:
        """Start the producer.

        `config`: a mapping of configuration keys, or a resolved `ProducerConfig`. `clock`: the time source.
        `keywords`: further configuration keys, with underscores. Without ``linger.ms`` a batch doesn't linger.
        """
        keywords = translated(keywords)
        if not isinstance(config, ProducerConfig) or keywords:
            # resolve_async rejects a ProducerConfig combined with keywords
            config = ProducerConfig.resolve_async(config, **keywords)  # pyright: ignore[reportArgumentType]
        self._producer = DirectProducer(config, clock=clock)
        self._clock = clock
        self._faces: dict[asyncio.AbstractEventLoop, LoopFace] = {}
        #: Of the loop that sent last.
        self._sends: LoopSends | _NoSends = _NoSends()
        self._calls = BlockingCalls(f"headrace-aio-{self._producer.client_id}")
        self._process_id = os.getpid()

    # --- Life ---

    async def start(self) -> None:
        """Wait at most ``max.block.ms`` until a broker has returned the cluster's metadata.

        Sending works without it. With ``transactional.id``, it then gets the producer id that transactions need, and
        completes or aborts what an earlier producer with the same id left unfinished, as `init_transactions` of
        `KafkaProducer` does; it may be repeated after an error. Raises KafkaTimeoutError if no broker answers,
        ProducerClosedError, and what `init_transactions` raises.
        """
        face = self._face_here()
        metadata = face.engine.metadata
        timeout_ms = float(self.config.max_block_ms)
        deadline_ms = self._clock.now_ms() + timeout_ms
        version, fatal_count = 0, metadata.fatal_count
        while (change := metadata.change_after(version, fatal_count)) is not None:
            left_ms = deadline_ms - self._clock.now_ms()
            if left_ms <= 0:
                raise metadata.timeout_error(timeout_ms)
            face.engine.sender.wakeup()
            await await_latch(change, left_ms)
        await self._init_transactions()

    async def stop(self, timeout: float | None = None) -> None:
        """Deliver pending records and end the sender thread. Stopping again does nothing.

        `timeout`: seconds to wait; None waits until delivery ends, which ``delivery.timeout.ms`` bounds. With 0 all
        pending records fail immediately with ProducerClosedError.
        Raises KafkaTimeoutError, with the number of records left, after the timeout; those records have failed. If the
        task is cancelled, the producer closes all the same.
        """
        timeout = None if timeout is None else self._producer.seconds(timeout)
        if self.closed:
            return
        engine = self._producer.engine
        if engine.process_id == os.getpid():
            # sends that wait for memory, also those of the thread below, end with ProducerClosedError
            engine.begin_close()
        try:
            await self._calls.run(bind(self._producer.close, timeout), may_skip=False)
        finally:
            self._calls.finish()

    async def __aenter__(self) -> AsyncKafkaProducer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    # --- Sending ---

    async def send(
        self,
        topic: Any,
        value: Any = None,
        key: Any = None,
        partition: SupportsIndex | None = None,
        timestamp_ms: SupportsIndex | None = None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
    ) -> AsyncRecordFuture:
        """Append one record to a batch and return the future of its delivery, which may be awaited or dropped.

        `topic`: a topic's name, or a whole `ProducerRecord` without further arguments.
        `value`, `key`: bytes, or what the configured serializers accept. None is a null; a null value is a tombstone.
        `partition`: the partition; None lets the partitioner choose.
        `timestamp_ms`: milliseconds since 1970; None means now.
        `headers`: pairs of a name and bytes, such as a list of tuples or the items of a dict.

        Waits at most ``max.block.ms`` for the topic's metadata and for memory, and never for the record's delivery. A
        task that is cancelled while it waits has not sent the record. Once this returns, the record is delivered,
        whatever is cancelled. It gives the loop a turn every few milliseconds, so a task that never waits can be
        cancelled right after a record was appended, which is then delivered. Raises what `KafkaProducer.send` raises.
        """
        sends = self._sends
        future = sends.send(topic, value, key, headers, partition, timestamp_ms)
        if future is None:
            future = await self._send_with_waits(sends, topic, value, key, headers, partition, timestamp_ms)
        elif sends.turn_is_over:
            # after the record is appended, so that no other task's record overtakes it
            await sends.give_turn()
        return future

    @coroutine_function
    def send_and_wait(
        self,
        topic: Any,
        value: Any = None,
        key: Any = None,
        partition: SupportsIndex | None = None,
        timestamp_ms: SupportsIndex | None = None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
    ) -> Coroutine[Any, Any, RecordMetadata]:
        """Send one record and return its metadata when it is acknowledged. Arguments and errors are those of `send`.

        Raises the delivery's error, too. Cancelling it after the record was appended ends only the wait.
        """
        sends = self._sends
        call = sends.awaited(self, topic, value, key, headers, partition, timestamp_ms)
        if call is None:
            call = self._send_and_wait(sends, topic, value, key, headers, partition, timestamp_ms)
        return call

    async def _send_and_wait(self, sends: LoopSends | _NoSends, *arguments: Any) -> RecordMetadata:
        """`send_and_wait` for what only a coroutine can send."""
        future = sends.send(*arguments)
        if future is None:
            future = await self._send_with_waits(sends, *arguments)
        return await future

    async def send_arrow(self, topic: str | None, data: Any, **columns: str | None) -> RowsFuture:
        """Send each row of an Arrow RecordBatch or Table, and return one future for all rows, which may be awaited.

        The arguments and errors are those of `KafkaProducer.send_arrow`. The rows are encoded on a thread of the
        producer. If the task is cancelled after that has begun, the rows are sent all the same. Raises
        IllegalArgumentError with ``async`` serializers.
        """
        self._face_here()
        return await self._calls.run(bind(self._in_context(self._producer.send_arrow), topic, data, **columns))

    async def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        headers: Iterable[Iterable[tuple[str, bytes | None]] | None] | None = None,
        partition: SupportsIndex | Iterable[SupportsIndex | None] | None = None,
        timestamp_ms: SupportsIndex | Iterable[SupportsIndex | None] | None = None,
    ) -> RowsFuture:
        """Send many records to one topic and return one future for all of them, which may be awaited.

        The arguments and errors are those of `KafkaProducer.send_many`, the thread and cancelling as with `send_arrow`.
        """
        self._face_here()
        return await self._calls.run(
            bind(self._in_context(self._producer.send_many), topic, values, keys, headers, partition, timestamp_ms)
        )

    def create_batch(self) -> BatchBuilder:
        """Return an empty batch to fill and pass to `send_batch`, as in aiokafka."""
        if self._producer.async_serializers:
            raise IllegalArgumentError("create_batch takes no async serializers: serialize first, or use send")
        return BatchBuilder(max(self.config.batch_size, 1), self._clock, self._producer.serialize)

    async def send_batch(
        self, batch: BatchBuilder, topic: str, *, partition: SupportsIndex
    ) -> asyncio.Task[RecordMetadata]:
        """Send the records of a batch to a partition; the future has the metadata of its first record.

        The records keep their order. They share batches with other records of the partition, and may be spread over
        several. Raises what `send_many` raises.
        """
        self._face_here()
        number = checked_partition(partition)
        rows = await self._calls.run(bind(batch.send, self._producer, topic, number))
        return get_running_loop().create_task(first_of(rows, topic, number))

    # --- The rest of the interface ---

    async def flush(self, timeout: float | None = None) -> None:
        """Send all pending records without lingering, and wait until each is acknowledged or has failed.

        `timeout`: seconds to wait; None waits until delivery ends, which ``delivery.timeout.ms`` bounds. A failed
        record does not make `flush` fail; its future reports the error. After `stop` it returns immediately.
        Raises KafkaTimeoutError, with the number of records left, after the timeout.
        """
        seconds = None if timeout is None else self._producer.seconds(timeout)
        if self.closed:
            return
        face = self._face_here()
        accumulator, started_ms = face.engine.accumulator, self._clock.now_ms()
        pending, token = accumulator.incomplete_batches(), object()
        try:
            accumulator.flushes[token] = True
            accumulator.wakeup()
            await asyncio.wait_for(face.await_batches(list(pending)), seconds)
        except asyncio.TimeoutError:
            left = [batch for batch in pending if not batch.done]
            raise KafkaTimeoutError(
                f"{sum(batch.count for batch in left)} records in {len(left)} batches were not acknowledged within "
                f"{timeout:g} s; they are still being delivered, within delivery.timeout.ms"
            ) from None
        finally:
            accumulator.flushes.pop(token, None)
            face.engine.metrics.flushed(self._clock.now_ms() - started_ms)

    async def abort(self) -> None:
        """Drop every record that isn't in flight; its future fails with RecordAbortedError.

        Records in flight continue, and their futures report the outcome. The producer stays usable.
        """
        engine = self._face_here().engine
        done = engine.sender.request_abort()
        while not await await_latch(done, FORCED_CLOSE_SECONDS * 1000.0) and engine.is_alive:
            pass

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the topic's partition numbers, waiting at most ``max.block.ms`` for its metadata.

        Raises what `send` raises for the topic.
        """
        face = self._face_here()
        topic = validate_topic_name(topic)
        queues = face.engine.accumulator.topics.get(topic)
        if queues is None or queues.partition_count == 0:
            queues = await face.partitions(topic, -1, float(self.config.max_block_ms))
        return set(range(queues.partition_count))

    @overload
    def metrics(self, raw: Literal[False] = ...) -> MetricGroups: ...
    @overload
    def metrics(self, raw: Literal[True]) -> Mapping[MetricName, float | str]: ...
    @overload
    def metrics(self, raw: bool) -> Mapping[Any, Any]: ...
    def metrics(self, raw: bool = False) -> Mapping[Any, Any]:
        """Return the metrics, as `KafkaProducer.metrics` does. Never waits."""
        return self._producer.metrics(raw)

    def describe(self) -> ProducerDescription:
        """Return a snapshot of what the producer is doing, as `KafkaProducer.describe` does. Never waits."""
        return self._producer.describe()

    @property
    def config(self) -> ProducerConfig:
        """The configuration in effect."""
        return self._producer.config

    @property
    def client_id(self) -> str:
        """The name brokers see: ``client.id``, or ``producer-<n>``."""
        return self._producer.client_id

    @property
    def closed(self) -> bool:
        """Whether `stop` was called."""
        return self._producer.closed

    def __repr__(self) -> str:
        return f"<AsyncKafkaProducer {self.client_id}, {'closed' if self.closed else 'open'}>"

    def _repr_html_(self) -> str:
        """The producer as Jupyter shows it: state, metrics and configuration, without secrets."""
        return self._producer._html("AsyncKafkaProducer")

    # --- The path of a record that may have to wait ---

    async def _send_with_waits(self, sends: LoopSends | _NoSends | None, *arguments: Any) -> AsyncRecordFuture:
        """Send a record that could not be appended immediately."""
        face = self._face_here()
        tracing = self._producer.tracing
        if tracing is not None:
            return await self._send_traced(face, tracing, *arguments)
        return await self._send_untraced(face, sends, *arguments)

    def _completions_here(self) -> Completions:
        """The futures of the running loop, for `AwaitedSend`. Raises what a closed or failed producer raises."""
        return self._face_here().completions

    def _face_here(self) -> LoopFace:
        """What the producer has for the running loop. Raises what a closed or failed producer raises."""
        loop = get_running_loop()
        engine = self._producer.usable_engine()
        if self._process_id != os.getpid():
            # the thread exists in the parent only
            self._process_id = os.getpid()
            self._calls = BlockingCalls(f"headrace-aio-{self._producer.client_id}")
        face = self._faces.get(loop)
        if face is None or face.engine is not engine:
            for other in list(self._faces):
                if other.is_closed():
                    self._faces.pop(other, None)
            face = self._faces[loop] = LoopFace(loop, engine, self._producer)
        self._sends = face.sends
        return face

    def _in_context(self, call: Callable[..., RowsFuture]) -> Callable[..., RowsFuture]:
        """A call on another thread, with the task's context if that is to be the parent of a span."""
        return call if self._producer.tracing is None else bind(contextvars.copy_context().run, call)

    async def _send_traced(self, face: LoopFace, tracing: TracedSends, *arguments: Any) -> AsyncRecordFuture:
        """Send a record in a span."""
        record = _record_of(*arguments)
        headers, sent = tracing.begin(record.topic, record.value, record.key, record.headers, None)
        try:
            future = await self._send_untraced(
                face, None, record.topic, record.value, record.key, headers, record.partition, record.timestamp_ms
            )
        except BaseException as error:
            if sent is not None:
                sent.failed(error)
            raise
        if sent is not None:
            future.record._listen(sent.acknowledged)
        sends = face.untraced
        if sends.turn_is_over:
            await sends.give_turn()
        return future

    async def _send_untraced(
        self, face: LoopFace, tried: LoopSends | _NoSends | None, *arguments: Any
    ) -> AsyncRecordFuture:
        """Send a record with awaits if it has to wait. `tried`: what has failed to send it."""
        sends = face.untraced
        if tried is not sends:
            # the first send on this loop, or one on another loop than the last
            future = sends.send(*arguments)
            if future is not None:
                return future
        record, sends.serialized = sends.serialized, None
        if record is not None:
            return face.future_of(await self._append(face, record, None, is_serialized=True))
        return face.future_of(await self._intercepted(face, _record_of(*arguments)))

    async def _intercepted(self, face: LoopFace, record: ProducerRecord) -> RecordFuture:
        """Append a record after its interceptors have seen it."""
        interceptors = self._producer.interceptors
        if not interceptors:
            return await self._append(face, record, None)
        record = interceptors.on_send(record)
        try:
            return await self._append(face, record, interceptors.on_acknowledgement)
        except Exception as error:
            partition = record.partition if isinstance(record.partition, int) else -1
            interceptors.on_acknowledgement(RecordMetadata(str(record.topic), partition), error)
            raise

    async def _append(
        self, face: LoopFace, record: ProducerRecord, callback: Callable | None, is_serialized: bool = False
    ) -> RecordFuture:
        """Append a record to a batch, as `KafkaProducer._append` does, with awaits instead of waits."""
        engine, producer = face.engine, self._producer
        if engine.transaction is not None:
            engine.transaction.check_send()
        record = addressed(record)
        topic = record.topic
        started_ms, budget_ms = self._clock.now_ms(), float(self.config.max_block_ms)
        queues = engine.accumulator.topics.get(topic)
        partition = -1 if record.partition is None else checked_partition(record.partition)
        if queues is None or not max(partition, 0) < queues.partition_count:
            queues = await face.partitions(topic, partition, budget_ms)
            budget_ms = max(0.0, budget_ms - (self._clock.now_ms() - started_ms))
        else:
            engine.metadata.add_topic(topic, started_ms)
        if producer.async_serializers:
            record = await self._serialized(record)
        encoded = producer.encoded(engine, record, queues, is_serialized)
        if engine.transaction is not None:
            # it may have ended meanwhile
            engine.transaction.check_send()
        return await face.memory.append(budget_ms, queues, *encoded, callback)

    async def _serialized(self, record: ProducerRecord) -> ProducerRecord:
        """A copy of the record whose key and value the async serializers have serialized."""
        serializers = self._producer.async_serializers
        key, value = record.key, record.value
        if "key" in serializers:
            key = await serializers["key"].serialized(record, key)
        if "value" in serializers:
            value = await serializers["value"].serialized(record, value)
        return ProducerRecord(record.topic, value, key, record.headers, record.partition, record.timestamp_ms)


class _NoSends:
    """Stands in for `LoopSends` before the first send."""

    turn_is_over = False

    def send(self, *arguments: Any) -> AsyncRecordFuture | None:
        return None

    def awaited(self, *arguments: Any) -> None:
        return None

    async def give_turn(self) -> None:
        pass


def _record_of(topic: Any, value: Any, key: Any, headers: Any, partition: Any, timestamp_ms: Any) -> ProducerRecord:
    if not isinstance(topic, ProducerRecord):
        return ProducerRecord(topic, value, key, headers, partition, timestamp_ms)
    if any(other is not None for other in (value, key, headers, partition, timestamp_ms)):
        raise IllegalArgumentError("beside a ProducerRecord, send takes no further arguments: set the rest in it")
    return topic
