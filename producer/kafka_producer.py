"""`KafkaProducer`: what a user creates, sends with, and closes.

Source: Kafka's KafkaProducer.
"""

from __future__ import annotations

import logging
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from operator import index
from types import TracebackType
from typing import Any

from ..network.clock import MAX_WAIT_SECONDS, SYSTEM_CLOCK, Clock
from ..network.protocol.errors import (
    EncodeError,
    IllegalArgumentError,
    IllegalStateError,
    KafkaTimeoutError,
    ProducerClosedError,
    RetriableError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from ..network.records.builder_cy import encode_headers, encoded_size
from ..network.sections import here, interrupted
from ..network.topic_names import validate_topic_name
from .accumulator.accumulator_cy import RecordAccumulator
from .accumulator.batch_cy import RecordFuture
from .accumulator.murmur2_cy import partition_for_key
from .accumulator.queues_cy import TopicQueues
from .accumulator.record_metadata_cy import RecordMetadata
from .accumulator.send_path_cy import SendPath, size_of_largest_direct_record
from .columns.arrow import ColumnNames, send_arrow
from .columns.rows_future import RowsFuture
from .config import DEFAULT_CONFIG, ProducerConfig
from .engine import Engine
from .plugins.interceptors import ProducerInterceptors
from .plugins.loading import name_of
from .plugins.partitioners import compile_partitioner, resolve_partitioner
from .plugins.reporters import resolve_reporters
from .plugins.serializers import compile_serializer, resolve_serializer
from .record import ProducerRecord
from .record_errors import no_such_partition, record_too_large
from .threads import check_may_wait

_log = logging.getLogger(__name__)

_live: weakref.WeakSet[KafkaProducer] = weakref.WeakSet()


class KafkaProducer(SendPath):
    """A thread-safe Kafka producer: one is enough for a whole program, and faster than several.

    ``KafkaProducer(bootstrap_servers="localhost:9092", linger_ms=20)`` and
    ``KafkaProducer({"bootstrap.servers": "localhost:9092", "linger.ms": 20})`` are the same; every key is in
    ``docs/configuration.md``. The constructor starts the sender thread and does not touch the network.

    `send` puts a record into a batch and returns a future at once; batches are sent by the sender thread, which also
    completes the futures; callbacks have a thread of their own. Use it in a ``with`` statement, or call `close`: both
    deliver what was sent. After a fork the child's producer begins anew, with nothing pending; what the parent had sent
    stays the parent's to deliver. In a Celery worker, close it at ``worker_process_shutdown``: its processes end
    abruptly.

    Raises KafkaConfigurationError for configuration that can't work.
    """

    DEFAULT_CONFIG = DEFAULT_CONFIG

    def __init__(
        self,
        config: Mapping[str, Any] | ProducerConfig | None = None,
        /,
        *,
        clock: Clock = SYSTEM_CLOCK,
        **keywords: Any,
    ) -> None:
        """A `ProducerConfig` is taken as it is: it was resolved elsewhere, such as on Spark's driver."""
        if isinstance(config, ProducerConfig) and not keywords:
            self.config = config
        else:
            # a ProducerConfig beside keywords is refused there
            self.config = ProducerConfig.resolve(config, **keywords)  # pyright: ignore[reportArgumentType]
        super().__init__(clock, keys_choose=not self.config.partitioner_ignore_keys)
        self._clock = clock
        plugins = (
            resolve_serializer(self.config.key_serializer, "key.serializer"),
            resolve_serializer(self.config.value_serializer, "value.serializer"),
            resolve_partitioner(self.config.partitioner_class),
        )
        self._plugins = [plugin for plugin in plugins if plugin is not None]
        self._serialize_key = compile_serializer(plugins[0], "key")
        self._serialize_value = compile_serializer(plugins[1], "value")
        self._partition = compile_partitioner(plugins[2])
        self._interceptors = ProducerInterceptors.resolve(self.config.interceptor_classes)
        self._said_row_by_row = False
        self._closed = False
        self._life = threading.Lock()
        try:
            self._reporters = resolve_reporters(self.config.metric_reporters)
            self._start()
        except BaseException:
            self._close_plugins()
            raise
        _live.add(self)

    def _start(self) -> None:
        """Make the engine: at construction, and anew in a forked child."""
        self._engine = Engine(self.config, self._clock, self._reporters)
        self._metadata = self._engine.metadata
        self._accumulator = self._engine.accumulator
        plugged = self._serialize_key or self._serialize_value or self._partition or self._interceptors
        self._use(
            self._accumulator.topics,
            self._accumulator.stash.waiting,
            direct=not plugged,
            max_direct_bytes=size_of_largest_direct_record(self._accumulator.batch_size, self.config.max_request_size),
        )

    def send_arrow(
        self,
        topic: str | None,
        data: Any,
        *,
        value: str = "value",
        key: str = "key",
        headers: str = "headers",
        partition: str = "partition",
        timestamp: str = "timestamp",
        topic_column: str = "topic",
    ) -> RowsFuture:
        """Send each row of an Arrow RecordBatch or Table as a record; one future for all of them.

        The columns are encoded straight from Arrow's buffers, without a Python object a row. The keywords name the
        columns: `value` (there has to be one) and `key` hold binary or strings, `headers` lists of structs of a key and
        a value, `partition` whole numbers, `timestamp` timestamps or milliseconds. A null value is a tombstone, a null
        partition is chosen, a null timestamp is now. With `topic` None each row goes where `topic_column` says.

        The rows of one partition are sent in their order. Waits at most ``max.block.ms`` for a topic's metadata and for
        the memory of each batch. A serializer, an interceptor or a partitioner of the user's makes it send row by row,
        as they need Python objects; that is logged once. Any thread, not within a callback.

        Raises IllegalArgumentError and SerializationError for columns that can't be sent, RowDeliveryError for a row
        that can't be: what is wrong with the data itself is found before anything of its record batch is sent; where
        memory or metadata don't come in time, other rows may be on the way. What goes wrong later is in the future.
        """
        return send_arrow(self, topic, data, ColumnNames(value, key, headers, topic_column, partition, timestamp))

    # --- For columns of records: `column_send.ColumnProducer` ---

    def _why_row_by_row(self) -> str | None:
        """What of the configuration needs a Python object for each record; None where nothing does."""
        if self._interceptors:
            return "interceptors"
        if self._serialize_key is not None or self._serialize_value is not None:
            return "a serializer"
        return "a partitioner" if self._partition is not None else None

    def _say_row_by_row(self) -> None:
        """Log, once, that columns go the slow way."""
        if not self._said_row_by_row:
            self._said_row_by_row = True
            reason = self._why_row_by_row()
            _log.warning("producer %s sends columns row by row, because of %s", self.client_id, reason)

    def _rows_future(self, rows: int) -> RowsFuture:
        """A future of so many rows, whose callbacks run on the thread for them. Raises what `send` raises at once."""
        return RowsFuture(rows, self._usable_engine().run_callback)

    def _in_own_callback(self) -> bool:
        """Whether this is one of the producer's threads, on which its callbacks run: they can't wait for it."""
        return self._usable_engine().is_own_thread

    def _wall_ms(self) -> int:
        """The time that records take as theirs where they have none, in milliseconds since 1970."""
        return self._clock.wall_ms()

    def _partitions_of(self, topic: str, partition: int) -> tuple[RecordAccumulator, TopicQueues, int]:
        """Where the records of a topic go, and its number of partitions, waiting for metadata at most max.block.ms.

        For columns of records; fresh metadata are asked for where `partition` (-1: none) isn't known. Raises what
        `send` raises for the topic, but not for the partition.
        """
        engine = self._usable_engine()
        validate_topic_name(topic)
        queues = engine.accumulator.topics.get(topic)
        if queues is None or queues.partition_count <= max(partition, 0):
            try:
                queues = self._await_partitions(engine, topic, partition, float(self.config.max_block_ms))
            except UnknownTopicOrPartitionError:
                queues = engine.accumulator.topics.get(topic)
                if queues is None or queues.partition_count == 0:
                    raise
        else:
            engine.metadata.add_topic(topic, self._clock.now_ms())
        return engine.accumulator, queues, queues.partition_count or len(queues.queues)

    # --- Sending, step by step: what SendPath.send does not do itself ---

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
        engine = self._usable_engine()
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
        """The callback of ``send(record, callback)``, whichever way it was passed."""
        *others, callback = rest
        if value is not None and callback is None and callable(value):
            callback, value = value, None
        if value is not None or any(other is not None for other in others):
            raise IllegalArgumentError("beside a ProducerRecord, send takes a callback only: the rest is in the record")
        return callback

    def _append(self, engine: Engine, record: ProducerRecord, callback: Callable | None) -> RecordFuture:
        """From a record to its place in a batch: metadata, serializers, partitioner, checks, accumulator."""
        topic = record.topic
        validate_topic_name(topic)
        _check_callback(callback)
        # a callback that sends runs on a thread of ours, which must not wait for memory that its own batch may hold
        budget_ms = 0.0 if engine.is_own_thread else float(self.config.max_block_ms)
        queues = engine.accumulator.topics.get(topic)
        partition = -1 if record.partition is None else _checked_partition(record.partition)
        count = 0 if queues is None else queues.partition_count
        if interrupted():
            # nothing is waited for, and no lock is taken: the sender thread asks for what isn't known
            queues = engine.accumulator.topic(topic)
        elif queues is None or not max(partition, 0) < count:
            started_ms = self._clock.now_ms()
            queues = self._await_partitions(engine, topic, partition, budget_ms)
            budget_ms = max(0.0, budget_ms - (self._clock.now_ms() - started_ms))
            count = queues.partition_count or len(queues.queues)
        else:
            engine.metadata.add_topic(topic, self._clock.now_ms())

        key = self._serialized("key", self._serialize_key, record, record.key)
        value = self._serialized("value", self._serialize_value, record, record.value)
        headers = None
        if record.headers:
            try:
                headers = encode_headers(record.headers)
            except (EncodeError, UnicodeEncodeError) as wrong:
                advice = "; of a dict, give its items()" if isinstance(record.headers, Mapping) else ""
                raise SerializationError(f"headers of a record for topic {topic!r}: {wrong}{advice}") from wrong
        size = encoded_size(key, value, headers)
        if partition < 0:
            if self._partition is not None:
                if count == 0:
                    raise KafkaTimeoutError(
                        f"the metadata of topic {topic!r} isn't known yet, and the partitioner can't wait for it in a "
                        f"finalizer or signal handler that interrupted a send: send to the topic once before"
                    )
                cluster = engine.metadata.cluster
                partition = self._partition(topic, record.key, key, record.value, value, cluster, queues, size)
            elif key is not None and not self.config.partitioner_ignore_keys and count > 0:
                # as it was above: by now the topic may have vanished from the metadata
                partition = partition_for_key(key, count)
        if size > self.config.max_request_size:
            config = self.config
            raise record_too_large(size, config.max_request_size, config.buffer_memory, f" for topic {topic!r}")
        timestamp = self._clock.wall_ms() if record.timestamp_ms is None else _checked_timestamp(record.timestamp_ms)
        return engine.accumulator.append(queues, partition, timestamp, key, value, headers, callback, budget_ms)

    @staticmethod
    def _serialized(part: str, serializer: Callable | None, record: ProducerRecord, data: Any) -> bytes | None:
        if serializer is not None:
            return serializer(record.topic, record.headers, data)
        if data is None or type(data) is bytes:
            return data
        if isinstance(data, (bytes, bytearray, memoryview)):
            return bytes(data)
        raise SerializationError(
            f"the {part} of a record for topic {record.topic!r} is {type(data).__name__}, not bytes: encode it, or "
            f"give the producer a {part}_serializer (a callable, or a name such as 'string' or 'json')"
        )

    def _await_partitions(self, engine: Engine, topic: str, partition: int, budget_ms: float) -> TopicQueues:
        """Wait until the topic's partitions are known, and the asked one is among them, at most `budget_ms`."""
        check_may_wait("a call that needs a topic's metadata")
        clock, metadata = self._clock, engine.metadata
        deadline_ms = clock.now_ms() + budget_ms
        seen_fresh = False
        while True:
            metadata.add_topic(topic, clock.now_ms())
            queues = engine.accumulator.topic_queues(topic, lambda: metadata.cluster, max(partition, 0))
            count = queues.partition_count
            if count > 0 and partition < count:
                return queues
            if count > 0 and seen_fresh:
                raise no_such_partition(topic, partition, count)
            version = metadata.request_update_for_topic(topic)
            engine.sender.wakeup()
            started_ms = clock.now_ms()
            try:
                metadata.await_update(version, deadline_ms - started_ms)
            except KafkaTimeoutError as timeout:
                raise self._no_metadata(engine, topic, budget_ms, timeout) from (timeout.__cause__ or timeout)
            finally:
                engine.metrics.waited_for_metadata(clock.now_ms() - started_ms)
            # an answer to an earlier request, for other topics, doesn't count
            seen_fresh = not metadata.update_requested
            error = metadata.topic_error(topic)
            if error is not None and not isinstance(error, RetriableError):
                raise error

    def _no_metadata(
        self, engine: Engine, topic: str, budget_ms: float, timeout: KafkaTimeoutError
    ) -> KafkaTimeoutError:
        if engine.is_own_thread:
            return KafkaTimeoutError(
                f"the metadata of topic {topic!r} isn't known yet, and a callback can't wait for it: send from another "
                f"thread, or send to the topic once before"
            )
        told = engine.metadata.topic_error(topic)
        if isinstance(told, UnknownTopicOrPartitionError):
            return KafkaTimeoutError(
                f"topic {topic!r} did not appear within max.block.ms ({budget_ms:.0f} ms): the brokers lack it and"
                f" don't create it by themselves. Create the topic, or check its name."
            )
        servers = ", ".join(f"{host}:{port}" for host, port in self.config.bootstrap_servers)
        return KafkaTimeoutError(
            f"no metadata of topic {topic!r} within max.block.ms ({budget_ms:.0f} ms) from {servers}: {timeout}"
        )

    # --- The rest of the interface ---

    def flush(self, timeout: float | None = None) -> None:
        """Send everything that was taken so far without lingering, and wait until each record's fate is known.

        `timeout` in seconds; None waits as long as the delivery takes, which ``delivery.timeout.ms`` bounds. A record
        that fails does not make the flush fail: its future tells. After `close` it returns at once, as nothing is left.
        Raises KafkaTimeoutError, with the number of records left, where the time passed; IllegalStateError within a
        callback of this producer. Any other thread.
        """
        timeout_ms = _seconds(timeout) * 1000.0
        engine = self._engine if self._closed else self._usable_engine()
        if self._closed and (engine.process_id != os.getpid() or not engine.accumulator.has_unanswered):
            return
        if not interrupted() and engine.is_own_thread:
            raise IllegalStateError("flush can't be called in a callback: it would wait for the thread it runs on")
        started_ms = self._clock.now_ms()
        try:
            engine.accumulator.flush(timeout_ms)
        finally:
            engine.metrics.flushed(self._clock.now_ms() - started_ms)

    def abort(self) -> None:
        """Drop every record that isn't on the way to a broker: their futures fail with RecordAbortedError.

        What is in flight goes on and is told by its futures. The producer stays usable. Waits for the sender thread to
        do it, which takes a turn of its loop; in a callback it doesn't wait. Any thread. (librdkafka's ``purge``.)
        """
        engine = self._usable_engine()
        done = engine.sender.request_abort()
        if interrupted() or engine.is_own_thread:
            return
        while not done.wait(0.1) and engine.is_alive:
            pass

    def close(self, timeout: float | None = None, null_logger: bool = False) -> None:
        """Deliver what was sent, and end the sender thread. Closing again does nothing.

        `timeout` in seconds; None waits as long as the delivery takes, which ``delivery.timeout.ms`` bounds. With 0
        everything that waits fails at once with ProducerClosedError. Raises KafkaTimeoutError, with the number of
        records left, where the time passed; they have failed then. Any thread; in a callback it does not wait.
        `null_logger` is kafka-python's, and changes nothing: a close logs nothing but plugins that fail.
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
            self._close_plugins()
            _live.discard(self)

    def _close_plugins(self) -> None:
        """Close interceptors, serializers and partitioner; one that fails is logged and hinders no other."""
        self._interceptors.close()
        for plugin in self._plugins:
            # optional in a class of the user's
            close = getattr(plugin, "close", None)
            if close is not None:
                try:
                    close()
                except Exception:
                    _log.warning("%s failed", name_of(close), exc_info=True)

    def partitions_for(self, topic: str) -> set[int]:
        """The topic's partition numbers, waiting for its metadata at most ``max.block.ms``.

        Raises what `send` raises for the topic. Any thread.
        """
        engine = self._usable_engine()
        validate_topic_name(topic)
        queues = self._await_partitions(
            engine, topic, 0, 0.0 if engine.is_own_thread else float(self.config.max_block_ms)
        )
        return set(range(queues.partition_count))

    def metrics(self, raw: bool = False) -> Mapping[Any, Any]:
        """What is measured: ``{group: {name: value}}`` with Kafka's groups and names, in Kafka's units.

        Metrics of a topic or a node stand in a group of their own: ``producer-topic-metrics.<topic>``. With `raw` they
        are keyed by `MetricName`, which has the tags and a description. An average of nothing is not a number. Costs
        are the reader's: nothing is worked out before. Any thread.
        """
        registry = self._engine.metrics.registry
        return registry.values() if raw else registry.by_group()

    def bootstrap_connected(self) -> bool:
        """Whether a broker has told this producer about its cluster (kafka-python's name). Never waits. Any thread."""
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
        self.close()

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is None or self._closed or engine.process_id != os.getpid() or not engine.is_alive:
            return
        # the engine delivers what it has and ends by itself
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

    def _usable_engine(self) -> Engine:
        """The engine, anew in a forked child. Raises ProducerClosedError; IllegalStateError where the sender died."""
        if self._closed:
            raise ProducerClosedError("this producer is closed: create a new one to send on")
        engine = self._engine
        if engine.process_id != os.getpid():
            check_may_wait("the first send after a fork")
            with here.section, self._life:
                if self._engine.process_id != os.getpid():
                    _log.info("producer %s begins anew in forked process %d", engine.client_id, os.getpid())
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
        raise IllegalArgumentError(f"a callback is called with metadata and exception; {callback!r} can't be called")


def _checked_partition(partition: object) -> int:
    number = _whole_number(partition)
    if number is None or number < 0:
        raise IllegalArgumentError(f"a partition is a number, 0 or more, or None to have one chosen; not {partition!r}")
    return number


def _checked_timestamp(timestamp_ms: object) -> int:
    number = _whole_number(timestamp_ms)
    if number is None or not 0 <= number < 2**63:
        raise IllegalArgumentError(
            f"timestamp_ms is a whole number of milliseconds since 1970, or None for now; not {timestamp_ms!r}"
        )
    return number


def _whole_number(value: object) -> int | None:
    """An int, also from numpy's and the like; None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _begin_anew_in_child() -> None:
    """After a fork: the sender thread stayed behind, and locks may be held by threads that exist no more."""
    for producer in list(_live):
        producer._life = threading.Lock()
        producer._leave_direct_path()


os.register_at_fork(after_in_child=_begin_anew_in_child)
