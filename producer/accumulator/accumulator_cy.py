# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""Records waiting to be sent: a deque of batches per partition, filled by callers and drained by the sender thread.

This module has the work done per batch. The queues, which the per-record path uses, are in `queues_cy.py`.

Source: Kafka's RecordAccumulator.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from ...network import _cython as cython
from ...network.clock import NEVER_MS
from ...network.cluster import Cluster
from ...network.protocol.errors import ProducerClosedError
from ...network.records.compression import Compression
from ...network.sections import here, interrupted
from .broker_availability import BrokerAvailability
from .buffer_pool_cy import NO_WAIT, MemoryWait
from .flushing import flush_batches
from .size_bounds import SizeBounds
from .stash import Stash, StashedRecord

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from ...network.clock import Clock
    from ...network.memory_order import store_load_fence
    from ...network.records.builder_cy import encoded_size
    from .batch_cy import ProducerBatch, RecordFuture
    from .batch_memory_cy import BatchMemory
    from .buffer_pool_cy import BufferPool, Lease, Turn
    from .compression_estimate_cy import CompressionEstimate
    from .drain_cy import Drain, ReadyCheck
    from .murmur2_cy import murmur2_of
    from .queues_cy import PartitionQueue, TopicQueues, WaitingQueues
elif not TYPE_CHECKING:
    from cython.cimports.headrace.network.memory_order import store_load_fence
    from cython.cimports.headrace.network.records.builder_cy import encoded_size
    from cython.cimports.headrace.network.time_cy import Clock
    from cython.cimports.headrace.producer.accumulator.batch_cy import ProducerBatch, RecordFuture
    from cython.cimports.headrace.producer.accumulator.batch_memory_cy import BatchMemory
    from cython.cimports.headrace.producer.accumulator.buffer_pool_cy import BufferPool, Lease, Turn
    from cython.cimports.headrace.producer.accumulator.compression_estimate_cy import CompressionEstimate
    from cython.cimports.headrace.producer.accumulator.drain_cy import Drain, ReadyCheck
    from cython.cimports.headrace.producer.accumulator.murmur2_cy import murmur2_of
    from cython.cimports.headrace.producer.accumulator.queues_cy import PartitionQueue, TopicQueues, WaitingQueues

# The part of a record's size bound that is for the batch header and for fields at their maximum. The remainder is about
# the record's actual size; a partition's share is counted in these bytes.
SIZE_BOUND_OF_NOTHING: cython.Py_ssize_t = encoded_size(None, None, None) - 8

#: The delivery timeout of a batch starts with its first record. After this share of it the batch takes no more records.
MAX_OPEN_SHARE = 0.1


@cython.final
@cython.cclass
class RecordAccumulator:
    """The records that callers' threads have appended and the sender thread has yet to send.

    Callers use `append`; the sender thread uses `ready`, `drain`, `expired`, `reenqueue` and `release`; any thread but
    the sender's may call `flush`. The `BufferPool` bounds the memory.
    """

    def __init__(
        self,
        *,
        pool: BufferPool,
        batch_size: int,
        max_batch_size: int = 0,
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
        """Create an accumulator without topics.

        `pool`: the memory for batches.
        `batch_size`: bytes of a full batch.
        `max_batch_size`: bytes up to which a full batch grows while it can't be sent; at least `batch_size`.
        `compression`: the codec, for estimating how far a topic's records shrink.
        `linger_ms`: milliseconds a batch waits for more records.
        `retry_backoff`: maps a number of attempts to the milliseconds before the next one.
        `delivery_timeout_ms`: milliseconds from a batch's first record until it expires.
        `clock`: the time source.
        `transactions`: the `TransactionManager` that assigns sequence numbers; None without idempotence.
        `adaptive_partitioning`: prefer partitions with shorter queues (KIP-794).
        `availability_timeout_ms`: with adaptive partitioning, avoid brokers that have been ready without being drained
        for longer than this; 0 disables it.
        `rack`: prefer partitions whose leader is in this rack, for records that may go to any (KIP-1123).
        `keys_choose`: a key determines the partition of a record that names none.
        """
        self.topics = {}
        self.pool = pool
        self.batch_size = batch_size
        self.estimate = CompressionEstimate(compression, batch_size, pool.total_bytes)
        self.linger_ms = linger_ms
        self.retry_backoff = retry_backoff
        self.max_open_ms = max(linger_ms, delivery_timeout_ms * MAX_OPEN_SHARE)
        self.memory = BatchMemory(
            pool=pool,
            estimate=self.estimate,
            max_batch_size=max(max_batch_size, batch_size),
            max_open_ms=self.max_open_ms,
            clock=clock,
        )
        self.bounds = SizeBounds(max(max_batch_size, batch_size))
        #: The nodes with enough requests in flight that full batches may grow first. Set by the sender thread.
        self.busy = frozenset()
        #: When the sender thread looks at the queues again by itself; NEVER_MS: it has to be woken for every new batch.
        self.next_look_ms = NEVER_MS
        self.adaptive = adaptive_partitioning
        #: None if ``partitioner.availability.timeout.ms`` is 0.
        self.availability = BrokerAvailability(availability_timeout_ms) if availability_timeout_ms > 0 else None
        self.rack = rack
        self.clock = clock
        self.wakeup = _no_wakeup
        pool.on_wait = lambda: self.wakeup()  # noqa: PLW0108  (the engine sets `wakeup` later)
        self.waiting = WaitingQueues(linger_ms)
        self.incomplete = {}
        #: A token for each flush; batches don't linger while there is one.
        self.flushes = {}
        self.stash = Stash()
        self.drainer = Drain(
            self.waiting,
            pool=pool,
            stash=self.stash,
            transactions=transactions,
            linger_ms=linger_ms,
            delivery_timeout_ms=delivery_timeout_ms,
            max_open_ms=self.max_open_ms,
        )
        self.keys_choose = keys_choose
        #: Serializes updates of a topic's queues: two threads at once would create two queues for one partition.
        self.updating = threading.Lock()
        self.closed = False

    # --- Callers' threads ---

    def topic_queues(self, topic: str, newest: Callable[[], Cluster], partition: int = 0) -> TopicQueues:
        """The queues of a topic, created on first use and updated from `newest` if they lack `partition`.

        `newest` returns the snapshot that `update_metadata` was last called with, or will be called with next.
        Any thread.
        """
        known = self.topic(topic)
        if known.partition_count <= partition:
            # the sender thread wakes threads that wait for metadata before it updates these queues itself
            with here.section, self.updating:
                if known.partition_count <= partition:
                    # read under the lock: the sender may already have updated this topic from a newer snapshot
                    known.update(newest())
        return known

    def topic(self, topic: str) -> TopicQueues:
        """The queues of a topic, which may have no partitions yet. Takes no lock. Any thread."""
        known = self.topics.get(topic)
        return self.topics.setdefault(topic, TopicQueues(topic, self.rack, self.waiting)) if known is None else known

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
        turn: Turn | None = None,
    ) -> RecordFuture:
        """Append one record, waiting for memory at most `max_block_ms` (NO_WAIT: see `BufferPool.allocate`).

        `partition` -1 means the sticky one. A send from inside a section never waits: it stashes the record for the
        sender thread, and its `topic_queues` may have no partitions yet. Any thread.
        Raises BufferExhaustedError, MessageSizeTooLargeError, ProducerClosedError.
        """
        if interrupted():
            return self._put_aside(topic_queues, partition, timestamp, key, value, headers, callback)
        with here.section:
            if self.stash.waiting and self.stash.holds(topic_queues.topic):
                # records this thread sent earlier, from a finalizer or handler, come before this one
                started_ms: cython.double = self.clock.now_ms()
                self.wakeup()
                self.stash.await_taken_up(topic_queues.topic, self.clock, started_ms + max_block_ms)
                max_block_ms = max(max_block_ms - (self.clock.now_ms() - started_ms), 0.0)
            return self._append(topic_queues, partition, timestamp, key, value, headers, callback, max_block_ms, turn)

    @cython.ccall
    def append_now(
        self,
        topic_queues: TopicQueues,
        partition: cython.Py_ssize_t,
        timestamp: cython.longlong,
        key: bytes | None,
        value: bytes | None,
        headers: bytes | None,
        callback: Callable | None,
    ) -> RecordFuture | None:
        """`append`, if it has to wait for nothing; else None. Any thread."""
        if interrupted() or self.closed:
            return None
        with here.section:
            if self.stash.waiting:
                return None
            try:
                return self._append(topic_queues, partition, timestamp, key, value, headers, callback, NO_WAIT, None)
            except MemoryWait:
                return None

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
        turn: Any,
    ) -> RecordFuture:
        """`append`, in a section. The pool recovers a lease that an exception drops."""
        future: RecordFuture | None
        queue: PartitionQueue
        switched: cython.bint = partition >= 0
        size: cython.Py_ssize_t = encoded_size(key, value, headers)
        try:
            queue = topic_queues.queues[partition] if partition >= 0 else self._sticky_queue(topic_queues, size)
            while True:
                with queue.lock:
                    future = queue.try_append(timestamp, key, value, headers, callback)
                if future is not None:
                    break
                if self._note_full(topic_queues, queue, size) and not switched:
                    switched = True
                    if topic_queues.needs_switch(self.batch_size, size - SIZE_BOUND_OF_NOTHING):
                        # the next records may go to another partition
                        queue = self._switched(topic_queues)
                        continue
                if not self.memory.make_room(queue, size):
                    future = self._open(
                        topic_queues, queue, timestamp, key, value, headers, callback, size, max_block_ms, turn
                    )
                    break
            if partition < 0:
                topic_queues.sticky_bytes += size - SIZE_BOUND_OF_NOTHING
            return cython.cast(RecordFuture, future)
        except BaseException:
            # an exception raised by a signal handler may have dropped a lease, or come before the wake-up
            self.pool.reclaim()
            self.wakeup()
            raise

    @cython.cfunc
    def _open(
        self,
        topic_queues: TopicQueues,
        queue: PartitionQueue,
        timestamp: cython.longlong,
        key: bytes | None,
        value: bytes | None,
        headers: bytes | None,
        callback: object,
        size: cython.Py_ssize_t,
        max_block_ms: cython.double,
        turn: Any,
    ) -> RecordFuture:
        """Append a record to a new batch, or to one that another thread has opened meanwhile. In a section."""
        future: RecordFuture | None = None
        batch: ProducerBatch
        lease: Lease
        closed: cython.bint = False
        adopted: cython.bint = False
        lease = self.pool.allocate(self.memory.first_bytes(topic_queues, queue, size), max_block_ms, turn)
        batch = self.memory.new_batch(topic_queues, queue, size, lease)
        with queue.lock:
            closed = self.closed
            if not closed:
                future = queue.try_append(timestamp, key, value, headers, callback)
                if future is None:
                    future = batch.try_append(timestamp, key, value, headers, callback)
                    # a batch made for one large record has no room for another: it need not linger
                    batch.closed = size >= batch.max_bytes
                    # into the queue first: an incomplete batch in no queue would never be completed
                    queue.add(batch)
                    self.incomplete[batch] = True
                    adopted = True
        if adopted:
            self._wake_for(queue, batch)
        else:
            # meanwhile another thread opened a batch, or the producer was closed
            batch.take_lease()
            self.pool.deallocate(lease)
        if closed:
            raise ProducerClosedError("the producer is closed: create a new one to send on")
        return cython.cast(RecordFuture, future)

    @cython.cfunc
    def _note_full(self, topic_queues: TopicQueues, queue: PartitionQueue, size: cython.Py_ssize_t) -> cython.bint:
        """Whether the queue's open batch is full for a record of `size` bytes; wakes the sender if that is new."""
        is_new: cython.bint
        is_full: cython.bint
        with queue.lock:
            is_new = queue.fill(size)
            is_full = queue.open is None or queue.open.full
        if is_new:
            self.estimate.sample(topic_queues, queue)
        if is_new:
            # as in `_wake_for`
            store_load_fence()
            with cython.critical_section(self):
                busy = self.busy
            if queue.leader_id not in busy:
                # the response of a busy broker wakes the sender anyway
                self.wakeup()
        return is_full

    @cython.cfunc
    def _wake_for(self, queue: PartitionQueue, batch: ProducerBatch) -> object:
        """Wake the sender for a new batch, unless it will look by itself by the time the batch can be sent."""
        # the batch is in its queue before `next_look_ms` is read: in the reverse order of `ready`
        store_load_fence()
        if (
            batch.closed
            or batch.full
            or queue.leader_id < 0
            or len(queue.batches) > 1
            or batch.created_ms + self.linger_ms < self.next_look_ms
            or len(self.flushes) > 0
            or self.closed
        ):
            self.wakeup()
        return None

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
        """Stash a record sent from inside a section, in a batch of its own. Takes no lock."""
        size: cython.Py_ssize_t = encoded_size(key, value, headers)
        self.stash.check_room(size)
        batch: ProducerBatch = ProducerBatch(topic_queues.topic, partition, bytearray(size), self.clock.now_ms())
        future: RecordFuture = cython.cast(RecordFuture, batch.try_append(timestamp, key, value, headers, callback))
        batch.closed = True
        self.incomplete[batch] = True
        self.stash.put(StashedRecord(batch, future, partition, timestamp, key, value, headers))
        # checked last: a sender thread that ends after this check fails every incomplete batch
        if self.closed and self.stash.take_back(batch):
            self.incomplete.pop(batch, None)
            raise ProducerClosedError("the producer is closed: create a new one to send on")
        self.wakeup()
        return future

    def unstash(self) -> list[tuple[ProducerBatch, int]]:
        """Move stashed records to their queues, in order. Sender thread.

        Returns the batches of records that can't be moved yet, each with the partition count of its topic (0: unknown).
        """
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
        """Append a stashed record to its queue's open batch or to a new one, or else enqueue its own batch."""
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
        while future is None:
            self._note_full(topic_queues, queue, size)
            if self.memory.make_room(queue, size):
                with queue.lock:
                    future = queue.try_append(record.timestamp, record.key, record.value, record.headers, None)
                continue
            lease = self.pool.try_allocate(self.memory.first_bytes(topic_queues, queue, size))
            if lease is None:
                own.partition = queue.partition
                with queue.lock:
                    queue.add(own)
                return None
            batch = self.memory.new_batch(topic_queues, queue, size, lease)
            with queue.lock:
                future = batch.try_append(record.timestamp, record.key, record.value, record.headers, None)
                queue.add(batch)
                self.incomplete[batch] = True
        own.move_to(record.future, cython.cast(RecordFuture, future))
        self.incomplete.pop(own, None)
        self.stash.release(own)
        return None

    def reserve(
        self, topic_queues: TopicQueues, partition: int, size: int, max_block_ms: float
    ) -> tuple[PartitionQueue, ProducerBatch]:
        """Return a queue and a new batch for it with room for at least `size` bytes; `partition` -1 is the sticky one.

        For `rows_cy`, which fills batches itself, in a section. Under the queue's lock it fills the open batch if there
        is one, or else calls `adopt` and fills this batch; it passes a batch that it doesn't adopt to `release`.
        Raises what `append` raises.
        """
        queue: PartitionQueue
        lease: Lease
        queue = topic_queues.queues[partition] if partition >= 0 else self._sticky_queue(topic_queues, size)
        lease = self.pool.allocate(self.memory.first_bytes(topic_queues, queue, size), max_block_ms)
        return queue, self.memory.new_batch(topic_queues, queue, size, lease)

    @cython.ccall
    def make_room(
        self, topic_queues: TopicQueues, queue: PartitionQueue, size: cython.Py_ssize_t, is_sticky: cython.bint
    ) -> cython.bint:
        """Make room in a queue's open batch for a row of `size` bytes. False if it needs a new batch.

        For `rows_cy`. If the queue is that of the sticky partition, the next rows may go to another one.
        """
        is_full: cython.bint = self._note_full(topic_queues, queue, size)
        if is_full and is_sticky and topic_queues.sticky_bytes >= self.batch_size:
            self._switched(topic_queues)
            return True
        return self.memory.make_room(queue, size)

    @cython.ccall
    def adopt(self, queue: PartitionQueue, batch: ProducerBatch) -> cython.bint:
        """Make a reserved batch the queue's open one; False if the producer is closed.

        The caller holds the queue's lock until the batch has a record.
        """
        if self.closed:
            return False
        queue.add(batch)
        self.incomplete[batch] = True
        return True

    @cython.cfunc
    def _sticky_queue(self, topic_queues: TopicQueues, size: cython.Py_ssize_t) -> PartitionQueue:
        queue: PartitionQueue = topic_queues.sticky
        if queue is None or (
            queue.open is None and topic_queues.needs_switch(self.batch_size, size - SIZE_BOUND_OF_NOTHING)
        ):
            return self._switched(topic_queues)
        return queue

    @cython.cfunc
    def _switched(self, topic_queues: TopicQueues) -> PartitionQueue:
        """Choose the next sticky partition."""
        # under the lock: the sender thread may be removing partitions
        with here.section, self.updating:
            # as in Java, only adaptive partitioning avoids brokers that drain nothing
            usable = self.availability.is_usable if self.adaptive and self.availability is not None else None
            topic_queues.switch(usable, self.adaptive)
        return topic_queues.sticky

    # --- The sender thread ---

    def update_metadata(self, cluster: Cluster, changed: Collection[str]) -> None:
        """Apply the new partitions and leaders of the topics in `changed`. Called after each metadata update."""
        for topic in changed:
            topic_queues = self.topics.get(topic)
            if topic_queues is not None:
                with here.section, self.updating:
                    topic_queues.update(cluster)

    @cython.ccall
    def ready(self, now_ms: cython.double, busy: Collection[int] = (), again: cython.bint = False) -> ReadyCheck:
        """`Drain.ready`; a pending flush or a closing producer makes every batch sendable."""
        # in this order: a batch whose thread finds its broker busy, or the next look early enough, is seen by `ready`
        self.next_look_ms = NEVER_MS
        with cython.critical_section(self):
            self.busy = busy
        store_load_fence()
        if now_ms >= self.bounds.next_ms:
            self.bounds.raise_due(now_ms)
        return self.drainer.ready(now_ms, busy, self.closed or len(self.flushes) > 0, again)

    @cython.ccall
    def drain(
        self,
        node_id: Any,
        max_bytes: cython.longlong,
        now_ms: cython.double,
        answer_ms: cython.double = 0.0,
        probe: cython.bint = False,
    ) -> list:
        """`Drain.drain`."""
        return self.drainer.drain(node_id, max_bytes, now_ms, answer_ms, probe)

    @cython.ccall
    def expired(self, now_ms: cython.double) -> list:
        """`Drain.expired`."""
        return self.drainer.expired(now_ms)

    @cython.ccall
    def next_expiry_ms(self, now_ms: cython.double) -> cython.double:
        """Milliseconds until `expired` has to be called again."""
        return self.drainer.expiry_look_ms - now_ms if len(self.incomplete) > 0 else NEVER_MS

    def note_compression(self, batch: ProducerBatch, raw_bytes: int, packed_bytes: int) -> None:
        """Update the estimates with a batch that was compressed."""
        self.estimate.note(self.topics[batch.topic], raw_bytes, packed_bytes)
        self.drainer.packed_share = self.estimate.packed_share

    def note_rejected(self, batch: ProducerBatch) -> None:
        """Bound the topic's batches, because the broker rejected this one as too large."""
        topic_queues: TopicQueues = self.topics[batch.topic]
        topic_queues.compression_ratio = 1.0
        self.bounds.rejected(topic_queues, batch.size_bytes, self.clock.now_ms())

    def queue_of(self, batch: ProducerBatch) -> PartitionQueue:
        """The queue a batch belongs to."""
        return self.topics[batch.topic].queues[batch.partition]

    def reenqueue(self, batch: ProducerBatch, now_ms: float) -> None:
        """Put a batch back to the front of its queue for a retry."""
        batch.retry_at_ms = now_ms + self.retry_backoff(batch.attempts)
        batch.attempts += 1
        batch.last_attempt_ms = now_ms
        self.put_back(batch)

    def put_back(self, batch: ProducerBatch) -> None:
        """Put a drained batch back to the front of its queue, in sequence order if it has a sequence."""
        self.drainer.note_deadline(batch)
        queue: PartitionQueue = self.queue_of(batch)
        if batch.has_sequence:
            queue.put_in_sequence(batch)
        else:
            queue.put_in_order(batch)

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Enqueue the parts of a split batch in its place."""
        part: ProducerBatch
        queue: PartitionQueue = self.queue_of(batch)
        self.drainer.note_deadline(batch)
        for part in reversed(parts):
            self.incomplete[part] = True
            if part.has_sequence:
                queue.put_in_sequence(part)
            else:
                queue.put_in_order(part)

    def forget(self, batch: ProducerBatch) -> None:
        """Drop a batch that was split from the incomplete ones; its parts hold its memory."""
        lease: Lease | None = batch.take_lease()
        self.incomplete.pop(batch, None)
        self.stash.release(batch)
        if lease is not None:
            # the parts have their own buffers
            self.pool.drop_buffers(lease)

    @cython.ccall
    def release(self, batch: ProducerBatch) -> object:
        """Return the memory of a batch that is complete and whose buffer nothing reads any longer."""
        self.incomplete.pop(batch, None)
        if self.stash.pending:
            self.stash.release(batch)
        lease: Lease | None = batch.take_lease()
        if lease is not None:
            self.pool.deallocate(lease)
        return None

    def set_muted(self, batch: ProducerBatch, muted: bool) -> None:
        """Mute a partition while one of its batches is in flight; used with one request in flight, no idempotence."""
        queue: PartitionQueue = self.queue_of(batch)
        queue.muted = muted

    def take_everything(self) -> list[ProducerBatch]:
        """Take every waiting batch off, to fail it. Once the accumulator is closed, no batch is added concurrently."""
        queue: PartitionQueue
        topic_queues: TopicQueues
        taken: list = []
        queues: list = self.waiting.all()
        if self.closed:
            # a thread that saw the accumulator open may hold the lock of a queue that isn't active yet
            queues = []
            for topic_queues in list(self.topics.values()):
                queues.extend(topic_queues.queues)
        for queue in queues:
            taken.extend(queue.take_all())
        taken.extend(self.drainer.given_up.take_older(NEVER_MS))
        taken.extend(self.stash.take_back_older(NEVER_MS))
        return taken

    # --- Any thread ---

    @property
    def has_undrained(self) -> bool:
        """Whether any batch waits in a queue."""
        return self.waiting.any()

    @property
    def has_incomplete(self) -> bool:
        """Whether any batch is unacknowledged, or has callbacks that have not returned."""
        return len(self.incomplete) > 0

    @property
    def has_unanswered(self) -> bool:
        """Whether any batch, waiting or in flight, is unacknowledged."""
        return any([not batch.done for batch in list(self.incomplete)])

    def incomplete_batches(self) -> list[ProducerBatch]:
        """A snapshot of the incomplete batches."""
        return list(self.incomplete)

    def flush(self, timeout_ms: float) -> None:
        """Send all batches without lingering and wait until they complete. Any thread but the sender's.

        It doesn't wait for records sent later. Raises KafkaTimeoutError, with the number left, after `timeout_ms`.
        """
        flush_batches(self.incomplete_batches(), self.flushes, self.wakeup, self.clock, timeout_ms)

    def close(self) -> None:
        """Accept no more records, not even those waiting for memory. Pending batches are sent without lingering."""
        self.closed = True
        self.pool.close()


def _no_wakeup() -> None:
    """The wake-up function until the sender sets its own."""
