# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""The memory of batches: how much a new one begins with, and how a full one grows while it can't be sent yet.

Theory of operation. A batch begins with a small buffer, or with one of about the size of its partition's recent
batches, and is extended by further ones, each as large as all before it. From ``batch.size`` on it is full: ready to be
sent. A batch that is full takes more records until the sender drains it, up to ``batch.max.size``. So the number of
batches falls as soon as brokers, or the sender, are slower than the program, and an idle partition holds little memory.
Growing never waits: a batch that gets no memory is closed as it is, and the next one waits in line for it.

Source: KIP-782 (batches that grow), KIP-1332 (small first buffers).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...network import _cython as cython

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from ...network.clock import Clock
    from .batch_cy import ProducerBatch
    from .buffer_pool_cy import BufferPool, Lease
    from .compression_estimate_cy import CompressionEstimate
    from .queues_cy import PartitionQueue, TopicQueues
elif not TYPE_CHECKING:
    from cython.cimports.headrace.network.time_cy import Clock
    from cython.cimports.headrace.producer.accumulator.batch_cy import ProducerBatch
    from cython.cimports.headrace.producer.accumulator.buffer_pool_cy import BufferPool, Lease
    from cython.cimports.headrace.producer.accumulator.compression_estimate_cy import CompressionEstimate
    from cython.cimports.headrace.producer.accumulator.queues_cy import PartitionQueue, TopicQueues


@cython.final
@cython.cclass
class BatchMemory:
    """Opens batches and extends them. Callers' threads, in a section and without a queue's lock."""

    def __init__(
        self,
        *,
        pool: BufferPool,
        estimate: CompressionEstimate,
        max_batch_size: int,
        max_open_ms: float,
        clock: Clock,
    ) -> None:
        """`max_batch_size`: bytes up to which a full batch grows. `max_open_ms`: milliseconds until it grows no more.

        `pool`: the memory. `estimate`: the size of a full batch. `clock`: the time source.
        """
        self.pool = pool
        self.estimate = estimate
        self.max_batch_size = max_batch_size
        self.max_open_ms = max_open_ms
        self.clock = clock

    @cython.cfunc
    @cython.exceptval(check=False)
    def full_bytes(self, topic_queues: TopicQueues) -> cython.Py_ssize_t:
        """The size, before compression, of a full batch of the topic."""
        return min(self.estimate.capacity(topic_queues), topic_queues.max_batch_bytes)

    @cython.cfunc
    def first_bytes(
        self, topic_queues: TopicQueues, queue: PartitionQueue, size: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """The bytes of memory that a new batch begins with, for a first record of `size` bytes."""
        wanted: cython.Py_ssize_t = min(queue.usual_bytes // 2, topic_queues.max_batch_bytes)
        wanted = self.pool.chunk_bytes(wanted if wanted > size else size)
        return wanted if wanted <= self.pool.total_bytes else size

    @cython.cfunc
    def new_batch(
        self, topic_queues: TopicQueues, queue: PartitionQueue, size: cython.Py_ssize_t, lease: Lease
    ) -> ProducerBatch:
        """An empty batch in this memory, for a first record of `size` bytes."""
        full: cython.Py_ssize_t = self.full_bytes(topic_queues)
        most: cython.Py_ssize_t = max(full, min(self.max_batch_size, topic_queues.max_batch_bytes))
        batch: ProducerBatch
        if size > most:
            # this record only: more would make it no smaller
            full = most = size
        batch = ProducerBatch(
            queue.topic,
            queue.partition,
            lease.buffer,
            self.clock.now_ms(),
            lease,
            most if size > full else full,
            most,
        )
        batch.full = size >= full
        return batch

    @cython.cfunc
    def make_room(self, queue: PartitionQueue, size: cython.Py_ssize_t) -> cython.bint:
        """Make room in the queue's open batch for a record of `size` bytes. False if it has none: it is closed now."""
        batch: ProducerBatch | None
        lease: Lease | None
        buffer: bytearray | None = None
        wanted: cython.Py_ssize_t
        created_after_ms: cython.double = self.clock.now_ms() - self.max_open_ms
        with queue.lock:
            batch = queue.open
            # read here: a batch that has been drained gives its lease away
            lease = None if batch is None else batch.lease
            wanted = queue.bytes_wanted(size, created_after_ms)
        if batch is None or wanted < 0:
            return False
        if wanted == 0:
            return True
        if lease is not None:
            buffer = self.pool.extend(lease, self.pool.chunk_bytes(wanted))
        with queue.lock:
            # drained meanwhile, it keeps the memory until it completes
            if queue.open is batch:
                if buffer is None:
                    queue.close_open()
                else:
                    batch.builder.attach(buffer)
        return buffer is not None
