# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
# pyright: reportIndexIssue=false, reportOptionalSubscript=false, reportAssignmentType=false
"""Whole columns of records, from the buffers in which Arrow holds them straight into record batches.

No Python object is made per row: a value is a place and a size in its column's buffer. `append_rows` groups the rows by
partition, hashing the key column where keys decide, and then fills the partitions' open batches with runs of rows, one
lock acquisition a batch. What is told of their fate is told per run (`batch_cy.Run`).

The layout of a record stands in `network/records/builder_cy.py` too, where records come one by one from Python's bytes;
a test holds both against each other, byte for byte.

Source: Arrow's columnar format; Kafka's DefaultRecord.
"""

from __future__ import annotations

from array import array
from typing import Any

from ..network import _cython as cython

if cython.compiled:  # read by Cython only: see network/_cython.py
    import cython  # pyright: ignore[reportMissingImports]

if cython.compiled:
    from cython.cimports.headrace.network.records.builder_cy import RecordBatchBuilder  # type: ignore
    from cython.cimports.headrace.producer.batch_cy import ProducerBatch, Run  # type: ignore
    from cython.cimports.headrace.producer.murmur2_cy import murmur2_at  # type: ignore
    from cython.cimports.headrace.producer.queues_cy import PartitionQueue, TopicQueues  # type: ignore
    from cython.cimports.libc.string import memcpy  # type: ignore
else:
    from ..network.records.builder_cy import RecordBatchBuilder
    from .batch_cy import ProducerBatch, Run
    from .murmur2_cy import murmur2_at
    from .queues_cy import PartitionQueue, TopicQueues

# What a record takes beside its key, value and headers in a batch of its own, at most (builder_cy.encoded_size).
SINGLE_RECORD_OVERHEAD = 61 + 21 + 10

# A batch with less room than this is done: no record is shorter than a third of it.
LEAST_ROOM = 32


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _size_of_varint(value: cython.longlong) -> cython.Py_ssize_t:
    rest: cython.ulonglong = cython.cast(cython.ulonglong, (value << 1) ^ (value >> 63))
    size: cython.Py_ssize_t = 1
    while rest >= 0x80:
        rest >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_varint(
    view: cython.uchar[::1],  # pyright: ignore
    position: cython.Py_ssize_t,
    value: cython.longlong,
) -> cython.Py_ssize_t:
    rest: cython.ulonglong = cython.cast(cython.ulonglong, (value << 1) ^ (value >> 63))
    while rest >= 0x80:
        view[position] = (rest & 0x7F) | 0x80
        rest >>= 7
        position += 1
    view[position] = rest
    return position + 1


@cython.final
@cython.cclass
class BytesColumn:
    """A column of bytes, null or not, each value by its place in one buffer. Immutable; reads the buffers given."""

    if not cython.compiled:
        # for type checkers; columns_cy.pxd has the C types
        data: Any
        starts: Any
        sizes: Any
        offsets32: Any
        offsets64: Any
        validity: Any

    def __init__(
        self,
        data: Any,
        offsets: Any,
        offset_bytes: int,
        width: int,
        validity: Any,
        first: int,
        length: int,
    ) -> None:
        """From the buffers of an Arrow array that begins at value `first` of theirs.

        `offset_bytes`: 4 or 8, the size of an offset in `offsets`; 0 where each value has `width` bytes, or where
        (`width` is -1) all are null. `validity` is Arrow's bitmap, or None where no value is null.
        """
        self.length = length
        self.total_bytes = 0
        self.data = memoryview(data).cast("B")
        self.starts = array("q", bytes(8 * length))
        self.sizes = array("q", bytes(8 * length))
        self.offsets32 = memoryview(offsets).cast("B").cast("i") if offset_bytes == 4 else None
        self.offsets64 = memoryview(offsets).cast("B").cast("q") if offset_bytes == 8 else None
        self.validity = memoryview(validity).cast("B") if validity is not None else None
        self._locate(offset_bytes, width, validity is not None, first)

    @cython.cfunc
    def _locate(
        self, offset_bytes: cython.Py_ssize_t, width: cython.Py_ssize_t, nulls: cython.bint, first: cython.Py_ssize_t
    ) -> object:
        starts = self.starts
        sizes = self.sizes
        row: cython.Py_ssize_t
        place: cython.Py_ssize_t
        total: cython.longlong = 0
        if offset_bytes == 4:
            offsets32 = self.offsets32
            for row in range(self.length):
                place = first + row
                starts[row] = offsets32[place]
                sizes[row] = offsets32[place + 1] - offsets32[place]
        elif offset_bytes == 8:
            offsets64 = self.offsets64
            for row in range(self.length):
                place = first + row
                starts[row] = offsets64[place]
                sizes[row] = offsets64[place + 1] - offsets64[place]
        else:
            for row in range(self.length):
                starts[row] = (first + row) * width
                sizes[row] = width
        if nulls:
            validity = self.validity
            for row in range(self.length):
                place = first + row
                if not (validity[place >> 3] >> (place & 7)) & 1:
                    sizes[row] = -1
        for row in range(self.length):
            if sizes[row] > 0:
                total += sizes[row]
        self.total_bytes = total
        return None

    def first_null(self) -> int:
        """The first row that is null; -1 where none is."""
        row: cython.Py_ssize_t
        sizes = self.sizes
        for row in range(self.length):
            if sizes[row] < 0:
                return row
        return -1


def column_of(values: Any) -> BytesColumn:
    """A column of a sequence of Python's bytes and None. Raises TypeError for anything else."""
    rows: cython.Py_ssize_t = len(values)
    offsets = array("q", bytes(8 * (rows + 1)))
    bounds: cython.longlong[::1] = offsets  # pyright: ignore
    bitmap = bytearray((rows + 7) // 8)
    bits: cython.uchar[::1] = bitmap  # pyright: ignore
    row: cython.Py_ssize_t
    total: cython.longlong = 0
    nulls: cython.Py_ssize_t = 0
    for row, value in enumerate(values):
        if value is None:
            nulls += 1
        else:
            total += len(value)
            bits[row >> 3] |= 1 << (row & 7)
        bounds[row + 1] = total
    data = b"".join(values if not nulls else [value for value in values if value is not None])
    return BytesColumn(data, offsets, 8, 0, bitmap if nulls else None, 0, rows)


def encode_header_lists(offsets: Any, validity: Any, first: int, keys: BytesColumn, values: BytesColumn) -> BytesColumn:
    """The header lists of all rows, each encoded as a record holds it.

    `offsets` (64 bits, one more than rows) say which `keys` and `values` are a row's; `validity` is the bitmap of the
    lists, beginning at bit `first`, or None. A row without headers becomes a null.
    """
    rows: cython.Py_ssize_t = len(offsets) - 1
    sizes: cython.longlong[::1] = array("q", bytes(8 * (rows + 1)))  # pyright: ignore
    bitmap: cython.uchar[::1] = bytearray((rows + 7) // 8)  # pyright: ignore
    bounds: cython.longlong[::1] = array("q", offsets)  # pyright: ignore
    key_starts = keys.starts
    key_sizes = keys.sizes
    value_starts = values.starts
    value_sizes = values.sizes
    row: cython.Py_ssize_t
    item: cython.Py_ssize_t
    place: cython.Py_ssize_t
    total: cython.longlong = 0
    for row in range(rows):
        sizes[row] = total
        place = first + row
        if bounds[row + 1] == bounds[row] or (
            validity is not None and not (cython.cast(cython.Py_ssize_t, validity[place >> 3]) >> (place & 7)) & 1
        ):
            continue
        bitmap[row >> 3] |= 1 << (row & 7)
        total += _size_of_varint(bounds[row + 1] - bounds[row])
        for item in range(bounds[row], bounds[row + 1]):
            total += _size_of_varint(key_sizes[item]) + key_sizes[item] + _size_of_varint(value_sizes[item])
            if value_sizes[item] > 0:
                total += value_sizes[item]
    sizes[rows] = total
    encoded = bytearray(total)
    view: cython.uchar[::1] = encoded  # pyright: ignore
    place = 0
    for row in range(rows):
        if not bitmap[row >> 3] & (1 << (row & 7)):
            continue
        place = _put_varint(view, place, bounds[row + 1] - bounds[row])
        for item in range(bounds[row], bounds[row + 1]):
            place = _put_varint(view, place, key_sizes[item])
            place = _put(view, place, keys, key_starts[item], key_sizes[item])
            place = _put_varint(view, place, value_sizes[item])
            if value_sizes[item] > 0:
                place = _put(view, place, values, value_starts[item], value_sizes[item])
    return BytesColumn(encoded, sizes, 8, 0, bitmap, 0, rows)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put(
    view: cython.uchar[::1],  # pyright: ignore
    position: cython.Py_ssize_t,
    column: BytesColumn,
    start: cython.longlong,
    size: cython.longlong,
) -> cython.Py_ssize_t:
    if size > 0:
        if cython.compiled:
            memcpy(cython.address(view[position]), cython.address(column.data[start]), size)  # pyright: ignore
        else:
            view[position : position + size] = column.data[start : start + size]
    return position + size


@cython.final
@cython.cclass
class Columns:
    """The columns of the records to send, of the same length. `timestamps` and `partitions` hold -1 for a null; without
    a timestamp a record takes `now_ms`."""

    if not cython.compiled:
        key: BytesColumn | None
        value: BytesColumn
        headers: BytesColumn | None
        timestamps: Any
        partitions: Any

    def __init__(
        self,
        value: BytesColumn,
        key: BytesColumn | None,
        headers: BytesColumn | None,
        timestamps: Any,
        partitions: Any,
        now_ms: int,
    ) -> None:
        self.length = value.length
        self.value = value
        self.key = key
        self.headers = headers
        self.has_timestamps = timestamps is not None
        self.timestamps = timestamps
        self.has_partitions = partitions is not None
        self.partitions = partitions
        self.now_ms = now_ms
        self.total_bytes = value.total_bytes
        if key is not None:
            self.total_bytes += key.total_bytes
        if headers is not None:
            self.total_bytes += headers.total_bytes

    @cython.cfunc
    @cython.exceptval(check=False)
    def size_bound(self, row: cython.longlong) -> cython.longlong:
        """Bytes of a batch that holds just this row, at most."""
        size: cython.longlong = SINGLE_RECORD_OVERHEAD
        if self.value.sizes[row] > 0:
            size += self.value.sizes[row]
        if self.key is not None and self.key.sizes[row] > 0:
            size += self.key.sizes[row]
        if self.headers is not None and self.headers.sizes[row] > 0:
            size += self.headers.sizes[row]
        return size

    def record_bytes(self, row: int) -> int:
        """`size_bound`, for messages."""
        return self.size_bound(row)

    def first_above(self, max_bytes: int) -> int:
        """The first row whose record may be larger than `max_bytes`; -1 where none is."""
        row: cython.longlong
        limit: cython.longlong = max_bytes
        for row in range(self.length):
            if self.size_bound(row) > limit:
                return row
        return -1

    def last_partition(self) -> int:
        """The highest partition that a row names; -1 where none does."""
        row: cython.Py_ssize_t
        last: cython.longlong = -1
        if self.has_partitions:
            partitions = self.partitions
            for row in range(self.length):
                last = max(last, partitions[row])
        return last

    def partition_at(self, row: int) -> int:
        """The partition that a row names; -1 where it names none."""
        return self.partitions[row] if self.has_partitions else -1

    def first_partition_from(self, count: int, subset: Any) -> int:
        """The first row, of `subset` or (None) of all, that names a partition of `count` or above; -1 for none."""
        if self.last_partition() < count:
            return -1
        for row in range(self.length) if subset is None else subset:
            if self.partitions[row] >= count:
                return row
        return -1


def group(indices: Any, groups: int) -> tuple[array[int], array[int]]:
    """Rows by the group that `indices` give them, in their order: the row numbers, and where each group begins."""
    chosen: cython.longlong[::1] = indices  # pyright: ignore
    rows: cython.Py_ssize_t = len(indices)
    order_array = array("q", bytes(8 * rows))
    begins_array = array("q", bytes(8 * (groups + 2)))
    order: cython.longlong[::1] = order_array  # pyright: ignore
    begins: cython.longlong[::1] = begins_array  # pyright: ignore
    row: cython.Py_ssize_t
    place: cython.Py_ssize_t
    for row in range(rows):
        begins[chosen[row] + 2] += 1
    for place in range(2, groups + 2):
        begins[place] += begins[place - 1]
    # begins[g + 1] is where group g begins; each row moves it on, so that at the end it is where the group ends
    for row in range(rows):
        place = begins[chosen[row] + 1]
        order[place] = row
        begins[chosen[row] + 1] = place + 1
    return order_array, begins_array


@cython.final
@cython.cclass
class Rows:
    """Rows for one topic, grouped by partition: first those without one, then partition by partition, in row order."""

    if not cython.compiled:
        order: Any
        groups: Any

    def __init__(self, columns: Columns, subset: Any, partition_count: int, keys_choose: bool) -> None:
        """`subset`: the row numbers (64 bits) that go to this topic, None for all."""
        self.columns = columns
        self.partition_count = partition_count
        chosen_array = self._choose(subset, keys_choose)
        order_array, groups_array = group(chosen_array, partition_count + 1)
        if subset is not None:
            order_array = array("q", [subset[place] for place in order_array])
        self.order_array = order_array
        self.order = order_array
        self.groups = groups_array

    def _choose(self, subset: Any, keys_choose: bool) -> Any:
        """For each row the partition it names or its key decides on, plus 1; 0 where it is free."""
        columns: Columns = self.columns
        length: cython.Py_ssize_t = columns.length if subset is None else len(subset)
        chosen_array = array("q", bytes(8 * length))
        chosen: cython.longlong[::1] = chosen_array  # pyright: ignore
        by_key: cython.bint = keys_choose and columns.key is not None
        some: cython.bint = subset is not None
        rows: cython.longlong[::1] = subset if some else chosen_array  # pyright: ignore
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

    def append_to(self, accumulator: Any, topic_queues: TopicQueues, target: Any, max_block_ms: float) -> None:
        """Append every row, waiting for the memory of each batch at most `max_block_ms`.

        ``target.settle(batch, start, count, place)`` is called once for each run when its fate is known: `place` is
        that of its first row in `order_array`. Raises what `RecordAccumulator.reserve` raises, wrapped by nothing: the
        attribute `place` of `target` tells where it stood. Any thread but the sender's.
        """
        partition: cython.Py_ssize_t
        place: cython.Py_ssize_t
        end: cython.Py_ssize_t
        queue: PartitionQueue
        for partition in range(-1, self.partition_count):
            place = self.groups[partition + 1]
            end = self.groups[partition + 2]
            while place < end:
                queue = topic_queues.queues[partition] if partition >= 0 else topic_queues.sticky
                place = self._fill_open(queue, topic_queues, target, place, end)
                if place < end:
                    target.place = place
                    place = self._fill_new(accumulator, topic_queues, partition, target, place, end, max_block_ms)

    @cython.cfunc
    def _fill_open(
        self,
        queue: PartitionQueue,
        topic_queues: TopicQueues,
        target: object,
        place: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Into the open batch of a queue, as far as there is one and it has room; returns how far."""
        # made before the lock is taken: nothing is allocated under it
        run: Run = Run(target)
        before: cython.Py_ssize_t = 0
        batch: ProducerBatch
        stop: cython.Py_ssize_t = place
        with queue.lock:
            batch = queue.open
            if batch is not None:
                before = batch.builder.position
                stop = self._fill(batch, run, place, end)
                topic_queues.sticky_bytes += (batch.builder.position - before) if queue is topic_queues.sticky else 0
                if stop < end:
                    batch.closed = True
                    queue.open = None
        return stop

    @cython.cfunc
    def _fill_new(
        self,
        accumulator: object,
        topic_queues: TopicQueues,
        partition: cython.Py_ssize_t,
        target: object,
        place: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        max_block_ms: object,
    ) -> cython.Py_ssize_t:
        """Into a new batch, or into one that another thread opened meanwhile; returns how far."""
        queue: PartitionQueue
        batch: ProducerBatch
        other: ProducerBatch
        run: Run = Run(target)
        adopted: cython.bint = False
        stop: cython.Py_ssize_t = place
        queue, batch = accumulator.reserve(  # type: ignore[attr-defined]
            topic_queues, partition, self.columns.size_bound(self.order[place]), max_block_ms
        )
        try:
            with queue.lock:
                other = queue.open
                if other is not None:
                    stop = self._fill(other, run, place, end)
                    if stop < end:
                        other.closed = True
                        queue.open = None
                else:
                    accumulator.adopt(queue, batch)  # type: ignore[attr-defined]
                    adopted = True
                    stop = self._fill(batch, run, place, end)
                    if batch.builder.capacity - batch.builder.position < LEAST_ROOM:
                        # it need not linger
                        batch.closed = True
                        queue.open = None
                    if partition < 0:
                        topic_queues.sticky_bytes += batch.builder.position
        finally:
            if not adopted:
                accumulator.release(batch)  # type: ignore[attr-defined]
        accumulator.wakeup()  # type: ignore[attr-defined]
        return stop

    @cython.cfunc
    def _fill(
        self, batch: ProducerBatch, run: Run, place: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Encode rows into a batch as far as they fit; returns how far. Holds the queue's lock."""
        begin: cython.Py_ssize_t = place
        builder: RecordBatchBuilder = batch.builder
        first_index: cython.Py_ssize_t = builder.count
        place = _encode(self.columns, self, builder, batch, place, end)
        if place > begin:
            run.start = first_index
            run.count = place - begin
            run.place = begin
            run.next = batch.runs
            batch.runs = run
        return place


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _murmur2(column: BytesColumn, start: cython.longlong, size: cython.longlong) -> cython.uint:
    if cython.compiled:
        if size == 0:
            return murmur2_at(b"", 0)
        return murmur2_at(cython.address(column.data[start]), size)
    return murmur2_at(column.data[start : start + size], size)


@cython.cfunc
def _encode(
    columns: Columns,
    rows: Rows,
    builder: RecordBatchBuilder,
    batch: ProducerBatch,
    place: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Encode the rows ``order[place:end]`` at the end of a batch, as far as they fit; returns how far."""
    order = rows.order
    view = builder.view
    position: cython.Py_ssize_t = builder.position
    capacity: cython.Py_ssize_t = builder.capacity
    count: cython.Py_ssize_t = builder.count
    base: cython.longlong = builder.base_timestamp
    latest: cython.longlong = builder.max_timestamp
    largest: cython.Py_ssize_t = batch.max_record_bytes
    value: BytesColumn = columns.value
    key: BytesColumn = columns.key if columns.key is not None else value
    headers: BytesColumn = columns.headers if columns.headers is not None else value
    has_key: cython.bint = columns.key is not None
    has_headers: cython.bint = columns.headers is not None
    has_timestamps: cython.bint = columns.has_timestamps
    row: cython.longlong
    timestamp: cython.longlong = columns.now_ms
    delta: cython.longlong
    key_size: cython.longlong
    value_size: cython.longlong
    headers_size: cython.longlong
    body: cython.Py_ssize_t
    size: cython.Py_ssize_t
    while place < end:
        row = order[place]
        if has_timestamps:
            timestamp = columns.timestamps[row]
            if timestamp < 0:
                timestamp = columns.now_ms
        if count == 0:
            base = timestamp
            latest = timestamp
        delta = timestamp - base
        key_size = key.sizes[row] if has_key else -1
        value_size = value.sizes[row]
        headers_size = headers.sizes[row] if has_headers else -1
        body = (
            1
            + _size_of_varint(delta)
            + _size_of_varint(count)
            + _size_of_varint(key_size)
            + _size_of_varint(value_size)
            + (key_size if key_size > 0 else 0)
            + (value_size if value_size > 0 else 0)
            + (headers_size if headers_size > 0 else 1)
        )
        size = _size_of_varint(body) + body
        if position + size > capacity:
            break
        position = _put_varint(view, position, body)
        view[position] = 0  # record attributes: none are defined
        position = _put_varint(view, position + 1, delta)
        position = _put_varint(view, position, count)
        position = _put_varint(view, position, key_size)
        if key_size > 0:
            position = _put(view, position, key, key.starts[row], key_size)
        position = _put_varint(view, position, value_size)
        if value_size > 0:
            position = _put(view, position, value, value.starts[row], value_size)
        if headers_size > 0:
            position = _put(view, position, headers, headers.starts[row], headers_size)
        else:
            view[position] = 0
            position += 1
        latest = max(latest, timestamp)
        largest = max(largest, size)
        count += 1
        place += 1
    builder.position = position
    builder.count = count
    builder.base_timestamp = base
    builder.max_timestamp = latest
    batch.max_record_bytes = largest
    return place
