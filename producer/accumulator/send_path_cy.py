# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""The path of one record from the caller into its batch.

For bytes that need no serializer, `SendPath.send` is all that runs per record: it looks up the topic's queues, chooses
the partition and encodes into the open batch. Everything rarer (interceptors, serializers, headers, an unknown topic, a
full batch) goes through `_send_checked`, which `KafkaProducer` implements.

Source: Kafka's KafkaProducer.doSend.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, SupportsIndex

from ...network import _cython as cython
from ...network.clock import Clock
from ...network.records.builder_cy import encoded_size
from ...network.sections import here, interrupted

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from .batch_cy import RecordFuture
    from .murmur2_cy import murmur2_of
    from .queues_cy import PartitionQueue, TopicQueues
elif not TYPE_CHECKING:
    from cython.cimports.headrace.producer.accumulator.batch_cy import RecordFuture
    from cython.cimports.headrace.producer.accumulator.murmur2_cy import murmur2_of
    from cython.cimports.headrace.producer.accumulator.queues_cy import PartitionQueue, TopicQueues

if TYPE_CHECKING:
    from .record_metadata_cy import RecordMetadata


@cython.cclass
class SendPath:
    """The per-record half of `KafkaProducer`. Any number of threads may call `send` concurrently.

    Invariant: `_direct` is true only while the producer is open and has no interceptors, serializers or custom
    partitioner. A record of bytes for a known topic then needs nothing but its batch.
    """

    _topics: dict
    _stashed: object
    _wall_ns: Callable
    _direct: cython.bint
    _keys_choose: cython.bint
    _max_direct_bytes: cython.Py_ssize_t

    def __init__(self, clock: Clock, *, keys_choose: bool) -> None:
        """Create a path that sends nothing before `_use`. `keys_choose`: a record's key determines its partition."""
        self._topics = {}
        self._stashed = ()
        self._wall_ns = clock.wall_ns
        self._direct = False
        self._keys_choose = keys_choose
        self._max_direct_bytes = 0

    def _use(
        self, topics: dict[str, TopicQueues], stashed: Collection[object], *, direct: bool, max_direct_bytes: int
    ) -> None:
        """Append to the queues of a new engine from now on.

        Records take the direct path only if `direct` is true, they have at most `max_direct_bytes`, and there are no
        `stashed` records, which go before all others. Otherwise they take the checked path.
        """
        self._topics = topics
        self._stashed = stashed
        self._max_direct_bytes = max_direct_bytes
        self._direct = direct

    def _leave_direct_path(self) -> None:
        """Send every record through the checked path from now on: for a producer that closes, or a forked child."""
        self._direct = False

    def send(
        self,
        topic: Any,
        value: Any = None,
        key: Any = None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
        partition: SupportsIndex | None = None,
        timestamp_ms: SupportsIndex | None = None,
        callback: Callable[[RecordMetadata, Any], object] | None = None,
    ) -> RecordFuture:
        """Append one record to a batch and return the future of its delivery.

        `topic`: a topic's name, or a whole `ProducerRecord`; beside that only `callback` is allowed.
        `value`, `key`: bytes, or what the configured serializers accept. None is a null; a null value is a tombstone.
        `headers`: pairs of a name and bytes.
        `partition`: the partition; None lets the partitioner choose.
        `timestamp_ms`: milliseconds since 1970; None means now.
        `callback`: called as ``callback(metadata, exception)`` on the producer's callback thread when the record is
        acknowledged or has failed. A callback that blocks delays the callbacks after it.

        Waits at most ``max.block.ms`` for the topic's metadata and for memory, and never for the record's delivery.
        Within a callback of this producer it raises instead of waiting. A finalizer or signal handler that interrupted
        a send may call it too: then it never waits, and it raises BufferExhaustedError if too many records sent that
        way are pending. Any thread.

        Raises KafkaTimeoutError (no metadata in time), BufferExhaustedError (no memory in time), InvalidTopicError,
        UnknownTopicOrPartitionError, IllegalArgumentError (an invalid partition, timestamp or callback),
        SerializationError, MessageSizeTooLargeError (``max.request.size``), ProducerClosedError. The future reports
        later errors.
        """
        queues: TopicQueues | None
        queue: PartitionQueue
        future: RecordFuture | None
        timestamp: cython.longlong
        size: cython.Py_ssize_t = 0
        count: cython.Py_ssize_t
        # not declared int: compiled code would silently convert a float
        if self._direct and headers is None and partition is None and timestamp_ms is None and type(topic) is str:
            if callback is not None and not callable(callback):
                return self._send_checked(topic, value, key, headers, partition, timestamp_ms, callback)
            if value is not None:
                if type(value) is not bytes:
                    return self._send_checked(topic, value, key, headers, partition, timestamp_ms, callback)
                size = len(cython.cast(bytes, value))
            if key is not None:
                if type(key) is not bytes:
                    return self._send_checked(topic, value, key, headers, partition, timestamp_ms, callback)
                size += len(cython.cast(bytes, key))
            queues = self._topics.get(topic)
            # read once: it becomes 0 if the topic leaves the metadata
            count = 0 if queues is None else queues.partition_count
            if queues is not None and count > 0 and size <= self._max_direct_bytes and not self._stashed:
                if key is not None and self._keys_choose:
                    queue = queues.queues[(murmur2_of(key) & 0x7FFFFFFF) % count]
                else:
                    queue = queues.sticky
                    queues.sticky_bytes += size + 8
                timestamp = self._wall_ns()
                timestamp //= 1_000_000
                if cython.compiled:
                    # no Python code can run under this lock, see `queues_cy`
                    with queue.lock:
                        future = queue.try_append(timestamp, key, value, None, callback)
                elif interrupted():
                    future = None
                else:
                    with here.section, queue.lock:
                        future = queue.try_append(timestamp, key, value, None, callback)
                if future is not None:
                    return future
        return self._send_checked(topic, value, key, headers, partition, timestamp_ms, callback)

    def _send_checked(
        self,
        topic: Any,
        value: Any,
        key: Any,
        headers: Iterable[tuple[str, bytes | None]] | None,
        partition: SupportsIndex | None,
        timestamp_ms: SupportsIndex | None,
        callback: Callable[[RecordMetadata, Any], object] | None,
    ) -> RecordFuture:
        """Send a record by the checked path, which `KafkaProducer` implements."""
        raise TypeError("SendPath sends nothing by itself: use KafkaProducer")


def size_of_largest_direct_record(batch_size: int, max_request_bytes: int) -> int:
    """Return the bytes of key and value up to which a record needs no check against ``max.request.size``."""
    return min(batch_size, max_request_bytes) - encoded_size(b"", b"", None)
