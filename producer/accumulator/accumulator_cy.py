# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""Records waiting to be sent: a deque of batches per partition, filled by callers and drained by the sender thread.

What is done per batch stands here; the queues themselves, which the per-record path goes through, in `queues_cy.py`.

Source: Kafka's RecordAccumulator.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from ...network import _cython as cython
from ...network.clock import NEVER_MS, Clock
from ...network.cluster import Cluster, Node
from ...network.protocol.errors import KafkaTimeoutError, ProducerClosedError
from ...network.records.batch import RECORD_BATCH_OVERHEAD
from ...network.records.builder_cy import encoded_size
from ...network.records.compression import Compression, compress
from .buffer_pool import BufferPool

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from .batch_cy import ProducerBatch, RecordFuture
    from .queues_cy import PartitionQueue, TopicQueues
elif not TYPE_CHECKING:
    from cython.cimports.headrace.producer.accumulator.batch_cy import ProducerBatch, RecordFuture
    from cython.cimports.headrace.producer.accumulator.queues_cy import PartitionQueue, TopicQueues

# A compressed batch starts with the memory its records are expected to need, at most this many times batch.size.
MAX_CAPACITY_FACTOR = 8

# What the bound of a record's size has in it for the batch and for fields at their largest; the rest is about what a
# record takes, so that a partition's share is counted in bytes of records.
SIZE_BOUND_OF_NOTHING: cython.Py_ssize_t = encoded_size(None, None, None) - 8

# How a topic's estimate of its compression ratio moves, after the first batch, which is believed. Up at once and a step
# beyond, because a batch that turns out too large has to be split; down by a share of the way, so that it settles
# within some ten batches (Kafka's CompressionRatioEstimator takes a fixed step of 0.005, and hundreds of batches).
RATIO_IMPROVING_SHARE = 0.1
RATIO_DETERIORATE_STEP = 0.05

# So many bytes of a topic's first full batch are compressed beforehand, by the thread that filled it: one that sends
# faster than the sender thread compresses would fill all memory with batches that turn out short on the wire.
SAMPLE_BYTES = 16_384


class ReadyCheck(NamedTuple):
    """What `RecordAccumulator.ready` found."""

    nodes: dict[int, Node]
    next_check_ms: float
    leaderless_topics: set[str]


@cython.final
@cython.cclass
class RecordAccumulator:
    """The meeting place of the threads that send and the sender thread.

    Callers use `append`; the sender thread `ready`, `drain`, `expired`, `reenqueue` and `release`; anyone the flush
    calls. Memory is bounded by the `BufferPool` that is passed in.
    """

    topics = cython.declare(dict, visibility="readonly")
    pool = cython.declare(object, visibility="readonly")
    batch_size = cython.declare(cython.Py_ssize_t, visibility="readonly")
    compression: Compression
    linger_ms: cython.double
    retry_backoff: Callable
    delivery_timeout_ms: cython.double
    adaptive: cython.bint
    availability_timeout_ms: cython.double
    rack: str | None
    clock: Clock
    wakeup = cython.declare(object, visibility="public")
    active: dict
    incomplete: dict
    updating: Any
    node_latency: dict
    flushing: Any
    closed: cython.bint
    transactions: Any

    def __init__(
        self,
        *,
        pool: BufferPool,
        batch_size: int,
        compression: Compression,
        linger_ms: float,
        retry_backoff: Callable[[int], float],
        delivery_timeout_ms: float,
        clock: Clock,
        transactions: Any = None,
        adaptive_partitioning: bool = True,
        availability_timeout_ms: float = 0,
        rack: str | None = None,
    ) -> None:
        """`rack`: prefer partitions that are led there for records that may go to any (KIP-1123)."""
        self.topics = {}
        self.pool = pool
        self.batch_size = batch_size
        self.compression = compression
        self.linger_ms = linger_ms
        self.retry_backoff = retry_backoff
        self.delivery_timeout_ms = delivery_timeout_ms
        self.adaptive = adaptive_partitioning
        self.availability_timeout_ms = availability_timeout_ms
        self.rack = rack
        self.clock = clock
        self.transactions = transactions
        self.wakeup = _nobody
        self.active = {}
        self.incomplete = {}
        self.node_latency = {}
        self.flushing = _Counter()
        #: Two threads that grew the same topic's queues at once would make two queues for one partition.
        self.updating = threading.Lock()
        self.closed = False

    # --- Callers' threads ---

    def topic_queues(self, topic: str, newest: Callable[[], Cluster], partition: int = 0) -> TopicQueues:
        """The queues of a topic, made when it is first sent to; from what `newest` gives if they lack `partition`.

        Any thread. `newest` gives the snapshot that `update_metadata` will be called with, or was last.
        """
        known = self.topics.get(topic)
        if known is None:
            known = self.topics.setdefault(topic, TopicQueues(topic, self.rack))
        if known.partition_count <= partition:
            # the sender thread, which updates it too, tells waiting threads of new metadata before it gets to this
            with self.updating:
                if known.partition_count <= partition:
                    # asked for under the lock: were it an older one, the sender might have passed by this topic already
                    known.update(newest())
        return known

    def append(
        self,
        topic_queues: TopicQueues,
        partition: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: bytes | None,
        callback: Callable | None,
        max_block_ms: float,
    ) -> RecordFuture:
        """Append one record, waiting for memory at most `max_block_ms`; `partition` -1 means the sticky one.

        Raises BufferExhaustedError, MessageSizeTooLargeError, ProducerClosedError. Any thread but the sender's.
        """
        future: RecordFuture | None
        batch: ProducerBatch
        queue: PartitionQueue
        size: cython.Py_ssize_t = encoded_size(key, value, headers)
        queue = topic_queues.queues[partition] if partition >= 0 else self._sticky_queue(topic_queues, size)
        with queue.lock:
            future = queue.try_append(timestamp, key, value, headers, callback)
        if future is not None:
            if partition < 0:
                topic_queues.sticky_bytes += size - SIZE_BOUND_OF_NOTHING
            return future
        if partition < 0 and topic_queues.needs_switch(self.batch_size, size - SIZE_BOUND_OF_NOTHING):
            # it is the open batch that turned out to be full: the next one may be opened elsewhere
            queue = self._sticky_queue(topic_queues, size)
        if len(queue.batches) > 0:
            self.wakeup()
            self._sample(topic_queues, queue)
        capacity = self._capacity(topic_queues)
        buffer = self.pool.allocate(capacity if capacity > size else size, max_block_ms)
        batch = ProducerBatch(queue.topic, queue.partition, buffer, self.clock.now_ms())
        try:
            with queue.lock:
                if self.closed:
                    raise ProducerClosedError("the producer is closed: create a new one to send on")
                future = queue.try_append(timestamp, key, value, headers, callback)
                if future is None:
                    future = batch.try_append(timestamp, key, value, headers, callback)
                    self.incomplete[batch] = True
                    queue.open_batch(batch, self.active)
                    buffer = None
                    if size > capacity:
                        # a batch made for one large record has no room for another: it need not linger
                        batch.closed = True
                        queue.open = None
        finally:
            if buffer is not None:
                # another thread opened a batch meanwhile, or the producer closed
                self.pool.deallocate(buffer, len(buffer))
        if partition < 0:
            topic_queues.sticky_bytes += size - SIZE_BOUND_OF_NOTHING
        self.wakeup()
        return cython.cast(RecordFuture, future)

    def reserve(
        self, topic_queues: TopicQueues, partition: int, size: int, max_block_ms: float
    ) -> tuple[PartitionQueue, ProducerBatch]:
        """Memory for a new batch that takes at least `size` bytes, and the queue it is for; -1 is the sticky one.

        For a caller that fills batches by itself (`rows_cy`): under the queue's lock it fills what is open, or else
        this batch after `adopt`; a batch that isn't adopted goes to `release`. Raises as `append` does.
        """
        queue: PartitionQueue
        queue = topic_queues.queues[partition] if partition >= 0 else self._sticky_queue(topic_queues, size)
        if len(queue.batches) > 0:
            self.wakeup()
            self._sample(topic_queues, queue)
        buffer = self.pool.allocate(max(self._capacity(topic_queues), size), max_block_ms)
        return queue, ProducerBatch(queue.topic, queue.partition, buffer, self.clock.now_ms())

    def adopt(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Make a reserved batch the queue's open one. The caller holds the queue's lock until there is a record in it.

        Raises ProducerClosedError.
        """
        if self.closed:
            raise ProducerClosedError("the producer is closed: create a new one to send on")
        self.incomplete[batch] = True
        queue.open_batch(batch, self.active)

    @cython.cfunc
    def _sticky_queue(self, topic_queues: TopicQueues, size: cython.Py_ssize_t) -> PartitionQueue:
        queue: PartitionQueue = topic_queues.sticky
        if queue is None or (
            queue.open is None and topic_queues.needs_switch(self.batch_size, size - SIZE_BOUND_OF_NOTHING)
        ):
            # not among partitions that the sender thread is just about to find gone
            with self.updating:
                # as in Java, brokers that take nothing are passed over by adaptive partitioning only
                usable = self._usable if self.adaptive and self.availability_timeout_ms > 0 else None
                topic_queues.switch(usable, self.adaptive)
            queue = topic_queues.sticky
        return queue

    def _usable(self, node: Node) -> bool:
        """Whether a broker takes batches: not once it has been ready to be sent to for too long (KIP-794)."""
        latency = self.node_latency.get(node.id)
        return latency is None or latency[1] - latency[0] <= self.availability_timeout_ms

    @cython.cfunc
    def _sample(self, topic_queues: TopicQueues, queue: PartitionQueue) -> object:
        """Find out what the topic's records shrink to, where no batch of them was compressed yet."""
        batch: ProducerBatch
        size: cython.Py_ssize_t
        records: bytes = b""
        if self.compression == Compression.NONE or topic_queues.compression_ratio != 0.0:
            return None
        with queue.lock:
            if queue.open is None and queue.batches:
                batch = queue.batches[0]
                size = min(batch.builder.position - RECORD_BATCH_OVERHEAD, SAMPLE_BYTES)
                if batch.compression is None and size >= min(self.batch_size, SAMPLE_BYTES) // 2:
                    records = bytes(batch.builder.buffer[RECORD_BATCH_OVERHEAD : RECORD_BATCH_OVERHEAD + size])
        if records:
            packed: cython.double = len(compress(self.compression, records))
            topic_queues.compression_ratio = min(packed / len(records), 1.0)
        return None

    @cython.cfunc
    def _capacity(self, topic_queues: TopicQueues) -> cython.Py_ssize_t:
        """Bytes for a new batch, so that it fills `batch_size` once it is compressed."""
        if self.compression == Compression.NONE or topic_queues.compression_ratio == 0.0:
            return self.batch_size
        ratio: cython.double = topic_queues.compression_ratio
        factor: cython.double = MAX_CAPACITY_FACTOR if ratio * MAX_CAPACITY_FACTOR < 1.0 else 1.0 / ratio
        capacity: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, int(self.batch_size * max(factor, 1.0)))
        # an eighth of all memory at most, so that an estimate never starves the other partitions
        limit: cython.Py_ssize_t = self.pool.total_bytes // 8
        return max(min(capacity, limit), self.batch_size)

    # --- The sender thread ---

    def update_metadata(self, cluster: Cluster, changed: Collection[str]) -> None:
        """Take over the new partitions and leaders of the topics that have `changed`. Called after each update."""
        for topic in changed:
            topic_queues = self.topics.get(topic)
            if topic_queues is not None:
                with self.updating:
                    topic_queues.update(cluster)

    def ready(self, now_ms: float) -> ReadyCheck:
        """Brokers with something to be sent now, when to look again, and topics whose leader isn't known.

        Sendable is a batch that is full, or has lingered, or is not to wait because memory is exhausted, someone
        flushes or the producer closes; and that does not back off after a failed attempt. That backing off ends when
        the partition gets another leader (KIP-951).
        """
        queue: PartitionQueue
        batch: ProducerBatch | None
        nodes: dict = {}
        leaderless: set = set()
        next_check_ms: cython.double = NEVER_MS
        hurry: cython.bint = self.closed or self.flushing.value > 0 or self.pool.waiting > 0
        now: cython.double = now_ms
        wait_ms: cython.double
        for queue in list(self.active):
            batch = queue.first()
            if batch is None:
                continue
            if queue.leader is None:
                leaderless.add(queue.topic)
                continue
            if queue.muted:
                continue
            if batch.attempts > 0:
                wait_ms = queue.backoff_left_ms(batch, now)
            elif hurry or batch.closed or len(queue.batches) > 1:
                wait_ms = 0.0
            else:
                wait_ms = batch.created_ms + self.linger_ms - now
            if wait_ms <= 0.0:
                nodes[queue.leader.id] = queue.leader
            elif wait_ms < next_check_ms:
                next_check_ms = wait_ms
        return ReadyCheck(nodes, next_check_ms, leaderless)

    def note_ready(self, node_id: int, now_ms: float, drained: bool) -> None:
        """Remember that a broker had records and whether it could take them, for the load-aware partitioner."""
        if self.availability_timeout_ms <= 0:
            return
        latency = self.node_latency.get(node_id)
        if latency is None:
            self.node_latency[node_id] = [now_ms, now_ms]
        else:
            latency[1] = now_ms
            if drained:
                latency[0] = now_ms

    def drain(self, node_id: int, max_bytes: int, now_ms: float) -> list[ProducerBatch]:
        """Take at most one batch per partition off for a broker, `max_bytes` in all (but always one).

        A partition that was served goes to the end of the line, so that none starves when not all fit into a request.
        """
        queue: PartitionQueue
        batch: ProducerBatch | None
        now: cython.double = now_ms
        queues: list = [queue for queue in list(self.active) if queue.leader is not None and queue.leader.id == node_id]
        drained: list = []
        size: cython.Py_ssize_t = 0
        for queue in queues:
            if queue.muted:
                continue
            batch = queue.first()
            if batch is None:
                continue
            if batch.attempts > 0 and queue.backoff_left_ms(batch, now) > 0.0:
                continue
            if drained and size + batch.size_bytes > max_bytes:
                break
            if self.transactions is not None and not self.transactions.may_drain(batch):
                continue
            batch = cython.cast(ProducerBatch, queue.take_first(self.active))
            if self.transactions is not None:
                self.transactions.take_sequence(batch)
            size += batch.size_bytes
            batch.drained_ms = now
            batch.leader_epoch = queue.leader_epoch
            drained.append(batch)
        return drained

    def note_compression(self, batch: ProducerBatch, raw_bytes: int, packed_bytes: int) -> None:
        """Move the topic's estimate of how well its records compress. Batches that were not filled say little of it:
        short ones compress worse."""
        if raw_bytes < self.batch_size // 2:
            return
        topic_queues: TopicQueues = self.topics[batch.topic]
        observed: cython.double = packed_bytes / raw_bytes
        known: cython.double = topic_queues.compression_ratio
        if known == 0.0:
            known = observed
        elif observed > known:
            known = max(min(known + RATIO_DETERIORATE_STEP, 1.0), observed)
        else:
            known += (observed - known) * RATIO_IMPROVING_SHARE
        topic_queues.compression_ratio = known

    def reset_compression(self, batch: ProducerBatch, ratio: float) -> None:
        """The broker found a batch too large: believe this ratio from now on."""
        topic_queues: TopicQueues = self.topics[batch.topic]
        topic_queues.compression_ratio = ratio

    def expired(self, now_ms: float) -> list[ProducerBatch]:
        """Take off every batch that was not delivered within ``delivery.timeout.ms`` of its creation."""
        queue: PartitionQueue
        batch: ProducerBatch | None
        gone: list = []
        for queue in list(self.active):
            while True:
                batch = queue.first()
                if batch is None or now_ms - batch.created_ms < self.delivery_timeout_ms:
                    break
                gone.append(queue.take_first(self.active))
        return gone

    def next_expiry_ms(self, now_ms: float) -> float:
        """Milliseconds until the oldest waiting batch expires."""
        queue: PartitionQueue
        soonest: cython.double = NEVER_MS
        for queue in list(self.active):
            batch = queue.first()
            if batch is not None:
                soonest = min(soonest, batch.created_ms + self.delivery_timeout_ms - now_ms)
        return soonest

    def queue_of(self, batch: ProducerBatch) -> PartitionQueue:
        """The queue a batch belongs to."""
        return self.topics[batch.topic].queues[batch.partition]

    def reenqueue(self, batch: ProducerBatch, now_ms: float) -> None:
        """A batch is to be sent again: back to the front, in sequence order where it has a sequence."""
        batch.retry_at_ms = now_ms + self.retry_backoff(batch.attempts)
        batch.attempts += 1
        batch.last_attempt_ms = now_ms
        queue: PartitionQueue = self.queue_of(batch)
        if batch.has_sequence:
            queue.put_in_sequence(batch, self.active)
        else:
            queue.put_first(batch, self.active)

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """A batch was split: its parts stand where it would have stood."""
        part: ProducerBatch
        queue: PartitionQueue = self.queue_of(batch)
        for part in reversed(parts):
            self.incomplete[part] = True
            if part.has_sequence:
                queue.put_in_sequence(part, self.active)
            else:
                queue.put_first(part, self.active)

    def forget(self, batch: ProducerBatch) -> None:
        """A batch that was split no longer counts as incomplete; its parts have its memory."""
        self.incomplete.pop(batch, None)
        batch.take_buffer()

    def release(self, batch: ProducerBatch) -> None:
        """A batch is complete and nothing reads its buffer any more: give the memory back."""
        self.incomplete.pop(batch, None)
        buffer = batch.take_buffer()
        if buffer is not None:
            self.pool.deallocate(buffer, batch.allocated_bytes)

    def set_muted(self, batch: ProducerBatch, muted: bool) -> None:
        """With one request in flight and no idempotence: hold a partition back while a batch of it is on the way."""
        queue: PartitionQueue = self.queue_of(batch)
        queue.muted = muted

    def take_everything(self) -> list[ProducerBatch]:
        """Take every waiting batch off, to fail it. Once the accumulator is closed, none is added behind its back."""
        queue: PartitionQueue
        topic_queues: TopicQueues
        taken: list = []
        queues: list = list(self.active)
        if self.closed:
            # a thread that saw it open may hold the lock of a queue that isn't active yet
            queues = []
            for topic_queues in list(self.topics.values()):
                queues.extend(topic_queues.queues)
        for queue in queues:
            taken.extend(queue.take_all(self.active))
        return taken

    # --- Any thread ---

    @property
    def has_undrained(self) -> bool:
        """Whether any batch waits in a queue."""
        return len(self.active) > 0

    @property
    def has_incomplete(self) -> bool:
        """Whether any batch has no answer yet, or callbacks that have not returned."""
        return len(self.incomplete) > 0

    @property
    def has_unanswered(self) -> bool:
        """Whether any batch has no answer yet, waiting or in flight."""
        return any([not batch.done for batch in list(self.incomplete)])

    def incomplete_batches(self) -> list[ProducerBatch]:
        """The batches without an answer, as they are now."""
        return list(self.incomplete)

    def flush(self, timeout_ms: float) -> None:
        """Send what is here without lingering and wait until all of it has an answer. Any thread but the sender's.

        Raises KafkaTimeoutError, which says how much is left, where `timeout_ms` passes first.
        """
        deadline_ms = self.clock.now_ms() + timeout_ms
        # first: what others send while it flushes it doesn't wait for
        pending = self.incomplete_batches()
        self.flushing.add(1)
        try:
            self.wakeup()
            while pending:
                batch = pending.pop()
                left_ms = deadline_ms - self.clock.now_ms()
                if batch.wait(max(left_ms, 0.0) / 1000.0):
                    if batch.children is not None:
                        pending.extend([child for _, child in batch.children])
                        continue
                    left_ms = deadline_ms - self.clock.now_ms()
                    if batch.wait_settled(max(left_ms, 0.0) / 1000.0):
                        continue
                left = [other for other in [batch, *pending] if not other.done]
                records = sum([other.count for other in left])
                if left:
                    raise KafkaTimeoutError(
                        f"{records} records in {len(left)} batches were not acknowledged within {timeout_ms / 1000:g} "
                        f"s; they are still being delivered, within delivery.timeout.ms"
                    )
                raise KafkaTimeoutError(
                    f"every record has its answer, but callbacks did not return within {timeout_ms / 1000:g} s"
                )
        finally:
            self.flushing.add(-1)

    def close(self) -> None:
        """Take no more records, not even those that wait for memory. What is here is sent without lingering."""
        self.closed = True
        self.pool.close()


class _Counter:
    """A number that several threads count up and down."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.value = 0

    def add(self, amount: int) -> None:
        with self._lock:
            self.value += amount


def _nobody() -> None:
    """Stands in for the sender's wake-up until there is one."""
