# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""The queues that records wait in: one per partition, and a topic's, with the choice of the next sticky partition.

Lock order: a queue's lock is the innermost one. It is held for one append, or for taking a batch off; never while
memory is waited for, and never while user code runs. Compiled, no Python code runs under it and nothing is made that
the garbage collector tracks, so that neither a finalizer nor a signal handler can run there: the per-record path needs
no section (`network.sections`). Interpreted, both can, and callers enter a section first.

Source: Kafka's RecordAccumulator and BuiltInPartitioner (KIP-480, KIP-794).
"""

from __future__ import annotations

import random
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ...network import _cython as cython
from ...network.cluster import Cluster, Node

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from .batch_cy import ProducerBatch, RecordFuture
elif not TYPE_CHECKING:
    from cython.cimports.headrace.producer.accumulator.batch_cy import ProducerBatch, RecordFuture


@cython.final
@cython.cclass
class PartitionQueue:
    """The batches of one partition, oldest first.

    Invariants, under `lock`: `open`, where it isn't None, is the last batch and takes records; a queue with batches
    is in the accumulator's set of active queues. `leader`, its epoch (-1: unknown) and `muted` belong to the sender
    thread.
    """

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.batches = deque()
        self.open = None
        if not cython.compiled:
            self.lock = threading.Lock()
        self.leader = None
        self.leader_epoch = -1
        self.muted = False

    @cython.cfunc
    def try_append(
        self,
        timestamp: cython.longlong,
        key: bytes | None,
        value: bytes | None,
        headers: bytes | None,
        callback: object,
    ) -> RecordFuture | None:
        """Append to the open batch; None where there is none, or where it is full (it is closed then). Locked."""
        batch: ProducerBatch | None = self.open
        if batch is None:
            return None
        future: RecordFuture | None = batch.try_append(timestamp, key, value, headers, callback)
        if future is None:
            batch.closed = True
            self.open = None
        return future

    @cython.ccall
    def add(self, batch: ProducerBatch, active: dict) -> object:
        """Put a new batch at the end; one that isn't closed is the open one. Locked."""
        if self.open is not None:
            self.open.closed = True
            self.open = None
        # first: a queue with batches that nobody looks at would keep them for good
        active[self] = True
        self.batches.append(batch)
        if not batch.closed:
            self.open = batch
        return None

    def first(self) -> ProducerBatch | None:
        """The oldest batch, left where it is."""
        with self.lock:
            return self.batches[0] if self.batches else None

    def put_first(self, batch: ProducerBatch, active: dict) -> None:
        """A batch comes back to be sent again: before all that has not been sent yet."""
        with self.lock:
            self.batches.appendleft(batch)
            active[self] = True

    def put_in_sequence(self, batch: ProducerBatch, active: dict) -> None:
        """A batch comes back and takes the place its sequence number gives it among those that came back before."""
        with self.lock:
            # by index: an iterator would be tracked by the garbage collector
            place: cython.Py_ssize_t = 0
            other: ProducerBatch
            while place < len(self.batches):
                other = self.batches[place]
                # sequence numbers begin again at 0 after 2^31 - 1
                if other.base_sequence < 0 or (other.base_sequence - batch.base_sequence) & 0x7FFFFFFF < 0x40000000:
                    break
                place += 1
            self.batches.insert(place, batch)
            active[self] = True

    def take_first(self, active: dict) -> ProducerBatch | None:
        """Take the oldest batch off; it takes no more records."""
        with self.lock:
            if not self.batches:
                return None
            batch: ProducerBatch = self.batches.popleft()
            batch.closed = True
            if batch is self.open:
                self.open = None
            # to the end of the line: whose batches don't fit into a request comes first into the next one
            active.pop(self, None)
            if self.batches:
                active[self] = True
            return batch

    def take_all(self, active: dict) -> list[ProducerBatch]:
        """Take every batch off: for a producer that closes at once."""
        empty = deque()
        with self.lock:
            taken = self.batches
            self.batches = empty
            self.open = None
            active.pop(self, None)
        return list(taken)

    @cython.cfunc
    def backoff_left_ms(self, batch: ProducerBatch, now_ms: cython.double) -> cython.double:
        """How much longer a batch that came back has to wait: no longer than until there's a new leader (KIP-951)."""
        return 0.0 if self.leader_epoch > batch.leader_epoch else batch.retry_at_ms - now_ms

    def depth(self) -> int:
        """How many batches wait; an estimate when read without the lock, which is all the partitioner needs."""
        return len(self.batches)

    def __repr__(self) -> str:
        return f"PartitionQueue({self.topic}-{self.partition}, {len(self.batches)} batches)"


@cython.final
@cython.cclass
class TopicQueues:
    """A topic's queues and the sticky partition its keyless records go to.

    `partition_count` is 0 while the topic's partitions aren't known; `queues` never shrinks, so a batch keeps its
    queue. Replaced on metadata updates by the sender thread, read by callers. `rack` is where sticky partitions are
    to be led, None for anywhere (KIP-1123).
    """

    if not cython.compiled:
        # for type checkers: a PartitionQueue wherever `partition_count` isn't 0
        sticky: Any

    def __init__(self, topic: str, rack: str | None = None) -> None:
        self.topic = topic
        self.rack = rack
        self.queues = []
        self.partition_count = 0
        self.sticky = None
        self.sticky_bytes = 0
        #: What batches shrink to, as the sender thread estimates it; 0 until the first one was compressed.
        self.compression_ratio = 0.0

    def update(self, cluster: Cluster) -> None:
        """Take over what the metadata say of this topic. Sender thread, or a caller that waits for first metadata."""
        partitions = cluster.partitions_for(self.topic) or ()
        count = len(partitions)
        if count > len(self.queues):
            more = [PartitionQueue(self.topic, index) for index in range(len(self.queues), count)]
            self.queues = self.queues + more
        known: dict[int, Any] = {info.partition: info for info in partitions}
        queue: PartitionQueue
        for queue in self.queues:
            info = known.get(queue.partition)
            queue.leader = None if info is None else info.leader
            queue.leader_epoch = -1 if info is None else info.leader_epoch
        if count and (self.sticky is None or self.sticky.leader is None or self.sticky.partition >= count):
            self.switch(None, count=count)
        # Last, because it is what makes threads that send use the rest.
        self.partition_count = count

    def needs_switch(self, batch_size: int, record_bytes: int) -> bool:
        """Whether the sticky partition has had its share: asked when it needs a new batch (KIP-794)."""
        return self.sticky_bytes + record_bytes >= batch_size or self.sticky is None or self.sticky.leader is None

    def switch(self, usable: Callable[[Node], bool] | None, adaptive: bool = True, count: int = 0) -> None:
        """Choose the next sticky partition among those with a leader, shorter queues being likelier (KIP-794).

        Those whose leaders are usable come first, and of these those that are led in `rack`, as long as there are any.
        `count`: how many partitions there are, where that isn't what is known yet.
        """
        # where the topic has just vanished, one of those that it had: it may return
        partitions = self.queues[: count or self.partition_count] or self.queues
        candidates = [queue for queue in partitions if queue.leader is not None]
        if usable is not None:
            candidates = [queue for queue in candidates if usable(queue.leader)] or candidates
        if self.rack is not None:
            candidates = [queue for queue in candidates if queue.leader.rack == self.rack] or candidates
        if not candidates:
            candidates = partitions
        if adaptive and len(candidates) > 1:
            depths = [queue.depth() for queue in candidates]
            ceiling = max(depths) + 1
            ladder = list(accumulate([ceiling - depth for depth in depths]))
            chosen = candidates[bisect_right(ladder, random.random() * ladder[len(ladder) - 1])]
        else:
            chosen = candidates[int(random.random() * len(candidates))]
        self.sticky = chosen
        self.sticky_bytes = 0
