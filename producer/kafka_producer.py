"""`KafkaProducer`, the class a program creates, sends with, and closes.

Source: Kafka's KafkaProducer.
"""

from __future__ import annotations

import logging
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from ..network.clock import MAX_WAIT_SECONDS, SYSTEM_CLOCK, Clock
from ..network.protocol.errors import (
    EncodeError,
    IllegalArgumentError,
    IllegalStateError,
    KafkaTimeoutError,
    ProducerClosedError,
)
from ..network.records.builder_cy import encoded_size
from ..network.records.headers_cy import encode_headers
from ..network.sections import here, interrupted
from ..network.topic_names import validate_topic_name
from .accumulator.batch_cy import RecordFuture
from .accumulator.murmur2_cy import partition_for_key
from .accumulator.record_metadata_cy import RecordMetadata
from .accumulator.send_path_cy import SendPath, size_of_largest_direct_record
from .config import DEFAULT_CONFIG, ProducerConfig
from .engine import Engine
from .metrics_calls import MetricsCalls
from .plugins.configured import Plugins
from .record import ProducerRecord, addressed, checked_partition, checked_timestamp
from .record_errors import invalid_headers, not_bytes, record_too_large
from .threads import check_may_wait
from .transactions import TransactionCalls

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .accumulator.queues_cy import TopicQueues
    from .columns.column_send import ColumnSender
    from .columns.rows_future import RowsFuture
    from .keywords import ProducerKeywords, UnpackedMapping
    from .plugins.tracing import TracedSends

_log = logging.getLogger(__name__)

_live: weakref.WeakSet[KafkaProducer] = weakref.WeakSet()


class KafkaProducer(SendPath, TransactionCalls, MetricsCalls):
    """A thread-safe Kafka producer. One per program is enough, and faster than several.

    ``KafkaProducer(bootstrap_servers="localhost:9092", linger_ms=20)`` and
    ``KafkaProducer({"bootstrap.servers": "localhost:9092", "linger.ms": 20})`` are equivalent;
    ``docs/configuration.md`` lists every key. The constructor starts the sender thread and does no network I/O.

    `send` appends a record to a batch and returns a future immediately. The sender thread sends the batches and
    completes the futures; callbacks run on a separate thread. Use the producer in a ``with`` statement or call `close`:
    both deliver pending records. After a fork, the child's producer restarts with nothing pending, and the parent
    delivers the records it sent before. In a Celery worker, close the producer at ``worker_process_shutdown``: worker
    processes exit without running the interpreter's exit handlers.

    Raises KafkaConfigurationError for an invalid configuration.
    """

    DEFAULT_CONFIG = DEFAULT_CONFIG

    @overload
    def __init__(
        self,
        config: Mapping[str, Any] | ProducerConfig | None = None,
        /,
        *,
        clock: Clock = ...,
        **keywords: Unpack[ProducerKeywords],
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

        `config`: a mapping of configuration keys, or a `ProducerConfig` resolved elsewhere, such as on Spark's driver,
        which is used unchanged. `clock`: the time source. `keywords`: further configuration keys, with underscores.
        """
        if isinstance(config, ProducerConfig) and not keywords:
            self.config = config
        else:
            # resolve rejects a ProducerConfig combined with keywords
            self.config = ProducerConfig.resolve(config, **keywords)  # pyright: ignore[reportArgumentType]
        super().__init__(clock, keys_choose=not self.config.partitioner_ignore_keys)
        self._clock = clock
        self._plugins = Plugins(self.config)
        self._serializers = self._plugins.serializers
        self._key_serializer = self._plugins.serialize_key
        self._value_serializer = self._plugins.serialize_value
        self._adds_headers = self._plugins.adds_headers
        self._partition = self._plugins.partition
        self._interceptors = self._plugins.interceptors
        self._tracing: TracedSends | None = None
        self._warned_row_by_row = False
        self._closed = False
        self._life = threading.Lock()
        try:
            self._check_serializers()
            self._reporters = self._plugins.load_reporters()
            self._start()
        except BaseException:
            self._plugins.close()
            raise
        _live.add(self)

    def _check_serializers(self) -> None:
        """Raise KafkaConfigurationError for serializers that `send` can't await."""
        self._plugins.reject_async()

    def _start(self) -> None:
        """Create the engine, at construction and again in a forked child."""
        self._engine = Engine(self.config, self._clock, self._reporters)
        self._metadata = self._engine.metadata
        self._accumulator = self._engine.accumulator
        if self._interceptors is not None and self._interceptors.tracing is not None:
            self._tracing = self._interceptors.tracing.trace_sends(self._engine.client_id)
        self._use(
            self._accumulator.topics,
            self._accumulator.stash.waiting,
            # a producer with transactions takes the direct path within a transaction only
            direct=self._may_send_directly and self._engine.transaction is None,
            max_direct_bytes=size_of_largest_direct_record(self._accumulator.batch_size, self.config.max_request_size),
            # a transaction may have failed, which the checked path sees
            opens=self._accumulator if self._engine.transaction is None else None,
            serialize_key=self._key_serializer,
            serialize_value=self._value_serializer,
            choose=self._partition,
            metadata=self._metadata,
            trace=self._tracing.send if self._tracing is not None and self._traces_each_send else None,
        )

    #: Whether `send` itself begins a span, if sends are traced.
    _traces_each_send = True

    @property
    def _may_send_directly(self) -> bool:
        return not (self._interceptors or self._adds_headers)

    def send_arrow(
        self,
        topic: str | None,
        data: Any,
        *,
        value: str | None = "value",
        key: str | None = "key",
        headers: str | None = "headers",
        partition: str | None = "partition",
        timestamp: str | None = "timestamp",
        topic_column: str | None = "topic",
        value_format: str | None = None,
    ) -> RowsFuture:
        """Send each row of an Arrow RecordBatch or Table as a record and return one future for all rows.

        The columns are encoded directly from Arrow's buffers, without creating a Python object per row.

        `topic`: the topic of every row; None takes each row's topic from the column `topic_column`.
        `data`: a RecordBatch, a Table, or any object that exports Arrow data.
        `value`: name of the value column, binary or string, or what the value serializer takes. A null value is a
        tombstone. None: the value of a row is a struct of all columns without one of the roles below.
        `key`: name of the key column, binary or string, or what the key serializer takes.
        `headers`: name of the column of headers, lists of structs of a key and a value.
        `partition`: name of the column of partition numbers; for a null, the producer chooses the partition.
        `timestamp`: name of the column of timestamps, or of milliseconds since 1970; a null means now.
        `topic_column`: name of the column of topics.
        `value_format`: "avro" requires the value serializer to be an `AvroSerializer`. Data without the column `value`
        is then sent as if `value` were None.

        Only the value column has to be in the data. None instead of a name gives no column that role. Rows of the same
        partition are sent in order. Waits at most ``max.block.ms`` for a topic's metadata and for the memory of each
        batch. Columns go through these serializers as a whole: ``bytes``, ``string``, an `AvroSerializer` without
        `to_dict`, and a `ProtobufSerializer`, whose columns are messages that are serialized already. Any other
        serializer, an interceptor or a partitioner needs Python objects, so the rows are then sent one by one; that is
        logged once. Any thread, but not within a callback.

        Raises IllegalArgumentError or SerializationError for columns that can't be sent, and RowDeliveryError for a row
        that can't be. Invalid data is detected before any row of its record batch is sent. After a timeout on memory or
        metadata, other rows may already be in flight. The future reports later errors.
        """
        from .columns.arrow import ColumnNames, send_arrow  # noqa: PLC0415 - most programs send no columns

        names = ColumnNames(value, key, headers, topic_column, partition, timestamp)
        sender = self.column_sender(of_arrow=True)
        if self._tracing is None or sender.row_by_row is not None:
            return send_arrow(sender, topic, data, names, value_format)
        return self._tracing.send_rows(
            lambda context: send_arrow(sender, topic, data, names, value_format), topic, getattr(data, "num_rows", None)
        )

    def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        headers: Iterable[Iterable[tuple[str, bytes | None]] | None] | None = None,
        partition: SupportsIndex | Iterable[SupportsIndex | None] | None = None,
        timestamp_ms: SupportsIndex | Iterable[SupportsIndex | None] | None = None,
    ) -> RowsFuture:
        """Send many records to one topic and return one future for all of them.

        The lists have one item per record and equal lengths. Any iterables will do; they are read once, before anything
        is sent.

        `values`, `keys`: bytes, or what the configured serializers accept. None is a null; a null value is a tombstone.
        `headers`: pairs of a name and bytes per record, or None for a record without headers.
        `partition`: the partition of all records, or one per record; None lets the producer choose.
        `timestamp_ms`: milliseconds since 1970 for all records, or one per record; None means now.

        Records of the same partition are sent in order. Waits at most ``max.block.ms`` for the topic's metadata and for
        the memory of each batch. With a configured serializer, interceptor or partitioner the records are sent one by
        one; that is logged once. Any thread, but not within a callback.

        Raises IllegalArgumentError for lists of unequal length, RowDeliveryError for a record that can't be sent, with
        its index as `row`, and what `send` raises for the topic and the producer. No record has been sent then. The
        future reports later errors, including those of memory and of serializers after the first record was appended:
        `get` raises the RowDeliveryError of the first record that failed, whose `delivered` has the offsets of the
        records that were delivered.
        """
        from .columns.lists import send_many  # noqa: PLC0415 - most programs send records one by one

        sender = self.column_sender()
        if self._tracing is not None and sender.row_by_row is None:
            from .columns.lists import send_traced  # noqa: PLC0415 - as above

            return send_traced(sender, self._tracing.send_rows, topic, values, keys, headers, partition, timestamp_ms)
        return send_many(sender, topic, values, keys, headers, partition, timestamp_ms)

    def column_sender(self, of_arrow: bool = False) -> ColumnSender:
        """Return a sender of columns of records, valid for one call: `send_arrow`, `send_many` and Spark's rows use it.

        `of_arrow`: the columns are Arrow's, which some serializers serialize as a whole. Logs once if the configuration
        needs a Python object per record. Any thread. Raises what `send` raises for a closed or failed producer.
        """
        from .columns.column_send import ColumnSender  # noqa: PLC0415 - most programs send no columns

        reason = None
        forms = {}
        for part, serializer in zip(("key", "value"), self._serializers, strict=True):
            if serializer is None:
                continue
            form = self._plugins.column_form(serializer) if of_arrow else None
            if form is not None:
                forms[part] = form
            else:
                reason = "a serializer"
        if self._interceptors:
            reason = "interceptors"
        elif reason is None and self._partition is not None:
            reason = "a partitioner"
        if reason is not None and not self._warned_row_by_row:
            self._warned_row_by_row = True
            _log.warning("producer %s sends rows one by one, because of %s", self.client_id, reason)
        return ColumnSender(self._sending_engine(), reason, self.send, {} if reason else forms)

    # --- The checked send: everything SendPath.send does not handle itself ---

    def _send_checked(
        self,
        topic: Any,
        value: Any,
        key: Any,
        headers: Iterable[tuple[str, bytes | None]] | None,
        partition: Any,
        timestamp_ms: Any,
        callback: Callable | None,
    ) -> RecordFuture:
        engine = self._sending_engine()
        if isinstance(topic, ProducerRecord):
            record = topic
            callback = self._callback_beside(record, value, key, headers, partition, timestamp_ms, callback)
            if not self._interceptors:
                return self._append(engine, record, callback)
        elif self._interceptors:
            record = ProducerRecord(topic, value, key, headers, partition, timestamp_ms)
        else:
            return self._append(engine, ProducerRecord(topic, value, key, headers, partition, timestamp_ms), callback)
        interceptors = self._interceptors
        record = interceptors.on_send(record)
        users_callback = callback

        def acknowledged(metadata: RecordMetadata, exception: BaseException | None) -> None:
            interceptors.on_acknowledgement(metadata, exception)
            if users_callback is not None:
                users_callback(metadata, exception)

        try:
            _check_callback(users_callback)
            return self._append(engine, record, acknowledged)
        except Exception as error:
            partition = record.partition if isinstance(record.partition, int) else -1
            interceptors.on_acknowledgement(RecordMetadata(str(record.topic), partition), error)
            raise

    @staticmethod
    def _callback_beside(record: ProducerRecord, value: Any, *rest: Any) -> Callable | None:
        """The callback of ``send(record, callback)``, passed by position or by keyword."""
        *others, callback = rest
        if value is not None and callback is None and callable(value):
            callback, value = value, None
        if value is not None or any(other is not None for other in others):
            raise IllegalArgumentError("beside a ProducerRecord, send takes a callback only: set the rest in it")
        return callback

    def _send_serialized(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Any,
        partition: Any,
        timestamp_ms: Any,
        callback: Callable | None,
    ) -> RecordFuture:
        engine = self._sending_engine()
        queues = engine.accumulator.topics.get(topic)
        count = 0 if queues is None else queues.partition_count
        named = partition is not None or timestamp_ms is not None
        too_large = encoded_size(key, value, None) > self.config.max_request_size
        if queues is None or count == 0 or headers or named or too_large:
            record = ProducerRecord(topic, value, key, headers, partition, timestamp_ms)
            return self._append(engine, record, callback, is_serialized=True)
        # the usual record: `_send_direct` has checked everything else, and only found no room in an open batch
        budget_ms = 0.0 if engine.is_own_thread else float(self.config.max_block_ms)
        chosen = partition_for_key(key, count) if key is not None and not self.config.partitioner_ignore_keys else -1
        return engine.accumulator.append(queues, chosen, self._clock.wall_ms(), key, value, None, callback, budget_ms)

    def _append(
        self, engine: Engine, record: ProducerRecord, callback: Callable | None, is_serialized: bool = False
    ) -> RecordFuture:
        """Append a record to a batch: metadata, serializers unless they have run, partitioner, checks, accumulator."""
        record = addressed(record)
        topic = record.topic
        _check_callback(callback)
        # the producer's own threads must not wait for memory: the batch whose callback sends may be holding it
        budget_ms = 0.0 if engine.is_own_thread else float(self.config.max_block_ms)
        queues = engine.accumulator.topics.get(topic)
        partition = -1 if record.partition is None else checked_partition(record.partition)
        count = 0 if queues is None else queues.partition_count
        if interrupted():
            # must not wait or take a lock: the sender thread requests missing metadata
            queues = engine.accumulator.topic(topic)
        elif queues is None or not max(partition, 0) < count:
            started_ms = self._clock.now_ms()
            queues = engine.topics.await_partitions(topic, partition, budget_ms)
            budget_ms = max(0.0, budget_ms - (self._clock.now_ms() - started_ms))
            count = queues.partition_count or len(queues.queues)
        encoded = self._encoded(engine, record, queues, count, is_serialized)
        if engine.transaction is not None:
            engine.transaction.check_send()  # it may have ended meanwhile
        return engine.accumulator.append(queues, *encoded, callback, budget_ms)

    def _encoded(
        self, engine: Engine, record: ProducerRecord, queues: TopicQueues, count: int, is_serialized: bool
    ) -> tuple[int, int, bytes | None, bytes | None, bytes | None]:
        """A record's partition (-1: the sticky one), timestamp, key, value and headers, as the accumulator takes them.

        Runs the serializers, unless they have run, and the partitioner. `count` is the number of partitions.
        """
        topic = record.topic
        partition = -1 if record.partition is None else checked_partition(record.partition)
        key, value, pairs = record.key, record.value, record.headers
        if not is_serialized:
            if self._adds_headers:
                # the caller's headers stay as they are
                pairs = _list_of(pairs, topic)
            key = self._serialized("key", self._key_serializer, topic, pairs, key)
            value = self._serialized("value", self._value_serializer, topic, pairs, value)
        headers = None
        if pairs:
            try:
                headers = encode_headers(pairs)
            except (EncodeError, UnicodeEncodeError) as wrong:
                raise invalid_headers(pairs, topic, wrong) from wrong
        size = encoded_size(key, value, headers)
        if partition < 0:
            if self._partition is not None:
                if count == 0:
                    raise KafkaTimeoutError(
                        f"the metadata of topic {topic!r} isn't known yet, and the partitioner can't wait for it in a "
                        f"finalizer or signal handler that interrupted a send: send to the topic elsewhere first"
                    )
                cluster = engine.metadata.cluster
                partition = self._partition(topic, record.key, key, record.value, value, cluster, queues, size)
            elif key is not None and not self.config.partitioner_ignore_keys and count > 0:
                # the count read above: the topic may have left the metadata since
                partition = partition_for_key(key, count)
        if size > self.config.max_request_size:
            config = self.config
            raise record_too_large(size, config.max_request_size, config.buffer_memory, f" for topic {topic!r}")
        timestamp = self._clock.wall_ms() if record.timestamp_ms is None else checked_timestamp(record.timestamp_ms)
        return partition, timestamp, key, value, headers

    @staticmethod
    def _serialized(part: str, serializer: Callable | None, topic: str, headers: Any, data: Any) -> bytes | None:
        if serializer is not None:
            return serializer(topic, headers, data)
        if data is None or type(data) is bytes:
            return data
        if isinstance(data, (bytes, bytearray, memoryview)):
            return bytes(data)
        raise not_bytes(part, data, topic)

    # --- The rest of the interface ---

    def flush(self, timeout: float | None = None) -> None:
        """Send all pending records without lingering, and wait until each is acknowledged or has failed.

        `timeout`: seconds to wait; None waits until delivery ends, which ``delivery.timeout.ms`` bounds. A failed
        record does not make `flush` fail; its future reports the error. After `close` it returns immediately.
        Raises KafkaTimeoutError, with the number of records left, after the timeout; IllegalStateError within a
        callback of this producer. Any other thread.
        """
        timeout_ms = _seconds(timeout) * 1000.0
        engine = self._engine if self._closed else self._usable_engine()
        if self._closed and (engine.process_id != os.getpid() or not engine.accumulator.has_unanswered):
            return
        if not interrupted() and engine.is_own_thread:
            raise IllegalStateError("flush can't be called in a callback: it would wait for its own thread")
        started_ms = self._clock.now_ms()
        try:
            engine.accumulator.flush(timeout_ms)
        finally:
            engine.metrics.flushed(self._clock.now_ms() - started_ms)

    def abort(self) -> None:
        """Drop every record that isn't in flight; its future fails with RecordAbortedError.

        Records in flight continue, and their futures report the outcome. The producer stays usable. Waits for the
        sender thread to drop the records, one iteration of its loop; within a callback it doesn't wait. Any thread.
        Equivalent to librdkafka's ``purge``.
        """
        engine = self._usable_engine()
        done = engine.sender.request_abort()
        if interrupted() or engine.is_own_thread:
            return
        while not done.wait(0.1) and engine.is_alive:
            pass

    def close(self, timeout: float | None = None, null_logger: bool = False) -> None:
        """Deliver pending records and end the sender thread. Closing again does nothing.

        `timeout`: seconds to wait; None waits until delivery ends, which ``delivery.timeout.ms`` bounds. With 0 all
        pending records fail immediately with ProducerClosedError. `null_logger` is accepted for kafka-python's sake and
        ignored: `close` logs nothing but failures of plugins.
        Raises KafkaTimeoutError, with the number of records left, after the timeout; those records have failed.
        Any thread; within a callback it does not wait.
        """
        timeout = None if timeout is None else _seconds(timeout)
        if self._closed:
            return
        check_may_wait("close")
        with here.section, self._life:
            if self._closed:
                return
            self._closed = True
            self._leave_direct_path()
        if self._engine.process_id != os.getpid():
            return
        try:
            self._engine.close(timeout)
        finally:
            self._engine.metrics.registry.close()
            self._plugins.close()
            _live.discard(self)

    def partitions_for(self, topic: str) -> set[int]:
        """Return the topic's partition numbers, waiting at most ``max.block.ms`` for its metadata.

        Raises what `send` raises for the topic. Any thread.
        """
        engine = self._usable_engine()
        topic = validate_topic_name(topic)
        queues = engine.topics.await_partitions(
            topic, 0, 0.0 if engine.is_own_thread else float(self.config.max_block_ms)
        )
        return set(range(queues.partition_count))

    def bootstrap_connected(self) -> bool:
        """Whether metadata has been received from a broker (kafka-python's name). Never waits. Any thread."""
        return not self._usable_engine().metadata.cluster.is_bootstrap

    @property
    def client_id(self) -> str:
        """The name brokers see: ``client.id``, or ``producer-<n>``."""
        return self._engine.client_id

    def __enter__(self) -> KafkaProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is KeyboardInterrupt and not self._closed and self._engine.accumulator.has_incomplete:
            _log.warning(
                "producer %s is interrupted, and delivers its last records first, within delivery.timeout.ms (%d ms); "
                "interrupt it again to give them up",
                *(self.client_id, self.config.delivery_timeout_ms),
            )
        self.close()

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is None or self._closed or engine.process_id != os.getpid() or not engine.is_alive:
            return
        # the engine delivers its pending records and then ends by itself
        engine.begin_close()
        if engine.accumulator.has_incomplete:
            warnings.warn(
                f"producer {engine.client_id} was dropped without close(); its last records are still being sent",
                ResourceWarning,
                stacklevel=2,
            )

    def __reduce__(self) -> Any:
        raise TypeError(
            "a KafkaProducer can't be pickled: it owns a thread and connections. Pass its configuration on and create "
            "the producer where it is used (in Spark: headrace.producer.spark.KafkaSink does)."
        )

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<KafkaProducer {self.client_id}, {state}>"

    def _repr_html_(self) -> str:
        """The producer as Jupyter shows it: state, metrics and configuration, without secrets."""
        return self._html("KafkaProducer")

    def _html(self, kind: str) -> str:
        from .notebook import producer_html  # noqa: PLC0415 - for notebooks

        return producer_html(kind, self._engine, self._closed)

    def _sending_engine(self) -> Engine:
        """`_usable_engine`, if it may send now: a producer with transactions needs an open one."""
        engine = self._usable_engine()
        if engine.transaction is not None:
            engine.transaction.check_send()
        return engine

    def _usable_engine(self) -> Engine:
        """The engine, created again in a forked child. Raises ProducerClosedError; IllegalStateError if the sender
        died."""
        if self._closed:
            raise ProducerClosedError("this producer is closed: create a new one to send on")
        engine = self._engine
        if engine.process_id != os.getpid():
            if engine.transaction is not None:
                raise IllegalStateError(
                    f"this producer has transactional.id {self.config.transactional_id!r} and belongs to process "
                    f"{engine.process_id}, from which {os.getpid()} was forked: create a producer with another "
                    f"transactional.id here"
                )
            check_may_wait("the first send after a fork")
            with here.section, self._life:
                if self._engine.process_id != os.getpid():
                    _log.info("producer %s restarts in forked process %d", engine.client_id, os.getpid())
                    self._start()
            engine = self._engine
        if engine.sender.death is not None:
            raise IllegalStateError(
                f"the sender thread of this producer died ({engine.sender.death!r}): close it and create a new one"
            ) from engine.sender.death
        return engine


def _seconds(timeout: float | None) -> float:
    if timeout is None:
        return MAX_WAIT_SECONDS
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise IllegalArgumentError(f"a timeout is a number of seconds, 0 or more, or None; not {timeout!r}")
    return min(float(timeout), MAX_WAIT_SECONDS)


def _check_callback(callback: object) -> None:
    if callback is not None and not callable(callback):
        raise IllegalArgumentError(f"a callback takes (metadata, exception); {callback!r} can't be called")


def _list_of(headers: Any, topic: str) -> list[Any]:
    try:
        return list(headers or ())
    except TypeError as wrong:
        raise invalid_headers(headers, topic, wrong) from wrong


def _reset_after_fork() -> None:
    """After a fork, the child has no sender thread, and threads that no longer exist may hold locks."""
    for producer in list(_live):
        producer._life = threading.Lock()
        producer._leave_direct_path()


os.register_at_fork(after_in_child=_reset_after_fork)
