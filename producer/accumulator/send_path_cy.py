# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
# pyright: reportArgumentType=false
"""The path of one record from the caller into its batch.

`SendPath.send` is all that runs per record, beside the configured serializers: it looks up the topic's queues, chooses
the partition, and encodes headers and record into the open batch. Everything rarer (interceptors, an unknown topic, a
full batch, invalid arguments) goes through `_send_checked`, or through `_send_serialized` once the serializers have
run. `KafkaProducer` implements both.

Source: Kafka's KafkaProducer.doSend.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from operator import index
from typing import TYPE_CHECKING, Any, SupportsIndex

from ...network import _cython as cython
from ...network.sections import here, interrupted
from ...network.topic_names import plain_name
from ..record import ProducerRecord

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from ...network.clock import Clock
    from ...network.memory_order import FREE_THREADED, acquire_fence, release_fence
    from ...network.records.builder_cy import encoded_size
    from ...network.records.headers_cy import pack_headers
    from .accumulator_cy import RecordAccumulator
    from .batch_cy import RecordFuture
    from .murmur2_cy import murmur2_of
    from .queues_cy import PartitionQueue, TopicQueues
    from .serializing_cy import SerializeFunction
elif not TYPE_CHECKING:
    from cython.cimports.headrace.network.memory_order import FREE_THREADED, acquire_fence, release_fence
    from cython.cimports.headrace.network.records.builder_cy import encoded_size
    from cython.cimports.headrace.network.records.headers_cy import pack_headers
    from cython.cimports.headrace.network.time_cy import Clock
    from cython.cimports.headrace.producer.accumulator.accumulator_cy import RecordAccumulator
    from cython.cimports.headrace.producer.accumulator.batch_cy import RecordFuture
    from cython.cimports.headrace.producer.accumulator.murmur2_cy import murmur2_of
    from cython.cimports.headrace.producer.accumulator.queues_cy import PartitionQueue, TopicQueues
    from cython.cimports.headrace.producer.accumulator.serializing_cy import SerializeFunction

if TYPE_CHECKING:
    from ...network.cluster import Cluster
    from ...network.metadata import Metadata
    from .record_metadata_cy import RecordMetadata

    #: A partitioner as `plugins.partitioners.compile_partitioner` returns it.
    PartitionFunction = Callable[[str, Any, bytes | None, Any, bytes | None, Cluster, TopicQueues, int], int]


@cython.cclass
class SendPath:
    """The per-record half of `KafkaProducer`. Any number of threads may call `send` concurrently.

    Invariant: `_direct` is true only while the producer is open and has no interceptors. A record for a known topic
    then needs nothing but its serializers, its partition and its batch.
    """

    _topics: dict
    _opens: RecordAccumulator | None
    _recent: cython.p_void[8]  # pyright: ignore
    _engines: cython.Py_ssize_t
    _stashed: object
    _wall_clock: Clock
    _trace: Callable | None
    _direct: cython.bint
    _keys_choose: cython.bint
    _max_direct_bytes: cython.Py_ssize_t
    _serialize_key: SerializeFunction | None
    _serialize_value: SerializeFunction | None
    _choose: PartitionFunction | None
    _metadata_seen: Metadata | None

    def __init__(self, clock: Clock, *, keys_choose: bool) -> None:
        """Create a path that sends nothing before `_use`. `keys_choose`: a record's key determines its partition."""
        self._topics = {}
        self._opens = None
        self._engines = 0
        self._stashed = ()
        self._wall_clock = clock
        self._trace = None
        self._direct = False
        self._keys_choose = keys_choose
        self._max_direct_bytes = 0
        self._choose = None
        self._metadata_seen = None

    def _use(
        self,
        topics: dict[str, TopicQueues],
        stashed: Collection[object],
        *,
        direct: bool,
        max_direct_bytes: int,
        opens: RecordAccumulator | None = None,
        serialize_key: SerializeFunction | None = None,
        serialize_value: SerializeFunction | None = None,
        choose: PartitionFunction | None = None,
        metadata: Metadata | None = None,
        trace: Callable[..., RecordFuture] | None = None,
    ) -> None:
        """Append to the queues of a new engine from now on.

        Records take the direct path only if `direct` is true, they have at most `max_direct_bytes`, and there are no
        `stashed` records, which go before all others. Otherwise they take the checked path. Without a serializer, keys
        or values are bytes. `choose` chooses the partitions, and sees the cluster of `metadata`; None: the default
        partitioning. Batches are opened in `opens`; None: by the checked path. `trace` is called in place of `send`,
        with a function that sends and the arguments.
        """
        place: cython.Py_ssize_t
        if cython.compiled:
            for place in range(8):
                self._recent[place] = cython.cast(cython.p_void, 0)
        # a send that has begun before knows that its queues are no longer there
        self._engines += 1
        self._topics = topics
        self._opens = opens
        self._stashed = stashed
        self._max_direct_bytes = max_direct_bytes
        self._serialize_key = serialize_key
        self._serialize_value = serialize_value
        self._choose = choose
        self._metadata_seen = metadata
        self._trace = trace
        release_fence()
        self._direct = direct

    def _take_direct_path(self) -> None:
        """Let records take the direct path again: for a producer that begins a transaction."""
        self._direct = True

    def _leave_direct_path(self) -> None:
        """Use the checked path only, from now on: the producer closes, ends a transaction, or has forked."""
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
        `headers`: pairs of a name and bytes, such as a list of tuples or the items of a dict.
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
        if self._trace is not None:
            return self._trace(self._send_untraced, topic, value, key, headers, partition, timestamp_ms, callback)
        return self._send(topic, value, key, headers, partition, timestamp_ms, callback)

    def _send_untraced(
        self, topic: Any, value: Any, key: Any, headers: Any, partition: Any, timestamp_ms: Any, callback: Any
    ) -> RecordFuture:
        """`send` within a span."""
        return self._send(topic, value, key, headers, partition, timestamp_ms, callback)

    @cython.cfunc
    def _send(
        self, topic: Any, value: Any, key: Any, headers: Any, partition: Any, timestamp_ms: Any, callback: Any
    ) -> RecordFuture:
        future: RecordFuture | None = None
        if type(topic) is not str and isinstance(topic, str):
            # a StrEnum's member, or numpy's
            topic = plain_name(topic)
        if self._direct:
            if cython.compiled:
                acquire_fence()
            if type(topic) is str:
                future = self._send_direct(topic, value, key, headers, partition, timestamp_ms, callback)
            elif (
                type(topic) is ProducerRecord
                and type(topic.topic) is str
                and value is key is headers is partition is timestamp_ms is None
            ):
                future = self._send_direct(
                    topic.topic, topic.value, topic.key, topic.headers, topic.partition, topic.timestamp_ms, callback
                )
            if future is not None:
                return future
        return self._send_checked(topic, value, key, headers, partition, timestamp_ms, callback)

    @cython.cfunc
    def _send_direct(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: object,
        partition: object,
        timestamp_ms: object,
        callback: object,
    ) -> RecordFuture | None:
        """Send one record to a topic that is known; None, before its serializers run, if that needs more checks."""
        queue: PartitionQueue
        future: RecordFuture | None
        encoded_key: bytes | None
        encoded_value: bytes | None
        packed: bytes | None = None
        timestamp: cython.longlong = -1
        chosen: cython.longlong = -1
        size: cython.Py_ssize_t = 0
        fits: cython.bint = True
        # Without the GIL, counting the references to what all threads share would cost more than everything else.
        queues: cython.p_void = self._known(topic)
        engines: cython.Py_ssize_t = self._engines
        if not queues:
            return None
        # read once: it becomes 0 if the topic leaves the metadata
        count: cython.Py_ssize_t = cython.cast(TopicQueues, queues).partition_count
        if cython.compiled:
            acquire_fence()
        if count <= 0 or self._stashed or (callback is not None and not callable(callback)):
            return None
        if partition is not None:
            chosen = whole_number(partition)
            if not 0 <= chosen < count:
                return None
        if timestamp_ms is not None:
            timestamp = whole_number(timestamp_ms)
            if timestamp < 0:
                return None
        if (self._serialize_key is None and not is_bytes(key)) or (
            self._serialize_value is None and not is_bytes(value)
        ):
            return None
        if self._serialize_key is not None:
            encoded_key = self._serialize_key.serialized(topic, headers, key)
        else:
            encoded_key = key if key is None or type(key) is bytes else bytes(key)
        if self._serialize_value is not None:
            encoded_value = self._serialize_value.serialized(topic, headers, value)
        else:
            encoded_value = value if value is None or type(value) is bytes else bytes(value)
        if headers is not None:
            # after the serializers, which may add to them
            packed = pack_headers(headers)
            if packed is None:
                fits = False
            else:
                size = len(packed)
                if size == 0:
                    packed = None
        if encoded_value is not None:
            size += len(encoded_value)
        if encoded_key is not None:
            size += len(encoded_key)
        if self._choose is not None and chosen < 0:
            # asked here and only here, as the paths below no longer have the key and the value: they get the partition
            chosen = self._chosen(topic, key, encoded_key, value, encoded_value, packed)
            if chosen < 0:
                return self._send_checked(topic, value, key, headers, partition, timestamp_ms, callback)
            partition = chosen
            if chosen >= count:
                # of more partitions than were known above
                fits = False
        # serializer and partitioner may have closed the producer, or may have forked
        if fits and size <= self._max_direct_bytes and self._direct and self._engines == engines:
            if chosen >= 0:
                queue = cython.cast(TopicQueues, queues).queues[chosen]
            elif encoded_key is not None and self._keys_choose:
                queue = cython.cast(TopicQueues, queues).queues[(murmur2_of(encoded_key) & 0x7FFFFFFF) % count]
            else:
                queue = cython.cast(TopicQueues, queues).sticky
                cython.cast(TopicQueues, queues).sticky_bytes = cython.cast(TopicQueues, queues).sticky_bytes + size + 8
            if timestamp < 0:
                timestamp = self._wall_clock.wall_ms()
            if cython.compiled:
                # no Python code can run under this lock, see `queues_cy`
                with queue.lock:
                    future = queue.try_append(timestamp, encoded_key, encoded_value, packed, callback)
            elif interrupted():
                future = None
            else:
                with here.section, queue.lock:
                    future = queue.try_append(timestamp, encoded_key, encoded_value, packed, callback)
            if future is not None:
                return future
            if self._opens is not None:
                if chosen >= 0 or (encoded_key is not None and self._keys_choose):
                    chosen = queue.partition
                else:
                    # `append_now` chooses the sticky partition, and counts its bytes
                    cython.cast(TopicQueues, queues).sticky_bytes = cython.cast(TopicQueues, queues).sticky_bytes - (
                        size + 8
                    )
                future = self._opens.append_now(
                    cython.cast(TopicQueues, queues), chosen, timestamp, encoded_key, encoded_value, packed, callback
                )
                if future is not None:
                    return future
        return self._send_serialized(topic, encoded_value, encoded_key, headers, partition, timestamp_ms, callback)

    @cython.cfunc
    def _chosen(
        self,
        topic: str,
        key: Any,
        encoded_key: bytes | None,
        value: Any,
        encoded_value: bytes | None,
        packed: bytes | None,
    ) -> cython.longlong:
        """The partition that the partitioner chooses; -1 if a serializer has made the topic unknown."""
        # held here: serializers and partitioners may end what `_known` referred to
        queues: TopicQueues | None = self._topics.get(topic)
        if queues is None:
            return -1
        assert self._choose is not None
        assert self._metadata_seen is not None
        return self._choose(
            topic,
            key,
            encoded_key,
            value,
            encoded_value,
            self._metadata_seen.cluster,
            queues,
            encoded_size(encoded_key, encoded_value, packed),
        )

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _known(self, topic: str) -> cython.p_void:
        """The queues of a topic, not counted as a reference, or nothing. They live as long as this object's topics.

        Without the GIL even the dict's reference is saved, for up to eight topics whose name is the same object.
        """
        place: cython.size_t = 0
        if FREE_THREADED:
            place = (cython.cast(cython.size_t, cython.cast(cython.p_void, topic)) >> 4) & 7
            known: cython.p_void = self._recent[place]
            acquire_fence()
            if known and cython.cast(TopicQueues, known).topic is topic:
                return known
        queues: TopicQueues | None = self._topics.get(topic)
        if queues is None:
            return cython.cast(cython.p_void, 0)
        if FREE_THREADED and not self._recent[place] and queues.topic is topic:
            # never replaced: another thread may be using it. Two threads may fill it at once; either is right.
            release_fence()
            self._recent[place] = cython.cast(cython.p_void, queues)
        return cython.cast(cython.p_void, queues)

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

    def _send_serialized(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Any,
        partition: Any,
        timestamp_ms: Any,
        callback: Any,
    ) -> RecordFuture:
        """Send a record whose serializers have run by the checked path, which `KafkaProducer` implements."""
        raise TypeError("SendPath sends nothing by itself: use KafkaProducer")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def is_bytes(data: object) -> cython.bint:
    """Whether `data` is None, bytes, or a buffer that ``bytes`` copies."""
    return data is None or type(data) is bytes or type(data) is bytearray or type(data) is memoryview


@cython.cfunc
def whole_number(value: Any) -> cython.longlong:
    """A number from 0 to 2^63 - 1, from an int or an integer type such as numpy's; -1 for anything else."""
    number: cython.longlong = -1
    if type(value) is not int:
        if isinstance(value, bool):
            return -1
        try:
            value = index(value)
        except Exception:
            # a TypeError, or whatever an __index__ of the program raises: the checked path calls it again and raises
            return -1
    if cython.compiled:
        try:
            number = value
        except OverflowError:
            return -1
        return number if number >= 0 else -1
    return value if 0 <= value < 2**63 else -1


def size_of_largest_direct_record(batch_size: int, max_request_bytes: int) -> int:
    """Return the bytes of key and value up to which a record needs no check against ``max.request.size``."""
    return min(batch_size, max_request_bytes) - encoded_size(b"", b"", None)
