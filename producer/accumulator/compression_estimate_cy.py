# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""An estimate of each topic's compression ratio, so that compressed batches fill ``batch.size``.

Source: Kafka's CompressionRatioEstimator, which approaches the ratio from 1.0 in fixed steps. This one starts from a
sample of the first full batch: otherwise a program that sends faster than it compresses would fill all memory with
batches that are small once compressed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...network import _cython as cython
from ...network.records.compression import Compression, compress

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from .batch_cy import ProducerBatch
    from .queues_cy import PartitionQueue, TopicQueues
elif not TYPE_CHECKING:
    from cython.cimports.headrace.producer.accumulator.batch_cy import ProducerBatch
    from cython.cimports.headrace.producer.accumulator.queues_cy import PartitionQueue, TopicQueues

# A batch that will be compressed is full at the size its records are expected to need for batch.size on the wire, at
# most this many times batch.size.
MAX_CAPACITY_FACTOR = 8

# How the estimate moves after the first batch. It rises immediately and by at least a step, because a batch that is too
# large has to be split. It falls by a share of the difference, so that it settles within about ten batches.
RATIO_IMPROVING_SHARE = 0.1
RATIO_DETERIORATE_STEP = 0.05

# A request takes at most 1 / MIN_SHARE times its maximum size before compression. With more, its batches would wait
# for each other for longer than a larger request saves.
MIN_SHARE = 0.25

# The thread that fills a topic's first batch compresses this many bytes of it as a sample.
SAMPLE_BYTES = 16_384


@cython.final
@cython.cclass
class CompressionEstimate:
    """Estimates the ratios in `TopicQueues.compression_ratio`, which are 0 until a topic's first batch.

    `sample` and `capacity` are for callers' threads, `note` for the sender thread.
    """

    def __init__(self, compression: Compression, batch_size: int, buffer_memory: int) -> None:
        self.compresses = compression is not Compression.NONE
        self.compression = compression
        self.batch_size = batch_size
        #: The ratio of the last batches of all topics together, at least MIN_SHARE.
        self.packed_share = 1.0
        # at most an eighth of all memory, so that an estimate never starves other partitions
        self.largest_bytes = max(buffer_memory // 8, batch_size)

    @cython.cfunc
    @cython.exceptval(check=False)
    def capacity(self, topic_queues: TopicQueues) -> cython.Py_ssize_t:
        """The size of a full batch before it is compressed."""
        ratio: cython.double = topic_queues.compression_ratio
        if not self.compresses or ratio == 0.0:
            return self.batch_size
        factor: cython.double = MAX_CAPACITY_FACTOR if ratio * MAX_CAPACITY_FACTOR < 1.0 else 1.0 / ratio
        capacity: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, int(self.batch_size * max(factor, 1.0)))
        return min(capacity, self.largest_bytes)

    @cython.cfunc
    def sample(self, topic_queues: TopicQueues, queue: PartitionQueue) -> object:
        """Compress part of the queue's open batch, which is full, if the topic has no estimate yet. In a section."""
        batch: ProducerBatch | None
        records: bytes = b""
        if not self.compresses or topic_queues.compression_ratio != 0.0:
            return None
        with queue.lock:
            batch = queue.open
            if batch is not None:
                records = batch.builder.first_records(SAMPLE_BYTES)
        if len(records) > 0 and len(records) >= min(self.batch_size, SAMPLE_BYTES) // 2:
            packed: cython.double = len(compress(self.compression, records))
            topic_queues.compression_ratio = min(packed / len(records), 1.0)
        return None

    def note(self, topic_queues: TopicQueues, raw_bytes: int, packed_bytes: int) -> None:
        """Update the estimates with one batch. Small batches compress worse and don't change their topic's."""
        observed: cython.double = packed_bytes / raw_bytes
        weight: cython.double = min(cython.cast(cython.double, raw_bytes) / max(self.batch_size, 1), 1.0)
        self.packed_share += (observed - self.packed_share) * RATIO_IMPROVING_SHARE * weight
        self.packed_share = max(self.packed_share, MIN_SHARE)
        if raw_bytes < self.batch_size // 2:
            return
        known: cython.double = topic_queues.compression_ratio
        if known == 0.0:
            known = observed
        elif observed > known:
            known = max(min(known + RATIO_DETERIORATE_STEP, 1.0), observed)
        else:
            known += (observed - known) * RATIO_IMPROVING_SHARE
        topic_queues.compression_ratio = known
