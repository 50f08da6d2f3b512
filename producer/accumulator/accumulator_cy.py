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
from ...network.records.builder_cy import encoded_size
from ...network.records.compression import Compression
from ...network.sections import here, interrupted
from ..threads import check_may_wait
from .stash import Stash, StashedRecord

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from .batch_cy import ProducerBatch, RecordFuture
    from .buffer_pool_cy import BufferPool, Lease
    from .compression_estimate_cy import CompressionEstimate
    from .murmur2_cy import murmur2_of
    from .queues_cy import PartitionQueue, TopicQueues
elif not TYPE_CHECKING:
    from cython.cimports.headrace.producer.accumulator.batch_cy import ProducerBatch, RecordFuture
    from cython.cimports.headrace.producer.accumulator.buffer_pool_cy import Lease
    from cython.cimports.headrace.producer.accumulator.compression_estimate_cy import CompressionEstimate
    from cython.cimports.headrace.producer.accumulator.murmur2_cy import murmur2_of
    from cython.cimports.headrace.producer.accumulator.queues_cy import PartitionQueue, TopicQueues

    from .buffer_pool_cy import BufferPool

# What the bound of a record's size has in it for the batch and for fields at their largest; the rest is about what a
# record takes, so that a partition's share is counted in bytes of records.
SIZE_BOUND_OF_NOTHING: cython.Py_ssize_t = encoded_size(None, None, None) - 8


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
        keys_choose: bool = True,
    ) -> None:
        """`keys_choose`: a key decides on the partition of a record that names none. `rack`: prefer partitions that
        are led there for records that may go to any (KIP-1123)."""
        self.topics = {}
        self.pool = pool
        self.batch_size = batch_size
        self.estimate = CompressionEstimate(compression, batch_size, pool.total_bytes)
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
        #: A token for each thread that flushes.
        self.flushes = {}
        self.stash = Stash()
        self.keys_choose = keys_choose
        #: Two threads that grew the same topic's queues at once would make two queues for one partition.
        self.updating = threading.Lock()
        self.closed = False

    # --- Callers' threads ---

    def topic_queues(self, topic: str, newest: Callable[[], Cluster], partition: int = 0) -> TopicQueues:
        """The queues of a topic, made when it is first sent to; from what `newest` gives if they lack `partition`.

        Any thread. `newest` gives the snapshot that `update_metadata` will be called with, or was last.
        """
        known = self.topic(topic)
        if known.partition_count <= partition:
            # the sender thread, which updates it too, tells waiting threads of new metadata before it gets to this
            with here.section, self.updating:
                if known.partition_count <= partition:
                    # asked for under the lock: were it an older one, the sender might have passed by this topic already
                    known.update(newest())
        return known

    def topic(self, topic: str) -> TopicQueues:
        """The queues of a topic, perhaps without partitions yet. Takes no lock. Any thread."""
        known = self.topics.get(topic)
        return self.topics.setdefault(topic, TopicQueues(topic, self.rack)) if known is None else known

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

        A send from inside a section is put aside for the sender thread, and never waits; in it `topic_queues` may have
        no partitions yet. Raises BufferExhaustedError, MessageSizeTooLargeError, ProducerClosedError. Any thread.
        """
        future: RecordFuture
        if interrupted():
            return self._put_aside(topic_queues, partition, timestamp, key, value, headers, callback)
        with here.section:
            if self.stash.waiting and self.stash.holds(topic_queues.topic):
                # what this thread has sent before, from a finalizer or handler, comes before this record
                started_ms: cython.double = self.clock.now_ms()
                self.wakeup()
                self.stash.await_taken_up(topic_queues.topic, self.clock, started_ms + max_block_ms)
                max_block_ms = max(max_block_ms - (self.clock.now_ms() - started_ms), 0.0)
            try:
                future = self._append(topic_queues, partition, timestamp, key, value, headers, callback, max_block_ms)
            except BaseException:
                # what an exception of a signal handler dropped on its way out
                self.pool.reclaim()
                raise
        return future

    @cython.cfunc
    def _append(
        self,
        topic_queues: TopicQueues,
        partition: cython.Py_ssize_t,
        timestamp: cython.longlong,
        key: bytes | None,
        value: bytes | None,
        headers: bytes | None,
        callback: object,
        max_block_ms: cython.double,
    ) -> RecordFuture:
        """`append` in a section. A lease that is dropped by an exception goes back to the pool by itself."""
        future: RecordFuture | None
        batch: ProducerBatch
        queue: PartitionQueue
        lease: Lease
        closed: cython.bint = False
        adopted: cython.bint = False
        size: cython.Py_ssize_t = encoded_size(key, value, headers)
        queue = topic_queues.queues[partition] if partition >= 0 else self._sticky_queue(topic_queues, size)
        with queue.lock:
            future = queue.try_append(timestamp, key, value, headers, callback)
        if future is None:
            if partition < 0 and topic_queues.needs_switch(self.batch_size, size - SIZE_BOUND_OF_NOTHING):
                # it is the open batch that turned out to be full: the next one may be opened elsewhere
                queue = self._sticky_queue(topic_queues, size)
            if len(queue.batches) > 0:
                self.wakeup()
                self.estimate.sample(topic_queues, queue)
            capacity: cython.Py_ssize_t = self.estimate.capacity(topic_queues)
            lease = self.pool.allocate(capacity if capacity > size else size, max_block_ms)
            batch = ProducerBatch(queue.topic, queue.partition, lease.buffer, self.clock.now_ms(), lease)
            with queue.lock:
                closed = self.closed
                if not closed:
                    future = queue.try_append(timestamp, key, value, headers, callback)
                    if future is None:
                        future = batch.try_append(timestamp, key, value, headers, callback)
                        # a batch made for one large record has no room for another: it need not linger
                        batch.closed = size > capacity
                        # into the queue first: what is incomplete and in no queue would never be completed
                        queue.add(batch, self.active)
                        self.incomplete[batch] = True
                        adopted = True
            if adopted:
                self.wakeup()
            else:
                # another thread opened a batch meanwhile, or the producer closed
                batch.take_lease()
                self.pool.deallocate(lease)
            if closed:
                raise ProducerClosedError("the producer is closed: create a new one to send on")
        if partition < 0:
            topic_queues.sticky_bytes += size - SIZE_BOUND_OF_NOTHING
        return cython.cast(RecordFuture, future)

    @cython.cfunc
    def _put_aside(
        self,
        topic_queues: TopicQueues,
        partition: cython.Py_ssize_t,
        timestamp: cython.longlong,
        key: bytes | None,
        value: bytes | None,
        headers: bytes | None,
        callback: object,
    ) -> RecordFuture:
        """A record that was sent from inside a section: into the stash, in a batch of its own. Takes no lock."""
        size: cython.Py_ssize_t = encoded_size(key, value, headers)
        self.stash.check_room(size)
        batch: ProducerBatch = ProducerBatch(topic_queues.topic, partition, bytearray(size), self.clock.now_ms())
        future: RecordFuture = cython.cast(RecordFuture, batch.try_append(timestamp, key, value, headers, callback))
        batch.closed = True
        self.incomplete[batch] = True
        self.stash.put(StashedRecord(batch, future, partition, timestamp, key, value, headers))
        # looked at last: a sender thread that ends after this look fails everything that is incomplete
        if self.closed and self.stash.take_back(batch):
            self.incomplete.pop(batch, None)
            raise ProducerClosedError("the producer is closed: create a new one to send on")
        self.wakeup()
        return future

    def unstash(self) -> list[tuple[ProducerBatch, int]]:
        """Take up stashed records, in their order; returns the batches of those that can't be yet, each with the
        number of partitions of its topic (0: not known yet). Sender thread."""
        topic_queues: TopicQueues
        count: cython.Py_ssize_t
        left: list = []
        for record in list(self.stash.waiting):
            topic_queues = self.topics[record.batch.topic]
            count = topic_queues.partition_count
            if count == 0 or record.partition >= count:
                left.append((record.batch, count))
            else:
                self._take_up(record, topic_queues, count)
                self.stash.waiting.remove(record)
        self.stash.note_taken_up()
        return left

    @cython.cfunc
    def _take_up(self, record: StashedRecord, topic_queues: TopicQueues, count: cython.Py_ssize_t) -> object:
        """Append a stashed record to its queue's open batch, to a new one, or else enqueue its own."""
        own: ProducerBatch = record.batch
        queue: PartitionQueue
        batch: ProducerBatch
        lease: Lease | None
        future: RecordFuture | None
        partition: cython.Py_ssize_t = record.partition
        size: cython.Py_ssize_t = own.capacity_bytes
        if partition >= 0:
            queue = topic_queues.queues[partition]
        elif record.key is not None and self.keys_choose:
            queue = topic_queues.queues[(murmur2_of(record.key) & 0x7FFFFFFF) % count]
        else:
            queue = self._sticky_queue(topic_queues, size)
            topic_queues.sticky_bytes += size - SIZE_BOUND_OF_NOTHING
        with queue.lock:
            future = queue.try_append(record.timestamp, record.key, record.value, record.headers, None)
        if future is None:
            capacity: cython.Py_ssize_t = self.estimate.capacity(topic_queues)
            lease = self.pool.try_allocate(capacity) if capacity >= size else None
            if lease is None:
                own.partition = queue.partition
                with queue.lock:
                    queue.add(own, self.active)
                return None
            batch = ProducerBatch(queue.topic, queue.partition, lease.buffer, self.clock.now_ms(), lease)
            with queue.lock:
                future = batch.try_append(record.timestamp, record.key, record.value, record.headers, None)
                queue.add(batch, self.active)
                self.incomplete[batch] = True
        own.move_to(record.future, cython.cast(RecordFuture, future))
        self.incomplete.pop(own, None)
        self.stash.release(own)
        return None

    def reserve(
        self, topic_queues: TopicQueues, partition: int, size: int, max_block_ms: float
    ) -> tuple[PartitionQueue, ProducerBatch]:
        """Memory for a new batch that takes at least `size` bytes, and the queue it is for; -1 is the sticky one.

        For a caller that fills batches by itself (`rows_cy`), in a section: under the queue's lock it fills what is
        open, or else this batch after `adopt`; a batch that isn't adopted goes to `release`. Raises as `append` does.
        """
        queue: PartitionQueue
        lease: Lease
        queue = topic_queues.queues[partition] if partition >= 0 else self._sticky_queue(topic_queues, size)
        if len(queue.batches) > 0:
            self.wakeup()
            self.estimate.sample(topic_queues, queue)
        lease = self.pool.allocate(max(self.estimate.capacity(topic_queues), size), max_block_ms)
        return queue, ProducerBatch(queue.topic, queue.partition, lease.buffer, self.clock.now_ms(), lease)

    @cython.ccall
    def adopt(self, queue: PartitionQueue, batch: ProducerBatch) -> cython.bint:
        """Make a reserved batch the queue's open one; False if the producer is closed. The caller holds the queue's
        lock until there is a record in it."""
        if self.closed:
            return False
        queue.add(batch, self.active)
        self.incomplete[batch] = True
        return True

    @cython.cfunc
    def _sticky_queue(self, topic_queues: TopicQueues, size: cython.Py_ssize_t) -> PartitionQueue:
        queue: PartitionQueue = topic_queues.sticky
        if queue is None or (
            queue.open is None and topic_queues.needs_switch(self.batch_size, size - SIZE_BOUND_OF_NOTHING)
        ):
            # not among partitions that the sender thread is just about to find gone
            with here.section, self.updating:
                # as in Java, brokers that take nothing are passed over by adaptive partitioning only
                usable = self._usable if self.adaptive and self.availability_timeout_ms > 0 else None
                topic_queues.switch(usable, self.adaptive)
            queue = topic_queues.sticky
        return queue

    def _usable(self, node: Node) -> bool:
        """Whether a broker takes batches: not once it has been ready to be sent to for too long (KIP-794)."""
        latency = self.node_latency.get(node.id)
        return latency is None or latency[1] - latency[0] <= self.availability_timeout_ms

    # --- The sender thread ---

    def update_metadata(self, cluster: Cluster, changed: Collection[str]) -> None:
        """Take over the new partitions and leaders of the topics that have `changed`. Called after each update."""
        for topic in changed:
            topic_queues = self.topics.get(topic)
            if topic_queues is not None:
                with here.section, self.updating:
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
        hurry: cython.bint = self.closed or len(self.flushes) > 0 or self.pool.waiting > 0
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
        """A batch was compressed: move its topic's estimate."""
        self.estimate.note(self.topics[batch.topic], raw_bytes, packed_bytes)

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
        for batch in [record.batch for record in list(self.stash.waiting)]:
            if now_ms - batch.created_ms >= self.delivery_timeout_ms and self.stash.take_back(batch):
                gone.append(batch)
        return gone

    def next_expiry_ms(self, now_ms: float) -> float:
        """Milliseconds until the oldest waiting batch expires."""
        queue: PartitionQueue
        soonest: cython.double = NEVER_MS
        for queue in list(self.active):
            batch = queue.first()
            if batch is not None:
                soonest = min(soonest, batch.created_ms + self.delivery_timeout_ms - now_ms)
        for batch in [record.batch for record in list(self.stash.waiting)]:
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
        lease: Lease | None = batch.take_lease()
        self.incomplete.pop(batch, None)
        self.stash.release(batch)
        if lease is not None:
            # the parts have buffers of their own
            lease.buffer = None

    def release(self, batch: ProducerBatch) -> None:
        """A batch is complete and nothing reads its buffer any more: give the memory back."""
        self.incomplete.pop(batch, None)
        self.stash.release(batch)
        lease = batch.take_lease()
        if lease is not None:
            self.pool.deallocate(lease)

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
        for batch in [record.batch for record in list(self.stash.waiting)]:
            if self.stash.take_back(batch):
                taken.append(batch)
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
        if pending:
            check_may_wait("flush")
        token = object()
        try:
            self.flushes[token] = True
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
            self.flushes.pop(token, None)

    def close(self) -> None:
        """Take no more records, not even those that wait for memory. What is here is sent without lingering."""
        self.closed = True
        self.pool.close()


def _nobody() -> None:
    """Stands in for the sender's wake-up until there is one."""
