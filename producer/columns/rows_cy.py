# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
# pyright: reportIndexIssue=false, reportOptionalSubscript=false, reportAssignmentType=false
"""The path of rows from whole columns into the partitions' batches.

No Python object is created per row. `Rows` groups the rows by partition, hashing the key column if keys determine the
partition. It then fills the partitions' open batches with runs of rows, with one lock acquisition per batch. The
outcome is reported once per run (`listeners_cy.Run`).
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from ...network import _cython as cython
from ...network.protocol.errors import ProducerClosedError
from ...network.sections import here

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from ...network.records.builder_cy import RecordBatchBuilder
    from ...network.records.columns_cy import BytesColumn, Columns
    from ..accumulator.accumulator_cy import RecordAccumulator
    from ..accumulator.batch_cy import ProducerBatch
    from ..accumulator.listeners_cy import Run
    from ..accumulator.murmur2_cy import murmur2_at
    from ..accumulator.queues_cy import PartitionQueue, TopicQueues
elif not TYPE_CHECKING:
    from cython.cimports.headrace.network.records.builder_cy import RecordBatchBuilder
    from cython.cimports.headrace.network.records.columns_cy import BytesColumn, Columns
    from cython.cimports.headrace.producer.accumulator.accumulator_cy import RecordAccumulator
    from cython.cimports.headrace.producer.accumulator.batch_cy import ProducerBatch
    from cython.cimports.headrace.producer.accumulator.listeners_cy import Run
    from cython.cimports.headrace.producer.accumulator.murmur2_cy import murmur2_at
    from cython.cimports.headrace.producer.accumulator.queues_cy import PartitionQueue, TopicQueues

# A batch with fewer bytes left than this is full; the shortest record takes about a third of them.
LEAST_ROOM: cython.Py_ssize_t = 32


def group(indices: Any, groups: int) -> tuple[array[int], array[int]]:
    """Sort rows by the group that `indices` assigns them; return the row numbers, and where each group begins.

    The order within a group is kept. Both arrays are of 64-bit integers. Raises IndexError for an index that is not
    below `groups`.
    """
    chosen: cython.const[cython.longlong][::1] = indices  # pyright: ignore
    last: cython.longlong = groups - 1
    rows: cython.Py_ssize_t = len(indices)
    order_array = array("q", bytes(8 * rows))
    begins_array = array("q", bytes(8 * (groups + 2)))
    order: cython.longlong[::1] = order_array  # pyright: ignore
    begins: cython.longlong[::1] = begins_array  # pyright: ignore
    row: cython.Py_ssize_t
    place: cython.Py_ssize_t
    for row in range(rows):
        if not 0 <= chosen[row] <= last:
            raise IndexError(f"row {row} belongs to group {chosen[row]} of {groups}")
        begins[chosen[row] + 2] += 1
    for place in range(2, groups + 2):
        begins[place] += begins[place - 1]
    # begins[g + 1] is the beginning of group g; each row advances it, so that it ends up as the end of the group
    for row in range(rows):
        place = begins[chosen[row] + 1]
        order[place] = row
        begins[chosen[row] + 1] = place + 1
    return order_array, begins_array


@cython.final
@cython.cclass
class Rows:
    """Rows for one topic, in row order within each partition; those without a partition come first."""

    if not cython.compiled:
        order: Any
        groups: Any

    def __init__(self, columns: Columns, subset: Any, partition_count: int, keys_choose: bool) -> None:
        """Group the rows by partition.

        `subset`: the numbers of the rows for this topic, as 64-bit integers; None: all. `keys_choose`: a row's key
        determines its partition.
        """
        self.columns = columns
        self.partition_count = partition_count
        chosen_array = self._choose(subset, keys_choose)
        order_array, groups_array = group(chosen_array, partition_count + 1)
        self.order_array = order_array
        self.order = order_array
        if subset is not None:
            self._number_within(subset)
        self.groups = groups_array

    def _choose(self, subset: Any, keys_choose: bool) -> Any:
        """For each row, the partition it names or its key determines, plus 1; 0 if it may go to any."""
        columns: Columns = self.columns
        length: cython.Py_ssize_t = columns.length if subset is None else len(subset)
        chosen_array = array("q", bytes(8 * length))
        chosen: cython.longlong[::1] = chosen_array  # pyright: ignore
        by_key: cython.bint = keys_choose and columns.key is not None
        some: cython.bint = subset is not None
        rows: cython.const[cython.longlong][::1] = subset if some else chosen_array  # pyright: ignore
        partitions = columns.partitions
        named: cython.bint = columns.has_partitions
        count: cython.uint = self.partition_count
        place: cython.Py_ssize_t
        row: cython.longlong
        if by_key:
            key: BytesColumn = columns.key
            starts = key.starts
            sizes = key.sizes
        if not by_key and not named:
            return chosen_array
        for place in range(length):
            row = rows[place] if some else place
            if named and partitions[row] >= 0:
                chosen[place] = partitions[row] + 1
            elif by_key and sizes[row] >= 0:  # pyright: ignore
                chosen[place] = 1 + (_murmur2(key, starts[row], sizes[row]) & 0x7FFFFFFF) % count  # pyright: ignore
        return chosen_array

    def _number_within(self, subset: Any) -> None:
        """Replace the places in `subset` by the row numbers there."""
        rows: cython.const[cython.longlong][::1] = subset  # pyright: ignore
        order = self.order
        place: cython.Py_ssize_t
        for place in range(len(subset)):
            order[place] = rows[order[place]]

    def append_to(
        self, accumulator: RecordAccumulator, topic_queues: TopicQueues, target: Any, max_block_ms: float
    ) -> None:
        """Append every row, waiting at most `max_block_ms` for the memory of each batch. Any thread but the sender's.

        When the batch of a run completes, ``target.settle(batch, start, count, place)`` is called; `place` is that of
        the run's first row in `order_array`. Raises what `RecordAccumulator.reserve` raises; ``target.place`` is then
        the place of the first row that was not appended.
        """
        with here.section:
            self._append_to(accumulator, topic_queues, target, max_block_ms)

    @cython.cfunc
    def _append_to(
        self, accumulator: RecordAccumulator, topic_queues: TopicQueues, target: Any, max_block_ms: Any
    ) -> object:
        partition: cython.Py_ssize_t
        place: cython.Py_ssize_t
        end: cython.Py_ssize_t
        queue: PartitionQueue
        for partition in range(-1, self.partition_count):
            place = self.groups[partition + 1]
            end = self.groups[partition + 2]
            while place < end:
                queue = topic_queues.queues[partition] if partition >= 0 else topic_queues.sticky
                place = self._fill_open(queue, topic_queues, partition < 0, target, place, end)
                if place < end and not accumulator.make_room(
                    topic_queues, queue, self.columns.size_bound(self.order[place]), partition < 0
                ):
                    target.place = place
                    place = self._fill_new(accumulator, topic_queues, partition, target, place, end, max_block_ms)
        return None

    @cython.cfunc
    def _fill_open(
        self,
        queue: PartitionQueue,
        topic_queues: TopicQueues,
        free: cython.bint,
        target: object,
        place: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Fill the open batch of a queue, if there is one; return the place of the first row not appended.

        `free`: the rows name no partition, so their bytes count toward the share of the topic's sticky partition.
        """
        # created before the lock is taken: nothing is allocated under it
        run: Run = Run(target)
        with queue.lock:
            if queue.open is not None:
                place = self._fill(queue.open, topic_queues, free, run, place, end)
        return place

    @cython.cfunc
    def _fill_new(
        self,
        accumulator: RecordAccumulator,
        topic_queues: TopicQueues,
        partition: cython.Py_ssize_t,
        target: Any,
        place: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        max_block_ms: Any,
    ) -> cython.Py_ssize_t:
        """Fill a new batch, or one that another thread has opened meanwhile; return as `_fill_open` does."""
        queue: PartitionQueue
        batch: ProducerBatch
        run: Run = Run(target)
        adopted: cython.bint = False
        closed: cython.bint = False
        queue, batch = accumulator.reserve(
            topic_queues, partition, self.columns.size_bound(self.order[place]), max_block_ms
        )
        with queue.lock:
            if queue.open is not None:
                place = self._fill(queue.open, topic_queues, partition < 0, run, place, end)
            else:
                # filled first: a signal handler's exception must not leave an empty batch in the queue
                place = self._fill(batch, topic_queues, partition < 0, run, place, end)
                # without room for another row it need not linger
                batch.closed = batch.builder.earlier_bytes + batch.builder.position + LEAST_ROOM > batch.max_bytes
                adopted = accumulator.adopt(queue, batch)
                closed = not adopted
        if adopted:
            accumulator.wakeup()
        else:
            accumulator.release(batch)
        if closed:
            raise ProducerClosedError("the producer is closed: create a new one to send on")
        return place

    @cython.cfunc
    def _fill(
        self,
        batch: ProducerBatch,
        topic_queues: TopicQueues,
        free: cython.bint,
        run: Run,
        place: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Encode rows into a batch as far as it has room; return as `_fill_open` does.

        The caller holds the queue's lock.
        """
        builder: RecordBatchBuilder = batch.builder
        before: cython.Py_ssize_t = builder.earlier_bytes + builder.position
        run.start = builder.count
        run.place = place
        place = builder.append_rows(self.columns, self.order, place, end)
        run.count = place - run.place
        if run.count > 0:
            run.next = batch.runs
            batch.runs = run
        if free:
            topic_queues.sticky_bytes += builder.earlier_bytes + builder.position - before
        return place


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _murmur2(column: BytesColumn, start: cython.longlong, size: cython.longlong) -> cython.uint:
    if size == 0:
        return murmur2_at(b"", 0)
    if cython.compiled:
        return murmur2_at(cython.address(column.data[start]), size)
    else:
        return murmur2_at(column.data[start : start + size], size)
