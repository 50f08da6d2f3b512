# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""The queues of records to be sent: one per partition, and one group per topic that chooses the sticky partition.

Lock order: a queue's lock is the innermost one. It is held to append one record or run of rows, or to take a batch off;
never while waiting for memory, and never while user code runs. Compiled, no Python code runs under it and nothing is
allocated that the garbage collector tracks. So neither a finalizer nor a signal handler can run there, and the
per-record path needs no section (`network.sections`). Interpreted, both can, and callers enter a section first.

Source: Kafka's RecordAccumulator and BuiltInPartitioner (KIP-480, KIP-794).
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...network import _cython as cython
from ...network.chance import random_unit
from ...network.clock import LONG_AGO_MS, NEVER_MS
from ...network.cluster import Cluster, Node
from ...network.records.builder_cy import NO_LIMIT

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from ...network.memory_order import FREE_THREADED, release_fence
    from ...network.records.builder_cy import RecordBatchBuilder
    from .batch_cy import ProducerBatch, RecordFuture
elif not TYPE_CHECKING:
    from cython.cimports.headrace.network.memory_order import FREE_THREADED, release_fence
    from cython.cimports.headrace.network.records.builder_cy import RecordBatchBuilder
    from cython.cimports.headrace.producer.accumulator.batch_cy import ProducerBatch, RecordFuture


@cython.final
@cython.cclass
class WaitingQueues:
    """The queues that have batches, in two tables, so that a turn of the sender need not look at those that linger.

    `lingering`: the queues whose first batch is open, not full, and has a leader, in the order of the times until which
    they linger. All batches linger equally long, so that is the order in which they were opened. (A thread that is
    overtaken may be late by as much.) `active`: all others, in the order in which they are drained.

    Both change under the lock of the queue that is moved, and only the sender thread goes over them. A queue enters one
    before it leaves the other, so a thread without the lock finds it in at least one.
    """

    def __init__(self, linger_ms: float) -> None:
        self.linger_ms = linger_ms
        self.active = {}
        self.lingering = OrderedDict()

    @cython.ccall
    def all(self) -> list:
        """Every queue that has batches, those that need a look first. Sender thread."""
        while True:
            try:
                return list(dict.fromkeys([*self.active, *self.lingering]))
            except RuntimeError:
                # interpreted or without the GIL: another thread has changed one meanwhile
                continue

    @cython.ccall
    def first_lingering(self) -> PartitionQueue | None:
        """The queue that lingers for the shortest time. Sender thread."""
        while len(self.lingering) > 0:
            try:
                return next(iter(self.lingering), None)
            except RuntimeError:
                continue
        return None

    @cython.ccall
    def take_lingered(self, until_ms: cython.double, taken: list) -> cython.double:
        """Make the queues active that linger until `until_ms` at most, and append them to `taken`.

        Returns when the next one has lingered. Sender thread.
        """
        queue: PartitionQueue | None
        while True:
            queue = self.first_lingering()
            if queue is None:
                return NEVER_MS
            with queue.lock:
                if queue.lingers_until_ms > until_ms:
                    return queue.lingers_until_ms
                queue.end_lingering()
            taken.append(queue)

    @cython.ccall
    @cython.exceptval(check=False)
    def any(self) -> cython.bint:
        """Whether any queue has batches. Any thread."""
        return len(self.active) > 0 or len(self.lingering) > 0


@cython.final
@cython.cclass
class PartitionQueue:
    """The batches of one partition, oldest first.

    Invariants, under `lock`: `open`, unless None, is the last batch and accepts records; a queue with batches is among
    the `waiting` ones; before `lingers_until_ms` it is one of those that linger.
    `leader`, its `leader_id` (-1: none) and `leader_epoch` (-1: unknown) are written under the accumulator's lock of
    updates; without it, `leading_node` reads the leader. `muted` belongs to the sender thread.
    """

    def __init__(self, topic: str, partition: int, waiting: WaitingQueues) -> None:
        """A queue without batches, which enters `waiting` when it has any."""
        self.topic = topic
        self.partition = partition
        self.waiting = waiting
        # a list, although batches leave at its front: an empty deque takes 0.7 kB, and most partitions are idle
        self.batches = []
        self.open = None
        if not cython.compiled:
            self.lock = threading.Lock()
        self.leader = None
        self.leader_id = -1
        self.leader_epoch = -1
        self.muted = False
        #: When the first batch has lingered, if nothing else makes it sendable. LONG_AGO_MS: the sender looks at the
        #: queue each turn.
        self.lingers_until_ms = LONG_AGO_MS
        #: The size of its recent batches, for the memory that the next one begins with.
        self.usual_bytes = 0

    @cython.cfunc
    def try_append(
        self,
        timestamp: cython.longlong,
        key: bytes | None,
        value: bytes | None,
        headers: bytes | None,
        callback: object,
    ) -> RecordFuture | None:
        """Append to the open batch; None if there is none or it has no room. Locked."""
        batch: ProducerBatch | None = self.open
        if batch is None:
            return None
        return batch.try_append(timestamp, key, value, headers, callback)

    def close(self, batch: ProducerBatch) -> None:
        """Close this batch if it is open, so that its size is final."""
        with self.lock:
            if self.open is batch:
                self.close_open()

    @cython.cfunc
    def close_open(self) -> object:
        """Close the open batch, if there is one. Locked."""
        if self.open is not None:
            self.open.closed = True
            self.open = None
            self.look()
        return None

    @cython.cfunc
    def look(self) -> object:
        """Let the sender look at the queue in each turn from now on, as it does not only linger. Locked."""
        if self.lingers_until_ms != LONG_AGO_MS:
            self.end_lingering()
        return None

    @cython.cfunc
    def end_lingering(self) -> object:
        """Remove the queue from those that linger, even if an exception came between two steps of entering. Locked."""
        if self.batches:
            self.waiting.active[self] = True
        self.waiting.lingering.pop(self, None)
        self.lingers_until_ms = LONG_AGO_MS
        return None

    @cython.cfunc
    def _leave(self) -> object:
        """The sender need not look at the queue. Locked."""
        if self.lingers_until_ms != LONG_AGO_MS:
            self.lingers_until_ms = LONG_AGO_MS
            self.waiting.lingering.pop(self, None)
        else:
            self.waiting.active.pop(self, None)
        return None

    @cython.cfunc
    def fill(self, size: cython.Py_ssize_t) -> cython.bint:
        """Mark the open batch as full if `size` bytes more make it so. Whether it has just become full. Locked.

        From then on it is ready to be sent, and may grow until it is.
        """
        batch: ProducerBatch | None = self.open
        if (
            batch is None
            or batch.full
            or batch.builder.earlier_bytes + batch.builder.position + size <= batch.full_bytes
        ):
            return False
        batch.full = True
        self.look()
        batch.builder.raise_limit(batch.max_bytes)
        return True

    @cython.cfunc
    def bytes_wanted(self, size: cython.Py_ssize_t, created_after_ms: cython.double) -> cython.Py_ssize_t:
        """The bytes by which to extend the open batch for a record of `size` bytes; 0 if it has room. Locked.

        Closes it and returns -1 if it may not grow that far, or was created at `created_after_ms` or earlier.
        """
        batch: ProducerBatch | None = self.open
        if batch is None:
            return -1
        builder: RecordBatchBuilder = batch.builder
        if builder.position + size <= builder.capacity or builder.next_chunk(size):
            # the second: another thread has extended it meanwhile
            return 0
        left: cython.Py_ssize_t = batch.max_bytes - builder.earlier_bytes - builder.position
        if size > left or batch.created_ms <= created_after_ms:
            self.close_open()
            return -1
        return min(max(size, builder.capacity_bytes), left)

    @cython.ccall
    def add(self, batch: ProducerBatch) -> object:
        """Append a new batch; unless closed, it becomes the open one. Locked.

        A thread that was overtaken, or a stashed record, may bring a batch that is older than the last one. It takes
        the creation time of the last, because the queue is in that order.
        """
        last: ProducerBatch
        if self.batches:
            last = self.batches[len(self.batches) - 1]
            batch.created_ms = max(batch.created_ms, last.created_ms)
            self.close_open()
        elif batch.closed or batch.full or self.leader_id < 0 or self.waiting.linger_ms <= 0.0:
            # first: the batches of a queue in neither table would never be sent
            self.waiting.active[self] = True
        else:
            self.waiting.lingering[self] = True
            self.lingers_until_ms = batch.created_ms + self.waiting.linger_ms
        self.batches.append(batch)
        if not batch.closed:
            self.open = batch
        return None

    @cython.ccall
    def first(self) -> ProducerBatch | None:
        """The oldest batch, without removing it."""
        with self.lock:
            return self.batches[0] if self.batches else None

    def oldest(self, closed_before_ms: float) -> ProducerBatch | None:
        """The oldest batch, without removing it. Closes an open batch created at `closed_before_ms` or earlier."""
        with self.lock:
            if self.open is not None and self.open.created_ms <= closed_before_ms:
                self.close_open()
            return self.batches[0] if self.batches else None

    def first_bytes(self) -> int:
        """Memory of the first batch: the bytes that sending it frees."""
        batch: ProducerBatch | None = self.first()
        return 0 if batch is None else batch.capacity_bytes

    @cython.ccall
    def first_in_time(self, created_from_ms: cython.double) -> ProducerBatch | None:
        """The oldest batch created at `created_from_ms` or later, without removing it; None if all are older.

        The first batch if it has a sequence number, because no other may overtake it.
        """
        with self.lock:
            # by index: an iterator would be tracked by the garbage collector
            place: cython.Py_ssize_t = len(self.batches)
            batch: ProducerBatch
            if place == 0:
                return None
            batch = self.batches[0]
            if batch.created_ms >= created_from_ms or batch.base_sequence >= 0:
                return batch
            batch = self.batches[place - 1]
            if batch.created_ms < created_from_ms:
                return None
            place = 1
            while True:
                batch = self.batches[place]
                if batch.created_ms >= created_from_ms:
                    return batch
                place += 1

    def put_in_order(self, batch: ProducerBatch) -> None:
        """Put a batch that is to be retried before all batches but older ones, which are also to be retried."""
        with self.lock:
            place: cython.Py_ssize_t = 0
            other: ProducerBatch
            while place < len(self.batches):
                other = self.batches[place]
                if other is self.open or other.created_ms >= batch.created_ms:
                    break
                place += 1
            self.batches.insert(place, batch)
            self.waiting.active[self] = True
            self.look()

    def put_in_sequence(self, batch: ProducerBatch) -> None:
        """Insert a batch that is to be retried among the other retries, by its sequence number."""
        with self.lock:
            # by index: an iterator would be tracked by the garbage collector
            place: cython.Py_ssize_t = 0
            other: ProducerBatch
            while place < len(self.batches):
                other = self.batches[place]
                # after 2^31 - 1 sequence numbers wrap to 0
                if other.base_sequence < 0 or (other.base_sequence - batch.base_sequence) & 0x7FFFFFFF < 0x40000000:
                    break
                place += 1
            self.batches.insert(place, batch)
            self.waiting.active[self] = True
            self.look()

    @cython.ccall
    def take_first(self) -> ProducerBatch | None:
        """Remove the oldest batch and close it."""
        with self.lock:
            if not self.batches:
                return None
            batch: ProducerBatch = self.batches.pop(0)
            batch.closed = True
            if batch.attempts == 0 and batch.compression is None:
                self.usual_bytes = (self.usual_bytes + batch.builder.earlier_bytes + batch.builder.position) // 2
            if batch is self.open:
                self.open = None
            # to the end of the line: partitions that don't fit into this request come first in the next one
            self._leave()
            if self.batches:
                self.waiting.active[self] = True
            return batch

    def to_end_of_line(self) -> None:
        """Let the other active queues be drained first. Without batches it is in no line."""
        with self.lock:
            if self.waiting.active.pop(self, None) is not None:
                self.waiting.active[self] = True

    def take_all(self) -> list[ProducerBatch]:
        """Remove every batch, for a producer that closes immediately."""
        taken: list = []
        with self.lock:
            # the list stays: other threads read its length without the lock
            taken.extend(self.batches)
            self.batches.clear()
            self.open = None
            self._leave()
        return taken

    @cython.cfunc
    def backoff_left_ms(self, batch: ProducerBatch, now_ms: cython.double) -> cython.double:
        """Milliseconds a batch still backs off; 0 as soon as the partition has a new leader (KIP-951)."""
        return 0.0 if self.leader_epoch > batch.leader_epoch else batch.retry_at_ms - now_ms

    @cython.cfunc
    def open_since_ms(self) -> cython.double:
        """When the open batch was created; NEVER_MS if there is none."""
        with self.lock:
            return NEVER_MS if self.open is None else self.open.created_ms

    @cython.cfunc
    def leading_node(self) -> Any:
        """The leader, for a thread that does not hold the lock of updates."""
        with cython.critical_section(self):
            return self.leader

    @cython.ccall
    @cython.exceptval(check=False)
    def depth(self) -> cython.Py_ssize_t:
        """The waiting bytes, in numbers of full batches. Takes no lock with the GIL: an estimate is enough."""
        if FREE_THREADED:
            # the open batch could be freed meanwhile
            with self.lock:
                return self._depth()
        return self._depth()

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _depth(self) -> cython.Py_ssize_t:
        batch: ProducerBatch | None = self.open
        depth: cython.Py_ssize_t = len(self.batches)
        if batch is not None and batch.full_bytes > 0:
            depth += (batch.builder.earlier_bytes + batch.builder.position) // batch.full_bytes
        return depth

    def __repr__(self) -> str:
        return f"PartitionQueue({self.topic}-{self.partition}, {len(self.batches)} batches)"


@cython.final
@cython.cclass
class TopicQueues:
    """A topic's queues, and the sticky partition for records without a key.

    `partition_count` is 0 while the topic's partitions aren't known. `queues` never shrinks, so a batch keeps its
    queue. Both are replaced, under the accumulator's lock of updates, when metadata changes; callers read them without
    a lock. A list they may read is therefore never changed and, like a queue, never freed while the topic is there.
    Sticky partitions are preferably led in `rack` (KIP-1123); None: anywhere.
    """

    if not cython.compiled:
        # for type checkers: a PartitionQueue wherever `partition_count` isn't 0
        sticky: Any

    def __init__(self, topic: str, rack: str | None = None, waiting: WaitingQueues | None = None) -> None:
        """No queues yet. `waiting`: the accumulator's; None: an own one, for tests."""
        self.topic = topic
        self.rack = rack
        self._waiting = WaitingQueues(0.0) if waiting is None else waiting
        self.queues = []
        #: The lists that were `queues` before. A topic gets more partitions a few times at most.
        self._former_queues = []
        #: The queues of the partitions with a leader, or of all if none has one, and whose turn it is among them.
        self._led = []
        self._turns = itertools.count()
        self.partition_count = 0
        self.sticky = None
        self.sticky_bytes = 0
        #: The estimated compression ratio; 0 before the first batch.
        self.compression_ratio = 0.0
        #: The size of the largest batch, see `SizeBounds`.
        self.max_batch_bytes = NO_LIMIT

    def update(self, cluster: Cluster) -> None:
        """Apply the topic's metadata. The sender thread, or a caller that waits for the topic's first metadata.

        One thread at a time: the accumulator holds its lock of updates.
        """
        partitions = cluster.partitions_for(self.topic) or ()
        count = len(partitions)
        if count > len(self.queues):
            added = [PartitionQueue(self.topic, index, self._waiting) for index in range(len(self.queues), count)]
            longer = [*self.queues, *added]
            self._former_queues.append(self.queues)
            release_fence()
            self.queues = longer
        known: dict[int, Any] = {info.partition: info for info in partitions}
        queue: PartitionQueue
        for queue in self.queues:
            info = known.get(queue.partition)
            leader = None if info is None else info.leader
            with cython.critical_section(queue):
                queue.leader = leader
            queue.leader_id = -1 if leader is None else leader.id
            queue.leader_epoch = -1 if info is None else info.leader_epoch
            if leader is None:
                with queue.lock:
                    queue.look()
        if count and (self.sticky is None or self.sticky.leader is None or self.sticky.partition >= count):
            self.switch(None, count=count)
        if count:
            led: list = [queue for queue in self.queues[:count] if queue.leader is not None] or self.queues[:count]
            with cython.critical_section(self):
                self._led = led
        # Last, because threads that send use the rest once they see it.
        release_fence()
        self.partition_count = count

    @cython.ccall
    def next_in_turn(self) -> PartitionQueue:
        """The queue for the next record of a round-robin: those with a leader take turns, or all if none has one.

        For a topic whose partitions were known once. Any thread.
        """
        with cython.critical_section(self):
            led: list = self._led
            turn: cython.longlong = next(self._turns)
        return led[turn % len(led)]

    def needs_switch(self, batch_size: int, record_bytes: int) -> bool:
        """Whether the sticky partition has received its share; called when it needs a new batch (KIP-794)."""
        return self.sticky_bytes + record_bytes >= batch_size or self.sticky is None or self.sticky.leader is None

    def switch(self, usable: Callable[[Node], bool] | None, adaptive: bool = True, count: int = 0) -> None:
        """Choose the next sticky partition among those with a leader (KIP-794).

        Prefers partitions with a usable leader, and among these partitions led in `rack`.

        `usable`: whether a leader's batches are drained; None: all are.
        `adaptive`: choose shorter queues with a higher probability.
        `count`: the new number of partitions, if `partition_count` is not updated yet.
        One thread at a time, as for `update`.
        """
        # if the topic has just left the metadata, choose among its former partitions: it may return
        partitions = self.queues[: count or self.partition_count] or self.queues
        candidates: list = [queue for queue in partitions if queue.leader is not None]
        if usable is not None:
            candidates = [queue for queue in candidates if usable(queue.leader)] or candidates
        if self.rack is not None:
            candidates = [queue for queue in candidates if queue.leader.rack == self.rack] or candidates
        if not candidates:
            candidates = partitions
        chosen: PartitionQueue = (
            _choose_shorter(candidates) if adaptive else candidates[int(random_unit() * len(candidates))]
        )
        release_fence()
        self.sticky = chosen
        self.sticky_bytes = 0


@cython.cfunc
def _choose_shorter(candidates: list) -> PartitionQueue:
    """One of the queues at random, in proportion to how much shorter it is than a queue longer than all of them.

    Runs for each batch of records without a key, and looks at every partition of the topic.
    """
    queue: PartitionQueue
    deepest: cython.Py_ssize_t = 0
    total: cython.Py_ssize_t = 0
    depth: cython.Py_ssize_t
    for queue in candidates:
        depth = queue.depth()
        total += depth
        deepest = max(deepest, depth)
    # the places that are left below the ceiling
    left: cython.Py_ssize_t = (deepest + 1) * len(candidates) - total
    place: cython.Py_ssize_t = int(random_unit() * left)
    if deepest == 0:
        return candidates[place]
    for queue in candidates:
        place -= deepest + 1 - queue.depth()
        if place < 0:
            return queue
    # meanwhile other threads have appended
    return candidates[len(candidates) - 1]
